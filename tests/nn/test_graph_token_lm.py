"""Soft tokens, what is hidden, what is reconstructed, and that one graph does not see another."""

import copy
import json
import math
from pathlib import Path

import pytest
import torch
from peft import LoraConfig
from torch import Tensor
from torch_geometric.data import Batch
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from pyg_textgraph.data import TaskPrompt, TextAttributedData, append_to_target, tokenize
from pyg_textgraph.nn import GraphTokenConfig, GraphTokenLM
from pyg_textgraph.nn.models.graph_token_lm.reconstruction import choose_masked, feature_loss, topology_loss
from pyg_textgraph.train import class_scores
from pyg_textgraph.train.checkpoint import load_trained, trained_parameters
from tests.nn.families import CONFIGS, tiny
from tests.nn.gtlm_graphs import single_node
from tests.nn.gtlm_graphs import text_graph as graph_of_texts

CHANNELS = 6
ANSWERS = [torch.tensor([7, 8, 2]), torch.tensor([9, 2]), torch.tensor([2])]
NAMES = [torch.tensor([5, 6, 2]), torch.tensor([7, 2]), torch.tensor([5, 9, 11, 2]), torch.tensor([2])]


def with_x(data: TextAttributedData, seed: int = 0) -> TextAttributedData:
    generator = torch.Generator().manual_seed(seed)
    data.x = torch.randn(int(data.num_nodes), CHANNELS, generator=generator)
    return data


def text_graph(num_nodes: int, seed: int) -> TextAttributedData:
    return with_x(graph_of_texts(num_nodes, seed), seed)


def graphs() -> list[TextAttributedData]:
    return [text_graph(6, 0), text_graph(3, 5), with_x(single_node(7)), text_graph(9, 2)]


def answered(seeds: tuple[int, ...] = (0, 1, 2)) -> list[TextAttributedData]:
    return [append_to_target(text_graph(4 + s, s), ANSWERS[s], len(ANSWERS[s])) for s in seeds]


def graph_tokens(base: PreTrainedModel, **kwargs: object) -> GraphTokenLM:
    """In evaluation mode, around a copy of a decoder; soft tokens as large as the families' embeddings."""
    torch.manual_seed(0)
    return GraphTokenLM(copy.deepcopy(base), channels=CHANNELS, **kwargs).eval()  # type: ignore[arg-type]


class TestReading:
    @pytest.mark.parametrize("family", sorted(CONFIGS))
    @torch.no_grad()
    def test_is_the_language_model_on_these_embeddings(self, family: str) -> None:
        """Every family's own attention, cut to one graph and without restarting positions, is the reference."""
        base, data = tiny(family), text_graph(5, 0)
        model = graph_tokens(base)
        target, ptr = int(data.target), data.token_ptr
        order = [v for v in range(5) if v != target] + [target]
        ids = data.input_ids[ptr[target] : ptr[target + 1]]
        inputs = torch.cat([model.graph_tokens(data.x[order]), base.get_input_embeddings()(ids)])
        expected = base(inputs_embeds=inputs[None]).logits[0, -1:]
        torch.testing.assert_close(model(data).logits, expected, atol=1e-4, rtol=1e-4)

    @pytest.mark.parametrize("family", ["llama", "gemma3", "qwen3"])
    @torch.no_grad()
    def test_a_batch_equals_its_graphs(self, family: str) -> None:
        model = graph_tokens(tiny(family))
        alone = torch.cat([model(data).logits for data in graphs()])
        assert alone.shape == (4, 101)
        torch.testing.assert_close(model(Batch.from_data_list(graphs())).logits, alone, atol=1e-4, rtol=1e-4)

    @torch.no_grad()
    def test_reads_vectors_of_all_nodes_and_texts_of_targets_only(self) -> None:
        model, data = graph_tokens(tiny("llama")), text_graph(6, 0)
        before = model(data).logits
        other = (int(data.target) + 1) % 6
        vector, text = copy.copy(data), copy.copy(data)
        vector.x = data.x.clone()
        vector.x[other] += 1
        assert float((model(vector).logits - before).abs().max()) > 1e-2
        text.input_ids = data.input_ids.clone()
        text.input_ids[data.token_ptr[other] : data.token_ptr[other + 1]] = 7
        assert torch.equal(model(text).logits, before)
        text.input_ids[data.token_ptr[int(data.target)]] = 7
        assert float((model(text).logits - before).abs().max()) > 1e-2

    def test_soft_tokens_are_as_large_as_words(self) -> None:
        model = graph_tokens(tiny("gemma3"))
        soft = model.graph_tokens(torch.randn(50, CHANNELS))
        words = model.base_model.get_input_embeddings()(torch.arange(101))
        assert float((soft.square().mean() / words.square().mean()).sqrt().detach()) == pytest.approx(1, abs=1e-3)

    def test_loss_of_the_answer_is_the_mean_over_supervised_tokens(self) -> None:
        model = graph_tokens(tiny("llama"))
        out = model(Batch.from_data_list(answered()))
        assert out.labels.tolist() == [7, 8, 2, 9, 2, 2]
        assert out.logits.shape == (6, 101)
        alone = [model(data).loss * len(answer) for data, answer in zip(answered(), ANSWERS, strict=True)]
        torch.testing.assert_close(out.loss, sum(alone) / 6)
        assert torch.equal(out.loss, out.answer_loss)
        assert out.feature_loss is None
        assert out.topology_loss is None

    def test_first_token_of_a_target_can_be_supervised(self) -> None:
        data = with_x(single_node(2))
        data.input_ids = data.labels = torch.tensor([5, 2])
        assert graph_tokens(tiny("llama"))(data).labels.tolist() == [5, 2]


class TestTraining:
    @pytest.mark.parametrize("family", ["llama", "qwen3"])
    def test_gradients_reach_projector_heads_and_adapters_only(self, family: str) -> None:
        model = graph_tokens(tiny(family), lora=LoraConfig(r=2)).train()
        model(Batch.from_data_list(answered())).loss.backward()
        for name, parameter in model.named_parameters():
            trained = "lora_" in name or name.startswith("graph_tokens")
            assert (parameter.grad is not None) == trained, name
        for name, parameter in model.graph_tokens.named_parameters():
            assert float(parameter.grad.abs().max()) > 0, name

    def test_the_answer_alone_reaches_the_projector(self) -> None:
        model = graph_tokens(tiny("llama"), feature_weight=0.0, topology_weight=0.0).train()
        out = model(Batch.from_data_list(answered()))
        out.loss.backward()
        assert float(model.graph_tokens.projector[0].weight.grad.abs().max()) > 0
        assert model.graph_tokens.feature_head.weight.grad is None
        assert out.feature_loss is None

    def test_losses_are_those_of_the_last_hidden_states(self) -> None:
        """All parts by hand, the language model called apart."""
        base = tiny("llama")
        model, [data] = graph_tokens(base).train(), answered((1,))
        torch.manual_seed(5)
        out = model(data)
        torch.manual_seed(5)
        masked = choose_masked(torch.tensor([5]), 0.4)
        assert int(masked.sum()) == 2
        tokens, target, ptr = model.graph_tokens, int(data.target), data.token_ptr
        order = torch.tensor([v for v in range(5) if v != target] + [target])
        x = data.x.clone()
        x[masked] = tokens.hidden_vector
        words = base.get_input_embeddings()(data.input_ids[ptr[target] : ptr[target + 1]])
        inputs = torch.cat([tokens.projector(x[order]), words])
        hidden = base.model(inputs_embeds=inputs[None]).last_hidden_state[0]
        state = hidden[:5][order.argsort()]
        shown = torch.nn.functional.cosine_similarity(tokens.feature_head(state[masked]), data.x[masked])
        torch.testing.assert_close(out.feature_loss, (1 - shown).mean(), atol=1e-5, rtol=1e-4)
        edges = {(u, v) for u, v in data.edge_index.T.tolist() if u != v}
        score = tokens.source(state) @ tokens.sink(state).T / math.sqrt(64)
        yes, no = [], []
        for u in range(5):
            for v in range(5):
                if (u, v) in edges:
                    yes.append(-score[u, v].sigmoid().log())
                elif u != v:
                    no.append(-(1 - score[u, v].sigmoid()).log())
        expected = torch.stack(yes).mean() / 2 + torch.stack(no).mean() / 2
        torch.testing.assert_close(out.topology_loss, expected, atol=1e-5, rtol=1e-4)
        answer = torch.nn.functional.cross_entropy(base.lm_head(hidden[-3:-1]), ANSWERS[1])
        torch.testing.assert_close(out.answer_loss, answer, atol=1e-5, rtol=1e-4)
        torch.testing.assert_close(out.loss, answer + 4.0 * out.feature_loss + 0.6 * out.topology_loss)

    def test_without_answers_only_the_graph_is_learnt(self) -> None:
        model = graph_tokens(tiny("llama")).train()
        out = model(text_graph(5, 0))
        assert out.answer_loss is None
        torch.testing.assert_close(out.loss, 4.0 * out.feature_loss + 0.6 * out.topology_loss)
        assert model.eval()(text_graph(5, 0)).loss is None

    def test_learns_to_tell_graphs_apart_by_their_vectors(self) -> None:
        """Same text and edges: only the neighbours' vectors tell which answer is right."""
        graph = text_graph(4, 0)
        other = [v for v in range(4) if v != int(graph.target)]
        both = []
        for sign, answer in ((1.0, 7), (-1.0, 9)):
            data = copy.copy(graph)
            data.x = data.x.clone()
            data.x[other] = sign * torch.ones(3, CHANNELS)
            both.append(append_to_target(data, torch.tensor([answer, 2]), 2))
        model = graph_tokens(tiny("llama"), lora=LoraConfig(r=4)).train()
        optimizer = torch.optim.AdamW(model.param_groups(lr=1e-2, projector_lr=1e-2))
        torch.manual_seed(0)
        for _ in range(30):
            optimizer.zero_grad()
            model(Batch.from_data_list(both)).loss.backward()
            optimizer.step()
        scores = model.classify(Batch.from_data_list(both), [torch.tensor([7, 2]), torch.tensor([9, 2])])
        assert scores.argmax(-1).tolist() == [0, 1]

    def test_half_precision_trains(self) -> None:
        model = GraphTokenLM(tiny("llama").to(torch.bfloat16), lora=LoraConfig(r=2), channels=CHANNELS).train()
        out = model(Batch.from_data_list(answered()))
        out.loss.backward()
        assert out.logits.dtype == torch.bfloat16
        for name, parameter in model.named_parameters():
            if parameter.requires_grad:
                assert parameter.dtype == torch.float32, name
                assert bool(parameter.grad.isfinite().all()), name

    def test_checkpointing_gives_the_same_gradients(self) -> None:
        grads = []
        for checkpointing in (False, True):
            model = graph_tokens(tiny("llama"), lora=LoraConfig(r=2)).train()
            if checkpointing:
                model.gradient_checkpointing_enable()
            torch.manual_seed(3)
            model(Batch.from_data_list(answered())).loss.backward()
            grads.append({name: p.grad for name, p in model.named_parameters() if p.grad is not None})
        torch.testing.assert_close(grads[1], grads[0], atol=1e-5, rtol=1e-3)

    def test_parameter_groups_hold_everything_that_trains_once(self) -> None:
        model = graph_tokens(tiny("llama"), lora=LoraConfig(r=2))
        adapters, own = model.param_groups(lr=3e-4)
        assert (adapters["lr"], adapters["weight_decay"]) == (3e-4, 0.1)
        assert (own["name"], own["lr"], own["weight_decay"]) == ("graph_tokens", 2e-3, 0.0)
        trained = [id(p) for p in model.parameters() if p.requires_grad]
        assert sorted(id(p) for group in (adapters, own) for p in group["params"]) == sorted(trained)


class TestMasks:
    def test_share_is_exact_in_every_graph(self) -> None:
        size = torch.tensor([1, 2, 3, 5, 10, 16])
        for seed in range(5):
            torch.manual_seed(seed)
            masked = choose_masked(size, 0.4)
            assert [int(part.sum()) for part in masked.split(size.tolist())] == [0, 1, 1, 2, 4, 6]
        assert not bool(choose_masked(size, 0.0).any())
        assert bool(choose_masked(size, 1.0).all())
        assert choose_masked(size[:0], 0.4).shape == (0,)

    def test_every_node_is_as_likely(self) -> None:
        torch.manual_seed(0)
        drawn = torch.stack([choose_masked(torch.tensor([5, 3]), 0.4) for _ in range(3000)]).float().mean(0)
        torch.testing.assert_close(drawn, torch.tensor([0.4] * 5 + [1 / 3] * 3), atol=0.04, rtol=0)

    def test_hidden_vectors_are_hidden(self) -> None:
        model, data = graph_tokens(tiny("llama"), mask_ratio=1.0).train(), text_graph(5, 0)
        other = copy.copy(data)
        other.x = torch.randn(5, CHANNELS)
        assert torch.equal(model(data).logits, model(other).logits)
        model.eval()
        assert not torch.equal(model(data).logits, model(other).logits)


class TestLossesByHand:
    def test_features(self) -> None:
        predicted = torch.tensor([[2.0, 0.0], [0.0, 3.0], [1.0, 1.0]])
        x = torch.tensor([[5.0, 0.0], [1.0, 0.0], [-1.0, -1.0]])
        assert float(feature_loss(predicted, x)) == pytest.approx((0 + 1 + 2) / 3)
        assert float(feature_loss(predicted[:0], x[:0])) == 0

    def test_topology(self) -> None:
        # scores 4·s·t/2: node 0 -> 1 is an edge of score 2, all other pairs score 0; then a graph of one node
        source = torch.tensor([[1.0] * 4, [0.0] * 4, [1.0] * 4])
        sink = torch.tensor([[0.0] * 4, [1.0] * 4, [1.0] * 4])
        size, edges = torch.tensor([2, 1]), torch.tensor([[0, 0, 1], [1, 1, 1]])  # twice, and a loop that is no pair
        expected = 0.5 * math.log(1 + math.exp(-2)) + 0.5 * math.log(2)
        assert float(topology_loss(source, sink, edges, size)) == pytest.approx(expected)
        reverse = topology_loss(source, sink, edges.flip(0), size)
        assert float(reverse) == pytest.approx(0.5 * math.log(2) + 0.5 * math.log(1 + math.exp(2)))
        none = topology_loss(source, sink, edges[:, :0], size)
        assert float(none) == pytest.approx((math.log(2) + math.log(1 + math.exp(2))) / 2)
        assert float(topology_loss(source[:1], sink[:1], edges[:, :0], torch.tensor([1]))) == 0


@torch.no_grad()
def one_by_one(model: GraphTokenLM, data: TextAttributedData, name: Tensor) -> Tensor:
    return -model(append_to_target(data, name, len(name))).loss * len(name)


class TestAnswers:
    @pytest.mark.parametrize("family", ["llama", "qwen3", "gemma3"])
    def test_class_scores_are_log_probabilities_of_names(self, family: str) -> None:
        model, batch = graph_tokens(tiny(family)), Batch.from_data_list(graphs())
        expected = torch.stack([torch.stack([one_by_one(model, data, name) for name in NAMES]) for data in graphs()])
        torch.testing.assert_close(model.classify(batch, NAMES), expected, atol=1e-4, rtol=1e-4)
        torch.testing.assert_close(model.classify(batch, NAMES, chunk=3), expected, atol=1e-4, rtol=1e-4)

    @pytest.mark.parametrize("family", ["llama", "qwen3", "gemma3"])
    def test_cache_changes_no_token(self, family: str) -> None:
        model, batch = graph_tokens(tiny(family)), Batch.from_data_list(graphs())
        with_cache = model.generate(batch, 8, return_ids=True)
        without = model.generate(batch, 8, use_cache=False, return_ids=True)
        assert [x.tolist() for x in with_cache] == [x.tolist() for x in without]
        assert max(len(x) for x in with_cache) == 8

    def test_answers_in_the_data_are_not_looked_at(self) -> None:
        model = graph_tokens(tiny("llama")).train()
        bare = [text_graph(4 + s, s) for s in range(3)]
        first, second = Batch.from_data_list(bare), Batch.from_data_list(answered())
        assert torch.equal(model.classify(first, NAMES), model.classify(second, NAMES))
        a, b = (model.generate(x, 4, return_ids=True) for x in (first, second))
        assert [x.tolist() for x in a] == [x.tolist() for x in b]
        assert model.training

    def test_texts_and_names(self, tokenizer: PreTrainedTokenizerFast) -> None:
        model = graph_tokens(tiny("llama", vocab_size=400), tokenizer=tokenizer)
        prompt = TaskPrompt(tokenizer, "Which?", ["motion", "weather"])
        data = TextAttributedData(text=["run", "rain"], edge_index=torch.tensor([[0], [1]]), target=0)
        asked = prompt.append(tokenize(with_x(data), tokenizer), answer=1)
        scores = class_scores(model, [asked, asked], prompt.answers)  # type: ignore[arg-type]
        torch.testing.assert_close(scores[:1], model.classify(asked, prompt.answer_ids))
        [text] = model.generate(asked, 5)
        [ids] = model.generate(asked, 5, return_ids=True)
        assert text == tokenizer.decode(ids)


class TestFiles:
    @pytest.fixture
    def base(self, tmp_path: Path, tokenizer: PreTrainedTokenizerFast) -> str:
        tiny("qwen3", vocab_size=400).save_pretrained(tmp_path / "base")
        tokenizer.save_pretrained(tmp_path / "base")
        return str(tmp_path / "base")

    def trained(self, base: str) -> GraphTokenLM:
        model = GraphTokenLM.from_pretrained(base, lora=LoraConfig(r=2), channels=CHANNELS, mask_ratio=0.5)
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                torch.nn.init.normal_(parameter, std=0.1)
        return model.eval()

    def test_comes_back_with_equal_logits(self, base: str, tmp_path: Path) -> None:
        model, data = self.trained(base), text_graph(6, 0)
        model.save_pretrained(tmp_path / "run")
        loaded = GraphTokenLM.from_pretrained(tmp_path / "run").eval()
        with torch.no_grad():
            assert torch.equal(loaded(data).logits, model(data).logits)
        assert loaded.config == model.config == GraphTokenConfig(channels=CHANNELS, mask_ratio=0.5)
        assert json.loads((tmp_path / "run" / "graph_token_lm.json").read_text())["base"]["name"] == base
        assert not (tmp_path / "run" / "base").exists()
        with pytest.raises(ValueError, match="is a saved GraphTokenLM with a configuration"):
            GraphTokenLM.from_pretrained(tmp_path / "run", channels=3)

    def test_a_broken_save_is_not_loaded(self, base: str, tmp_path: Path) -> None:
        self.trained(base).save_pretrained(tmp_path / "run")
        told = json.loads((tmp_path / "run" / "graph_token_lm.json").read_text())
        told["graph_token_lm"]["channels"] = 7
        (tmp_path / "run" / "graph_token_lm.json").write_text(json.dumps(told))
        with pytest.raises(ValueError, match=r"graph_tokens.safetensors holds .* of shape .*, expected"):
            GraphTokenLM.from_pretrained(tmp_path / "run")

    def test_checkpoints_hold_all_that_trains(self) -> None:
        base, batch = tiny("llama"), Batch.from_data_list(answered())
        first, second = (graph_tokens(base, lora=LoraConfig(r=2)) for _ in range(2))
        with torch.no_grad():
            for parameter in trained_parameters(first).values():
                parameter.normal_(std=0.2)
            assert not torch.equal(first(batch).logits, second(batch).logits)
            load_trained(second, {name: p.clone() for name, p in trained_parameters(first).items()})
            assert torch.equal(first(batch).logits, second(batch).logits)


class TestBadInput:
    def test_vectors(self) -> None:
        model, data = graph_tokens(tiny("llama")), text_graph(4, 0)
        data.x = torch.randn(4, 5)
        with pytest.raises(ValueError, match=r"GraphTokenLM: 'x' is of shape \(4, 5\), expected \(4, 6\)"):
            model(data)
        del data.x
        with pytest.raises(ValueError, match=r"no 'x', expected one vector per node; set data.x = embed_texts"):
            model(data)

    def test_targets(self) -> None:
        model, data = graph_tokens(tiny("llama")), text_graph(4, 0)
        empty = copy.copy(data)
        empty.num_tokens = torch.zeros(4, dtype=torch.long)
        empty.input_ids = data.input_ids[:0]
        with pytest.raises(ValueError, match="every graph needs a 'target' with tokens"):
            model(Batch.from_data_list([data, empty]))
        del data.target
        with pytest.raises(ValueError, match="every graph needs a 'target'"):
            model(data)

    def test_tokens_and_positions(self) -> None:
        model, data = graph_tokens(tiny("llama")), text_graph(4, 0)
        data.input_ids[data.token_ptr[int(data.target)]] = 101
        with pytest.raises(ValueError, match="GraphTokenLM: 'input_ids' holds 101"):
            model(data)
        with pytest.raises(ValueError, match="a graph has 65 tokens, the language model reads 64 at most"):
            model(with_x(single_node(64)))
        data.edge_index = torch.tensor([[0], [5]])
        with pytest.raises(ValueError, match="'edge_index' holds node 5 but the graph has 4 nodes"):
            model(data)

    def test_configuration(self) -> None:
        with pytest.raises(ValueError, match=r"'mask_ratio' is 1\.5"):
            GraphTokenConfig(mask_ratio=1.5)
        with pytest.raises(ValueError, match="'channels' is 0"):
            GraphTokenConfig(channels=0)
        with pytest.raises(ValueError, match="'topology_weight' is -1"):
            GraphTokenConfig(topology_weight=-1)

    def test_adapters_twice_and_attention_that_cannot_be_taken_over(self) -> None:
        model = graph_tokens(tiny("llama"), lora=LoraConfig(r=2))
        with pytest.raises(ValueError, match="GraphTokenLM: 'base_model' already has adapters"):
            GraphTokenLM(model.base_model, lora=LoraConfig(r=2))
        with pytest.raises(ValueError, match=r"GraphTokenLM: Llama.* attention_dropout is 0\.1"):
            GraphTokenLM(tiny("llama", attention_dropout=0.1))

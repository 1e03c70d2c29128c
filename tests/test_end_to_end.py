"""What the README shows, with a tiny model: from a big graph of texts to answers."""

from pathlib import Path

import pytest
import torch
import torch_geometric.transforms as T
from peft import LoraConfig
from torch.utils.data import Subset
from torch_geometric.data import Batch, Data
from torch_geometric.loader import DataLoader, NodeLoader
from transformers import PreTrainedTokenizerFast, Trainer, TrainingArguments

from pyg_textgraph.data import TaskPrompt, TextAttributedData, add_question_node
from pyg_textgraph.datasets import WordNetVerbs
from pyg_textgraph.nn import GTLM
from pyg_textgraph.transforms import (
    AddMagneticLaplacian,
    AddRRWP,
    AddSPD,
    EgoTextSampler,
    IncidenceGraph,
    TokenizeText,
)
from tests.nn.families import tiny

FEATURES = T.Compose([AddSPD(8), AddRRWP(16), AddMagneticLaplacian(q=0.25)])
LORA = LoraConfig(r=2, lora_alpha=4)


@pytest.fixture(scope="module")
def verbs() -> TextAttributedData:
    return WordNetVerbs()[0]


@pytest.fixture
def model(tokenizer: PreTrainedTokenizerFast) -> GTLM:
    torch.manual_seed(0)
    return GTLM(tiny("llama", vocab_size=400, max_position_embeddings=256), tokenizer, LORA)


@pytest.mark.parametrize("workers", [0, 2])
def test_node_classification(verbs: TextAttributedData, model: GTLM, tmp_path: Path, workers: int) -> None:
    sampler = EgoTextSampler(num_neighbors=6, num_hops=2)
    egos = sampler.dataset(
        verbs,
        verbs.train_mask,
        tokenizer=model.tokenizer,
        question="Which class is this verb?",
        max_target_tokens=40,
        max_neighbor_tokens=8,
        transform=FEATURES,
    )
    torch.manual_seed(0)
    loader = DataLoader(egos, batch_size=4, shuffle=True, num_workers=workers)
    optimizer = torch.optim.AdamW(model.param_groups(lr=1e-2, bias_lr=1e-2))
    batch = next(iter(loader))
    losses = []
    for _ in range(6):
        loss = model(batch).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] - 1
    scores = model.classify(batch, verbs.class_names)
    assert scores.shape == (4, 15)
    assert len(model.generate(batch, max_new_tokens=8)) == 4


def test_the_same_through_a_node_loader(verbs: TextAttributedData, model: GTLM) -> None:
    seeds = verbs.train_mask.nonzero().view(-1)[:6]
    egos = EgoTextSampler(num_neighbors=6, num_hops=2).dataset(
        verbs, seeds, tokenizer=model.tokenizer, question="Which?", max_target_tokens=40, transform=FEATURES
    )
    loader = NodeLoader(verbs, egos.sampler, input_nodes=seeds, batch_size=3, transform=egos.to_graphs)
    model.eval()
    for start, batch in zip((0, 3), loader, strict=True):
        assert batch.y.tolist() == verbs.y[seeds[start : start + 3]].tolist()
        expected = Batch.from_data_list([egos[i] for i in range(start, start + 3)])
        with torch.no_grad():
            torch.testing.assert_close(model(batch).loss, model(expected).loss)


def test_a_question_about_a_small_graph_with_relations(model: GTLM) -> None:
    family = Data(
        text=["Ann", "Bob", "Cid"],
        edge_index=torch.tensor([[0, 1, 0], [1, 0, 2]]),
        text_edges=["spouse", "spouse", "child"],
        num_nodes=3,
    )
    prompt = TaskPrompt(model.tokenizer, "Answer yes or no.", ["yes", "no"])
    asked = add_question_node(IncidenceGraph()(family), "Is Cid a child of Ann?", [0, 2])
    asked.y = torch.tensor([0])
    graph = FEATURES(TokenizeText(model.tokenizer, prompt)(asked))
    assert graph.text == ["Ann", "Bob", "Cid", "spouse", "child", "Is Cid a child of Ann?"]
    assert model(graph).loss.isfinite()
    assert model.classify(graph, prompt.answers).shape == (1, 2)


def test_bad_graphs_are_named_before_anything_runs(model: GTLM) -> None:
    graph = FEATURES(
        TokenizeText(model.tokenizer)(
            TextAttributedData(text=["a", "b"], edge_index=torch.tensor([[0], [1]]), target=0)
        )
    )
    model(graph)
    graph.edge_index = torch.tensor([[0], [5]])
    with pytest.raises(ValueError, match="'edge_index' holds node 5 but the graph has 2 nodes"):
        model(graph)
    graph.edge_index = torch.tensor([[0], [1]])
    graph.input_ids = graph.input_ids.float()
    with pytest.raises(ValueError, match=r"'input_ids' is torch.float32"):
        model(graph)


def test_trains_in_the_hugging_face_trainer(verbs: TextAttributedData, model: GTLM, tmp_path: Path) -> None:
    egos = EgoTextSampler(num_neighbors=4, num_hops=1).dataset(
        verbs, verbs.train_mask, tokenizer=model.tokenizer, question="Which?", max_target_tokens=20, transform=FEATURES
    )
    arguments = TrainingArguments(
        str(tmp_path), max_steps=8, per_device_train_batch_size=2, logging_steps=1, report_to=[], save_strategy="no",
        remove_unused_columns=False, use_cpu=True, disable_tqdm=True,
    )  # fmt: skip
    optimizer = torch.optim.AdamW(model.param_groups(lr=1e-2, bias_lr=1e-2))
    trainer = Trainer(
        model,
        arguments,
        train_dataset=Subset(egos, range(4)),
        data_collator=lambda graphs: {"batch": Batch.from_data_list(graphs)},
        optimizers=(optimizer, None),
    )
    trainer.train()
    losses = [float(row["loss"]) for row in trainer.state.log_history if "loss" in row]
    assert sum(losses[-2:]) < sum(losses[:2])

"""The whole model against a reference that reads one text at a time with everything written out."""

from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from pyg_textgraph.data import NeighborBatch, PackedTexts
from pyg_textgraph.nn import GraphFormers, GraphFormersConfig
from pyg_textgraph.nn.models.graphformers import NodeCache
from pyg_textgraph.sampling import NeighborTextSampler
from tests.text_encoders import FAMILIES, randomize, text_graph, tiny_encoder, tiny_text_tokenizer

VARIANTS = [
    {},
    {"symmetric": True},
    {"bidirectional": True},
    {"symmetric": True, "bidirectional": True},
    {"relation_bias": False},
    {"shared_attention": False},
]


def model_of(family: str = "bert", **settings: bool) -> GraphFormers:
    model = GraphFormers(tiny_encoder(family), tiny_text_tokenizer(), **settings).eval()
    randomize(model.graph_parameters())
    return model


def sampler_of(model: GraphFormers, num_neighbors: int = 3, num_nodes: int = 9) -> NeighborTextSampler:
    return model.sampler(text_graph(num_nodes), num_neighbors, max_tokens=7)


def reference(model: GraphFormers, sampler: NeighborTextSampler, nodes: Tensor) -> Tensor:
    """One neighbourhood after the other; every token's state is a vector, every sum is a loop over texts."""
    return torch.stack([neighborhood(model, sampler, [n, *found]) for n, found in neighbor_lists(sampler, nodes)])


def neighbor_lists(sampler: NeighborTextSampler, nodes: Tensor) -> list[tuple[int, list[int]]]:
    found = sampler.neighbors(nodes)
    return [(n, [v for v in row if v >= 0]) for n, row in zip(nodes.tolist(), found.tolist(), strict=True)]


def neighborhood(model: GraphFormers, sampler: NeighborTextSampler, nodes: list[int]) -> Tensor:
    steps, config = model.steps, model.config
    state, graph_state = [], [torch.zeros(16).double() for _ in nodes]
    for node in nodes:
        texts = sampler.texts(torch.tensor([node]))
        state.append(steps.embed(texts.input_ids, texts.position))
    for index in range(len(model.layers)):
        cls = torch.stack([x[0] for x in state])
        new = []
        for i, x in enumerate(state):
            q, k, v = steps.project(index, x)
            if index > 0 and (i == 0 or config.bidirectional):
                graph = graph_vector(model, index, cls, i)
                if config.symmetric:
                    graph = graph + graph_state[i]
                gq, gk, gv = steps.project(index, graph[None])
                k, v = torch.cat([k, gk]), torch.cat([v, gv])
                if config.symmetric:
                    graph_state[i] = steps.finish(index, attend(gq, k, v), graph[None])[0]
            new.append(steps.finish(index, attend(q, k, v), x))
        state = new
    return state[0][0]


def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    score = torch.einsum("ihd,jhd->hij", q, k) / q.size(-1) ** 0.5
    return torch.einsum("hij,jhd->ihd", score.softmax(-1), v)


def graph_vector(model: GraphFormers, index: int, cls: Tensor, query: int) -> Tensor:
    step = model.graph_attention[0 if model.config.shared_attention else index - 1]
    heads = []
    for head in range(4):
        part = slice(4 * head, 4 * head + 4)
        q, k, v = (layer(cls)[:, part] for layer in (step.query, step.key, step.value))
        relation = [(query > 0) + (j > 0) for j in range(len(cls))]
        score = k @ q[query] / 2 + torch.stack([step.bias[r, head] for r in relation])
        heads.append(score.softmax(0) @ v)
    return torch.cat(heads)


@pytest.mark.parametrize("settings", VARIANTS, ids=str)
def test_matches_reference_with_gradients(settings: dict[str, bool]) -> None:
    nodes, results = torch.tensor([0, 3, 8, 0, 5]), []
    for ours in (True, False):
        model = model_of(**settings)
        sampler = sampler_of(model)
        out = model(sampler(nodes)) if ours else reference(model, sampler, nodes)
        out.pow(3).sum().backward()
        results.append([out, {name: p.grad for name, p in model.named_parameters() if p.grad is not None}])
    assert (sampler_of(model).neighbors(nodes) < 0).any(), "unequal numbers of neighbours are part of the test"
    assert_close(*results)
    if not settings.get("bidirectional"):
        assert results[0][1].keys() >= set(model.graph_parameters()) - {"graph_attention.0.bias"}


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("place", ["memory", "disk"])
def test_cached_equals_uncached(family: str, place: str, tmp_path: Path) -> None:
    model = model_of(family)
    sampler = sampler_of(model)
    path = tmp_path / "nodes.safetensors" if place == "disk" else None
    cache = model.cache(sampler, path=path, batch_size=4)
    if path is not None:
        cache = NodeCache.load(path)
    assert_close(model.embed(sampler, cache=cache, batch_size=5).embedding, model(sampler(torch.arange(9))).detach())


def test_embedding_a_graph_reads_each_text_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    model = model_of()
    read = []
    embed = model.steps.embed
    monkeypatch.setattr(
        model.steps, "embed", lambda ids, position: read.append((position == 0).sum()) or embed(ids, position)
    )
    index = model.embed(sampler_of(model, num_neighbors=8))
    assert len(index) == 9
    assert sum(read) <= 18


@pytest.mark.parametrize("settings", VARIANTS, ids=str)
def test_order_of_neighbours_does_not_matter(settings: dict[str, bool]) -> None:
    model = model_of(**settings)
    sampler = sampler_of(model, num_neighbors=4)
    batch = sampler(torch.arange(9))
    before = model(batch)
    for seed in range(3):
        order = torch.rand(batch.neighbors.shape, generator=torch.Generator().manual_seed(seed)).argsort(1)
        assert_close(
            model(NeighborBatch(batch.texts, batch.neighbors.gather(1, order), batch.node, batch.disjoint)), before
        )


def test_neighbours_states_do_not_depend_on_the_centre_unless_bidirectional() -> None:
    model = model_of(bidirectional=True)
    batch = sampler_of(model)(torch.tensor([0, 3]))
    with pytest.raises(ValueError, match="nothing to cache"):
        model.encode_nodes(batch.texts)
    shared = NeighborBatch(batch.texts, batch.neighbors, batch.node, disjoint=False)
    with pytest.raises(ValueError, match="disjoint"):
        model(shared)
    assert_close(model.embed(sampler_of(model)).embedding, model(sampler_of(model)(torch.arange(9))).detach())


def test_with_the_slot_masked_it_is_the_encoder(monkeypatch: pytest.MonkeyPatch) -> None:
    model = GraphFormers(tiny_encoder(dtype=torch.float32), tiny_text_tokenizer()).eval()
    sampler = sampler_of(model)
    monkeypatch.setattr(model, "_graph_vectors", lambda *args: None)
    out = model(sampler(torch.arange(9)))
    for node in range(9):
        alone = model.encoder(sampler.texts(torch.tensor([node])).input_ids[None]).last_hidden_state[0, 0]
        assert_close(out[node], alone, atol=1e-6, rtol=1e-6)


def test_relation_bias_can_be_left_out() -> None:
    model = GraphFormers(tiny_encoder(), relation_bias=False)
    assert not model.graph_attention[0].bias.requires_grad
    assert not model.graph_attention[0].bias.any()
    assert len(GraphFormers(tiny_encoder(), shared_attention=False).graph_attention) == 2


def test_all_that_trains_gets_a_gradient() -> None:
    model = GraphFormers(tiny_encoder(), tiny_text_tokenizer()).train()
    model(sampler_of(model)(torch.arange(9))).pow(3).sum().backward()
    missing = {name for name, p in model.named_parameters() if p.requires_grad and p.grad is None}
    assert missing == set()
    assert not any(p.requires_grad for p in model.encoder.pooler.parameters())


def test_saved_and_loaded(tmp_path: Path) -> None:
    model = model_of(symmetric=True, shared_attention=False)
    batch = sampler_of(model)(torch.arange(9))
    model.save_pretrained(tmp_path)
    loaded = GraphFormers.from_pretrained(tmp_path).eval()
    assert loaded.config == GraphFormersConfig(symmetric=True, shared_attention=False)
    assert_close(loaded.double()(batch), model(batch))
    with pytest.raises(ValueError, match="no settings"):
        GraphFormers.from_pretrained(tmp_path, symmetric=False)
    fresh = GraphFormers.from_pretrained(tmp_path / "encoder", bidirectional=True)
    assert fresh.config.bidirectional
    assert fresh.tokenizer is not None


def test_search() -> None:
    model = model_of()
    data = text_graph()
    index = model.embed(data, num_neighbors=3)
    score = index.embedding @ index.embedding[4]
    score[4] = -torch.inf
    found, nodes = model.search(4, k=3)
    assert_close(found, score.topk(3).values)
    assert_close(nodes, score.topk(3).indices)
    _, nodes = model.search(index.embedding[2], k=50)
    assert sorted(nodes.tolist()) == list(range(9))
    alone = model(
        NeighborBatch(model.sampler(data).texts(torch.tensor([8]), 1), torch.full((1, 0), -1), torch.tensor([8]))
    )
    assert_close(model.search(data.text[8], k=2)[0], (index.embedding @ alone[0].detach()).topk(2).values)


def test_search_over_some_nodes_by_faiss() -> None:
    pytest.importorskip("faiss")
    model = model_of()
    query = torch.randn(2, 16, generator=torch.Generator().manual_seed(0))
    exact = model.embed(text_graph(), torch.tensor([1, 4, 6, 7])).search(query.double(), 3)
    fast = model.embed(text_graph(), torch.tensor([1, 4, 6, 7]), backend="faiss").search(query, 3)
    assert_close(fast[1], exact[1])
    assert_close(fast[0].double(), exact[0], atol=1e-4, rtol=1e-4)


def test_search_needs_an_index() -> None:
    model = model_of()
    with pytest.raises(RuntimeError, match="embed first"):
        model.search(0)
    model.embed(text_graph(), torch.tensor([1, 4]))
    with pytest.raises(KeyError, match="node 3"):
        model.search(3)
    model.tokenizer = None
    with pytest.raises(ValueError, match="tokenizer"):
        model.search("w1")


def test_a_single_layer_has_no_graph_step() -> None:
    model = GraphFormers(tiny_encoder(num_hidden_layers=1), tiny_text_tokenizer()).eval()
    sampler = sampler_of(model)
    assert_close(model.embed(sampler).embedding, model(sampler(torch.arange(9))).detach())


def test_centres_must_be_packed_as_such() -> None:
    model = model_of()
    texts = PackedTexts.pack(torch.tensor([2, 5, 3]), torch.tensor([3]))
    with pytest.raises(ValueError, match="are centres"):
        model.encode_centres(texts, torch.zeros(1, 2, 2, 16).double(), torch.ones(1, 2, dtype=torch.bool))


def test_embedding_leaves_every_part_in_its_mode_and_searches_in_float32(tmp_path: Path) -> None:
    model = GraphFormers(tiny_encoder("bert").to(torch.bfloat16), tiny_text_tokenizer()).train()
    model.encoder.eval()
    before = {name: module.training for name, module in model.named_modules()}
    index = model.embed(text_graph())
    assert {name: module.training for name, module in model.named_modules()} == before
    score, node = model.search("w1 w2", 3)
    assert (score.shape, node.shape) == ((3,), (3,))
    assert index.search(index.of(torch.tensor([0])), 2)[0].dtype == torch.float32
    model.save_pretrained(tmp_path)
    assert not any(module.training for module in GraphFormers.from_pretrained(tmp_path).modules())

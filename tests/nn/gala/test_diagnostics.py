from __future__ import annotations

import math

import networkx as nx
import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.utils import from_networkx

from pyg_textgraph.nn.gala import (
    average_neighbor_rank,
    bandwidth,
    edge_stretch,
    node_attention_similarity,
    node_rank,
    retention_bound,
    rope_mean_cosine,
    rope_retention,
    token_rank,
)
from tests.nn.families import CONFIGS, tiny
from tests.nn.gala.prompts import PATH, STAR, prompt_of


def graph_of(graph: nx.Graph) -> Data:
    return from_networkx(graph)


def test_retention() -> None:
    delta = torch.tensor([0.0, 1.0, -1.0, 50.0, 1000.0])
    x = torch.linspace(0, 1, 400001, dtype=torch.double)
    expected = torch.stack([torch.trapezoid(torch.cos(d * 1e4**-x), x) for d in delta.double()])
    torch.testing.assert_close(rope_retention(delta, 1e4), expected, atol=1e-7, rtol=0)
    assert float(rope_retention(0, 1e4)) == float(rope_retention(0, 1e4, envelope=True)) == 1
    assert float(rope_retention(50, 1e4, envelope=True)) == pytest.approx(
        1 - (math.log(50) + 0.5772156649) / math.log(1e4)
    )
    torch.testing.assert_close(rope_mean_cosine(delta, 1e4, 20000), rope_retention(delta, 1e4), atol=1e-4, rtol=0)


@pytest.mark.parametrize(("graph", "expected"), [(nx.path_graph(9), 0.51), (nx.star_graph(19), 0.26)])
def test_retention_bound_of_the_paper(graph: nx.Graph, expected: float) -> None:
    assert round(retention_bound(graph_of(graph), 50, 1e4), 2) == expected


@pytest.mark.parametrize(
    ("graph", "expected", "exact"),
    [
        (nx.path_graph(7), 1, True),
        (nx.cycle_graph(8), 2, True),
        (nx.star_graph(19), 10, True),
        (nx.star_graph(4), 2, True),
        (nx.complete_graph(6), 5, True),
        (nx.empty_graph(3), 0, True),
        (nx.disjoint_union(nx.path_graph(3), nx.path_graph(4)), 1, True),
        (nx.grid_2d_graph(3, 7), 3, False),
    ],
)
def test_bandwidth(graph: nx.Graph, expected: int, exact: bool) -> None:
    graph = nx.relabel_nodes(graph, dict(zip(graph, torch.randperm(len(graph)).tolist(), strict=True)))
    data = graph_of(graph)
    if not exact:
        assert bandwidth(data)[0] >= expected
    else:
        assert bandwidth(data) == (expected, True)


def test_edge_stretch() -> None:
    prompt = prompt_of(torch.cat([STAR, STAR.flip(0), torch.tensor([[2], [2]])], 1), 4, tokens=3)
    assert edge_stretch(prompt).tolist() == [12, 8, 4]  # blocks of three tokens and one between, node 0 last


@pytest.mark.parametrize("family", CONFIGS)
def test_ranks_in_every_family(family: str) -> None:
    prompt, model = prompt_of(STAR, 5), tiny(family)
    before = model(input_ids=prompt.input_ids[None]).logits
    rank = token_rank(model, prompt)
    assert torch.equal(model(input_ids=prompt.input_ids[None]).logits, before)  # stopping half-way leaves nothing
    assert int(rank.min()) == 0
    assert int(rank.max()) < len(prompt)
    assert average_neighbor_rank(rank, prompt) == pytest.approx(float(node_rank(rank, prompt)[1:4].mean()))


def test_scores_without_rotary_positions_do_not_depend_on_them() -> None:
    """In the first layer, equal tokens score the same wherever they stand."""
    prompt, model = prompt_of(STAR, 5), tiny("llama")
    prompt.input_ids[3] = prompt.input_ids[9]
    from pyg_textgraph.nn.gala.diagnostics import attention_scores

    last = slice(len(prompt) - 1, None)
    plain = attention_scores(model, prompt, 0, last, rotary=False)[:, 0]
    rotated = attention_scores(model, prompt, 0, last)[:, 0]
    torch.testing.assert_close(plain[:, 3], plain[:, 9])
    assert not torch.allclose(rotated[:, 3], rotated[:, 9])
    torch.testing.assert_close(plain[:, -1], rotated[:, -1])  # distance 0


def test_rank_is_the_number_of_strictly_higher_scores(monkeypatch: pytest.MonkeyPatch) -> None:
    scores = torch.tensor([1.0, 3.0, 3.0, 0.5]).expand(4, 1, 4)
    prompt = prompt_of(STAR[:, :0], 1, tokens=1, loose=1)

    def fixed(*args: object, rotary: bool = True) -> Tensor:
        return scores

    monkeypatch.setattr("pyg_textgraph.nn.gala.diagnostics.attention.attention_scores", fixed)
    assert token_rank(tiny("llama"), prompt).tolist() == [2, 0, 0, 3]


def test_node_attention_similarity_is_the_mean_score_of_earlier_nodes() -> None:
    prompt, model = prompt_of(PATH, 5, tokens=2), tiny("llama")
    model.set_attn_implementation("eager")
    similarity = node_attention_similarity(model, prompt, 1)
    probability = model(prompt.input_ids[None], output_attentions=True).attentions[1][0]  # [H, T, T]
    mine, other = prompt.node == 0, prompt.node == 3
    # within a row, scores are log-probabilities up to a constant
    logs = probability.log()[:, mine].mean((0, 1))
    gap = float(similarity[0, 3] - similarity[0, 2])
    assert gap == pytest.approx((logs[other].mean() - logs[prompt.node == 2].mean()).item(), abs=1e-4)
    assert bool(similarity[3, 0].isnan())
    assert int((~similarity.isnan()).sum()) == 10

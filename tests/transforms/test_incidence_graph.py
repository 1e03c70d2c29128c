import networkx as nx
import pytest
import torch
import torch_geometric.transforms as T
from hypothesis import given
from torch_geometric.data import Batch, Data

from pyg_textgraph.data import TaskPrompt, TextAttributedData
from pyg_textgraph.transforms import (
    AddMagneticLaplacian,
    AddRRWP,
    AddSPD,
    EgoTextSampler,
    IncidenceGraph,
    SerializeGraph,
    TokenizeText,
)
from tests.transforms.transform_graphs import graph, graphs, quick


def edge_set(data: Data) -> set[tuple[int, int]]:
    return set(map(tuple, data.edge_index.T.tolist()))


def test_directed_edges_by_hand() -> None:
    data = graph(3, [(2, 0), (0, 1)], text=["a", "b", "c"], target=2)
    out = IncidenceGraph()(data)
    assert out.text == ["a", "b", "c", "(2, 0)", "(0, 1)"]
    assert out.edge_index.tolist() == [[2, 0, 3, 4], [3, 4, 0, 1]]
    assert (out.num_nodes, out.target) == (5, 2)


@pytest.mark.parametrize(
    ("merge", "text", "edges"),
    [
        (True, ["a", "b", "(0, 1)"], {(0, 2), (2, 1), (1, 2), (2, 0)}),
        (False, ["a", "b", "(1, 0)", "(0, 1)"], {(1, 2), (2, 0), (0, 3), (3, 1)}),
    ],
)
def test_both_directions_of_one_edge(merge: bool, text: list[str], edges: set[tuple[int, int]]) -> None:
    out = IncidenceGraph(merge_reciprocal=merge)(graph(2, [(1, 0), (0, 1)], text=["a", "b"]))
    assert out.text == text
    assert edge_set(out) == edges
    assert out.num_edges == 4


def test_relation_texts() -> None:
    edges = [(0, 1), (1, 0), (1, 2), (2, 1), (0, 1), (0, 1), (2, 2), (0, 0), (1, 1), (2, 0), (0, 2)]
    relations = ["parent", "child", "friend", "friend", "parent", "boss", "self", "", None, "", None]
    out = IncidenceGraph()(graph(3, edges, text_nodes=["a", "b", "c"], text_edges=relations))
    # other texts are other relations, equal ones are one edge, a self-loop counts only if it has a text
    assert out.text_nodes == ["a", "b", "c", "parent", "child", "friend", "boss", "self", "(0, 2)"]
    parent, child, friend, boss, loop, plain = range(3, 9)
    assert edge_set(out) == {
        *((0, parent), (parent, 1), (1, child), (child, 0), (0, boss), (boss, 1)),
        *((1, friend), (friend, 2), (2, friend), (friend, 1)),
        *((2, loop), (loop, 2), (0, plain), (plain, 2), (2, plain), (plain, 0)),
    }
    assert out.num_edges == 16
    assert "text_edges" not in out


@quick
@given(graphs())
def test_structure_matches_networkx(data: Data) -> None:
    n, edges = data.num_nodes, {(u, v) for u, v in data.edge_index.T.tolist() if u != v}
    data.text = [str(i) for i in range(n)]
    merged, split = IncidenceGraph()(data), IncidenceGraph(merge_reciprocal=False)(data)
    assert merged.num_nodes == n + nx.Graph(list(edges)).number_of_edges()
    assert split.num_nodes == n + len(edges)
    for out in (merged, split):
        assert len(out.text) == out.num_nodes
        assert len(edge_set(out)) == out.num_edges == 2 * len(edges)
        assert out.edge_index.dtype == torch.long
        walk = nx.DiGraph(list(edge_set(out)))
        assert {(u, v) for u in range(n) for e in walk.adj.get(u, ()) for v in walk[e] if u != v} == edges
        for e, text in enumerate(out.text[n:], start=n):
            u, v = map(int, text.strip("()").split(", "))
            assert (u, e) in edge_set(out)
            assert (e, v) in edge_set(out)


def test_edge_order_of_an_undirected_graph_does_not_matter_for_names() -> None:
    one = IncidenceGraph()(graph(6, [(5, 2), (2, 5)], text=list("abcdef")))
    other = IncidenceGraph()(graph(6, [(2, 5), (5, 2)], text=list("abcdef")))
    assert one.text[6:] == other.text[6:] == ["(2, 5)"]


def test_attributes_of_a_molecule() -> None:
    data = graph(2, [(0, 1), (1, 0)], [1.0, 1.0], x=torch.ones(2, 4), edge_attr=torch.ones(2, 3), y=torch.tensor([1]))
    out = IncidenceGraph()(data)
    assert set(out.keys()) == {"edge_index", "num_nodes", "relation_mask", "y"}
    assert out.num_nodes == 3
    assert out.y.tolist() == [1]
    out.validate()


def test_sparse_tensors() -> None:
    data = graph(4, [(0, 1), (3, 1), (1, 2), (2, 1)])
    out = IncidenceGraph()(T.ToSparseTensor()(data))
    assert "adj_t" not in out
    # the edges come in adj_t's order, by target
    assert edge_set(out) == {(0, 4), (4, 1), (2, 5), (5, 1), (1, 5), (5, 2), (3, 6), (6, 1)}


def test_text_attributed_data_in_compose_and_batch() -> None:
    data = TextAttributedData(text=["a", "b"], edge_index=torch.tensor([[0], [1]]), target=1)
    transform = T.Compose([IncidenceGraph(), AddSPD(), AddRRWP(3), AddMagneticLaplacian()])
    out = transform(data)
    assert isinstance(out, TextAttributedData)
    assert (data.text, data.num_nodes) == (["a", "b"], 2)
    assert out.spd.tolist() == [0, 2, 1, -1, 0, -1, -1, 1, 0]
    alone = transform(TextAttributedData(text=["c"], edge_index=data.edge_index[:, :0], target=0))
    batch = Batch.from_data_list([alone, out])
    assert batch.num_nodes == 4
    assert batch.text == [["c"], ["a", "b", "(0, 1)"]]
    assert batch.edge_index.tolist() == [[1, 3], [3, 2]]
    assert torch.equal(batch[1].edge_index, out.edge_index)
    assert int(batch[1].target) == 1


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"text": ["a"]}, "'text' holds 1 texts, expected 3"),
        ({"text": ["a", "b", "c"], "edge_text": ["r"]}, "'edge_text' holds 1 texts, expected 2"),
        ({"edge_text": ["r", "s"]}, "edge texts but no 'text' for its nodes"),
        ({"input_ids": torch.zeros(4)}, "the graph has 'input_ids', which edge nodes lack; apply it before"),
        ({"spd": torch.zeros(9)}, "the graph has 'spd', which edge nodes lack; apply it before"),
    ],
)
def test_bad_input(attributes: dict, message: str) -> None:
    with pytest.raises(ValueError, match=f"IncidenceGraph: .*{message}"):
        IncidenceGraph()(graph(3, [(0, 1), (1, 2)], **attributes))


def test_edge_texts_need_an_order() -> None:
    data = T.ToSparseTensor()(graph(2, [(0, 1)], text=["a", "b"]))
    data.text_edges = ["r"]
    with pytest.raises(ValueError, match="edge texts need the order of 'edge_index'"):
        IncidenceGraph()(data)


def test_edge_nodes_have_no_class(tokenizer) -> None:
    data = graph(3, [(0, 1), (1, 2)], text=["run", "walk", "go"], y=torch.tensor([0, 1, 1]), target=1)
    data.edge_text, data.title, data.e_id = ["is", "is"], ["R", "W", "G"], torch.tensor([5, 6])
    out = IncidenceGraph()(data)
    assert out.y.tolist() == [0, 1, 1, -1, -1]
    assert out.title == ["R", "W", "G", "", ""]
    assert "e_id" not in out
    tokenize = TokenizeText(tokenizer, TaskPrompt(tokenizer, "Which?", ["a", "b"]))
    for size in (2, 8):  # the ego of node 1 has three nodes, or all
        ego = tokenize(EgoTextSampler(size)(out))
        assert tokenizer.decode(ego.labels[ego.labels >= 0]).startswith(" b")
    assert tokenizer.decode((whole := tokenize(out)).labels[whole.labels >= 0]).startswith(" b")
    assert SerializeGraph()(out).y.tolist() == [1]


def test_one_class_of_a_graph_stays_one() -> None:
    assert IncidenceGraph()(graph(1, [], text=["a"], y=torch.tensor([2]))).y.tolist() == [2]
    assert IncidenceGraph()(graph(3, [(0, 1)], y=torch.tensor([2]))).y.tolist() == [2]

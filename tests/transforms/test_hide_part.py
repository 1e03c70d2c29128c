"""What is hidden, and that its actions bring it back."""

import copy

import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data

from pyg_textgraph.data import AddEdge, AddNode, GraphGrammar, TextAttributedData, action_steps
from pyg_textgraph.datasets import FamilyTree
from pyg_textgraph.transforms import HideEdges, HideNode
from tests.data.written_graphs import edges_of

FAMILY = GraphGrammar(relations=("CHILD", "SPOUSE"), symmetric=frozenset({"SPOUSE"}))


def trees(size: int = 12) -> list[TextAttributedData]:
    return list(FamilyTree(form="plain", sizes=(size, 0, 0)))


def named(data: Data) -> set[tuple[str, str, str]]:
    """Edges by the texts of their ends, whatever the numbers of the nodes."""
    return {(data.text[u], name, data.text[v]) for u, v, name in edges_of(data)}


@pytest.mark.parametrize("num_edges", [1, 4])
def test_hidden_edges_come_back(num_edges: int) -> None:
    for tree in trees():
        before = copy.deepcopy(tree)
        hidden = HideEdges(FAMILY, num_edges=num_edges)(tree)
        assert len(hidden.actions) == num_edges
        ways = sum(1 + FAMILY.is_symmetric(action.relation) for action in hidden.actions)
        assert hidden.edge_index.size(1) == tree.edge_index.size(1) - ways
        last = action_steps(hidden, FAMILY)[-1]
        assert last.text == tree.text
        assert named(last) == named(tree)
        assert edges_of(tree) == edges_of(before)


def test_a_hidden_node_comes_back_with_its_edges() -> None:
    for tree in trees():
        hidden = HideNode(FAMILY)(tree)
        first, *edges = hidden.actions
        assert isinstance(first, AddNode)
        assert set(hidden.text) == set(tree.text) - {first.text}
        assert all(len(hidden.text) in (edge.source, edge.target) for edge in edges)
        last = action_steps(hidden, FAMILY)[-1]
        assert last.text == [*hidden.text, first.text]
        assert named(last) == named(tree)


def test_the_draw_depends_on_graph_and_seed_only() -> None:
    tree, *others = trees()
    for hide in (HideEdges, HideNode):
        assert hide(FAMILY)(tree).actions == hide(FAMILY)(copy.deepcopy(tree)).actions
        assert len({str(hide(FAMILY, seed=seed)(tree).actions) for seed in range(8)}) > 2
        assert len({str(hide(FAMILY)(other).actions) for other in others}) > 2


def test_may_hide_is_kept_to() -> None:
    def children(data: Data) -> Tensor:
        return torch.tensor([name == "CHILD" for name in data.text_edges])

    def women(data: Data) -> Tensor:
        return torch.tensor([", female" in text for text in data.text])

    for tree in trees():
        assert HideEdges(FAMILY, children)(tree).actions[0].relation == "CHILD"
        assert ", female" in HideNode(FAMILY, women)(tree).actions[0].text


def test_edges_that_are_there_twice_are_one() -> None:
    data = TextAttributedData(text=["a", "b"], edge_index=torch.tensor([[0, 0], [1, 1]]))
    hidden = HideEdges(GraphGrammar())(data)
    assert hidden.actions == [AddEdge(0, 1)]
    assert hidden.edge_index.shape == (2, 0)
    loop = TextAttributedData(text=["a", "b"], edge_index=torch.tensor([[0, 0], [1, 0]]))
    hidden = HideNode(GraphGrammar(self_loops=True), lambda data: torch.tensor([True, False]))(loop)
    assert hidden.actions == [AddNode("a"), AddEdge(1, 0), AddEdge(1, 1)]
    assert hidden.edge_index.shape == (2, 0)


@pytest.mark.parametrize("seed", range(4))
def test_what_the_grammar_cannot_write_stays(seed: int) -> None:
    loop = TextAttributedData(text=["a", "b"], edge_index=torch.tensor([[0, 0], [0, 1]]))
    assert HideEdges(GraphGrammar(), seed=seed)(loop).actions == [AddEdge(0, 1)]
    both = TextAttributedData(
        text=list("abc"), edge_index=torch.tensor([[0, 0, 1], [1, 1, 2]]), text_edges=["r", "s", "r"]
    )
    grammar = GraphGrammar(relations=("r", "s"), parallel=False)
    hidden = HideEdges(grammar, seed=seed)(both)
    assert hidden.actions == [AddEdge(1, 2, "r")]
    assert edges_of(action_steps(hidden, grammar)[-1]) == edges_of(both)
    with pytest.raises(ValueError, match="1 edges may be hidden, expected at least 2"):
        HideEdges(grammar, num_edges=2, seed=seed)(both)


def test_bad_input() -> None:
    tree = trees(1)[0]
    with pytest.raises(ValueError, match="'num_edges' is 0"):
        HideEdges(FAMILY, num_edges=0)
    with pytest.raises(ValueError, match="edges may be hidden, expected at least 1000"):
        HideEdges(FAMILY, num_edges=1000)(tree)
    with pytest.raises(ValueError, match=r"'may_hide' returned torch\.float32"):
        HideEdges(FAMILY, lambda data: torch.zeros(3))(tree)
    with pytest.raises(ValueError, match="may be hidden, expected at least one"):
        HideNode(FAMILY, lambda data: torch.zeros(len(data.text), dtype=torch.bool))(tree)
    with pytest.raises(ValueError, match="has an edge 'SPOUSE', expected one of"):
        HideNode(GraphGrammar(relations=("CHILD",)), spouses)(tree)
    assert repr(HideNode(FAMILY, seed=3)) == "HideNode(seed=3)"


def spouses(data: Data) -> Tensor:
    mask = torch.zeros(len(data.text), dtype=torch.bool)
    mask[[u for u, _, name in edges_of(data) if name == "SPOUSE"]] = True
    return mask


def test_edges_come_back_in_an_order_that_the_rule_allows() -> None:
    def reached(data: Data) -> Tensor:  # from node 0, or from a node that an edge points at
        n = int(data.num_nodes or 0)
        begins = torch.zeros(n, dtype=torch.bool)
        begins[0] = True
        begins[data.edge_index[1]] = True
        return begins[:, None].expand(n, n)

    grammar = GraphGrammar(rule=reached, add_nodes=False)
    path = TextAttributedData(text=list("abc"), edge_index=torch.tensor([[0, 1], [1, 2]]))
    for seed in range(8):
        hidden = HideEdges(grammar, num_edges=2, seed=seed)(path)
        assert len(action_steps(hidden, grammar)) == 3
        assert [action.source for action in hidden.actions] == [0, 1]


def test_mentions_follow_their_nodes() -> None:
    path = TextAttributedData(text=list("abcd"), edge_index=torch.tensor([[0, 1, 2], [1, 2, 3]]), mentions=[2, 0])
    grammar = GraphGrammar()
    for node, mentions in ((0, [1]), (3, [2, 0]), (1, [1, 0])):
        only = torch.arange(4) == node
        assert HideNode(grammar, may_hide=lambda _, only=only: only)(path).mentions == mentions

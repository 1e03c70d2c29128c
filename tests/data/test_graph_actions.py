"""What an action changes, and what a grammar refuses."""

import copy
from pathlib import Path

import pytest
import torch

from pyg_textgraph.data import AddEdge, AddNode, GraphGrammar, Stop, TextAttributedData, action_steps
from tests.data.written_graphs import edges_of

FAMILY = GraphGrammar(relations=("CHILD", "SPOUSE"), symmetric=frozenset({"SPOUSE"}))


def family() -> TextAttributedData:
    return TextAttributedData(
        text=["Ada", "Bob", "Eve"],
        edge_index=torch.tensor([[0, 1], [2, 2]]),
        text_edges=["CHILD", "CHILD"],
        question="Who?",
    )


def test_actions_append() -> None:
    before = family()
    kept = copy.deepcopy(before)
    after = FAMILY.apply(before, AddNode("Dan"))
    after = FAMILY.apply(after, AddEdge(0, 3, "CHILD"))
    assert after.text == ["Ada", "Bob", "Eve", "Dan"]
    assert after.num_nodes == 4
    assert edges_of(after) == [(0, 2, "CHILD"), (1, 2, "CHILD"), (0, 3, "CHILD")]
    assert after.question == "Who?"
    assert before.text == kept.text  # the given graph stays as it is
    assert edges_of(before) == edges_of(kept)
    assert edges_of(FAMILY.apply(before, Stop())) == edges_of(before)


def test_symmetric_relations_are_written_both_ways() -> None:
    after = FAMILY.apply(family(), AddEdge(1, 0, "SPOUSE"))
    assert edges_of(after)[2:] == [(1, 0, "SPOUSE"), (0, 1, "SPOUSE")]
    half = family()
    half.edge_index = torch.cat([half.edge_index, torch.tensor([[0], [1]])], 1)
    half.text_edges = [*half.text_edges, "SPOUSE"]
    assert edges_of(FAMILY.apply(half, AddEdge(0, 1, "SPOUSE")))[3:] == [(1, 0, "SPOUSE")]
    loops = GraphGrammar(symmetric=True, self_loops=True)
    alone = TextAttributedData(text=["a"], edge_index=torch.empty(2, 0, dtype=torch.long))
    assert edges_of(loops.apply(alone, AddEdge(0, 0))) == [(0, 0, "")]


def test_open_edges_by_hand() -> None:
    n = 3
    child, spouse = FAMILY.open_edges(family())
    assert child.tolist() == [[u != v and (u, v) not in {(0, 2), (1, 2)} for v in range(n)] for u in range(n)]
    assert spouse.tolist() == [[u != v for v in range(n)] for u in range(n)]
    single = GraphGrammar(relations=("CHILD", "SPOUSE"), symmetric=frozenset({"SPOUSE"}), parallel=False)
    child, spouse = single.open_edges(family())
    assert child.nonzero().tolist() == [[0, 1], [1, 0], [2, 0], [2, 1]]
    assert spouse.nonzero().tolist() == [[0, 1], [1, 0]]
    assert not GraphGrammar(relations=("CHILD",), add_edges=False).open_edges(family()).any()


def test_a_rule_forbids_more() -> None:
    older = GraphGrammar(relations=("CHILD",), rule=lambda data: torch.ones(3, 3).triu().bool())
    assert older.open_edges(family()).nonzero().tolist() == [[0, 0, 1]]
    with pytest.raises(ValueError, match="is not allowed in a graph of 3 nodes"):
        older.apply(family(), AddEdge(1, 0, "CHILD"))


@pytest.mark.parametrize(
    "action",
    [
        AddEdge(0, 2, "CHILD"),
        AddEdge(0, 0, "CHILD"),
        AddEdge(0, 3, "CHILD"),
        AddEdge(-1, 0, "CHILD"),
        AddEdge(0, 1, "COUSIN"),
        AddNode(" "),
    ],
)
def test_what_is_not_allowed(action: AddEdge | AddNode) -> None:
    with pytest.raises(ValueError, match="is not allowed in a graph of 3 nodes"):
        FAMILY.apply(family(), action)
    closed = GraphGrammar(relations=("CHILD",), add_nodes=False)
    with pytest.raises(ValueError, match="is not allowed"):
        closed.apply(family(), AddNode("Dan"))
    chosen = GraphGrammar(relations=("CHILD",), node_texts=("Dan",))
    with pytest.raises(ValueError, match="is not allowed"):
        chosen.apply(family(), AddNode("Tom"))


def test_steps_are_the_states_before_each_action() -> None:
    data = family()
    data.actions = [AddNode("Dan"), AddEdge(0, 3, "CHILD")]
    first, second, last = action_steps(data, FAMILY)
    assert (first.action, second.action, last.action) == (*data.actions, Stop())
    assert [len(x.text) for x in (first, second, last)] == [3, 4, 4]
    assert [x.edge_index.size(1) for x in (first, second, last)] == [2, 2, 3]
    assert "actions" not in first
    with pytest.raises(ValueError, match="the graph has no 'actions'"):
        action_steps(family(), FAMILY)
    data.actions = [AddEdge(0, 2, "CHILD")]
    with pytest.raises(ValueError, match="is not allowed"):
        action_steps(data, FAMILY)


def test_actions_are_saved_with_their_graph(tmp_path: Path) -> None:
    data = family()
    data.actions = [AddNode("Dan"), AddEdge(0, 3, "CHILD"), Stop()]
    torch.save(data, tmp_path / "graph.pt")
    loaded = torch.load(tmp_path / "graph.pt", weights_only=True)
    assert loaded.actions == data.actions
    assert edges_of(loaded) == edges_of(data)


@pytest.mark.parametrize("key", ["y", "train_mask", "synset"])
def test_what_written_nodes_would_lack_is_refused(key: str) -> None:
    data = family()
    n = len(data.text)
    data[key] = ["name"] * n if key == "synset" else torch.ones(n)
    data.actions = [AddNode("Zoe"), AddNode("Max")]
    with pytest.raises(ValueError, match=f"the graph has '{key}', which written nodes or edges lack"):
        action_steps(data, FAMILY)
    data[key] = torch.ones(1)  # the graph's
    assert [len(step.text) for step in action_steps(data, FAMILY)] == [n, n + 1, n + 2]
    data[key] = torch.ones(n + 1)  # the graph's, too, though there will be as many nodes
    assert len(action_steps(data, FAMILY)) == 3


def test_bad_input() -> None:
    with pytest.raises(ValueError, match="'relations' is"):
        GraphGrammar(relations=("a", "a"))
    with pytest.raises(ValueError, match="'node_texts' is empty"):
        GraphGrammar(node_texts=())
    with pytest.raises(ValueError, match=r"'symmetric' holds \['b'\]"):
        GraphGrammar(relations=("a",), symmetric=frozenset({"b"}))
    with pytest.raises(ValueError, match="'max_text_tokens' is 0"):
        GraphGrammar(max_text_tokens=0)
    with pytest.raises(ValueError, match="the graph's edges have names, but the grammar has no 'relations'"):
        GraphGrammar().open_edges(family())
    bare = family()
    del bare["text_edges"]
    with pytest.raises(ValueError, match="the graph's edges have no 'text_edges'"):
        FAMILY.open_edges(bare)
    bare.text_edges = ["CHILD"]
    with pytest.raises(ValueError, match="has 1 names of edges, expected 2"):
        FAMILY.open_edges(bare)
    for key in ("x", "spd", "input_ids"):
        data = family()
        data[key] = torch.zeros(3)
        with pytest.raises(ValueError, match=f"the graph has '{key}', which written nodes or edges lack"):
            FAMILY.apply(data, Stop())


@pytest.mark.parametrize("seed", range(40))
def test_one_edge_is_allowed_as_among_all(seed: int) -> None:
    """Every relation, source and target of a random graph, under a random grammar."""
    random = torch.Generator().manual_seed(seed)
    n, names = 4, ("a", "b", "c")
    flag = lambda: bool(torch.randint(2, (), generator=random))  # noqa: E731
    kinds = torch.randint(3, (7,), generator=random).tolist()
    data = TextAttributedData(
        text=list("wxyz"),
        edge_index=torch.randint(n, (2, 7), generator=random),
        text_edges=[names[kind] for kind in kinds],
    )
    table = torch.randint(4, (n, n), generator=random) > 0
    grammar = GraphGrammar(
        relations=names[:2],  # the third is read only
        symmetric=frozenset({"b"}) if flag() else False,
        self_loops=flag(),
        parallel=flag(),
        rule=(lambda data: table) if flag() else None,
    )
    one = [[[grammar.allows(data, AddEdge(u, v, r)) for v in range(n)] for u in range(n)] for r in grammar.names]
    assert grammar.open_edges(data).tolist() == one

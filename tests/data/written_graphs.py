"""Random grammars and graphs to write in, and what every written graph must be, said independently of the package."""

from __future__ import annotations

import torch
from hypothesis import strategies as st
from torch import Tensor
from torch_geometric.data import Data

from pyg_textgraph.data import GraphGrammar, TextAttributedData

RELATIONS = ("CHILD", "SPOUSE", "CHILD OF", "<eos>")
TEXTS = ["Ada", "Ada", "Bob, male", "Ada (2)", "Bo", "<eos>", "a<eos>b", "Ünï 日本 😀", "<STOP>", "x" * 40, ","]


def from_young_to_old(data: Data) -> Tensor:
    """A rule: edges lead to later nodes only."""
    n = int(data.num_nodes)
    return torch.ones(n, n).triu().bool()[None]


@st.composite
def grammars(draw: st.DrawFn) -> GraphGrammar:
    relations = tuple(draw(st.lists(st.sampled_from(RELATIONS), unique=True, max_size=3)))
    symmetric = draw(st.booleans()) if not relations else frozenset(draw(st.sets(st.sampled_from(relations))))
    return GraphGrammar(
        relations=relations,
        symmetric=symmetric,
        add_nodes=draw(st.booleans()),
        add_edges=draw(st.booleans()),
        node_texts=draw(st.none() | st.lists(st.sampled_from(sorted(set(TEXTS))), unique=True, min_size=1).map(tuple)),
        max_text_tokens=draw(st.integers(1, 5)),
        self_loops=draw(st.booleans()),
        parallel=draw(st.booleans()),
        rule=draw(st.sampled_from([None, from_young_to_old])),
    )


@st.composite
def graphs(draw: st.DrawFn, grammar: GraphGrammar, max_nodes: int = 5) -> TextAttributedData:
    texts = draw(st.lists(st.sampled_from(TEXTS), max_size=max_nodes))
    node = st.integers(0, max(0, len(texts) - 1))
    ends = draw(st.lists(st.tuples(node, node), max_size=6 if texts else 0))
    data = TextAttributedData(text=texts, edge_index=torch.tensor(ends, dtype=torch.long).view(-1, 2).T.contiguous())
    if grammar.relations:
        names = st.sampled_from([*grammar.relations, "OTHER"])
        data.text_edges = draw(st.lists(names, min_size=len(ends), max_size=len(ends)))
    return data


def edges_of(data: Data) -> list[tuple[int, int, str]]:
    ends = data.edge_index.T.tolist()
    return [(u, v, name) for (u, v), name in zip(ends, data.get("text_edges") or [""] * len(ends), strict=True)]


def assert_valid(before: Data, after: Data, grammar: GraphGrammar) -> None:
    """The old graph is still there, and what is new keeps to the grammar."""
    after.validate()
    n, old, new = len(before.text), edges_of(before), edges_of(after)[before.edge_index.size(1) :]
    assert after.num_nodes == len(after.text)
    assert after.text[:n] == before.text
    assert edges_of(after)[: len(old)] == old
    assert grammar.add_nodes or len(after.text) == n
    for text in after.text[n:]:
        assert text.strip() == text != ""
        text.encode()
        assert grammar.node_texts is None or text in grammar.node_texts
    assert grammar.add_edges or not new
    assert len(set(new)) == len(new)
    assert not set(new) & set(old)
    for u, v, name in new:
        assert 0 <= u < len(after.text)
        assert 0 <= v < len(after.text)
        assert name in (grammar.relations or ("",))
        assert grammar.self_loops or u != v
        both = grammar.symmetric is True or (grammar.symmetric and name in grammar.symmetric)
        if both:
            assert (v, u, name) in {*old, *new}
        if not grammar.parallel:
            assert [x[:2] for x in (*old, *new)].count((u, v)) == 1
        if grammar.rule is not None:
            assert u <= v
            assert u == v or not both

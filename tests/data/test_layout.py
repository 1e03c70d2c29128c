from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from torch_geometric.data import Batch

from pyg_textgraph.data import TextAttributedData, TokenLayout, to_dense_pairs
from tests.ops.strategies import layouts, make_layout

SETTINGS = settings(derandomize=True, deadline=None, max_examples=30)


def text_graph(counts: list[int], target: int | None = None, supervised: tuple[int, ...] = ()) -> TextAttributedData:
    """A graph whose i-th token has id i."""
    total = sum(counts)
    labels = torch.full((total,), -100)
    labels[list(supervised)] = 7
    return TextAttributedData(
        edge_index=torch.empty(2, 0, dtype=torch.long),
        input_ids=torch.arange(total),
        num_tokens=torch.tensor(counts),
        labels=labels,
        target=target,
    )


def test_target_stands_last_in_its_graph_and_positions_restart() -> None:
    batch = Batch.from_data_list([text_graph([2, 3, 1], target=1), text_graph([1, 2], target=0)])
    layout = TokenLayout.from_data(batch)
    assert layout.order.tolist() == [0, 1, 5, 2, 3, 4, 7, 8, 6]
    assert layout.node.tolist() == [0, 0, 2, 1, 1, 1, 1, 1, 0]
    assert layout.position.tolist() == [0, 1, 0, 0, 1, 2, 0, 1, 0]
    assert layout.is_target.tolist() == [False] * 3 + [True] * 3 + [False] * 2 + [True]
    assert layout.graph_ptr.tolist() == [0, 6, 9]
    assert layout.last.tolist() == [5, 8]
    assert layout.graph.tolist() == [0] * 6 + [1] * 3
    assert layout.num_nodes.tolist() == [3, 2]
    assert (layout.num_graphs, layout.num_tokens) == (2, 9)


def test_a_graph_without_target_keeps_its_order() -> None:
    layout = TokenLayout.from_data(text_graph([1, 0, 2]))
    assert layout.order.tolist() == [0, 1, 2]
    assert layout.node.tolist() == [0, 2, 2]
    assert not layout.is_target.any()


def test_answers_are_cut_at_the_first_supervised_token() -> None:
    graphs = [text_graph([2, 4], target=1, supervised=(4,)), text_graph([3, 1], target=0, supervised=())]
    layout = TokenLayout.from_data(Batch.from_data_list(graphs), answers=False)
    assert layout.order.tolist() == [0, 1, 2, 3, 9, 6, 7, 8]
    assert layout.graph_ptr.tolist() == [0, 4, 8]
    assert layout.num_nodes.tolist() == [2, 2]


def test_supervised_context_is_refused() -> None:
    with pytest.raises(ValueError, match="'labels' supervises node 0, which is not the target"):
        TokenLayout.from_data(text_graph([2, 2], target=1, supervised=(1,)))


def test_a_graph_without_tokens_is_refused() -> None:
    with pytest.raises(ValueError, match="no 'num_tokens'"):
        TokenLayout.from_data(TextAttributedData(text=["a"], edge_index=torch.empty(2, 0, dtype=torch.long)))


def test_an_unknown_mode_is_refused() -> None:
    with pytest.raises(ValueError, match="'mode' is 'both'"):
        TokenLayout.from_data(text_graph([1]), mode="both")  # type: ignore[arg-type]


@SETTINGS
@given(layouts())
def test_visible_by_hand(layout: TokenLayout) -> None:
    graph, target = layout.graph.tolist(), layout.is_target.tolist()
    for i in range(layout.num_tokens):
        for j in range(layout.num_tokens):
            rule = {"causal": j <= i, "full": True, "prefix": not target[j] or (target[i] and j <= i)}[layout.mode]
            assert layout.visible()[i, j] == (graph[i] == graph[j] and rule)


@SETTINGS
@given(layouts())
def test_nodes_and_window_by_hand(layout: TokenLayout) -> None:
    size, window = int(layout.num_nodes.max()), 2
    nodes = torch.rand(layout.num_graphs, size, size, generator=torch.Generator().manual_seed(0)) < 0.5
    graph, node, position = layout.graph.tolist(), layout.node.tolist(), layout.position.tolist()
    actual, plain = layout.visible(nodes, window), layout.visible()
    for i in range(layout.num_tokens):
        for j in range(layout.num_tokens):
            one_node = node[i] == node[j]
            linked = one_node or -1 in (node[i], node[j]) or bool(nodes[graph[i], node[i], node[j]])
            if layout.mode == "causal":
                near = abs(i - j) < window
            else:
                near = not one_node or abs(position[i] - position[j]) < window
            assert actual[i, j] == (bool(plain[i, j]) and linked and near)


@SETTINGS
@given(layouts())
def test_expand_pairs_by_hand(layout: TokenLayout) -> None:
    size = int(layout.num_nodes.max())
    pairs = torch.randn(layout.num_graphs, 2, size, size)
    actual = layout.expand_pairs(pairs, fill=9.0)
    graph, node = layout.graph.tolist(), layout.node.tolist()
    for i in range(layout.num_tokens):
        for j in range(layout.num_tokens):
            apart = graph[i] == graph[j] and node[i] != node[j] and -1 not in (node[i], node[j])
            expected = pairs[graph[i], :, node[i], node[j]] if apart else torch.full((2,), 9.0)
            assert torch.equal(actual[:, i, j], expected)


def test_to_moves_every_tensor() -> None:
    layout = make_layout([[2, 1]], "prefix", [0]).to("meta")
    assert all(x.device.type == "meta" for x in vars(layout).values() if isinstance(x, torch.Tensor))


@pytest.mark.parametrize("sizes", [[2, 3, 0, 1], [2, 2], [0]])
def test_to_dense_pairs(sizes: list[int]) -> None:
    ptr = torch.tensor([0, *sizes]).cumsum(0)
    blocks = [torch.randn(n, n, 3) for n in sizes]
    dense = to_dense_pairs(torch.cat([x.flatten(0, 1) for x in blocks]), ptr, fill=-1)
    assert dense.shape == (len(sizes), max(sizes), max(sizes), 3)
    for graph, (n, block) in enumerate(zip(sizes, blocks, strict=True)):
        assert torch.equal(dense[graph, :n, :n], block)
        assert bool((dense[graph, n:] == -1).all())
        assert bool((dense[graph, :, n:] == -1).all())


def test_to_dense_pairs_wants_one_row_per_pair() -> None:
    with pytest.raises(ValueError, match="'x' has 4 rows, expected 5"):
        to_dense_pairs(torch.zeros(4), torch.tensor([0, 1, 3]))

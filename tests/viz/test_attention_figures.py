"""Attention over the nodes of a graph."""

import matplotlib
import pytest
import torch
from torch_geometric.data import Data

from pyg_textgraph.viz import plot_node_attention

matplotlib.use("Agg")


def graph() -> Data:
    return Data(edge_index=torch.tensor([[0, 1, 3, 3], [1, 2, 0, 2]]), num_nodes=4, target=3)


def test_bars_are_the_shares() -> None:
    share = torch.tensor([0.1, 0.2, 0.3, 0.4])
    figure = plot_node_attention(graph(), share, ["a", "b", "c", "?"], title="Where it looks")
    left, right = figure.axes
    torch.testing.assert_close(torch.tensor([bar.get_width() for bar in right.patches]), share, check_dtype=False)
    assert [tick.get_text() for tick in right.get_yticklabels()] == ["a", "b", "c", "? (target)"]
    assert sorted(text.get_text() for text in left.texts) == ["?", "a", "b", "c"]
    assert figure.get_suptitle() == "Where it looks"
    assert right.get_xlabel() == "share of attention"


def test_no_edges_no_target_no_attention() -> None:
    figure = plot_node_attention(Data(edge_index=torch.empty(2, 0, dtype=torch.long), num_nodes=2), torch.zeros(2))
    assert len(figure.axes) == 2


@pytest.mark.parametrize(("share", "names"), [(torch.ones(3), None), (torch.ones(4), ["a"])])
def test_one_number_and_name_per_node(share: torch.Tensor, names: list[str] | None) -> None:
    with pytest.raises(ValueError, match="expected \\(4,\\), one per node"):
        plot_node_attention(graph(), share, names)

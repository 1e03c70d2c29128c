import math

import matplotlib as mpl
import pytest
import torch
from torch.testing import assert_close

from pyg_textgraph.data.sparse_edges import SparseEdges
from pyg_textgraph.viz import distance_shares, plot_distances, plot_token_edges, plot_weight_entropy, weight_entropy

mpl.use("agg")


def states(batch: int = 1) -> list[SparseEdges]:
    torch.manual_seed(0)
    out = [SparseEdges.causal_window(6, 3)]
    index = (torch.rand(6, 3, 2) * torch.arange(1, 7).view(6, 1, 1)).int()
    out.append(SparseEdges(index, torch.rand(6, 3, 2).softmax(-1)))
    return [SparseEdges(*(t.expand(batch, *t.shape) for t in (e.index, e.weight))) for e in out]


def test_entropy_of_hard_even_and_empty_edges() -> None:
    weight = torch.tensor([[[1.0, 0.0], [0.5, 0.5], [0.0, 0.0]]])
    assert_close(weight_entropy(SparseEdges(torch.zeros(1, 3, 2), weight)), torch.tensor([[0, math.log(2), 0]]))


def test_distance_shares_by_hand() -> None:
    edges = SparseEdges.causal_window(4, 2)  # distances 0 everywhere and 0, 1, 1, 1
    assert_close(distance_shares(edges, (0, 1, 2)), torch.tensor([5 / 8, 3 / 8, 0]))
    assert_close(distance_shares(states()[1]).sum(), torch.tensor(1.0))


def test_figures_show_every_layer_and_pointer() -> None:
    edges = states()
    ax = plot_token_edges(edges, 5, labels=list("abcdef")).axes[0]
    assert [len(dots.get_offsets()) for dots in ax.collections] == [3, 6]
    assert [label.get_text() for label in ax.get_xticklabels()] == list("abcdef")
    line = plot_weight_entropy(edges).axes[0].lines[0].get_ydata()
    assert_close(
        torch.tensor(line), torch.tensor([weight_entropy(e).mean() for e in edges]).double(), check_dtype=False
    )
    bars = plot_distances(edges, (0, 1, 2)).axes[0].patches
    assert sum(bar.get_height() for bar in bars) == pytest.approx(2)


def test_a_batch_is_refused() -> None:
    with pytest.raises(ValueError, match="one sequence are expected, got SparseEdges"):
        plot_token_edges(states(batch=2), 3)

import matplotlib
import pytest
import torch

matplotlib.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

from pyg_textgraph.nn.gala import HeadStrengths, rope_retention
from pyg_textgraph.viz import gala as viz


@pytest.fixture
def ax() -> Axes:
    return plt.subplots()[1]


def test_retention_shows_the_curves(ax: Axes) -> None:
    viz.plot_retention(1e4, ax=ax)
    delta = torch.as_tensor(ax.lines[1].get_xdata())
    torch.testing.assert_close(torch.as_tensor(ax.lines[1].get_ydata()), rope_retention(delta, 1e4))
    assert len(ax.lines) == 3


def test_gap_bins_have_equal_sizes(ax: Axes) -> None:
    gap = torch.tensor([4, 1, 3, 2])
    viz.plot_against_gap(gap, gap.float(), "bfs", bins=2, ax=ax)
    assert ax.lines[0].get_xdata().tolist() == ax.lines[0].get_ydata().tolist() == [1.5, 3.5]


def test_ranks_and_changes(ax: Axes) -> None:
    viz.plot_rank_by_distance({"correct": {1: [1.0, 3.0], 2: [5.0]}}, ax=ax)
    assert ax.lines[0].get_ydata().tolist() == [2.0, 5.0]
    figure = viz.plot_rank_change({"corrected": [-3.0, -1.0], "stayed correct": [0.0, 1.0]})
    assert [label.get_text() for label in figure.axes[0].get_xticklabels()] == ["corrected", "stayed correct"]


def test_points_and_strengths(ax: Axes) -> None:
    figure = viz.plot_accuracy_against_time({"BFS": (0.2, 0.8), "GaLA": (0.21, 0.9)}, ax=ax)
    assert figure is ax.figure
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["BFS", "GaLA"]
    assert viz.plot_strengths(HeadStrengths.random(3, 4)).axes[0].images[0].get_array().shape == (3, 4)

import matplotlib as mpl
import pytest
import torch

from pyg_textgraph.nn import GraphBias, GraphBiasConfig
from pyg_textgraph.viz import plot_bias_size, plot_distance_tables

mpl.use("agg")


def bias(**kwargs: object) -> GraphBias:
    out = GraphBias(3, 2, GraphBiasConfig(max_dist=4, **kwargs))  # type: ignore[arg-type]
    with torch.no_grad():
        for number, layer in enumerate(out.layers):
            if "spd" in layer:
                layer["spd"].table.copy_(torch.arange(layer["spd"].table.numel()).view(2, -1) - 3.0 + number)
    return out


def test_the_table_of_a_layer() -> None:
    figure = plot_distance_tables(bias(), layer=1)
    ax = figure.axes[0]
    assert ax.images[0].get_array().tolist() == [[-2, -1, 0, 1], [2, 3, 4, 5]]
    assert [text.get_text() for text in ax.texts][:2] == ["-2.00", "-1.00"]
    assert [label.get_text() for label in ax.get_xticklabels()] == ["1", "2", "3", "≥ 4\nor no path"]


def test_unreachable_pairs_have_a_name_of_their_own() -> None:
    ax = plot_distance_tables(bias(unreachable=True), layer=0).axes[0]
    assert [label.get_text() for label in ax.get_xticklabels()] == ["1", "2", "3", "≥ 4", "no path"]


def test_an_untrained_bias_can_be_drawn() -> None:
    plot_distance_tables(GraphBias(1, 2), 0).canvas.draw()


def test_size_per_layer_and_head() -> None:
    size = plot_bias_size(bias()).axes[0].images[0].get_array()
    assert size.shape == (3, 2)
    assert size[1, 0] == pytest.approx((6 / 4) ** 0.5)


def test_what_is_not_there_is_refused() -> None:
    with pytest.raises(ValueError, match="'layer' is 3, expected 0 to 2"):
        plot_distance_tables(bias(), 3)
    for plot in (lambda b: plot_distance_tables(b, 0), plot_bias_size):
        with pytest.raises(ValueError, match=r"biases are \['rrwp'\], expected 'spd' among them"):
            plot(bias(biases=("rrwp",)))

from pathlib import Path

import matplotlib as mpl
import pytest
import torch
from torch.utils.data import Dataset
from torch_geometric.data import Data

from pyg_textgraph.train import TrainConfig, Trainer
from pyg_textgraph.viz import plot_cost, plot_learning_curves, read_log

mpl.use("agg")


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.tensor(1.0))

    def forward(self, batch: Data) -> torch.Tensor:
        return (self.weight * batch.x).square().mean()


class Graphs(Dataset[Data]):
    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> Data:
        return Data(x=torch.full((1, 1), index + 1.0))


@pytest.fixture
def history(tmp_path: Path) -> list[dict[str, float]]:
    model = Model()
    config = TrainConfig(batch_size=1, validate_every=4)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    return Trainer(model, Graphs(), optimizer, config, tmp_path, lambda m: float(m.weight.detach())).run()


def test_the_log_is_the_history(history: list[dict[str, float]], tmp_path: Path) -> None:
    log = read_log(tmp_path / "log.csv")
    assert len(log) == len(history) == 8
    for told, kept in zip(log, history, strict=True):
        assert told["loss"] == pytest.approx(kept["loss"], rel=1e-4)
        assert ("score" in told) == ("score" in kept)


def test_curves_show_every_run(history: list[dict[str, float]], tmp_path: Path) -> None:
    figure = plot_learning_curves({"one": history, "two": tmp_path / "log.csv"}, smooth=2)
    loss, score = figure.axes
    assert [text.get_text() for text in loss.get_legend().get_texts()] == ["one", "two"]
    assert loss.lines[0].get_ydata()[0] == pytest.approx((history[0]["loss"] + history[1]["loss"]) / 2)
    assert len(loss.lines[0].get_ydata()) == 7
    assert list(score.lines[0].get_xdata()) == [row["step"] for row in history if "score" in row]
    assert loss.lines[0].get_linestyle() != loss.lines[1].get_linestyle()  # readable without colour
    assert all(ax.get_xlabel() and ax.get_ylabel() and ax.get_title() for ax in figure.axes)


def test_without_validation_there_is_one_axis() -> None:
    assert len(plot_learning_curves({"run": [{"step": 1, "loss": 2.0}]}).axes) == 1
    with pytest.raises(ValueError, match=r"'runs' is \['empty'\], expected runs with at least one step"):
        plot_learning_curves({"empty": []})


def test_cost_is_sorted_by_size() -> None:
    ax = plot_cost({"dense": {10: 1.0, 2: 0.1}, "k hops": {2: 0.2}}).axes[0]
    assert list(ax.lines[0].get_xdata()) == [2, 10]
    assert list(ax.lines[0].get_ydata()) == [0.1, 1.0]
    assert (ax.get_xscale(), ax.get_yscale()) == ("log", "log")
    with pytest.raises(ValueError, match=r"'bad' has size and cost \(0, 1\.0\)"):
        plot_cost({"bad": {0: 1.0}})

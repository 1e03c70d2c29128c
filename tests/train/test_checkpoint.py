"""Checkpoints are whole, hold what training changes, and fit one model."""

from pathlib import Path

import pytest
import torch
from torch import nn

from pyg_textgraph.train.checkpoint import load_checkpoint, load_trained, save_checkpoint, trained_parameters
from tests.train.test_trainer import Line


class TestCheckpoint:
    def test_only_what_trains_is_kept(self, tmp_path: Path) -> None:
        model = Line()
        save_checkpoint(tmp_path / "c", trained_parameters(model), {"step": 1})
        parameters, state = load_checkpoint(tmp_path / "c")
        assert "frozen" not in parameters
        assert state == {"step": 1}
        other = Line()
        nn.init.zeros_(other.lin[0].weight)
        load_trained(other, parameters)
        assert torch.equal(other.lin[0].weight, model.lin[0].weight)

    def test_statistics_of_trained_modules_are_kept(self) -> None:
        model, frozen = nn.BatchNorm1d(2), nn.BatchNorm1d(2).requires_grad_(False)
        both = nn.Sequential(model, frozen)
        both(torch.randn(8, 2))
        values = {name: value.clone() for name, value in trained_parameters(both).items()}
        assert {name.split(".")[1] for name in values} == {
            "weight", "bias", "running_mean", "running_var", "num_batches_tracked",
        }  # fmt: skip
        assert all(name.startswith("0.") for name in values)
        both(torch.randn(8, 2))
        with torch.no_grad():
            load_trained(both, values)
        assert torch.equal(model.running_mean, values["0.running_mean"])

    def test_is_read_where_there_is_no_gpu(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("torch.serialization.location_tag", lambda storage: "cuda:0")
        save_checkpoint(tmp_path / "c", {"w": torch.ones(1)}, {"moment": torch.ones(2)})
        assert load_checkpoint(tmp_path / "c")[1]["moment"].device == torch.device("cpu")

    def test_a_crash_while_saving_leaves_the_old_one(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        save_checkpoint(tmp_path / "c", {"w": torch.zeros(1)}, {"step": 1})

        def die(*args: object) -> None:
            raise KeyboardInterrupt

        for moment in ("save_file", "torch.save"):
            with monkeypatch.context() as patch:
                patch.setattr(f"pyg_textgraph.train.checkpoint.{moment}", die)
                with pytest.raises(KeyboardInterrupt):
                    save_checkpoint(tmp_path / "c", {"w": torch.ones(1)}, {"step": 2})
            assert load_checkpoint(tmp_path / "c")[1] == {"step": 1}
        save_checkpoint(tmp_path / "c", {"w": torch.ones(1)}, {"step": 2})
        assert load_checkpoint(tmp_path / "c")[1] == {"step": 2}

    def test_another_models_checkpoint_is_refused(self) -> None:
        values = dict(trained_parameters(Line()))
        with pytest.raises(ValueError, match=r"'lin.0.weight' is of shape \(2, 2\), expected \(8, 3\)"):
            load_trained(Line(), values | {"lin.0.weight": torch.zeros(2, 2)})
        values.pop("lin.0.weight")
        with pytest.raises(ValueError, match=r"1 names differ, first 'lin.0.weight'"):
            load_trained(Line(), values)

    def test_nothing_there(self, tmp_path: Path) -> None:
        with pytest.raises(FileNotFoundError, match="there is no checkpoint"):
            load_checkpoint(tmp_path / "c")


def test_statistics_of_layers_without_parameters_are_kept(tmp_path: Path) -> None:
    def model() -> nn.Module:
        return nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2, affine=False))

    before = model()
    before(torch.randn(8, 3))
    save_checkpoint(tmp_path, trained_parameters(before), {})
    after = model()
    load_trained(after, load_checkpoint(tmp_path)[0])
    assert torch.equal(after[1].running_mean, before[1].running_mean)
    assert after[1].num_batches_tracked == 1

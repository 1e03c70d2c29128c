"""Training can be stopped anywhere and goes on as if nothing had happened."""

import math
import os
import signal
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset
from torch_geometric.data import Batch, Data

from pyg_textgraph.data import append_to_target
from pyg_textgraph.train import Interrupted, TrainConfig, Trainer
from pyg_textgraph.train.checkpoint import load_checkpoint
from tests.nn.families import tiny
from tests.nn.gtlm_graphs import gtlm, text_graph

CONFIG = TrainConfig(epochs=3, batch_size=2, accumulate=2, save_every=2, seed=3)


class Points(Dataset[Data]):
    """Eleven points of a noisy line; what they are depends on the epoch."""

    def __init__(self) -> None:
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __len__(self) -> int:
        return 11

    def __getitem__(self, index: int) -> Data:
        generator = torch.Generator().manual_seed(index + 100 * self.epoch)
        x = torch.randn(1, 3, generator=generator)
        return Data(x=x, y=x.sum(-1) + 0.1 * torch.randn(1, generator=generator))


class Line(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.frozen = nn.Parameter(torch.ones(1), requires_grad=False)
        self.lin = nn.Sequential(nn.Linear(3, 8), nn.Dropout(0.5), nn.Linear(8, 1))

    def forward(self, batch: Batch) -> Tensor:
        return (self.lin(batch.x)[:, 0] - batch.y).square().mean()


def trainer(folder: Path, model: nn.Module | None = None, config: TrainConfig = CONFIG, **kwargs: object) -> Trainer:
    model = model or Line()
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=0.05)
    return Trainer(model, Points(), optimizer, config, folder, **kwargs)  # type: ignore[arg-type]


def curve(history: list[dict[str, float]]) -> list[float]:
    return [row["loss"] for row in history]


def test_a_resumed_run_is_the_unbroken_run(tmp_path: Path) -> None:
    whole = trainer(tmp_path / "whole")
    expected = whole.run()
    assert [row["step"] for row in expected] == list(range(1, 10))  # 6 batches, 3 steps an epoch
    for stop in (1, 2, 4):
        broken = trainer(tmp_path / f"stop{stop}")
        broken._update = stopping_after(broken, stop)  # type: ignore[method-assign]
        with pytest.raises(Interrupted, match=f"stopped at step {stop} of 9"):
            broken.run()
        resumed = trainer(tmp_path / f"stop{stop}")
        assert curve(resumed.run(resume=True)) == curve(expected)
        for a, b in zip(resumed.model.parameters(), whole.model.parameters(), strict=True):
            assert torch.equal(a, b)


def stopping_after(run: Trainer, step: int):  # type: ignore[no-untyped-def]
    """One update that is interrupted, as by Ctrl-C, in its middle."""
    update = run._update

    def wrapped(batches: list[Batch]) -> dict[str, float]:
        row = update(batches)
        if run.step == step:
            os.kill(os.getpid(), signal.SIGINT)
        return row

    return wrapped


def test_signals_act_as_before_afterwards(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGINT)
    trainer(tmp_path).run()
    assert signal.getsignal(signal.SIGINT) is before


def test_the_best_parameters_are_put_back(tmp_path: Path) -> None:
    model, seen = Line(), []
    scores = iter([0.1, 0.9, 0.5])

    def validate(m: nn.Module) -> float:
        assert not m.training
        seen.append([p.clone() for p in m.parameters()])
        return next(scores)

    history = trainer(tmp_path, model, validate=validate).run()
    assert [row["score"] for row in history if "score" in row] == [0.1, 0.9, 0.5]
    for a, b in zip(model.parameters(), seen[1], strict=True):
        assert torch.equal(a, b)


def test_resuming_another_run_is_refused(tmp_path: Path) -> None:
    trainer(tmp_path).run()
    other = TrainConfig(epochs=5, batch_size=2, accumulate=2)
    with pytest.raises(ValueError, match="is of a run of 9 steps, this one has 15"):
        trainer(tmp_path, config=other).run(resume=True)


def test_another_configuration_or_rate_is_refused(tmp_path: Path) -> None:
    trainer(tmp_path).run()
    with pytest.raises(ValueError, match="is of a run with seed 3, this one has 4"):
        trainer(tmp_path, config=replace(CONFIG, seed=4)).run(resume=True)
    other = trainer(tmp_path)
    other.rates = [0.1]
    with pytest.raises(ValueError, match=r"with learning rates \[0\.05\], this one has \[0\.1\]"):
        other.run(resume=True)
    assert trainer(tmp_path, config=replace(CONFIG, save_every=5)).run(resume=True)


def test_a_new_run_leaves_nothing_of_the_old_one(tmp_path: Path) -> None:
    trainer(tmp_path, validate=lambda _: 1.0).run()

    class Dies(Line):
        def forward(self, batch: Batch) -> Tensor:
            raise ArithmeticError

    with pytest.raises(ArithmeticError):
        trainer(tmp_path, Dies()).run()
    again = trainer(tmp_path)
    assert len(again.run(resume=True)) == again.num_steps  # from the start
    assert not (tmp_path / "best").exists()


@pytest.mark.parametrize(("batch_size", "accumulate"), [(4, 3), (8, 2), (11, 1)])
def test_parts_weigh_as_much_as_they_hold(tmp_path: Path, batch_size: int, accumulate: int) -> None:
    """Eleven points in unequal parts are one step on all of them."""
    config = TrainConfig(batch_size=batch_size, accumulate=accumulate, clip=None)
    model = Line().eval()
    model.train = lambda mode=True: model  # type: ignore[method-assign]
    [row] = trainer(tmp_path, model, config).run()
    points = Batch.from_data_list([Points()[i] for i in range(11)])
    assert row["loss"] == pytest.approx(float(Line().eval()(points).detach()), rel=1e-5)


def test_supervised_tokens_weigh(tmp_path: Path) -> None:
    answers = [3, 17, 5, 11]
    graphs = [append_to_target(text_graph(4, i), torch.arange(3, 3 + n), n) for i, n in enumerate(answers)]
    found = []
    for batch_size, accumulate in ((4, 1), (1, 4), (3, 2)):
        model = gtlm(tiny("llama"))
        optimizer = torch.optim.SGD(model.param_groups(0.0, 0.1))
        config = TrainConfig(batch_size=batch_size, accumulate=accumulate, clip=None)
        [row] = Trainer(model, graphs, optimizer, config, tmp_path / str(batch_size), name=None).run()  # type: ignore[arg-type]
        found.append([torch.tensor(row["loss"]), *(p.detach() for p in model.graph_bias.parameters())])
    torch.testing.assert_close(found[1], found[0], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(found[2], found[0], rtol=1e-4, atol=1e-5)


def test_going_on_with_the_same_trainer_keeps_its_checkpoints(tmp_path: Path) -> None:
    made = trainer(tmp_path, validate=lambda _: 1.0)
    history = made.run()
    assert made.run() == history
    assert (tmp_path / "best").is_dir()


def test_parts_without_supervised_tokens_weigh_too(tmp_path: Path) -> None:
    """Their loss may have other terms."""
    some = append_to_target(text_graph(4, 0), torch.arange(3, 8), 5)
    none = append_to_target(text_graph(4, 1), torch.arange(3, 8))

    class Constant(Line):
        def forward(self, batch: Batch) -> Tensor:
            return self.lin[0].weight.sum() * 0 + (1.0 if bool((batch.labels >= 0).any()) else 3.0)

    model = Constant()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    config = TrainConfig(batch_size=1, accumulate=2)
    [row] = Trainer(model, [some, none], optimizer, config, tmp_path, name=None).run()  # type: ignore[arg-type]
    assert row["loss"] == pytest.approx(2.0)


def test_scores_of_any_kind(tmp_path: Path) -> None:
    scores = iter([np.float32(math.nan), np.float64(0.5), torch.tensor(0.25)])
    run = trainer(tmp_path, validate=lambda _: next(scores))
    assert [row["score"] for row in run.run() if "score" in row][1:] == [0.5, 0.25]
    assert run.best == 0.5
    assert load_checkpoint(tmp_path / "best")[1]["score"] == 0.5


def test_items_may_be_random(tmp_path: Path) -> None:
    class Noise(Points):
        def __getitem__(self, index: int) -> Data:
            return Data(x=torch.randn(1, 3), y=torch.zeros(1))

    def run(folder: Path, resume: bool = False, stop: bool = False) -> list[float]:
        made = trainer(folder)
        made.dataset = Noise()
        if stop:
            update = made._update

            def dies(batches: list[Batch]) -> dict[str, float]:
                if made.step == 5:
                    raise ArithmeticError
                return update(batches)

            made._update = dies  # type: ignore[method-assign]
        return curve(made.run(resume))

    expected = run(tmp_path / "a")
    with pytest.raises(ArithmeticError):
        run(tmp_path / "b", stop=True)
    assert run(tmp_path / "b", resume=True) == expected


def test_learning_happens_and_is_logged(tmp_path: Path) -> None:
    config = TrainConfig(epochs=40, batch_size=4)
    history = trainer(tmp_path, config=config).run()
    assert sum(curve(history)[-10:]) < 0.5 * sum(curve(history)[:10])
    assert len((tmp_path / "log.csv").read_text().splitlines()) == len(history) + 1


def test_rate_rises_then_falls_to_a_tenth() -> None:
    config = TrainConfig(warmup=0.1, final_lr=0.1)
    rates = [config.rate(step, 100) for step in range(101)]
    assert rates[0] == pytest.approx(0.1)
    assert rates[9] == pytest.approx(1.0)
    assert rates[55] == pytest.approx(0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * 0.5)))
    assert rates[100] == pytest.approx(0.1)
    assert TrainConfig(warmup=0).rate(0, 10) == 1.0


@pytest.mark.parametrize(("name", "value"), [("epochs", 0), ("batch_size", 0), ("accumulate", 0), ("warmup", 1.5)])
def test_bad_configuration(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=f"'{name}' is {value}"):
        TrainConfig(**{name: value})  # type: ignore[arg-type]


def test_tensorboard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    config = replace(CONFIG, tensorboard=True, save_every=2)
    broken = trainer(tmp_path, config=config)
    broken._update = dying_at(broken, 4)  # type: ignore[method-assign]
    with pytest.raises(MemoryError):
        broken.run()
    history = trainer(tmp_path, config=config, validate=lambda model: 0.5).run(resume=True)
    events = EventAccumulator(str(tmp_path / "tensorboard"), {"scalars": 0}).Reload()
    logged = [(event.step, event.value) for event in events.Scalars("loss")]
    assert logged == [(row["step"], pytest.approx(row["loss"])) for row in history]  # each step once, though resumed
    rates = [event.value for event in events.Scalars("learning rate/0")]
    assert rates == pytest.approx([0.05 * row["rate"] for row in history])
    assert [event.step for event in events.Scalars("score")] == [3, 6, 9]
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(ImportError, match=r"pip install 'pyg-textgraph\[tensorboard\]'"):
        trainer(tmp_path / "without", config=config).run()


def dying_at(run: Trainer, step: int):  # type: ignore[no-untyped-def]
    update = run._update

    def wrapped(batches: list[Batch]) -> dict[str, float]:
        if run.step == step - 1:
            raise MemoryError
        return update(batches)

    return wrapped


def test_bfloat16_products_and_float32_parameters(tmp_path: Path) -> None:
    seen = []

    model = Line()
    model.lin.register_forward_hook(lambda module, inputs, out: seen.append(out.dtype))
    history = trainer(tmp_path / "bf16", model, replace(CONFIG, bf16=True)).run()
    assert set(seen) == {torch.bfloat16}
    assert all(p.dtype == torch.float32 for p in model.parameters())
    expected = trainer(tmp_path / "full").run()
    assert curve(history) != curve(expected)
    assert curve(history) == pytest.approx(curve(expected), rel=0.05, abs=0.05)


def test_gtlm_trains_in_bfloat16(tmp_path: Path) -> None:
    losses = {}
    for bf16 in (False, True):
        model = gtlm(tiny("llama"), std=0.1)
        graphs = []
        for seed in range(4):
            graph = text_graph(4, seed)
            last = int(graph.token_ptr[graph.target + 1])
            graph.labels = torch.full_like(graph.input_ids, -100)
            graph.labels[last - 3 : last] = graph.input_ids[last - 3 : last]
            graphs.append(graph)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        config = TrainConfig(epochs=2, batch_size=2, bf16=bf16)
        losses[bf16] = curve(Trainer(model, graphs, optimizer, config, tmp_path / str(bf16)).run())  # type: ignore[arg-type]
    assert losses[True] != losses[False]
    assert losses[True] == pytest.approx(losses[False], rel=0.05)


def test_another_seed_is_another_run(tmp_path: Path) -> None:
    first = curve(trainer(tmp_path / "a").run())
    assert curve(trainer(tmp_path / "b").run()) == first
    assert curve(trainer(tmp_path / "c", config=replace(CONFIG, seed=4)).run()) != first


def test_the_optimizer_has_its_rates_back(tmp_path: Path) -> None:
    model = Line()
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.05)
    first = Trainer(model, Points(), optimizer, CONFIG, tmp_path / "first", name=None)
    first._update = stopping_after(first, 4)  # type: ignore[method-assign]
    with pytest.raises(Interrupted):
        first.run()
    again = Trainer(model, Points(), optimizer, CONFIG, tmp_path / "first", name=None)
    assert again.rates == first.rates == [0.05]
    again.run(resume=True)
    assert optimizer.param_groups[0]["lr"] == 0.05


def test_parts_without_a_loss_weigh_nothing(tmp_path: Path) -> None:
    some = [append_to_target(text_graph(4, i), torch.arange(3, 8), 5) for i in range(2)]
    none = append_to_target(text_graph(4, 2), torch.arange(3, 8))
    found = []
    for accumulate in (3, 1):
        model = gtlm(tiny("llama"))
        optimizer = torch.optim.SGD(model.param_groups(0.0, 0.1))
        config = TrainConfig(batch_size=3 // accumulate, accumulate=accumulate, clip=None)
        [row] = Trainer(model, [*some, none], optimizer, config, tmp_path, name=None).run()  # type: ignore[arg-type]
        found.append([torch.tensor(row["loss"]), *(p.detach() for p in model.graph_bias.parameters())])
    torch.testing.assert_close(found[1], found[0], rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match="in step 1 nothing is supervised"):
        Trainer(model, [none], optimizer, config, tmp_path, name=None).run()  # type: ignore[arg-type]

from functools import partial
from pathlib import Path

import pytest
import torch
from torch.testing import assert_close

from benchmarks.graph_machine.chase import COLOURS, REACH, accuracy, follow, puzzles
from benchmarks.graph_machine.compare import compare
from benchmarks.graph_machine.figures import accuracy as accuracy_figure
from benchmarks.graph_machine.figures import pointers
from benchmarks.graph_machine.pretrain import batch_of, held_out_loss
from benchmarks.graph_machine.text import documents, packed, train_tokenizer
from benchmarks.graph_machine.training import Recipe, fit, optimizer_of
from benchmarks.graph_machine.variants import VARIANTS, small_config
from pyg_textgraph.nn import GraphMachineLM


def tiny(variant: str = "hyperion-r1", seed: int = 0) -> GraphMachineLM:
    torch.manual_seed(seed)
    return GraphMachineLM(small_config(variant, width=16, layers=4, edges=4, vocab_size=32, head_dim=4))


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_variant_builds(variant: str) -> None:
    ids = torch.randint(1, 32, (1, 8))
    assert tiny(variant)(ids, labels=ids).loss.isfinite()


def test_rate_warms_up_and_decays_linearly() -> None:
    recipe = Recipe(steps=10, warmup=4)
    assert [recipe.rate(i) for i in range(10)] == pytest.approx(
        [0.25, 0.5, 0.75, 1, 1, 5 / 6, 4 / 6, 3 / 6, 2 / 6, 1 / 6]
    )


def test_one_dimensional_parameters_do_not_decay() -> None:
    groups = optimizer_of(tiny(), Recipe(steps=1)).param_groups
    assert [group["weight_decay"] for group in groups] == [0.1, 0.0]
    assert all(p.dim() == 1 for p in groups[1]["params"])


class Stop(Exception):
    pass


def test_a_stopped_run_goes_on_as_if_nothing_had_happened(tmp_path: Path) -> None:
    rows = torch.randint(1, 32, (9, 12), generator=torch.Generator().manual_seed(0))
    recipe = Recipe(steps=8, warmup=2, save_every=2)
    evaluate = partial(held_out_loss, rows=rows[:1], size=1)
    batches = partial(batch_of, rows=rows[1:], size=2)
    whole = tiny()
    expected = fit(whole, batches, evaluate, recipe, tmp_path / "whole")

    def breaks(step: int) -> tuple[torch.Tensor, torch.Tensor]:
        if step == 5:
            raise Stop
        return batches(step)

    with pytest.raises(Stop):
        fit(tiny(), breaks, evaluate, recipe, tmp_path / "cut")
    resumed = tiny(seed=1)  # whatever the weights were
    outcome = fit(resumed, batches, evaluate, recipe, tmp_path / "cut")
    assert outcome["measured"] == expected["measured"]
    assert list(expected["measured"]) == ["25%", "50%", "75%", "100%"]
    assert_close(resumed.state_dict(), whole.state_dict(), rtol=0, atol=0)
    assert fit(tiny(), batches, evaluate, recipe, tmp_path / "cut")["measured"] == expected["measured"]


def test_training_learns() -> None:
    torch.manual_seed(0)
    model, rows = tiny(), torch.randint(1, 32, (2, 12))
    optimizer = optimizer_of(model, Recipe(steps=1, learning_rate=1e-2))
    losses = []
    for _ in range(30):
        loss = model(rows, labels=rows).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    assert losses[-1] < 0.5 * losses[0]


def test_packing_starts_with_padding_and_loses_nothing(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a dog barks\n\na cat purrs at a dog\n\n\n", encoding="utf-8")
    texts = documents([tmp_path], None, None)
    assert texts == ["a dog barks", "a cat purrs at a dog"]
    tokenizer = train_tokenizer(texts, 300)
    rows = packed(texts, tokenizer, 6)
    assert (rows[:, 0] == 0).all()
    assert not (rows[:, 1:] == 0).any()
    text = tokenizer.decode(rows[:, 1:].flatten())
    assert "<eos>".join(texts).startswith(text[:8]) or "<eos>".join(texts[::-1]).startswith(text[:8])
    assert tokenizer.decode(tokenizer("naïve 犬").input_ids) == "naïve 犬"  # bytes: nothing is unknown


def test_every_pass_sees_every_sequence_once() -> None:
    rows = torch.arange(12).view(6, 2)
    for first in (0, 3):
        seen = torch.cat([batch_of(step, rows, 2)[0] for step in range(first, first + 3)])
        assert sorted(seen[:, 0].tolist()) == [0, 2, 4, 6, 8, 10]
    assert not torch.equal(batch_of(0, rows, 2)[0], batch_of(3, rows, 2)[0])


def chase(ids: list[int], colours: int) -> list[tuple[int, int]]:
    """Colour and number of jumps of every token, one jump at a time."""
    found = []
    for place in range(len(ids)):
        jumps = 0
        while ids[place] > colours:
            place, jumps = place - (ids[place] - colours), jumps + 1
        found.append((ids[place], jumps))
    return found


def test_puzzles_have_right_answers() -> None:
    colours, reach = 3, 4
    ids, labels = puzzles(3, 20, 30, colours, reach, roots=0.1)
    assert (ids[:, 0] == 0).all()
    assert (ids.amin(), ids[:, 1:].amin(), ids.amax()) == (0, 1, colours + reach)
    jumps = follow((ids[:, 1:] - colours).clamp(min=0))[1]
    for row, label, depth in zip(ids.tolist(), labels.tolist(), jumps.tolist(), strict=True):
        expected = chase(row[1:], colours)
        assert label == [-100, -100, *(colour for colour, _ in expected[:-1])]
        assert depth == [count for _, count in expected]
    assert jumps.max() > 8
    assert not torch.equal(ids, puzzles(4, 20, 30, colours, reach, roots=0.1)[0])


def test_accuracy_is_by_number_of_jumps() -> None:
    ids, labels = puzzles(0, 20, 30, 3, 4, roots=0.1)

    class OneJump(torch.nn.Module):
        """Jumps once; names the colour there, or padding if there is none."""

        device = torch.device("cpu")

        def forward(self, part: torch.Tensor) -> object:
            place = torch.arange(part.size(1)) - (part - 3).clamp(min=0)
            there = part.gather(1, place)
            return type("Output", (), {"logits": torch.nn.functional.one_hot(there.masked_fill(there > 3, 0), 8)})

    measured = accuracy(OneJump(), ids, labels, colours=3, size=7)
    assert list(measured) == ["all", "1 jump", "2 jumps", "3–4 jumps", "5–8 jumps", "9–16 jumps"]
    assert (measured["1 jump"], measured["2 jumps"], measured["9–16 jumps"]) == (1, 0, 0)
    assert 0 < measured["all"] < 0.5


def test_figures_show_where_jumps_lead() -> None:
    torch.manual_seed(0)
    config = small_config("hyperion-r1", width=16, layers=4, edges=4, vocab_size=1 + COLOURS + REACH, head_dim=4)
    ax = pointers(GraphMachineLM(config).eval(), length=12, seed=1).axes[0]
    ids = puzzles(1, 1, 12, COLOURS, REACH, roots=0.1)[0]
    jumps = follow((ids - COLOURS).clamp(min=0))[1]
    assert jumps.max() > 1
    assert len(ax.patches) == jumps.max()
    assert len(ax.collections) == 3  # sparse layers
    rows = [{"case": f"{v} at {d}", "value": 0.5} for v in ("dense", "sparse") for d in ("all", "1 jump", "3–4 jumps")]
    lines = accuracy_figure(rows).axes[0].lines
    assert [len(line.get_xdata()) for line in lines] == [2, 2]


def test_differences_come_with_their_spread() -> None:
    losses = [("dense", 2.0), ("dense", 2.2), ("hyperion-r0", 1.0), ("hyperion-r0", 1.1), ("hyperion-r3", 0.95)]
    reports = [{"variant": name, "loss": {"100%": x}, "parameters": 1, "steps": 1} for name, x in losses]
    rows = {(row["case"], row.get("peer", "").split(",")[0]): row for row in compare(reports, "loss")}
    row = rows["hyperion-r0 at 100%", "dense"]
    assert (row["value"], row["peer_value"], row["difference"]) == (1.05, 2.1, -1.05)
    noise = (0.02 + 0.005) / 2  # variance between seeds, of two variants with one degree of freedom each
    assert row["spread"] == pytest.approx((noise * (1 / 2 + 1 / 2)) ** 0.5, abs=1e-4)
    assert row["told_apart"]  # 9.4 standard errors, limit 4.3
    row = rows["hyperion-r3 at 100%", "hyperion-r0"]
    assert row["spread"] == pytest.approx((noise * (1 + 1 / 2)) ** 0.5, abs=1e-4)
    assert not row["told_apart"]
    assert rows["dense at 100%", ""]["seeds"] == 2
    assert all("spread" not in row for row in compare([reports[0], reports[2]], "loss"))

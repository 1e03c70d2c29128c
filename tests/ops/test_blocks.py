from collections.abc import Iterator

import pytest
import torch
from torch.testing import assert_close

from pyg_textgraph.ops import edge_attention, mix, sparsify
from pyg_textgraph.ops.blocks import for_each_block, row_blocks

CPU = torch.device("cpu")


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    threads = torch.get_num_threads()
    monkeypatch.setattr("pyg_textgraph.ops.blocks.BLOCK", 500)
    yield
    torch.set_num_threads(threads)


@pytest.mark.parametrize(("rows", "width"), [(0, 3), (1, 10**9), (10_000, 700), (7, 0)])
def test_blocks_cover_all_rows_once(rows: int, width: int) -> None:
    covered = [i for block in row_blocks(rows, width, CPU) for i in range(block.start, block.stop)]
    assert covered == list(range(rows))


def results() -> list[torch.Tensor]:
    torch.manual_seed(0)
    n = 60
    index = torch.randint(n, (n, 3, 4), dtype=torch.int32)
    weight = torch.rand(n, 3, 4).softmax(-1).requires_grad_()
    logits, heat = torch.randn(n, 3, 2, requires_grad=True), torch.rand(n, 2) + 0.5
    mixed = mix([(index, weight)], logits, 3, heat)
    q, k, v = (torch.randn(n, 2, 8, requires_grad=True) for _ in range(3))
    out, attention = edge_attention(q, k, v, *mixed, torch.ones(n, 2), torch.ones(n, 2))
    merged = sparsify(index.flatten(1), weight.flatten(1), 5)[1]
    loss = out.square().sum() + attention.square().sum() + merged.square().sum()
    return [out, attention, merged, *torch.autograd.grad(loss, [weight, logits, q, k, v])]


def test_threads_change_nothing(small_blocks: None) -> None:
    torch.set_num_threads(1)
    expected = results()
    for threads in (3, 2):
        torch.set_num_threads(threads)
        assert_close(results(), expected, rtol=1e-6, atol=1e-7)
        assert torch.get_num_threads() == threads


def test_workers_have_no_gradients_one_thread_and_pass_errors_on(small_blocks: None) -> None:
    torch.set_num_threads(2)
    seen = []
    for_each_block(lambda rows: seen.append((torch.is_grad_enabled(), torch.get_num_threads())), 50, 100, CPU)
    assert set(seen) == {(False, 1)}

    def fails(rows: slice) -> None:
        raise ArithmeticError(f"row {rows.start}")

    with pytest.raises(ArithmeticError, match="row 0"):
        for_each_block(fails, 50, 100, CPU)


def test_inference_mode_and_autocast_are_the_callers(small_blocks: None) -> None:
    """Both belong to a thread, and workers are others."""
    expected = results()[:3]
    for threads in (1, 2):
        torch.set_num_threads(threads)
        index, weight = torch.randint(9, (2000, 4)), torch.rand(2000, 4)
        with torch.inference_mode():
            assert_close(sparsify(index, weight, 2), sparsify(index, weight, 2))
        with torch.autocast("cpu", torch.bfloat16):
            assert_close(results()[:3], expected, rtol=1e-6, atol=1e-7)

"""Work on a few rows at a time, and on several such blocks at once."""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from threading import Barrier

import torch

BLOCK = 1 << 19  # elements of the largest temporary of a block: it stays in a core's cache


def row_blocks(rows: int, width: int, device: torch.device) -> list[slice]:
    """Consecutive rows in blocks of about ``BLOCK`` elements on a CPU, and of 64 times as many elsewhere."""
    step = max(1, BLOCK * (1 if device.type == "cpu" else 64) // max(width, 1))
    return [slice(i, min(i + step, rows)) for i in range(0, rows, step)]


def for_each_block(work: Callable[[slice], None], rows: int, width: int, device: torch.device) -> None:
    """Calls `work`, which must not need gradients, on every block of rows, in the types that it chooses itself.

    On a CPU each of PyTorch's threads takes whole blocks. The many small operations of a block then never wait for each
    other, which on a busy machine costs far more than the operations.
    """
    blocks, threads = row_blocks(rows, width, device), torch.get_num_threads()
    inference = torch.is_inference_mode_enabled()

    def quietly(block: slice) -> None:  # these modes are a thread's own
        with torch.inference_mode(inference), torch.no_grad(), torch.autocast(device.type, enabled=False):
            work(block)

    if device.type == "cpu" and threads > 1 and len(blocks) > 1:
        list(_pool(threads).map(quietly, blocks))
    else:
        for block in blocks:
            quietly(block)


@lru_cache(maxsize=1)
def _pool(threads: int) -> ThreadPoolExecutor:
    """One worker per thread, in which PyTorch's operations are serial."""
    pool = ThreadPoolExecutor(threads, "blocks", initializer=_serial)
    everyone = Barrier(threads)
    list(pool.map(lambda _: everyone.wait(), range(threads)))  # all workers have started
    torch.set_num_threads(threads)  # a worker's setting is its own, but it is also what later threads start with
    return pool


def _serial() -> None:
    torch.set_num_threads(1)
    torch.get_num_threads()  # a thread's first question settles its number


if hasattr(os, "register_at_fork"):  # threads do not survive a fork, which Windows has not
    os.register_at_fork(after_in_child=_pool.cache_clear)

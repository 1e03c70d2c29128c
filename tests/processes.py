"""Processes of a group."""

import os
from typing import NoReturn

import torch.distributed as dist


def leave_group() -> NoReturn:
    """Ends a process whose results are on disk.

    Taking the group apart joins gloo's threads while it holds the interpreter's lock, for which they may be waiting.
    """
    dist.barrier()
    os._exit(0)

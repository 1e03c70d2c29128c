"""Kills a process wherever it changes files."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from typing import Any

_EVENTS = {"open", "os.rename", "os.mkdir", "os.rmdir", "os.remove"}


def killed_everywhere(
    action: Callable[[], None], before: Callable[[], None] | None = None, step: int = 1
) -> Iterator[int]:
    """Runs an action in children that die by SIGKILL just before they change a file for the first, second, … time.

    Args:
        action: What is killed; once without being killed at the end.
        before: Done before each, here.
        step: Only every so many changes.
    """
    for moment in range(0, 1000, step):
        if before is not None:
            before()
        child = os.fork()
        if child == 0:
            _die_at(moment, action)
        status = os.waitpid(child, 0)[1]
        assert (os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL) or os.WEXITSTATUS(status) == 0
        yield moment
        if not os.WIFSIGNALED(status):
            return
    raise AssertionError("the action did not end")


def _die_at(moment: int, action: Callable[[], None]) -> None:
    left = moment

    def hook(event: str, args: tuple[Any, ...]) -> None:
        nonlocal left
        reads = event == "open" and not args[2] & (os.O_WRONLY | os.O_RDWR)
        if event in _EVENTS and not reads:
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            left -= 1

    code = 1
    try:
        sys.addaudithook(hook)
        action()
        code = 0
    finally:
        os._exit(code)

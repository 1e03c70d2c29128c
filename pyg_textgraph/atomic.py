"""Files and folders that are written whole or not at all, whatever kills the writer."""

from __future__ import annotations

import errno
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

if sys.platform != "win32":
    import fcntl

_NEW, _READY = ".new-", ".ready"


@contextmanager
def saving_file(path: str | Path) -> Iterator[Path]:
    """Gives a name beside **path** to write to; once the block has ended, that file takes the place of the old one."""
    path = Path(path)
    part = path.with_name(f".part-{os.getpid()}-{path.name}")  # the suffix stays: np.savez would add one
    try:
        yield part
        _sync(part)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
    _sync(path.parent)


@contextmanager
def saving_folder(folder: str | Path) -> Iterator[Path]:
    """Gives an empty folder to write to; once the block has ended, what is in it goes to **folder**, all or nothing.

    Files and folders of the same names are replaced, others stay. The new files are collected in a hidden folder
    within, which is renamed when all are on disk; from then on the save counts. They are moved to their places
    afterwards, by the next reader or writer if this one is killed. A process that waits for its turn at the same
    folder replaces what the first one wrote.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    with _locked(folder):
        _move_in(folder)
        for left in folder.glob(f"{_NEW}*"):
            if _abandoned(left):
                shutil.rmtree(left)
        new = Path(tempfile.mkdtemp(prefix=_NEW, dir=folder))
        held = os.open(new, os.O_RDONLY)
        _lock(held)
    try:
        yield new
        for path in (*new.rglob("*"), new):
            _sync(path)
        with _locked(folder):
            _move_in(folder)
            new.rename(folder / _READY)
            _move_in(folder)
    finally:
        shutil.rmtree(new, ignore_errors=True)
        os.close(held)


@contextmanager
def reading_folder(folder: str | Path) -> Iterator[Path]:
    """Keeps what :func:`saving_folder` wrote from changing while it is read, and finishes a save that was killed."""
    folder = Path(folder)
    if (folder / _READY).is_dir():
        with _locked(folder):
            _move_in(folder)
    with _locked(folder, shared=True):
        yield folder


def _move_in(folder: Path) -> None:
    """Moves a whole save to its place; can be stopped and begun again at any moment."""
    ready = folder / _READY
    if not ready.is_dir():
        return
    for item in sorted(ready.iterdir()):
        place = folder / item.name
        if place.is_dir() and not place.is_symlink():
            shutil.rmtree(place)
        elif item.is_dir():
            place.unlink(missing_ok=True)
        item.replace(place)
    ready.rmdir()
    _sync(folder)


@contextmanager
def _locked(folder: Path, shared: bool = False) -> Iterator[None]:
    """Waits for its turn; ends with the process, however that ends. A folder that does not exist needs no turn."""
    try:
        held = os.open(folder, os.O_RDONLY)
    except FileNotFoundError:
        yield
        return
    try:
        _lock(held, shared)
        yield
    finally:
        os.close(held)


def _lock(held: int, shared: bool = False, wait: bool = True) -> None:
    if sys.platform == "win32":
        return
    try:
        fcntl.flock(held, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if wait else fcntl.LOCK_NB))
    except OSError as error:
        if error.errno not in (errno.ENOLCK, errno.ENOTSUP):  # a file system without locks
            raise


def _abandoned(new: Path) -> bool:
    """Whether nobody writes there any more."""
    held = os.open(new, os.O_RDONLY)
    try:
        _lock(held, wait=False)
    except BlockingIOError:
        return False
    finally:
        os.close(held)
    return True


def _sync(path: Path) -> None:
    held = os.open(path, os.O_RDONLY)
    try:
        os.fsync(held)
    finally:
        os.close(held)

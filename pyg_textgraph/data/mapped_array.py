"""Arrays that stay on disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray


def mapped_array(path: Path, dtype: type[np.generic], owner: str) -> NDArray[Any]:
    """Opens a ``.npy`` file of one dimension memory-mapped.

    Args:
        path: The file; no pickle is read.
        dtype: What it must hold.
        owner: Named in messages.

    Raises:
        ValueError: If the file is damaged or holds something else.
    """
    try:
        # an array of length 0 cannot be mapped
        out = np.load(path, mmap_mode="r" if path.stat().st_size > 128 else None, allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise ValueError(f"{owner}: {path} is damaged: {error}") from None
    if out.dtype != dtype or out.ndim != 1:
        raise ValueError(f"{owner}: {path} holds {out.dtype} of shape {out.shape}, expected {dtype.__name__} (n,)")
    return out

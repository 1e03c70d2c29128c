"""What the Triton kernels of all ops on pointers can take."""

import torch
import triton
from torch import Tensor

INTERPRETED = bool(triton.knobs.runtime.interpret)  # kernels are made for one or the other at import
DTYPES = (torch.float16, torch.bfloat16, torch.float32)
MAX_CANDIDATES, MAX_KEPT = 64, 64  # of one list, which is in registers as a whole


def unsupported_tensors(floats: dict[str, Tensor], counted: dict[str, Tensor]) -> str | None:
    """Why kernels cannot take these tensors of floats, and those whose elements are counted in 32 bits; or None."""
    for name, x in floats.items():
        if not (x.is_cuda or INTERPRETED):
            return f"needs tensors on a CUDA device, '{name}' is on {x.device}"
        if x.dtype not in DTYPES:
            return f"takes float16, bfloat16 and float32, '{name}' is {x.dtype}"
    for name, x in counted.items():
        if x.numel() >= 2**31:
            return f"counts in 32 bits, which '{name}' of shape {tuple(x.shape)} exceeds"
    return None


def unsupported_list(candidates: int, kept: int) -> str | None:
    """Why kernels cannot merge lists of this length and keep so many pointers, or None."""
    if candidates > MAX_CANDIDATES:
        return f"takes lists of at most {MAX_CANDIDATES} candidates, got {candidates}"
    if candidates == 0:
        return "takes lists of at least one candidate, got 0"
    return f"keeps at most {MAX_KEPT} pointers, 's' is {kept}" if kept > MAX_KEPT else None

"""What the Triton kernels of all ops on pointers can take."""

import torch
import triton
from torch import Tensor

INTERPRETED = bool(triton.knobs.runtime.interpret)  # kernels are made for one or the other at import
DTYPES = (torch.float16, torch.bfloat16, torch.float32)


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

"""States of many nodes, in memory or in one memory-mapped safetensors file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Self

import torch
from torch import Tensor

from pyg_textgraph.pretrained import load_tensors

_DTYPES = {torch.float32: "F32", torch.float64: "F64", torch.bfloat16: "BF16", torch.float16: "F16"}


class NodeCache:
    """What the model's centres need to know of every node.

    Args:
        states: Of node 0, 1, …

    Shapes: **states** (N, S, d), S states a node
    """

    def __init__(self, states: Tensor) -> None:
        self.states = states

    @classmethod
    def allocate(cls, shape: tuple[int, int, int], dtype: torch.dtype, path: str | Path | None = None) -> Self:
        """An empty cache; with **path** a file that is filled in place, so that it need not fit into memory.

        Raises:
            ValueError: If the file format has no such type.
        """
        if path is None:
            return cls(torch.zeros(shape, dtype=dtype))
        if dtype not in _DTYPES:
            raise ValueError(f"NodeCache: 'dtype' is {dtype}, expected one of {sorted(map(str, _DTYPES))}")
        size = shape[0] * shape[1] * shape[2]
        num_bytes = size * dtype.itemsize
        entry = {"dtype": _DTYPES[dtype], "shape": list(shape), "data_offsets": [0, num_bytes]}
        header = json.dumps({"states": entry}).encode()
        header += b" " * (-len(header) % 8)  # the values start at a multiple of 8, as the format asks
        with open(path, "wb") as file:
            file.write(len(header).to_bytes(8, "little") + header)
            file.truncate(8 + len(header) + num_bytes)
        whole = torch.from_file(str(path), shared=True, size=8 + len(header) + num_bytes, dtype=torch.uint8)
        return cls(whole[8 + len(header) :].view(dtype).view(shape))

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Opens a file memory-mapped."""
        return cls(load_tensors(path)["states"])

    def __len__(self) -> int:
        return self.states.size(0)

    def __setitem__(self, nodes: Tensor, states: Tensor) -> None:
        self.states[nodes] = states.detach().to(self.states.device)

    def __getitem__(self, nodes: Tensor) -> Tensor:
        """States of nodes (…,): (…, S, d)."""
        return self.states[nodes]

"""How strongly each head is drawn along edges."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from pyg_textgraph.atomic import saving_file


@dataclass(frozen=True)
class HeadStrengths:
    """Relative strengths of all heads, to be multiplied by β.

    Args:
        values: 0 leaves a head alone.
        method: How they came about.

    Shapes:
        - **values** (L, H), not negative

    Raises:
        ValueError: If values are negative or not finite.
    """

    values: Tensor
    method: str

    def __post_init__(self) -> None:
        if self.values.dim() != 2 or not bool((self.values.isfinite() & (self.values >= 0)).all()):
            raise ValueError("HeadStrengths: 'values' must be (layers, heads) numbers, finite and not negative")

    @classmethod
    def all(cls, num_layers: int, num_heads: int) -> HeadStrengths:
        """1 for every head."""
        return cls(torch.ones(num_layers, num_heads), "all")

    @classmethod
    def random(cls, num_layers: int, num_heads: int, share: float = 0.5, seed: int = 0) -> HeadStrengths:
        """1 for a random share of each layer's heads, 0 for the others: what a choice of heads has to beat."""
        chosen = round(share * num_heads)
        noise = torch.rand(num_layers, num_heads, generator=torch.Generator().manual_seed(seed))
        return cls((noise.argsort(-1).argsort(-1) < chosen).float(), f"random {share:g}")

    @classmethod
    def from_entropy(cls, entropy: Tensor) -> HeadStrengths:
        r""":math:`\sqrt{H(h) / \max_{h'} H(h')}` over the heads of a layer; **entropy** is (L, H)."""
        return cls(_relative(entropy).sqrt(), "entropy")

    @classmethod
    def from_gradient(cls, gradient: Tensor) -> HeadStrengths:
        r""":math:`\max(0, -G) / \max_{h'} \max(0, -G)` over the heads of a layer; **gradient** is (L, H)."""
        return cls(_relative((-gradient).clamp(min=0)), "gradient")

    def save(self, path: str | Path) -> None:
        """Writes a JSON file."""
        with saving_file(path) as part:
            part.write_text(json.dumps({"method": self.method, "values": self.values.tolist()}))

    @classmethod
    def load(cls, path: str | Path) -> HeadStrengths:
        """Reads what :meth:`save` wrote."""
        saved = json.loads(Path(path).read_text())
        return cls(torch.tensor(saved["values"]), saved["method"])


def _relative(x: Tensor) -> Tensor:
    """Divides each layer by its largest value; a layer of zeros stays zero."""
    largest = x.amax(-1, keepdim=True)
    return torch.where(largest > 0, x / largest.where(largest > 0, 1), 0)

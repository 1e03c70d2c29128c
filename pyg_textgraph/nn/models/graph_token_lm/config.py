"""What a graph-token language model is made of, apart from its language model."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class GraphTokenConfig:
    """Configuration of a :class:`GraphTokenLM`.

    Args:
        channels: Length of the node vectors; 384 is MiniLM's.
        mask_ratio: Share of a graph's nodes whose vectors are hidden in training.
        feature_weight: Of the loss for hidden vectors; 0 hides none.
        topology_weight: Of the loss for edges.
        topology_channels: What a hidden state is projected to before edges are predicted.
    """

    channels: int = 384
    mask_ratio: float = 0.4
    feature_weight: float = 4.0
    topology_weight: float = 0.6
    topology_channels: int = 64

    def __post_init__(self) -> None:
        for name in ("channels", "topology_channels"):
            if getattr(self, name) < 1:
                raise ValueError(f"GraphTokenConfig: '{name}' is {getattr(self, name)}, expected at least 1")
        for name in ("feature_weight", "topology_weight"):
            if getattr(self, name) < 0:
                raise ValueError(f"GraphTokenConfig: '{name}' is {getattr(self, name)}, expected 0 or more")
        if not 0 <= self.mask_ratio <= 1:
            raise ValueError(f"GraphTokenConfig: 'mask_ratio' is {self.mask_ratio}, expected a share in [0, 1]")

"""All biases of all layers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from pyg_textgraph.nn.bias.features import PairFeatures
from pyg_textgraph.nn.bias.layers import MagneticBias, RRWPBias, SPDBias

BIASES = ("spd", "rrwp", "magnetic")


@dataclass
class GraphBiasConfig:
    """Which biases there are, and their sizes.

    Args:
        biases: Any of ``"spd"``, ``"rrwp"`` and ``"magnetic"``.
        max_dist: See :class:`SPDBias`.
        unreachable: See :class:`SPDBias`.
        walk_length: See :class:`RRWPBias`.
        kernel_dim: See :class:`MagneticBias`.
        eigval_dim: See :class:`MagneticBias`.
        bias_groups: How many magnetic biases there are, each shared by neighbouring layers; None: one per layer.
        checkpoint_bias: Whether backward computes the biases again instead of keeping their hidden layers.
    """

    biases: tuple[str, ...] = BIASES
    max_dist: int = 8
    unreachable: bool = False
    walk_length: int = 16
    kernel_dim: int = 32
    eigval_dim: int = 64
    bias_groups: int | None = None
    checkpoint_bias: bool = False

    def __post_init__(self) -> None:
        self.biases = tuple(name for name in BIASES if name in tuple(self.biases)) + tuple(
            name for name in self.biases if name not in BIASES
        )
        wrong = [name for name in self.biases if name not in BIASES]
        if wrong:
            raise ValueError(f"GraphBiasConfig: 'biases' holds {wrong}, expected any of {list(BIASES)}")
        for name in ("max_dist", "walk_length", "kernel_dim", "eigval_dim", "bias_groups"):
            if getattr(self, name) is not None and getattr(self, name) < 1:
                raise ValueError(f"GraphBiasConfig: '{name}' is {getattr(self, name)}, expected at least 1")


class LayerBias(nn.ModuleDict):
    """Some biases of one layer, read out of their hidden channels by one product."""

    def __init__(self, num_heads: int, config: GraphBiasConfig, names: Iterable[str]) -> None:
        make = {
            "spd": lambda: SPDBias(num_heads, config.max_dist, config.unreachable),
            "rrwp": lambda: RRWPBias(num_heads, config.walk_length),
            "magnetic": lambda: MagneticBias(num_heads, config.kernel_dim, config.eigval_dim),
        }
        super().__init__({name: make[name]() for name in names})

    def forward(self, inputs: dict[str, Any]) -> Tensor:
        """Shapes: **returns** (B, N, H, N), query first; with listed pairs (H, P)."""
        channels = [module.channels(inputs[name]) for name, module in self.items()]  # type: ignore[operator]
        weights, offsets = zip(*(module.readout() for module in self.values()), strict=True)  # type: ignore[operator]
        out = torch.matmul(torch.cat(weights, 1), torch.cat(channels, -2))
        offsets = tuple(x for x in offsets if x is not None)
        return out + sum(offsets)[:, None] if offsets else out


class GraphBias(nn.Module):
    r"""The bias :math:`b_\mathrm{SPD} + b_\mathrm{RRWP} + b_\mathrm{Mag}` of every layer and head.

    Its last layers and tables start at zero, so an untrained model is the language model without bias.

    Args:
        num_layers: Layers :math:`L`.
        num_heads: Heads :math:`H`.
        config: Which biases, and their sizes.
    """

    def __init__(self, num_layers: int, num_heads: int, config: GraphBiasConfig | None = None) -> None:
        super().__init__()
        self.config = config or GraphBiasConfig()
        self.num_heads = num_heads
        own, shared = self.config.biases, tuple[str, ...]()
        groups = self.config.bias_groups
        if groups is not None and "magnetic" in own:
            if groups > num_layers:
                raise ValueError(f"GraphBias: 'bias_groups' is {groups}, expected at most {num_layers}, one per layer")
            own, shared = tuple(name for name in own if name != "magnetic"), ("magnetic",)
        self.layers = nn.ModuleList(LayerBias(num_heads, self.config, own) for _ in range(num_layers))
        num_groups = groups if groups is not None and shared else 0
        self.groups = nn.ModuleList(LayerBias(num_heads, self.config, shared) for _ in range(num_groups))

    def reset_parameters(self) -> None:
        for module in self.modules():
            if isinstance(module, SPDBias | RRWPBias | MagneticBias):
                module.reset_parameters()

    def prepare(self, features: PairFeatures) -> dict[str, Any]:
        """What several layers share."""
        inputs = {name: getattr(features, name) for name in self.config.biases}
        if inputs.get("spd") is not None and len(self.layers):
            first: Any = self.layers[0]
            inputs["spd"] = first["spd"].one_hot(inputs["spd"])
        inputs["groups"] = [self._run(group, inputs) for group in self.groups]
        return inputs

    def forward(self, layer: int, inputs: dict[str, Any]) -> Tensor | None:
        """The bias of one layer, of inputs made by :meth:`prepare`.

        Shapes:
            - **returns** (B, H, N, N), row = query's node; with listed pairs (H, P); None without biases
        """
        parts = [self._run(self.layers[layer], inputs)] if len(self.layers[layer]) else []  # type: ignore[arg-type]
        if len(self.groups):
            parts.append(inputs["groups"][layer * len(self.groups) // len(self.layers)])
        if not parts:
            return None
        out = sum(parts[1:], parts[0])
        return out.transpose(1, 2) if out.dim() == 4 else out

    def _run(self, module: nn.Module, inputs: dict[str, Any]) -> Tensor:
        device = next(module.parameters()).device.type
        with torch.autocast(device, enabled=False):  # biases are small and have a high rate: always in their own type
            if self.config.checkpoint_bias and torch.is_grad_enabled():
                return checkpoint(module, inputs, use_reentrant=False)
            return module(inputs)

    def extra_repr(self) -> str:
        return f"{', '.join(self.config.biases) or 'none'}, layers={len(self.layers)}, heads={self.num_heads}"

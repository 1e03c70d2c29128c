"""The small models that are compared: same width, depth and data, different sparse layers."""

from __future__ import annotations

from typing import Any

from pyg_textgraph.nn import GraphMachineConfig

HYPERION, THEIA = [4, 4, 4, 4], [2, 4, 4, 2]

VARIANTS: dict[str, dict[str, Any]] = {
    "dense": {"num_sparse_layers": 0},
    "hyperion-r0": {"budgets": HYPERION, "num_referrals": 0},
    "hyperion-r1": {"budgets": HYPERION, "num_referrals": 1},
    "hyperion-r3": {"budgets": HYPERION, "num_referrals": 3},
    "theia-r0": {"budgets": THEIA, "num_referrals": 0},
    "theia-r3": {"budgets": THEIA, "num_referrals": 3},
    "hyperion-r3-s": {"budgets": HYPERION, "num_referrals": 3, "dense_refresh": 4},
    "hyperion-r3-no-realignment": {"budgets": HYPERION, "num_referrals": 3, "realign": False},
    "hyperion-r3-no-input-refresh": {"budgets": HYPERION, "num_referrals": 3, "input_refresh": 0},
}


def small_config(
    variant: str, *, width: int, layers: int, edges: int, vocab_size: int, head_dim: int = 64
) -> GraphMachineConfig:
    """Three sparse layers to a dense one, two heads to a group, feed-forward of three widths."""
    heads = width // head_dim
    return GraphMachineConfig(
        **{
            "vocab_size": vocab_size,
            "hidden_size": width,
            "intermediate_size": 3 * width,
            "num_hidden_layers": layers,
            "num_sparse_layers": layers * 3 // 4,
            "num_attention_heads": heads,
            "num_key_value_heads": max(1, heads // 2),
            "head_dim": head_dim,
            "num_edges": edges,
            "input_refresh": min(8, edges),
            "pad_token_id": 0,
            **VARIANTS[variant],
        }
    )

"""What graph biases learned."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from pyg_textgraph.nn import GraphBias


def plot_distance_tables(bias: GraphBias, layer: int) -> Figure:
    """The bias of one layer's heads by hops between two nodes, one row per head.

    Args:
        bias: For example ``model.graph_bias``.
        layer: Which layer.

    Raises:
        ValueError: If the model has no bias over distances, or no such layer.
    """
    from matplotlib import pyplot as plt

    if "spd" not in bias.config.biases:
        raise ValueError(f"plot_distance_tables: the biases are {list(bias.config.biases)}, expected 'spd' among them")
    if not 0 <= layer < len(bias.layers):
        raise ValueError(f"plot_distance_tables: 'layer' is {layer}, expected 0 to {len(bias.layers) - 1}")
    table = bias.layers[layer]["spd"].table.detach().float().cpu()  # type: ignore[index] # [H, rows]
    limit = max(float(table.abs().max()), 1e-6)
    hops = [str(d) for d in range(1, bias.config.max_dist)] + [f"≥ {bias.config.max_dist}"]
    names = [*hops, "no path"] if bias.config.unreachable else [*hops[:-1], hops[-1] + "\nor no path"]
    height = 1.4 + 0.3 * len(table)
    figure, ax = plt.subplots(figsize=(1.8 + 0.6 * len(names), height), layout="constrained")
    image = ax.imshow(table, cmap="RdBu_r", vmin=-limit, vmax=limit, aspect="auto")
    if table.numel() <= 200:  # signs are readable without colour
        dark = table.abs() > 0.6 * limit
        for head, row in enumerate(table.tolist()):
            for place, value in enumerate(row):
                color = "white" if bool(dark[head, place]) else "black"
                ax.text(place, head, f"{value:+.2f}", ha="center", va="center", fontsize=7, color=color)
    ax.set(xlabel="hops", ylabel="head", title=f"Bias by distance, layer {layer}")
    ax.set_xticks(range(len(names)), names)
    ax.set_yticks(range(len(table)))
    figure.colorbar(image, ax=ax, label="bias (nats)")
    return figure


def plot_bias_size(bias: GraphBias) -> Figure:
    """How large the distance tables are, per layer and head: the root of the mean square over distances.

    Raises:
        ValueError: If the model has no bias over distances.
    """
    from matplotlib import pyplot as plt

    if "spd" not in bias.config.biases:
        raise ValueError(f"plot_bias_size: the biases are {list(bias.config.biases)}, expected 'spd' among them")
    tables = torch.stack([layer["spd"].table.detach().float().cpu() for layer in bias.layers])  # type: ignore[index]
    size = tables.square().mean(-1).sqrt()  # [L, H]
    figure, ax = plt.subplots(figsize=(4.5, 3.6), layout="constrained")
    image = ax.imshow(size, cmap="viridis", vmin=0, aspect="auto")
    ax.set(xlabel="head", ylabel="layer", title="Bias by distance, size")
    figure.colorbar(image, ax=ax, label="root mean square (nats)")
    return figure

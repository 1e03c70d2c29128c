"""What the pointers of a Graph Machine do, layer by layer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from pyg_textgraph.data.sparse_edges import SparseEdges
from pyg_textgraph.viz.panel import panel

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def weight_entropy(edges: SparseEdges) -> Tensor:
    """Entropy in nats of every edge's weights (\\*, n, k): 0 for a hard pointer, log s for an even one."""
    return -torch.special.xlogy(edges.weight, edges.weight).sum(-1)


def distance_shares(edges: SparseEdges, bounds: Sequence[int] = (0, 1, 2, 4, 8, 16, 32, 64, 128)) -> Tensor:
    """Share of all pointer weight that reaches back by at least a bound and less than the next one.

    Shapes:
        - **returns** (len(bounds),), sums to one if the bounds start at 0 and pointers are causal
    """
    n = edges.index.size(-3)
    distance = torch.arange(n, device=edges.index.device).view(-1, 1, 1) - edges.index
    limits = torch.tensor([*bounds[1:], n + bounds[-1]], device=distance.device)
    low = torch.tensor(list(bounds), device=distance.device)
    inside = (distance.unsqueeze(-1) >= low) & (distance.unsqueeze(-1) < limits)  # [*, n, k, s, bounds]
    return (inside * edges.weight.unsqueeze(-1)).flatten(0, -2).sum(0) / edges.weight.sum()


def plot_token_edges(
    states: Sequence[SparseEdges], token: int, labels: Sequence[str] | None = None, ax: Axes | None = None
) -> Figure:
    """Where one token's edges point after every sparse layer; the larger a dot, the heavier the pointer.

    Args:
        states: Edges of one sequence after each layer, as ``model.model(ids, output_edges=True).edges`` gives them.
        token: Which token.
        labels: The tokens' texts.
        ax: Where to draw.

    Raises:
        ValueError: If the edges are of a batch.
    """
    figure, ax = panel(ax)
    for layer, edges in enumerate(_single(states)):
        index, weight = edges.index[token], edges.weight[token].detach()  # [k, s]
        channel = torch.arange(edges.num_edges).unsqueeze(-1).expand_as(index)
        used = weight > 0
        height = layer + (channel[used] - (edges.num_edges - 1) / 2) * (0.7 / edges.num_edges)
        ax.scatter(
            index[used].tolist(),
            height.tolist(),
            s=(80 * weight[used]).tolist(),
            c=channel[used].tolist(),
            cmap="viridis",
            alpha=0.7,
            linewidths=0,
        )
    ax.axvline(token, color="grey", linewidth=0.8, linestyle=":")
    ax.set(xlabel="points to", ylabel="sparse layer", title=f"edges of token {token}", yticks=range(len(states)))
    if labels is not None:
        ax.set_xticks(range(token + 1), labels[: token + 1], rotation=90, fontsize=7)
    return figure


def plot_weight_entropy(states: Sequence[SparseEdges], ax: Axes | None = None) -> Figure:
    """Mean entropy of the edges after every sparse layer, between the 10 and 90 % quantiles."""
    figure, ax = panel(ax)
    entropy = [weight_entropy(edges).detach().flatten().float() for edges in states]
    low, high = ([e.quantile(q).item() for e in entropy] for q in (0.1, 0.9))
    layers = range(len(states))
    ax.fill_between(layers, low, high, alpha=0.25, linewidth=0)
    ax.plot(layers, [e.mean().item() for e in entropy], marker="o")
    ax.set(xlabel="sparse layer", ylabel="entropy of an edge (nats)", title="mean, 10 to 90 %", xticks=layers,
           ylim=(0, None))  # fmt: skip
    return figure


def plot_distances(
    states: Sequence[SparseEdges],
    bounds: Sequence[int] = (0, 1, 2, 4, 8, 16, 32, 64, 128),
    ax: Axes | None = None,
) -> Figure:
    """Share of pointer weight per distance after every sparse layer, stacked."""
    figure, ax = panel(ax)
    share = torch.stack([distance_shares(edges, bounds) for edges in states]).detach()  # [layers, bounds]
    layers, bottom = range(len(states)), torch.zeros(len(states))
    for i, bound in enumerate(bounds):
        end = f"{bound}" if i + 1 < len(bounds) and bounds[i + 1] == bound + 1 else f"{bound} …"
        color = f"C{i}" if len(bounds) <= 10 else None
        bars = ax.bar(layers, share[:, i].tolist(), bottom=bottom.tolist(), label=end, width=0.85, color=color)
        for bar in bars:
            bar.set(edgecolor="black", linewidth=0.4, hatch=("", "//", "..", "xx", "--")[i % 5])
        bottom = bottom + share[:, i].cpu()
    ax.set(xlabel="sparse layer", ylabel="share of pointer weight", title="how far back", xticks=layers, ylim=(0, 1))
    ax.legend(title="tokens back", fontsize=7, loc="center left", bbox_to_anchor=(1, 0.5))
    return figure


def _single(states: Sequence[SparseEdges]) -> list[SparseEdges]:
    """Edges without the batch dimension of a single sequence."""
    single = []
    for edges in states:
        if edges.index.dim() == 4 and edges.index.size(0) == 1:
            edges = SparseEdges(edges.index[0], edges.weight[0])
        if edges.index.dim() != 3:
            raise ValueError(f"plot_token_edges: edges of one sequence are expected, got {edges}")
        single.append(edges)
    return single

"""Where a model looks in a text graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import networkx as nx
from torch import Tensor

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from torch_geometric.data import Data


def plot_node_attention(
    data: Data, attention: Tensor, names: Sequence[str] | None = None, title: str = "attention of the last token"
) -> Figure:
    """A graph whose nodes are as large as the attention they get, and the same numbers as bars.

    Args:
        data: The graph; its ``target``, if it has one, is drawn as a square.
        attention: For example ``model.node_attention(data)[layer, 0].mean(0)``.
        names: What the nodes are called, their numbers by default.
        title: Of the figure.

    Shapes: **attention** (N,), ≥ 0

    Raises:
        ValueError: If there is not one number and one name per node.
    """
    from matplotlib import pyplot as plt

    n = int(data.num_nodes or 0)
    for argument, size in (("attention", tuple(attention.shape)), ("names", None if names is None else (len(names),))):
        if size is not None and size != (n,):
            raise ValueError(f"plot_node_attention: '{argument}' is of shape {size}, expected ({n},), one per node")
    share = attention.detach().float().cpu().tolist()
    label = dict(enumerate(names if names is not None else map(str, range(n))))
    graph: nx.DiGraph = nx.DiGraph()
    graph.add_nodes_from(range(n))
    graph.add_edges_from(data.edge_index.T.tolist() if data.edge_index is not None else [])
    place = _places(graph)
    target = int(data.target) if "target" in data else None
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, max(3.5, 0.25 * n)), layout="constrained")
    largest = max([*share, 1e-12])
    for shape, nodes in (("s", [target] if target is not None else []), ("o", [v for v in graph if v != target])):
        nx.draw_networkx_nodes(
            graph, place, nodelist=nodes, ax=left, node_shape=shape, node_color=[share[v] for v in nodes], cmap="Greys",
            vmin=0, vmax=largest, edgecolors="black", node_size=[150 + 500 * share[v] / largest for v in nodes],
        )  # fmt: skip
    nx.draw_networkx_edges(graph, place, ax=left, node_size=350, alpha=0.5)
    for v, (x, y) in place.items():
        color = "white" if share[v] > 0.6 * largest else "black"
        left.text(x, y, label[v], ha="center", va="center", fontsize=8, color=color)
    left.set_axis_off()
    right.barh(range(n), share, color="0.6", edgecolor="black")
    right.set_yticks(range(n), [f"{label[v]}{' (target)' if v == target else ''}" for v in range(n)], fontsize=7)
    right.invert_yaxis()
    right.set(xlabel="share of attention", ylabel="node")
    figure.suptitle(title)
    return figure


def _places(graph: nx.DiGraph) -> dict[int, tuple[float, float]]:
    """The parts that are not connected side by side, largest first: one spring for all would crowd each of them."""
    out, left = {}, 0.0
    for part in sorted(nx.weakly_connected_components(graph), key=lambda part: (-len(part), min(part))):
        size = len(part) ** 0.5
        for v, (x, y) in nx.kamada_kawai_layout(graph.subgraph(part).to_undirected(), scale=size).items():
            out[v] = (left + size + float(x), float(y))
        left += 2 * size + 1
    return out

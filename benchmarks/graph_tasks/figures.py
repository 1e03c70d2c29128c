"""Draws the figure of README.md: where a frozen language model looks whose graph biases have learned components.

python -m benchmarks.graph_tasks.figures --model runs/graph_tasks/connectivity/model
"""

from __future__ import annotations

import argparse
from itertools import islice
from pathlib import Path

import torch
from matplotlib import pyplot as plt
from matplotlib.figure import Figure
from torch import Tensor
from torch_geometric.data import Data

from benchmarks.graph_tasks.config import Config
from benchmarks.graph_tasks.task import make_data
from pyg_textgraph.nn import GTLM
from pyg_textgraph.viz import plot_node_attention
from pyg_textgraph.viz.panel import MARKERS

HERE = Path(__file__).parent


def asked_nodes(data: Data) -> Tensor:
    """The nodes that the question names."""
    return data.edge_index[1, data.edge_index[0] == int(data.target)]


def looks(model: GTLM, graphs: list[Data]) -> Tensor:
    """Of the attention that the last token pays to context nodes, the share of those asked about, (graphs, L)."""
    shares = []
    for data in graphs:
        attention = model.node_attention(data)[:, 0].mean(1)  # [L, N]
        attention[:, int(data.target)] = 0
        shares.append(attention[:, asked_nodes(data)].sum(-1) / attention.sum(-1))
    return torch.stack(shares)


def by_layer(model: GTLM, graphs: list[Data]) -> tuple[Figure, int]:
    """The shares of the trained biases and of none, and the layer where they differ most."""
    trained = looks(model, graphs).mean(0)
    learned = {name: p.detach().clone() for name, p in model.graph_bias.named_parameters()}
    model.graph_bias.reset_parameters()
    untrained = looks(model, graphs).mean(0)
    model.graph_bias.load_state_dict(learned)
    figure, ax = plt.subplots(figsize=(6, 3.4), layout="constrained")
    for marker, name, share in zip(MARKERS, ("trained biases", "no biases"), (trained, untrained), strict=False):
        ax.plot(share, marker=marker, label=name)
    nodes = torch.tensor([len(asked_nodes(data)) / (int(data.num_nodes) - 1) for data in graphs])
    ax.axhline(float(nodes.mean()), color="0.5", linestyle=":", label="their share of the nodes")
    ax.set(xlabel="layer", ylabel="attention to the nodes asked about", ylim=(0, 1))
    ax.legend(fontsize=8)
    return figure, int((trained - untrained).argmax())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True, help="the folder 'model' of a finished connectivity run")
    parser.add_argument("--graphs", type=int, default=100, help="test graphs to average over")
    args = parser.parse_args()
    model = GTLM.from_pretrained(args.model)
    test = make_data(Config.load("connectivity"), "test", model.tokenizer)
    graphs = list(islice((graph for graph in test if graph.answer == "no"), args.graphs))
    (HERE / "figures").mkdir(exist_ok=True)
    figure, layer = by_layer(model, graphs)
    figure.savefig(HERE / "figures" / "asked.png", dpi=120)
    attention = model.node_attention(graphs[0])[layer, 0].mean(0)
    names = [*graphs[0].text[:-1], "?"]
    title = f"{graphs[0].question} ({graphs[0].answer}) — attention of the last token, layer {layer}"
    plot_node_attention(graphs[0], attention, names, title).savefig(HERE / "figures" / "connectivity.png", dpi=120)


if __name__ == "__main__":
    main()

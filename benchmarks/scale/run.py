"""What ogbn-papers100M would take, from sizes that are published and from what is measured on a thousandth of it."""

from __future__ import annotations

import argparse
import sys
import tracemalloc
from dataclasses import dataclass

import numpy as np

from benchmarks.common import Row, write_results
from benchmarks.tables import newest
from pyg_textgraph.sampling import CSRGraph
from pyg_textgraph.sampling.csr import _neighbors

NODES, EDGES = 111_059_956, 1_615_685_872
TRAINING_NODES = 1_207_179
GB = 1e9


@dataclass(frozen=True)
class Ego:
    """Tokens of one training example: the target's title, abstract and question, and its neighbours' titles."""

    neighbors: int = 60
    target_tokens: int = 220
    neighbor_tokens: int = 24

    @property
    def tokens(self) -> int:
        return self.target_tokens + self.neighbors * self.neighbor_tokens


@dataclass(frozen=True)
class Decoder:
    """Sizes of Llama-3.2-1B with LoRA of rank 64 on all linear layers; logits are computed for the answer only."""

    layers: int = 16
    hidden: int = 2048
    weights: int = 973_146_112  # without the embedding
    adapters: int = 45_088_768

    def forward(self, length: int) -> float:
        """Multiplications and additions per token: two per weight, and two products with every token that is seen."""
        return 2 * (self.weights + self.adapters) + 4 * self.layers * self.hidden * length

    def training(self, length: int) -> float:
        """Backward costs as much again per frozen weight, twice as much per adapter weight and score."""
        return 4 * self.weights + 6 * self.adapters + 12 * self.layers * self.hidden * length


def csr_bytes(nodes: int, edges: int, neighbors: int, int64: bool = False) -> int:
    """Bytes of a :class:`CSRGraph`; **neighbors** counts each pair of linked nodes twice."""
    node = 8 if int64 or nodes >= 2**31 else 4
    edge = 8 if int64 or edges >= 2**31 else 4
    return 8 * (3 * nodes + 2) + node * neighbors + (edge + node + 1) * edges


def measured(nodes: int, edges: int) -> tuple[CSRGraph, int, int]:
    """A graph of uniform random edges, and the most memory that sorting them took, the edges themselves left out.

    Returns:
        The graph, the peak in bytes, and the peak up to where the neighbours are found.
    """
    edge_index = np.random.default_rng(0).integers(nodes, size=(2, edges))
    tracemalloc.start()
    graph = CSRGraph.from_edge_index(edge_index, nodes)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    tracemalloc.start()
    source, end = edge_index.astype(np.int32)
    _neighbors(source, end, nodes)
    first_peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return graph, peak, first_peak


def num_bytes(graph: CSRGraph) -> int:
    return sum(array.nbytes for array in vars(graph).values() if isinstance(array, np.ndarray))


def rows(shrink: int, flops: float, utilisation: float, tokens_per_paper: int) -> list[Row]:
    """All estimates; sizes in powers of ten, 1 GB = 10⁹ bytes."""
    out: list[Row] = []

    def add(case: str, metric: str, value: float) -> None:
        out.append({"case": case, "metric": metric, "value": float(value)})

    add("edge_index, int64, one way", "GB", 16 * EDGES / GB)
    one_way, both_ways = (NODES, EDGES, 2 * EDGES), (NODES, 2 * EDGES, 2 * EDGES)
    add("CSRGraph, citations one way", "GB", csr_bytes(*one_way) / GB)
    add("CSRGraph, citations one way, were all int64", "GB", csr_bytes(*one_way, int64=True) / GB)
    add("CSRGraph, citations both ways (edge ids beyond 2³¹: int64)", "GB", csr_bytes(*both_ways) / GB)
    graph, peak, first_peak = measured(NODES // shrink, EDGES // shrink)
    expected = csr_bytes(graph.num_nodes, graph.kept.size, graph.neighbor.size)
    if num_bytes(graph) != expected:
        raise AssertionError(f"the formula says {expected} bytes, the graph has {num_bytes(graph)}")
    # from 2³¹ neighbours on, SciPy adds A and its transpose with 8 bytes an index: 2E copied, 2E made, which took 4
    peak = max(peak * shrink, first_peak * shrink + (2 * 8 + 2 * 4) * EDGES)
    add(f"sorting the edges, peak, extrapolated from 1/{shrink}", "GB", peak / GB)

    tokens = NODES * tokens_per_paper
    add(f"TokenStore on disk, {tokens_per_paper} tokens a paper", "GB", (4 * tokens + 8 * NODES) / GB)
    add(f"the same texts as Python strings, {4 * tokens_per_paper} ASCII characters each", "GB",
        NODES * (49 + 4 * tokens_per_paper + 8) / GB)  # fmt: skip

    speed = newest("transforms")
    assert speed is not None
    case = "ego sampling, power-law, largest degree 10027, 64 at a time"
    seconds = next(row["value"] for row in speed["rows"] if row["case"] == case)
    add("egos per second and core, measured on a graph of 169,343 nodes", "egos/s", 1 / seconds)
    ego, decoder = Ego(), Decoder()
    for name, count in (("training nodes", TRAINING_NODES), ("all nodes", NODES)):
        add(f"sampling {name} once", "core hours", count * seconds / 3600)
        add(f"tokens of the egos of {name}, {ego.tokens} each", "10⁹ tokens", count * ego.tokens / 1e9)
    for name, count, per_token in (
        ("an epoch over the training nodes", TRAINING_NODES, decoder.training(ego.tokens)),
        ("reading all nodes once", NODES, decoder.forward(ego.tokens)),
    ):
        work = count * ego.tokens * per_token
        add(f"Llama-3.2-1B, {name}", "10¹⁸ FLOP", work / 1e18)
        add(f"the same at {flops / 1e12:.0f} TFLOP/s and {utilisation:.0%} of it", "GPU hours",
            work / (flops * utilisation) / 3600)  # fmt: skip
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shrink", type=int, default=1000, help="measure memory on one so-manieth of the graph")
    parser.add_argument("--flops", type=float, default=989e12, help="of one GPU in bfloat16")
    parser.add_argument("--utilisation", type=float, default=0.4)
    parser.add_argument("--tokens", type=int, default=200, help="per paper")
    parser.add_argument("--dry-run", action="store_true", help="print, write nothing")
    args = parser.parse_args()
    found = rows(args.shrink, args.flops, args.utilisation, args.tokens)
    if args.dry_run:
        for row in found:
            print(row)
    else:
        print(write_results("scale", found, sys.argv))


if __name__ == "__main__":
    main()

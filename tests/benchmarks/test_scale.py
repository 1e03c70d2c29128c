"""The estimates rest on formulas that hold on graphs that can be built."""

import numpy as np
import pytest

from benchmarks.scale.run import EDGES, NODES, Decoder, csr_bytes, num_bytes, rows
from pyg_textgraph.sampling import CSRGraph


@pytest.mark.parametrize(("nodes", "edges"), [(1, 0), (50, 400), (3000, 5000)])
def test_bytes_of_a_graph(nodes: int, edges: int) -> None:
    edge_index = np.random.default_rng(0).integers(nodes, size=(2, edges))
    graph = CSRGraph.from_edge_index(edge_index, nodes)
    distinct = {(u, v) for u, v in edge_index.T.tolist() if u != v}
    neighbors = len(distinct | {(v, u) for u, v in distinct})
    assert num_bytes(graph) == csr_bytes(nodes, edges, neighbors)
    assert csr_bytes(NODES, EDGES, 2 * EDGES) < csr_bytes(NODES, EDGES, 2 * EDGES, int64=True)


def test_work_per_token() -> None:
    model = Decoder(layers=2, hidden=4, weights=100, adapters=10)
    assert model.forward(3) == 2 * 110 + 2 * 2 * 2 * 4 * 3
    assert model.training(3) == (2 + 2) * 100 + (2 + 4) * 10 + 3 * 4 * 2 * 4 * 3


def test_rows() -> None:
    found = {row["case"]: row["value"] for row in rows(100_000, 1e15, 0.5, 200)}
    assert found["edge_index, int64, one way"] == pytest.approx(25.85, abs=0.01)
    assert all(value > 0 for value in found.values())

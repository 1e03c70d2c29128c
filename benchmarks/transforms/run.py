"""Times the transforms against what a user would otherwise call; see README.md."""

import argparse
import importlib.util
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import networkx as nx
import numpy as np
import scipy.linalg
import torch
from scipy.sparse import csr_array
from scipy.sparse.csgraph import shortest_path
from torch_geometric.data import Data
from torch_geometric.transforms import AddRandomWalkPE
from torch_geometric.utils import to_networkx, to_scipy_sparse_matrix

sys.path.insert(0, str(Path(__file__).parents[1]))
from common import Row, median_seconds, row, write_results

from pyg_textgraph.transforms import AddMagneticLaplacian, AddRRWP, AddSPD, k_hop_pairs

WALK_LENGTH = 16
EGO_SIZES, CORA = (17, 61, 300), (2708, 5278)  # Cora's nodes and undirected edges


def random_graph(num_nodes: int, num_edges: int, *, directed: bool = False) -> Data:
    """Uniform random edges, the same on every run."""
    edges = torch.randint(num_nodes, (2, num_edges), generator=torch.Generator().manual_seed(num_nodes))
    edges = edges if directed else torch.cat([edges, edges.flip(0)], dim=1)
    return Data(edge_index=edges, num_nodes=num_nodes)


def networkx_distances(data: Data) -> np.ndarray:
    graph = to_networkx(data)
    out = np.full((data.num_nodes, data.num_nodes), -1, dtype=np.int16)
    for u, hops in nx.all_pairs_shortest_path_length(graph):
        out[u, list(hops)] = list(hops.values())
    return out


def scipy_distances(data: Data) -> np.ndarray:
    return shortest_path(to_scipy_sparse_matrix(data.edge_index, num_nodes=data.num_nodes).tocsr(), unweighted=True)


def step_matrix(data: Data) -> csr_array:
    a = csr_array(to_scipy_sparse_matrix(data.edge_index, num_nodes=data.num_nodes))
    a.data[:] = 1
    return csr_array(a / np.maximum(a.sum(1), 1)[:, None])


def dense_powers(data: Data) -> np.ndarray:
    step, power = step_matrix(data).toarray(), np.eye(data.num_nodes)
    out = [power]
    for _ in range(WALK_LENGTH - 1):
        out.append(power := power @ step)
    return np.stack(out, axis=-1, dtype=np.float32, casting="same_kind")


def sparse_powers(data: Data) -> list[csr_array]:
    power = step = step_matrix(data)
    out = [step]
    for _ in range(WALK_LENGTH - 2):
        out.append(power := power @ step)
    return out


def scipy_magnetic(data: Data) -> tuple[np.ndarray, np.ndarray]:
    a = to_scipy_sparse_matrix(data.edge_index, num_nodes=data.num_nodes).toarray().clip(max=1)
    both = (a + a.T) / 2
    scale = np.where(both.sum(1) > 0, both.sum(1), 1) ** -0.5
    return scipy.linalg.eigh(np.eye(len(a)) - scale[:, None] * both * scale * np.exp(0.5j * np.pi * (a - a.T)))


def k_hop_by_networkx(data: Data, k: int) -> list[tuple[int, int]]:
    graph = to_networkx(data, to_undirected=True)
    return [(u, v) for u, near in nx.all_pairs_shortest_path_length(graph, cutoff=k) for v in near if u != v]


def structural_rows(budget: float, sizes: tuple[int, ...]) -> Iterator[Row]:
    """Every peer does the whole job from ``edge_index`` on, conversions included, on one graph in one process."""

    def compare(case: str, ours: Callable, peer: str, theirs: Callable, data: Data, **notes: str) -> Row:
        mine, other = (median_seconds(partial(run, data), budget=budget) for run in (ours, theirs))
        return row(case, mine, peer, other, **notes)

    for n in sizes:
        data, oneway = random_graph(n, 3 * n), random_graph(n, 3 * n, directed=True)
        yield compare(f"spd nodes={n}", AddSPD(), "networkx all_pairs_shortest_path_length", networkx_distances, data)
        yield compare(f"spd nodes={n}", AddSPD(), "scipy shortest_path", scipy_distances, data)
        rrwp = AddRRWP(WALK_LENGTH)
        yield compare(f"rrwp nodes={n}", rrwp, "numpy dense float64 powers", dense_powers, data)
        note = "peer returns the diagonals only"
        yield compare(f"rrwp nodes={n}", rrwp, "PyG AddRandomWalkPE", AddRandomWalkPE(WALK_LENGTH - 1), data, note=note)
        for kind, graph in (("undirected", data), ("directed", oneway)):
            case = f"magnetic nodes={n} {kind}"
            yield compare(case, AddMagneticLaplacian(0.25), "scipy complex128 eigh", scipy_magnetic, graph)


def k_hop_rows(budget: float, size: tuple[int, int]) -> Iterator[Row]:
    """Listed pairs on a graph of Cora's size; no peer gives pairs within k hops, so they compute all."""
    data, n = random_graph(*size), size[0]
    everything = {
        "scipy shortest_path, all pairs": median_seconds(partial(scipy_distances, data), budget=budget),
        "scipy sparse powers, all pairs": median_seconds(partial(sparse_powers, data), budget=0, min_repeats=1),
    }
    distances, powers = everything.items()
    for k in (1, 2):
        pairs = median_seconds(lambda k=k: k_hop_pairs(data.edge_index, n, k), budget=budget)
        peer = median_seconds(lambda k=k: k_hop_by_networkx(data, k), budget=budget)
        yield row(f"k_hop_pairs nodes={n} k={k}", pairs, "networkx with cutoff", peer)
        spd = median_seconds(partial(AddSPD(k_hop=k), data), budget=budget)
        yield row(f"spd nodes={n} k_hop={k}", spd, *distances)
        rrwp = median_seconds(partial(AddRRWP(WALK_LENGTH, k_hop=k), data), budget=budget)
        yield row(f"rrwp nodes={n} k_hop={k}", rrwp, *powers)


def sampler_rows() -> list[Row]:
    """The rows of sampler.py beside this file."""
    spec = importlib.util.spec_from_file_location("sampler", Path(__file__).with_name("sampler.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.rows()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small graphs, nothing is written")
    args = parser.parse_args()
    torch.set_num_threads(1)  # as in a DataLoader worker
    if args.quick:
        for line in (*structural_rows(0.01, EGO_SIZES[:1]), *k_hop_rows(0.01, (200, 400))):
            print(line)
        return
    rows = [*structural_rows(1.0, EGO_SIZES), *k_hop_rows(1.0, CORA)]
    print(write_results("transforms", [*rows, *sampler_rows()], "python benchmarks/transforms/run.py"))


if __name__ == "__main__":
    main()

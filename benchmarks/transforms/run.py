"""Times the transforms against what a user would otherwise call; see README.md."""

import argparse
import os
import sys
from collections.abc import Iterator
from functools import partial

import networkx as nx
import numpy as np
import scipy.linalg
import torch
from scipy.sparse import csr_array
from scipy.sparse.csgraph import shortest_path
from torch_geometric.data import Data
from torch_geometric.transforms import AddRandomWalkPE, BaseTransform
from torch_geometric.utils import to_networkx, to_scipy_sparse_matrix

from benchmarks.common import Row, Run, interleaved, write_results
from benchmarks.transforms import sampler
from pyg_textgraph.transforms import AddMagneticLaplacian, AddRRWP, AddSPD, k_hop_pairs

WALK_LENGTH = 16


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


def sparse_powers(data: Data) -> None:
    power = step = step_matrix(data)
    for _ in range(WALK_LENGTH - 2):
        power = power @ step  # keeping all of them takes more than a GiB on Cora


def scipy_magnetic(data: Data) -> tuple[np.ndarray, np.ndarray]:
    a = to_scipy_sparse_matrix(data.edge_index, num_nodes=data.num_nodes).toarray().clip(max=1)
    both = (a + a.T) / 2
    scale = np.where(both.sum(1) > 0, both.sum(1), 1) ** -0.5
    return scipy.linalg.eigh(np.eye(len(a)) - scale[:, None] * both * scale * np.exp(0.5j * np.pi * (a - a.T)))


def k_hop_by_networkx(data: Data, k: int) -> list[tuple[int, int]]:
    graph = to_networkx(data, to_undirected=True)
    return [(u, v) for u, near in nx.all_pairs_shortest_path_length(graph, cutoff=k) for v in near if u != v]


def on(transform: BaseTransform, data: Data) -> Run:
    return lambda: transform(data)


def compare(case: str, repeats: int, ours: Run, peer: str, theirs: Run) -> Row:
    seconds = interleaved({"ours": ours, "peer": theirs}, repeats)
    value, peer_value = seconds["ours"], seconds["peer"]
    values = {"value": value, "peer": peer, "peer_value": peer_value, "ratio": value / peer_value}
    return {"case": case, "metric": "seconds", **values, "threads": 1, "repeats": repeats}


def dense_rows(num_nodes: int, repeats: int) -> Iterator[Row]:
    """All pairs of one graph, from ``edge_index`` on."""
    data, oneway = random_graph(num_nodes, 3 * num_nodes), random_graph(num_nodes, 3 * num_nodes, directed=True)
    for peer, distances in (("networkx", networkx_distances), ("scipy shortest_path", scipy_distances)):
        yield compare(f"spd nodes={num_nodes}", repeats, on(AddSPD(), data), peer, partial(distances, data))
    diagonals = AddRandomWalkPE(WALK_LENGTH - 1)
    for peer, powers in (("numpy matrix powers", dense_powers), ("PyG AddRandomWalkPE, N of the N² pairs", diagonals)):
        yield compare(f"rrwp nodes={num_nodes}", repeats, on(AddRRWP(WALK_LENGTH), data), peer, partial(powers, data))
    for kind, graph in (("undirected", data), ("directed", oneway)):
        yield compare(
            f"magnetic nodes={num_nodes} {kind}",
            repeats,
            on(AddMagneticLaplacian(q=0.25), graph),
            "scipy eigh",
            partial(scipy_magnetic, graph),
        )


def k_hop_rows(num_nodes: int, num_edges: int, repeats: int) -> Iterator[Row]:
    """Pairs within k hops only; where no peer can stop there, it computes all pairs and its name says so."""
    data = random_graph(num_nodes, num_edges)
    peers = {
        "pairs": ("networkx, cutoff=k", k_hop_by_networkx),
        "spd": ("scipy shortest_path, all pairs", lambda data, k: scipy_distances(data)),
        "rrwp": ("scipy sparse matrix powers, all pairs", lambda data, k: sparse_powers(data)),
    }
    for k in (1, 2):
        ours: dict[str, Run] = {
            "pairs": partial(k_hop_pairs, data.edge_index, num_nodes, k),
            "spd": on(AddSPD(k_hop=k), data),
            "rrwp": on(AddRRWP(WALK_LENGTH, k_hop=k), data),
        }
        for name, (peer, run) in peers.items():
            case = f"{name} nodes={num_nodes} k_hop={k}"
            yield compare(case, repeats, ours[name], peer, partial(run, data, k))


def main() -> None:
    if os.environ.get("OPENBLAS_NUM_THREADS") != "1":  # NumPy reads it when it is loaded: start over
        os.environ["OPENBLAS_NUM_THREADS"] = "1"
        os.execv(sys.executable, [sys.executable, *sys.argv])
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small graphs, no sampler, print instead of writing")
    args = parser.parse_args()
    torch.set_num_threads(1)  # as in a DataLoader worker
    if args.quick:
        for line in (*dense_rows(17, 3), *k_hop_rows(200, 400, 3)):
            print(line)
        return
    rows = [line for size in ((17, 300), (61, 300), (300, 20)) for line in dense_rows(*size)]
    rows += k_hop_rows(2708, 5278, 3)  # nodes and edges of Cora
    print(write_results("transforms", rows + sampler.rows(), sys.argv))


if __name__ == "__main__":
    main()

"""Forward and backward of all biases of a model, beside the paper's formulas written down plainly."""

from __future__ import annotations

import argparse
import sys
from typing import Any

import torch
import torch.nn.functional as F
import torch_geometric.transforms as T
from torch import Tensor, nn
from torch_geometric.data import Data

from benchmarks.common import interleaved, write_results
from pyg_textgraph.nn.bias import GraphBias, GraphBiasConfig, MagneticBias, PairFeatures, RRWPBias
from pyg_textgraph.transforms import AddMagneticLaplacian, AddRRWP, AddSPD

LAYERS, HEADS = 30, 9


def graph(num_nodes: int, num_eigvecs: int | None) -> Data:
    edge_index = torch.randint(0, num_nodes, (2, 2 * num_nodes), generator=torch.Generator().manual_seed(0))
    transform = T.Compose([AddSPD(8), AddRRWP(16), AddMagneticLaplacian(q=0.25, num_eigvecs=num_eigvecs)])
    return transform(Data(edge_index=edge_index, num_nodes=num_nodes))


def ours(bias: GraphBias, data: Data, grad: Tensor) -> None:
    """One layer at a time: what a model does, whose layers stand between one bias and the next."""
    bias.zero_grad()
    inputs = bias.prepare(PairFeatures.from_batch(data, bias.config.biases))
    for layer in range(LAYERS):
        bias(layer, inputs).backward(grad)


def plain(bias: GraphBias, data: Data, grad: Tensor) -> None:
    """The same numbers from the formulas of the paper, in their order."""
    bias.zero_grad()
    n = data.num_nodes
    row = torch.where(data.spd < 0, 8, data.spd.clamp(max=8)).long().view(n, n)
    rrwp = data.rrwp.view(n, n, -1)
    v = data.magnetic_eigvecs.view(n, -1)
    layers: Any = bias.layers
    for layer in layers:
        parts: dict[str, Any] = dict(layer.items())
        table = torch.cat([torch.zeros(HEADS, 1), parts["spd"].table], 1)
        out = (
            table[:, row] + rrwp_bias(parts["rrwp"], rrwp) + magnetic_bias(parts["magnetic"], data.magnetic_eigvals, v)
        )
        out[None].backward(grad)


def rrwp_bias(module: RRWPBias, rrwp: Tensor) -> Tensor:
    return module.lin2(F.silu(module.lin1(rrwp))).permute(2, 0, 1)


def magnetic_bias(module: MagneticBias, eigvals: Tensor, v: Tensor) -> Tensor:
    phi = module.filter(eigvals[None], torch.ones(1, len(eigvals), dtype=torch.bool))[0]  # [M, C]
    kernel = torch.einsum("um,mc,vm->uvc", v, phi.to(v.dtype), v.conj())
    hidden = F.silu(module.lin1(torch.cat([kernel.real, kernel.imag], -1)))
    return module.lin2(hidden).permute(2, 0, 1)


def check(bias: GraphBias, data: Data) -> None:
    """No time is reported for two different computations."""
    nodes = data.num_nodes
    grad = torch.randn(1, HEADS, nodes, nodes)
    grad = grad * ~torch.eye(nodes, dtype=torch.bool)
    grads = []
    for run in (ours, plain):
        run(bias, data, grad)
        grads.append([p.grad.clone() for p in bias.parameters() if p.grad is not None])
    for a, b in zip(*grads, strict=True):
        torch.testing.assert_close(a, b, atol=1e-2 * float(b.abs().max()) + 1e-4, rtol=0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, nargs="+", default=[61, 256, 1024])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="small graphs, prints, writes nothing")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    bias = GraphBias(LAYERS, HEADS, GraphBiasConfig())
    for parameter in bias.parameters():
        nn.init.normal_(parameter, std=0.1)
    check(bias, graph(17, None))
    rows = []
    for nodes in [9, 17] if args.quick else args.nodes:
        for eigvecs in (None, 64) if nodes > 64 else (None,):
            data, grad = graph(nodes, eigvecs), torch.randn(1, HEADS, nodes, nodes)
            runs = {"ours": lambda d=data, g=grad: ours(bias, d, g)}
            # the plain kernel tensor alone takes 0.5 GB a layer at 1,024 nodes, and a minute: measured up to 256
            if nodes <= 256:
                runs["plain"] = lambda d=data, g=grad: plain(bias, d, g)
            seconds = interleaved(runs, args.repeats if nodes < 1000 else 1)
            kept = int(data.magnetic_num_eigvals)
            row = {"case": f"bias nodes={nodes} eigenvectors={kept}", "metric": "seconds", "value": seconds["ours"],
                   "threads": args.threads}  # fmt: skip
            if "plain" in seconds:
                row |= {"peer": "the formulas one by one", "peer_value": seconds["plain"],
                        "ratio": seconds["ours"] / seconds["plain"]}  # fmt: skip
            rows.append(row)
            print(row["case"], f"{seconds['ours']:.3f} s", f"{row.get('ratio', float('nan')):.2f}x", flush=True)
    if not args.quick:
        write_results("bias", rows, sys.argv)


if __name__ == "__main__":
    main()

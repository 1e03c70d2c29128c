"""How long edge attention and a whole sparse layer take, forward and backward, against their dense counterparts."""

import argparse
import sys
from collections.abc import Callable
from functools import partial
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.common import Run, interleaved, write_results
from pyg_textgraph.data.sparse_edges import SparseEdges
from pyg_textgraph.nn.graph_machine_layer import GraphMachineLayer
from pyg_textgraph.nn.models.graph_machine import GraphMachineConfig
from pyg_textgraph.nn.models.graph_machine.dense import DenseLayer, rotary
from pyg_textgraph.ops import edge_attention

EDGES, BUDGET = 16, 4
SHAPES = {256: (4, 2, 64), 1024: (16, 8, 128)}  # heads, groups, head dimension


def step(forward: Callable[[], Tensor], inputs: list[Tensor]) -> None:
    torch.autograd.grad(forward().square().sum(), inputs)


def random_pointers(n: int, k: int, s: int, device: str = "cpu") -> SparseEdges:
    """Every pointer to a random earlier token: the hardest case, as trained pointers share many targets."""
    index = (torch.rand(n, k, s) * torch.arange(1, n + 1).view(n, 1, 1)).int()
    return SparseEdges(index.to(device), torch.rand(n, k, s).softmax(-1).to(device))


def attention_case(n: int, d: int, device: str = "cpu", dtype: torch.dtype = torch.float32) -> dict[str, Run]:
    heads, groups, dim = SHAPES[d]
    q, k, v = (torch.randn(n, h, dim, device=device).to(dtype).requires_grad_() for h in (heads, groups, groups))
    edges = random_pointers(n, groups, BUDGET, device)
    weight, (node, edge) = edges.weight.requires_grad_(), (torch.rand(n, h).to(device) + 0.5 for h in (heads, groups))
    inputs = [q, k, v, weight, node.requires_grad_(), edge.requires_grad_()]

    def sparse(backend: Literal["auto", "reference"]) -> Tensor:
        return edge_attention(q, k, v, edges.index, weight, node, edge, backend=backend)[0]

    query, key, value = (t.detach().transpose(0, 1).unsqueeze(0).contiguous().requires_grad_() for t in (q, k, v))
    dense = [query, key, value]

    def causal(**mask: Any) -> Tensor:
        return F.scaled_dot_product_attention(query, key, value, enable_gqa=True, **mask)

    cases: dict[str, Run] = {
        "ours": partial(step, partial(sparse, "auto"), inputs),
        "causal SDPA": partial(step, partial(causal, is_causal=True), dense),
        "naive gather": partial(step, partial(sparse, "reference"), inputs),
    }
    if n <= 4096:
        mask = torch.zeros(n, n, dtype=torch.bool, device=device).scatter_(1, edges.index.flatten(1).long(), True)
        cases["dense-mask SDPA"] = partial(step, partial(causal, attn_mask=mask), dense)
    return cases


def layer_case(
    n: int, d: int, referrals: int = 3, device: str = "cpu", dtype: torch.dtype = torch.float32
) -> dict[str, Run]:
    heads, groups, dim = SHAPES[d]
    sparse = GraphMachineLayer(d, 3 * d, heads, groups, dim, EDGES, (BUDGET,) * 4, [(8,)] * referrals)
    config = GraphMachineConfig(
        hidden_size=d, intermediate_size=3 * d, num_attention_heads=heads, num_key_value_heads=groups, head_dim=dim
    )
    dense = DenseLayer(config).to(device, dtype)
    sparse = sparse.to(device, dtype)
    for parameter in [*sparse.parameters(), *dense.parameters()]:
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=0.02)
    edges = random_pointers(n, EDGES, BUDGET, device)
    nearest = SparseEdges.causal_window(n, EDGES, device=device).nearest(8)
    x = torch.randn(n, d, device=device).to(dtype).requires_grad_()
    batch = x.detach().unsqueeze(0).requires_grad_()
    rotation = rotary(torch.arange(n, device=device).unsqueeze(0), dim, 1e6, x.dtype)
    return {
        "ours": partial(step, lambda: sparse(x, edges, (nearest,))[0], [x, *sparse.parameters()]),
        "dense layer": partial(step, lambda: dense(batch, rotation, None, None, None)[0], [batch, *dense.parameters()]),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, nargs="+", default=[512, 1024, 2048, 4096, 8192, 16384])
    parser.add_argument("--dims", type=int, nargs="+", default=[256, 1024], choices=SHAPES)
    parser.add_argument("--what", nargs="+", default=["attention", "layer"], choices=["attention", "layer"])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--dry-run", action="store_true", help="print, do not write a result file")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    rows = []
    for n in args.tokens:
        for d in args.dims:
            heads, groups, dim = SHAPES[d]
            for what in args.what:
                cases = attention_case(n, d) if what == "attention" else layer_case(n, d)
                seconds = interleaved(cases, args.repeats)
                ours = seconds.pop("ours")
                for i, (peer, value) in enumerate(seconds.items()):
                    case = f"{what} n={n} d={d} heads={heads} groups={groups} head_dim={dim} K={EDGES} s={BUDGET}"
                    case += " R=3" if what == "layer" else ""
                    rows.append(
                        {
                            "case": case if i == 0 else f"against {peer}: {case}",
                            "metric": "seconds",
                            "value": round(ours, 5),
                            "peer": f"{peer}, same shapes and threads, float32, forward+backward",
                            "peer_value": round(value, 5),
                            "ratio": round(ours / value, 4),
                        }
                    )
                    print(
                        f"{rows[-1]['case']:90s} {ours:8.4f} s  {peer} {value:8.4f} s  ratio {ours / value:.3f}",
                        flush=True,
                    )
    if not args.dry_run:
        write_results("graph_machine", rows, sys.argv)


if __name__ == "__main__":
    main()

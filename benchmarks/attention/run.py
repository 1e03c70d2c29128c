"""Times graph attention, forward and backward with a bias that gets its gradient, against torch's own attention."""

import argparse
import sys
from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
from torch.nn.functional import scaled_dot_product_attention

from benchmarks.common import Row, Run, interleaved, write_results
from pyg_textgraph.data import TokenLayout
from pyg_textgraph.ops import graph_attention

HEADS, KV_HEADS, CHANNELS = 9, 3, 64  # SmolLM2-135M's
DTYPES = (torch.float32, torch.bfloat16)


def text_layout(graphs: int, nodes: int, tokens: int) -> TokenLayout:
    """Graphs of ``nodes`` nodes with ``tokens`` tokens each; the last node is the target."""
    total = graphs * nodes * tokens
    node = torch.arange(nodes).repeat_interleave(tokens).repeat(graphs)
    graph_ptr = torch.arange(graphs + 1) * nodes * tokens
    position = torch.arange(tokens).repeat(graphs * nodes)
    return TokenLayout(
        torch.arange(total), graph_ptr, node, position, node == nodes - 1, torch.full((graphs,), nodes), mode="prefix"
    )


def k_hop(nodes: int, k: int, degree: int = 3) -> Tensor:
    """Pairs of different nodes within k hops on a uniform random graph, (2, P)."""
    edges = torch.randint(nodes, (2, nodes * degree // 2), generator=torch.Generator().manual_seed(nodes))
    step = torch.eye(nodes)
    step[edges[0], edges[1]] = step[edges[1], edges[0]] = 1
    near = torch.linalg.matrix_power(step, k) > 0
    return near.fill_diagonal_(False).nonzero().T.contiguous()


def eager(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    """Attention as Hugging Face's eager functions do it; all (H, T, D)."""
    score = q @ k.mT * q.size(-1) ** -0.5 + mask
    return score.softmax(-1, dtype=torch.float32).to(q.dtype) @ v


def torch_attention(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, *, causal: bool = False, fused: bool = True
) -> Tensor:
    """The peers, on our shapes (T, H, D)."""
    q, k, v = (x.transpose(0, 1) for x in (q, k, v))
    k, v = (x.repeat_interleave(len(q) // len(x), 0) for x in (k, v))
    if not fused:
        assert mask is not None
        return eager(q, k, v, mask).transpose(0, 1)
    mask = None if mask is None else mask[None]
    return scaled_dot_product_attention(q[None], k[None], v[None], mask, is_causal=causal)[0].transpose(0, 1)


def step(function: Callable[..., Tensor], inputs: list[Tensor], grad: Tensor) -> list[Tensor]:
    """Output and gradients."""
    out = function(*inputs)
    return [out, *torch.autograd.grad(out, inputs, grad)]


def runs(
    layout: TokenLayout, dtype: torch.dtype, pairs: Tensor | None = None, materialized: bool = True
) -> dict[str, Run]:
    """Ours and the peers on the same random numbers; the peers' token bias is ready-made and gets a gradient too."""
    rng = torch.Generator().manual_seed(0)
    size, nodes = layout.num_tokens, int(layout.num_nodes.max())
    shapes = [(size, heads, CHANNELS) for heads in (HEADS, KV_HEADS, KV_HEADS, HEADS)]
    q, k, v, grad = (torch.randn(shape, generator=rng).to(dtype) for shape in shapes)
    shape = (layout.num_graphs, HEADS, nodes, nodes) if pairs is None else (HEADS, pairs.size(1))
    bias = torch.randn(shape, generator=rng).requires_grad_()
    qkv = [x.requires_grad_() for x in (q, k, v)]
    ours = lambda q, k, v, bias: graph_attention(q, k, v, layout, bias, pairs=pairs)  # noqa: E731
    out: dict[str, Run] = {
        "ours": partial(step, ours, [*qkv, bias], grad),
        "sdpa full, no bias": partial(step, torch_attention, qkv, grad),
        "sdpa causal, no bias": partial(step, partial(torch_attention, causal=True), qkv, grad),
    }
    if materialized and pairs is None:
        mask = layout.expand_pairs(bias.detach()).masked_fill(~layout.visible(), torch.finfo(dtype).min)
        mask = mask.to(dtype).requires_grad_()
        out["sdpa with token bias"] = partial(step, torch_attention, [*qkv, mask], grad)
        out["eager with token bias"] = partial(step, partial(torch_attention, fused=False), [*qkv, mask], grad)
    return out


def time_rows(case: str, functions: dict[str, Run], repeats: int) -> Iterator[Row]:
    seconds = interleaved(functions, repeats)
    for peer, value in seconds.items():
        if peer != "ours":
            row = {"case": case, "metric": "seconds", "value": seconds["ours"], "peer": peer, "peer_value": value}
            yield row | {"ratio": seconds["ours"] / value, "threads": torch.get_num_threads(), "repeats": repeats}


def flex_rows(repeats: int) -> Iterator[Row]:
    """The forward pass beside compiled FlexAttention, which has no backward on CPUs; needs a C++ compiler."""
    layout = text_layout(1, 61, 16)
    node, is_target, size = layout.node, layout.is_target, layout.num_tokens
    rng = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(size, heads, CHANNELS, generator=rng) for heads in (HEADS, KV_HEADS, KV_HEADS))
    bias = torch.randn(1, HEADS, 61, 61, generator=rng)
    table = bias[0].masked_fill(torch.eye(61, dtype=torch.bool), 0)

    def visible(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return ~is_target[j] | (is_target[i] & (j <= i))

    def add_bias(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return score + table[h, node[i], node[j]]

    mask = create_block_mask(visible, None, None, size, size, device="cpu")
    compiled = torch.compile(flex_attention, dynamic=False)
    query, key, value = (x.transpose(0, 1)[None].contiguous() for x in (q, k, v))

    def flex() -> Tensor:
        return compiled(query, key, value, score_mod=add_bias, block_mask=mask, enable_gqa=True)[0].transpose(0, 1)

    def ours() -> Tensor:
        return graph_attention(q, k, v, layout, bias)

    with torch.no_grad():
        torch.testing.assert_close(ours(), flex(), atol=1e-4, rtol=1e-4)
        yield from time_rows(
            f"forward only nodes=61 tokens={size} float32", {"ours": ours, "FlexAttention": flex}, repeats
        )


def error_rows(case: str, layout: TokenLayout) -> Iterator[Row]:
    """Relative errors in bfloat16 against float64 from the same numbers, ours and eager's."""
    functions = runs(layout, torch.bfloat16)
    ours, peer = functions["ours"], functions["eager with token bias"]
    assert isinstance(ours, partial)
    assert isinstance(peer, partial)
    *qkv, bias = (x.detach().double().requires_grad_() for x in ours.args[1])
    exact = step(lambda q, k, v, bias: graph_attention(q, k, v, layout, bias), [*qkv, bias], ours.args[2].double())
    results = [[x.detach() for x in y] for y in (ours(), peer(), exact)]
    for name, x, y, z in zip(("out", "dq", "dk", "dv"), *results, strict=False):
        value, peer_value = (float((a.double() - z).norm() / z.norm()) for a in (x, y))
        row = {"case": case, "metric": f"relative error of {name}", "value": value, "peer": "eager with token bias"}
        yield row | {"peer_value": peer_value, "ratio": value / peer_value}


def case_of(layout: TokenLayout, dtype: torch.dtype) -> str:
    nodes, tokens = int(layout.num_nodes.max()), layout.num_tokens
    return f"attention graphs={layout.num_graphs} nodes={nodes} tokens={tokens} {str(dtype)[6:]}"


def main_rows(repeats: int) -> Iterator[Row]:
    """One graph, and about as many tokens in four."""
    for graphs, nodes, tokens in ((1, 61, 16), (4, 15, 16), (4, 61, 4)):
        layout = text_layout(graphs, nodes, tokens)
        for dtype in DTYPES:
            yield from time_rows(case_of(layout, dtype), runs(layout, dtype), repeats)
        yield from error_rows(case_of(layout, torch.bfloat16), layout)


# graphs, nodes, tokens per node; what changes is the sweep's name
SWEEPS = {
    "nodes": [(1, 15, 16), (1, 61, 16), (1, 122, 16), (1, 256, 16)],
    "tokens per node": [(1, 976, 1), (1, 244, 4), (1, 61, 16), (1, 16, 61)],
    "graphs": [(1, 61, 16), (2, 61, 8), (4, 61, 4), (8, 61, 2), (16, 61, 1)],
}
HOPS = {"hops": [(256, 1), (256, 2), (256, 3)], "nodes at 2 hops": [(64, 2), (128, 2), (256, 2), (512, 2)]}


def sweep_rows(repeats: int) -> Iterator[Row]:
    """More nodes, longer texts, more graphs, and k hops; every row says of which **sweep**, and **at** what."""
    for sweep, shapes in SWEEPS.items():
        for shape in shapes:
            layout, at = text_layout(*shape), shape[{"graphs": 0, "nodes": 1, "tokens per node": 2}[sweep]]
            for dtype in DTYPES:
                functions = runs(layout, dtype, materialized=layout.num_tokens < 2048)
                for row in time_rows(case_of(layout, dtype), functions, repeats):
                    yield row | {"sweep": sweep, "at": at, "type": str(dtype)[6:]}
    for sweep, cases in HOPS.items():
        for nodes, k in cases:
            layout, pairs = text_layout(1, nodes, 16), k_hop(nodes, k)
            for dtype in DTYPES:
                case = f"khop k={k} nodes={nodes} tokens={layout.num_tokens} pairs={pairs.size(1)} {str(dtype)[6:]}"
                for row in time_rows(case, runs(layout, dtype, pairs), repeats):
                    yield row | {"sweep": sweep, "at": k if sweep == "hops" else nodes, "type": str(dtype)[6:]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sweep", action="store_true", help="more shapes and k hops instead; minutes")
    parser.add_argument("--quick", action="store_true", help="few repeats, writes nothing")
    parser.add_argument("--flex", action="store_true", help="FlexAttention's forward too; needs a C++ compiler")
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    rows = []
    parts = [sweep_rows] if args.sweep else [main_rows, *([flex_rows] if args.flex else [])]
    for part in parts:
        for row in part(3 if args.quick else 4 if part is sweep_rows else 15):
            rows.append(row)
            print(
                f"{row['case']:60} {row['metric']:24} {row['value']:9.4f} {row['ratio']:6.2f}× {row['peer']}",
                flush=True,
            )
    if not args.quick:
        print(write_results("attention", rows, sys.argv, label="sweep" if args.sweep else ""))


if __name__ == "__main__":
    main()

"""Times graph attention on a GPU, forward and backward, against flash attention, SDPA with a bias and FlexAttention."""

from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
from torch.nn.functional import scaled_dot_product_attention

from benchmarks.attention.run import k_hop, step, text_layout
from benchmarks.common import Row, Run, interleaved
from benchmarks.gpu.script import main
from pyg_textgraph.data import TokenLayout
from pyg_textgraph.ops import graph_attention

LLAMA_1B, SMOLLM2, HEAD_128 = (32, 8, 64), (9, 3, 64), (32, 8, 128)  # query heads, key heads, channels
# graphs, nodes, tokens per node
CASES = {
    LLAMA_1B: [(1, 128, 8), (1, 512, 8), (1, 512, 32), (1, 2048, 2), (16, 61, 16)],
    SMOLLM2: [(4, 61, 16)],
    HEAD_128: [(1, 512, 8)],
}
KHOP = {LLAMA_1B: [(1, 512, 8), (1, 512, 32)], HEAD_128: [(1, 512, 8)]}  # at two hops
DRY = {(4, 2, 16): [(1, 8, 8)]}
MAX_MATERIALIZED = 8192  # tokens: a T×T bias of all heads and its gradient must fit


def flash(q: Tensor, k: Tensor, v: Tensor, *, causal: bool = False) -> Tensor:
    """No bias, every token sees every token of all graphs: an easier task."""
    q, k, v = (x.transpose(0, 1)[None] for x in (q, k, v))
    with sdpa_kernel([SDPBackend.FLASH_ATTENTION, SDPBackend.MATH] if q.is_cpu else SDPBackend.FLASH_ATTENTION):
        return scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=True)[0].transpose(0, 1)


def with_token_bias(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    """A ready-made T×T bias; spreading it and reducing its gradient to node pairs is not counted."""
    k, v = (x.repeat_interleave(q.size(1) // x.size(1), dim=1) for x in (k, v))
    q, k, v = (x.transpose(0, 1)[None] for x in (q, k, v))
    return scaled_dot_product_attention(q, k, v, mask[None])[0].transpose(0, 1)


def flex(layout: TokenLayout, near: Tensor | None, compiled: bool) -> Callable[..., Tensor]:
    """FlexAttention with the bias read per node pair, as GTLM's authors use it; ``near`` (N, N): what sees what."""
    graph, node, is_target = layout.graph, layout.node, layout.is_target
    size = layout.num_tokens

    def visible(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        see = (graph[i] == graph[j]) & (~is_target[j] | (is_target[i] & (j <= i)))
        return see if near is None else see & near[node[i], node[j]]

    blocks = create_block_mask(visible, None, None, size, size, device=node.device)
    attention = torch.compile(flex_attention, dynamic=False) if compiled else flex_attention

    def run(q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> Tensor:
        def score(s: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
            return s + torch.where(node[i] == node[j], 0, bias[graph[i], h, node[i], node[j]])

        q, k, v = (x.transpose(0, 1)[None].contiguous() for x in (q, k, v))
        out = attention(q, k, v, score_mod=score, block_mask=blocks, enable_gqa=True)
        return out[0].transpose(0, 1)

    return run


def runs(
    layout: TokenLayout, shape: tuple[int, int, int], dtype: torch.dtype, pairs: Tensor | None, compiled: bool
) -> dict[str, Run]:
    """Ours and the peers on the same random numbers; with ``pairs`` (2, P) ours holds a bias of these only."""
    device, size, nodes = layout.node.device, layout.num_tokens, int(layout.num_nodes.max())
    heads, kv_heads, channels = shape
    rng = torch.Generator(device).manual_seed(0)
    random = partial(torch.randn, generator=rng, device=device)
    q, k, v, grad = (random(size, h, channels).to(dtype) for h in (heads, kv_heads, kv_heads, heads))
    fixed = random(layout.num_graphs, heads, nodes, nodes)
    near, own = None, fixed
    if pairs is not None:
        near = torch.eye(nodes, dtype=torch.bool, device=device).index_put(tuple(pairs), torch.tensor(True).to(device))
        own = fixed[0, :, pairs[0], pairs[1]]
    qkv = [x.requires_grad_() for x in (q, k, v)]
    learned = [x.clone().requires_grad_() for x in (own, fixed)]
    ours = lambda q, k, v, bias=None: graph_attention(q, k, v, layout, bias, pairs=pairs)  # noqa: E731
    theirs = flex(layout, near, compiled)
    out: dict[str, Run] = {
        "ours": partial(step, ours, [*qkv, learned[0]], grad),
        "ours, fixed bias": partial(step, partial(ours, bias=own), qkv, grad),
        "flash full, no bias": partial(step, flash, qkv, grad),
        "flash causal, no bias": partial(step, partial(flash, causal=True), qkv, grad),
        "FlexAttention": partial(step, theirs, [*qkv, learned[1]], grad),
        "FlexAttention, fixed bias": partial(step, partial(theirs, bias=fixed), qkv, grad),
    }
    if size <= MAX_MATERIALIZED and layout.num_graphs == 1 and pairs is None:
        mask = layout.expand_pairs(fixed).masked_fill(~layout.visible(), torch.finfo(dtype).min).to(dtype)
        out["sdpa with token bias"] = partial(step, with_token_bias, [*qkv, mask.requires_grad_()], grad)
        out["sdpa with fixed token bias"] = partial(step, partial(with_token_bias, mask=mask.detach()), qkv, grad)
    return out


def measured(functions: dict[str, Run], repeats: int) -> tuple[dict[str, float], dict[str, float]]:
    """Median seconds and peak GiB of those that run here; the rest say why they do not."""
    cuda = torch.cuda.is_available()
    memory: dict[str, float] = {}
    for name, run in functions.items():
        try:
            run()
            if cuda:
                torch.cuda.reset_peak_memory_stats()
                run()
                torch.cuda.synchronize()
                memory[name] = torch.cuda.max_memory_allocated() / 2**30
            else:
                memory[name] = float("nan")
        except (RuntimeError, NotImplementedError) as error:
            print(f"    {name} does not run: {str(error).splitlines()[0][:120]}", flush=True)

    def finished(run: Run) -> None:
        run()
        if cuda:
            torch.cuda.synchronize()

    seconds = interleaved({name: partial(finished, functions[name]) for name in memory}, repeats)
    return seconds, memory


def rows_of(case: str, functions: dict[str, Run], repeats: int) -> Iterator[Row]:
    """Ours against every peer that does the same or less."""
    seconds, memory = measured(functions, repeats)
    for own in ("ours", "ours, fixed bias"):
        for peer in seconds:
            if own in seconds and not peer.startswith("ours"):
                for metric, value in (("seconds", seconds), ("peak GiB", memory)):
                    if value[own] == value[own]:  # memory is not known on a CPU
                        row = {"case": f"{case} {own}", "metric": metric, "value": value[own], "peer": peer}
                        yield row | {"peer_value": value[peer], "ratio": value[own] / value[peer], "repeats": repeats}


def cases(dry: bool) -> Iterator[tuple[str, Callable[[], Iterator[Row]]]]:
    device, dtype = ("cpu", torch.float32) if dry else ("cuda", torch.bfloat16)
    for hops, of_shape in ((None, DRY if dry else CASES), (2, DRY if dry else KHOP)):
        for shape, (graphs, nodes, tokens) in ((shape, x) for shape, layouts in of_shape.items() for x in layouts):
            layout = text_layout(graphs, nodes, tokens).to(device)
            pairs = None if hops is None else k_hop(nodes, hops).to(device)
            name = "attention" if hops is None else f"khop k={hops}"
            name += (
                f" graphs={graphs} nodes={nodes} tokens={layout.num_tokens} heads={shape[0]}/{shape[1]} d={shape[2]}"
            )

            def measure(name=name, layout=layout, shape=shape, pairs=pairs) -> Iterator[Row]:  # type: ignore[no-untyped-def]
                torch.compiler.reset()
                return rows_of(name, runs(layout, shape, dtype, pairs, compiled=not dry), 2 if dry else 20)

            yield name, measure


if __name__ == "__main__":
    main(__doc__, "one tiny shape", cases)

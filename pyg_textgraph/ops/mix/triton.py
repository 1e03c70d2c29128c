"""Mix as an operator of torch, computed by Triton kernels."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from pyg_textgraph.ops.mix.triton_launch import Inputs, Results, mix_backward_launch, mix_launch, padded
from pyg_textgraph.ops.triton_limits import MAX_KEPT, unsupported_tensors

MAX_CANDIDATES, MAX_LOGITS = 256, 4096  # of a token; logits with both sides padded to powers of two


def run(
    edges: Sequence[tuple[Tensor, Tensor]], logits: Tensor, s: int, temperature: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Arguments and results as of :func:`~pyg_textgraph.ops.mix`; contributions add up in float32.

    Shapes:
        - **edges** groups of index and weight (\\*, e_i, s_i); **logits** (\\*, e, c); **temperature** (\\*, c)
        - **returns** (\\*, c, s) each
    """
    shape, tokens = (*logits.shape[:-2], logits.size(-1), s), logits.shape[:-2].numel()
    edges = [(i, w) for i, w in edges if i.size(-2) * i.size(-1)]
    groups = [(i.size(-2), i.size(-1)) for i, _ in edges]
    flat = [
        (i.int().reshape(tokens, e * p), w.reshape(tokens, e * p)) for (i, w), (e, p) in zip(edges, groups, strict=True)
    ]
    index, weight = flat[0] if len(flat) == 1 else (torch.cat(x, -1) for x in zip(*flat, strict=True))
    heat = None if temperature is None else temperature.reshape(tokens, logits.size(-1))
    counts, pointers = map(list, zip(*groups, strict=True))
    out_index, out_weight, _ = _mix(
        index, weight, logits.reshape(tokens, *logits.shape[-2:]), heat, s, counts, pointers
    )
    return out_index.view(shape).to(edges[0][0].dtype), out_weight.view(shape).to(edges[0][1].dtype)


def unsupported(
    edges: Sequence[tuple[Tensor, Tensor]], logits: Tensor, s: int, temperature: Tensor | None = None
) -> str | None:
    """Why the kernels cannot take these tensors, or None."""
    floats = {"logits": logits} | {f"weight {i}": weight for i, (_, weight) in enumerate(edges)}
    floats |= {} if temperature is None else {"temperature": temperature}
    if reason := unsupported_tensors(floats, counted={"tokens": logits[..., 0, 0]}):
        return reason
    candidates = sum(index.size(-2) * index.size(-1) for index, _ in edges)
    if not 0 < candidates <= MAX_CANDIDATES:
        return f"takes 1 to {MAX_CANDIDATES} candidates per token, got {candidates}"
    if padded(logits.size(-2)) * padded(logits.size(-1)) > MAX_LOGITS:
        sizes = f"{logits.size(-2)} edges and {logits.size(-1)} channels"
        return f"takes at most {MAX_LOGITS} logits per token (both sides rounded up to powers of two), got {sizes}"
    return f"keeps at most {MAX_KEPT} pointers, 's' is {s}" if s > MAX_KEPT else None


@torch.library.custom_op("pyg_textgraph::mix", mutates_args=())
def _mix(
    index: Tensor, weight: Tensor, logits: Tensor, temperature: Tensor | None, s: int, edges: list[int],
    pointers: list[int],
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Index and weight (n, c, s), float32, and their scale (n, c)."""
    results = _results_like(index, weight, logits, s)
    mix_launch(_contiguous(index, weight, logits, temperature), results, edges, pointers)()
    return results


@torch.library.custom_op("pyg_textgraph::mix_backward", mutates_args=())
def _mix_backward(
    grad: Tensor, out_index: Tensor, out_weight: Tensor, scale: Tensor,
    index: Tensor, weight: Tensor, logits: Tensor, temperature: Tensor | None, edges: list[int], pointers: list[int],
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Gradients to weight, logits and temperature; the last is empty without one."""
    gradients = _gradients_like(weight, logits, temperature)
    inputs, results = _contiguous(index, weight, logits, temperature), Results(out_index, out_weight, scale)
    dweight, dlogits, dheat = gradients
    heat = None if temperature is None else dheat
    mix_backward_launch(inputs, results, grad.contiguous(), dweight, dlogits, heat, edges, pointers)()
    return gradients


def _contiguous(index: Tensor, weight: Tensor, logits: Tensor, temperature: Tensor | None) -> Inputs:
    heat = None if temperature is None else temperature.contiguous()
    return Inputs(index.contiguous(), weight.contiguous(), logits.contiguous(), heat)


def _results_like(index: Tensor, weight: Tensor, logits: Tensor, s: int) -> Results:
    n, _, channels = logits.shape
    kept, scale = (weight.new_empty(x, dtype=torch.float32) for x in ((n, channels, s), (n, channels)))
    return Results(index.new_empty(n, channels, s), kept, scale)


def _gradients_like(weight: Tensor, logits: Tensor, temperature: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    heat = logits.new_empty(0) if temperature is None else temperature
    dweight, dlogits, dheat = (
        torch.empty_like(x, memory_format=torch.contiguous_format) for x in (weight, logits, heat)
    )
    return dweight, dlogits, dheat


@_mix.register_fake
def _(
    index: Tensor, weight: Tensor, logits: Tensor, temperature: Tensor | None, s: int, *_: object
) -> tuple[Tensor, Tensor, Tensor]:
    return _results_like(index, weight, logits, s)


@_mix_backward.register_fake
def _(
    grad: Tensor, out_index: Tensor, out_weight: Tensor, scale: Tensor,
    index: Tensor, weight: Tensor, logits: Tensor, temperature: Tensor | None, *_: object,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    return _gradients_like(weight, logits, temperature)


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
    index, weight, logits, temperature, _, edges, pointers = inputs
    ctx.save_for_backward(*output, index, weight, logits, temperature)
    ctx.groups = edges, pointers
    ctx.mark_non_differentiable(output[0], output[2])


def _backward(ctx: Any, _: Tensor, grad: Tensor, __: Tensor) -> tuple[Tensor | None, ...]:
    dweight, dlogits, dheat = _mix_backward(grad, *ctx.saved_tensors, *ctx.groups)
    return None, dweight, dlogits, dheat if ctx.needs_input_grad[3] else None, None, None, None


_mix.register_autograd(_backward, setup_context=_setup)

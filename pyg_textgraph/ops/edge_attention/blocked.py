"""Edge attention in blocks of tokens; gradients of keys and values through a reverse index, in a fixed order."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from pyg_textgraph.ops.blocks import for_each_block
from pyg_textgraph.ops.refer import flat_rows


class EdgeAttention(torch.autograd.Function):
    """Keys and values are rows of flat tables (R, d), `row` (n, g, s) says which; q is (n, g, h/g, d)."""

    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, row: Tensor, weight: Tensor, node_tau: Tensor, edge_tau: Tensor
    ) -> tuple[Tensor, Tensor]:
        out, attention = torch.empty_like(q), q.new_empty(*q.shape[:-1], row.size(-1))

        def block(rows: slice) -> None:
            score = q[rows] @ _rows(k, row[rows]).mT * q.size(-1) ** -0.5  # [b, g, r, s]
            w = weight[rows].unsqueeze(2)
            logit = torch.addcmul(score * node_tau[rows, ..., None], _log(w), edge_tau[rows, :, None, None])
            empty = w <= 0
            logit = logit.masked_fill_(empty, torch.finfo(logit.dtype).min)
            attention[rows] = logit.softmax(-1).masked_fill_(empty, 0)
            out[rows] = attention[rows] @ _rows(v, row[rows])

        for_each_block(block, len(q), row[:1].numel() * q.size(-1), q.device)
        ctx.save_for_backward(q, k, v, row, weight, node_tau, edge_tau, attention)
        return out, attention

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, grad_attention: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, row, weight, node_tau, edge_tau, attention = ctx.saved_tensors
        d_q, d_weight, d_node, d_edge = map(torch.empty_like, (q, weight, node_tau, edge_tau))
        step = torch.empty_like(attention)  # dL / d(q·k)
        scale = q.size(-1) ** -0.5

        def block(rows: slice) -> None:
            key, p, w = _rows(k, row[rows]), attention[rows], weight[rows]
            d_p = torch.baddbmm(
                grad_attention[rows].flatten(0, 1), grad[rows].flatten(0, 1), _rows(v, row[rows]).flatten(0, 1).mT
            ).view_as(p)
            d_logit = p * (d_p - (d_p * p).sum(-1, keepdim=True))  # [b, g, r, s]
            d_node[rows] = (d_logit * (q[rows] @ key.mT)).sum(-1) * scale
            shared = d_logit.sum(2)  # [b, g, s]
            d_edge[rows] = (shared * _log(w)).sum(-1)
            d_weight[rows] = (shared * edge_tau[rows].unsqueeze(-1) / w).masked_fill_(w <= 0, 0)
            step[rows] = d_logit * node_tau[rows, ..., None] * scale
            d_q[rows] = step[rows] @ key

        for_each_block(block, len(q), row[:1].numel() * q.size(-1), q.device)
        d_k, d_v = _transposed(row, (step, attention), (q, grad), len(k))
        return d_q, d_k, d_v, None, d_weight, d_node, d_edge


def _log(weight: Tensor) -> Tensor:
    return weight.log().masked_fill_(weight <= 0, 0)


def _rows(table: Tensor, row: Tensor) -> Tensor:
    return table.index_select(0, row.flatten()).view(*row.shape, -1)


def _transposed(
    row: Tensor, coefficients: tuple[Tensor, ...], tables: tuple[Tensor, ...], size: int
) -> tuple[Tensor, ...]:
    """For each coefficient (n, g, r, s) and table (n, g, r, d): the weighted sum over all that points to a row."""
    _, _, repeat, s = coefficients[0].shape
    order = row.flatten().argsort(stable=True)  # by row, then by query: always the same sum
    start = torch.zeros(size + 1, dtype=order.dtype, device=row.device)
    start[1:] = torch.bincount(row.flatten(), minlength=size).cumsum(0)
    head = torch.arange(repeat, device=row.device)
    source = ((order // s * repeat).unsqueeze(1) + head).flatten()  # which (query, head)
    sums = []
    for coefficient, table in zip(coefficients, tables, strict=True):
        share = coefficient.mT.reshape(-1, repeat)[order].flatten()
        table = table.reshape(-1, table.size(-1))
        bags = F.embedding_bag(
            source, table, start * repeat, mode="sum", per_sample_weights=share, include_last_offset=True
        )
        sums.append(bags)
    return tuple(sums)


def edge_attention_blocked(
    q: Tensor, k: Tensor, v: Tensor, index: Tensor, weight: Tensor, node_temperature: Tensor, edge_temperature: Tensor
) -> tuple[Tensor, Tensor]:
    """As `edge_attention_reference`, with memory for a block of tokens at a time; batches are allowed."""
    groups, dtype = k.size(-2), q.dtype
    work = torch.promote_types(dtype, torch.float32)
    row = flat_rows(index, k.size(-3)).flatten(0, -3)
    heads = (groups, q.size(-2) // groups)
    out, attention = EdgeAttention.apply(
        q.flatten(0, -3).unflatten(1, heads).to(work),
        k.flatten(0, -2).to(work),
        v.flatten(0, -2).to(work),
        row,
        weight.flatten(0, -3).to(work),
        node_temperature.flatten(0, -2).unflatten(1, heads).to(work),
        edge_temperature.flatten(0, -2).to(work),
    )
    return out.view(q.shape).to(dtype), attention.view(*q.shape[:-1], index.size(-1))

"""In-batch contrastive loss for links, over the batches of all ranks."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor


def link_loss(
    query: Tensor,
    key: Tensor,
    *,
    keep: Tensor | None = None,
    query_node: Tensor | None = None,
    key_node: Tensor | None = None,
    known: KnownLinks | None = None,
    temperature: float = 1.0,
) -> Tensor:
    r"""The mean of :math:`-\log \frac{\exp(q_i^\top k_i/\tau)}{\sum_j \exp(q_i^\top k_j/\tau)}` over pairs that count.

    Negatives are the keys of the other pairs, of all ranks if there are several: every rank's result is its share of
    the joint mean times the number of ranks, so that DDP's average of gradients is the joint batch's gradient.

    Args:
        query: Embeddings of the links' first nodes.
        key: Embeddings of their second nodes.
        keep: Which pairs count, see :func:`pair_filter`; the others are neither positives nor negatives.
        query_node: The nodes themselves. With **key_node**, a key that is the query's node or has the positive's is
            no negative.
        key_node: See **query_node**.
        known: Links that are no negatives; needs the nodes.
        temperature: :math:`\tau`.

    Shapes: **query**, **key** (B, d), B may differ between ranks; **keep**, **query_node**, **key_node** (B,)

    Raises:
        ValueError: If shapes do not fit, or **known** comes without nodes.
    """
    if query.shape != key.shape:
        raise ValueError(f"link_loss: 'key' is {tuple(key.shape)}, expected {tuple(query.shape)} as 'query'")
    if known is not None and (query_node is None or key_node is None):
        raise ValueError("link_loss: 'known' needs 'query_node' and 'key_node'")
    keep = torch.ones(len(query), dtype=torch.bool, device=query.device) if keep is None else keep
    keys, start = gather_rows(key)  # [J, d], all ranks
    kept = gather_rows(keep)[0]
    own = torch.arange(len(query), device=query.device) + start
    score = query @ keys.T / temperature  # [B, J]
    hidden = ~kept.expand(len(query), -1)
    if query_node is not None and key_node is not None:
        hidden = hidden | false_negatives(query_node, key_node, gather_rows(key_node)[0], known)
    hidden = hidden.scatter(1, own[:, None], False)
    loss = F.cross_entropy(score.masked_fill(hidden, -torch.inf), own, reduction="none")
    ranks = dist.get_world_size() if dist.is_initialized() else 1
    return torch.where(keep, loss, 0).sum() * ranks / kept.sum().clamp(min=1)


def pair_filter(pair: Tensor, query_neighbors: Tensor, key_neighbors: Tensor) -> Tensor:
    """Which pairs can be learned from: neither node among the other's neighbours, nor both the same.

    Seeing the answer among one's neighbours teaches nothing (`Yang et al., 2021 <https://arxiv.org/abs/2105.02605>`_).

    Shapes:
        - **pair** (2, B); **query_neighbors**, **key_neighbors** (B, K) nodes, −1 for none
        - **returns** (B,) bool
    """
    query, key = pair
    seen = (query_neighbors == key[:, None]).any(1) | (key_neighbors == query[:, None]).any(1)
    return ~seen & (query != key)


def false_negatives(query_node: Tensor, positive: Tensor, key_node: Tensor, known: KnownLinks | None = None) -> Tensor:
    """Which keys are in truth no negatives: the query itself, another copy of its positive, or a known neighbour.

    Shapes: **query_node**, **positive** (B,); **key_node** (J,) -> (B, J) bool
    """
    same = (key_node == query_node[:, None]) | (key_node == positive[:, None])
    return same if known is None else same | known(query_node[:, None], key_node)


class KnownLinks:
    """Answers whether two nodes are linked, in either direction.

    Shapes: **edge_index** (2, E)
    """

    def __init__(self, edge_index: Tensor, num_nodes: int) -> None:
        self.num_nodes = num_nodes
        self._codes = self._code(edge_index[0], edge_index[1]).unique()

    def __call__(self, source: Tensor, dest: Tensor) -> Tensor:
        """Shapes: any two that broadcast -> bool of that shape."""
        code = self._code(source, dest)
        if self._codes.numel() == 0:
            return torch.zeros_like(code, dtype=torch.bool)
        self._codes = self._codes.to(code.device)
        place = torch.searchsorted(self._codes, code).clamp(max=self._codes.numel() - 1)
        return self._codes[place] == code

    def _code(self, source: Tensor, dest: Tensor) -> Tensor:
        return torch.minimum(source, dest) * self.num_nodes + torch.maximum(source, dest)


def gather_rows(x: Tensor) -> tuple[Tensor, int]:
    """The rows of all ranks, in their order, and where this rank's start. Gradients flow back to every rank.

    Shapes: (n, …), n may differ between ranks -> (sum of n, …)
    """
    if not dist.is_initialized() or dist.get_world_size() == 1:
        return x, 0
    size = torch.tensor([len(x)], device=x.device)
    sizes = [torch.empty_like(size) for _ in range(dist.get_world_size())]
    dist.all_gather(sizes, size)
    counts = [int(n) for n in sizes]
    return _GatherRows.apply(x, counts), sum(counts[: dist.get_rank()])


class _GatherRows(torch.autograd.Function):
    """All-gather whose backward sums what every rank's loss says about this rank's rows."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, counts: list[int]) -> Tensor:
        ctx.counts = counts
        padded = x.new_zeros(max(counts), *x.shape[1:])
        padded[: len(x)] = x
        parts = [torch.empty_like(padded) for _ in counts]
        dist.all_gather(parts, padded)
        return torch.cat([part[:n] for part, n in zip(parts, counts, strict=True)])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        grad = grads[0].contiguous()
        dist.all_reduce(grad)
        start = sum(ctx.counts[: dist.get_rank()])
        return grad[start : start + ctx.counts[dist.get_rank()]], None

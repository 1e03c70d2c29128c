"""The neighbours of many centres, and their texts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np
import torch
from torch import Tensor

from pyg_textgraph.data import TokenStore
from pyg_textgraph.data.packed_texts import NeighborBatch, PackedTexts
from pyg_textgraph.sampling.csr import CSRGraph, Ints, pointer, runs
from pyg_textgraph.sampling.ego import splitmix64, stream_keys

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Choice = Literal["uniform", "first"]


def sample_neighbors(
    graph: CSRGraph,
    centres: Ints,
    num_neighbors: int,
    *,
    exclude: Ints | None = None,
    choice: Choice = "uniform",
    seed: int = 0,
    epoch: int = 0,
) -> Ints:
    """Up to **num_neighbors** neighbours of every centre, along edges of either direction.

    What is taken depends on (seed, epoch, centre) only, whatever it is sampled together with.

    Args:
        graph: The edges that may be used.
        centres: Nodes; one may occur more than once.
        num_neighbors: How many at most.
        exclude: A node that must not be among a centre's neighbours: the other end of an edge to be predicted.
        choice: ``"uniform"`` without replacement, or the ``"first"`` ones by index.
        seed: Of the draw.
        epoch: Of the draw.

    Shapes:
        - **centres**, **exclude** (C,)
        - **returns** (C, num_neighbors), −1 where there are fewer

    Raises:
        ValueError: If a centre is out of range, or **choice** unknown.
    """
    outside = (centres < 0) | (centres >= graph.num_nodes)
    if outside.any():
        raise ValueError(
            f"sample_neighbors: 'centres' holds {centres[outside][0]} but the graph has {graph.num_nodes} nodes"
        )
    if choice not in ("uniform", "first"):
        raise ValueError(f"sample_neighbors: 'choice' is {choice!r}, expected 'uniform' or 'first'")
    place, count = runs(graph.neighbor_ptr, centres)
    row, node = np.repeat(np.arange(centres.size), count), graph.neighbor[place].astype(np.int64)
    if exclude is not None:
        allowed = node != exclude[row]
        row, node = row[allowed], node[allowed]
    if choice == "uniform":
        priority = splitmix64(stream_keys(seed, epoch, centres)[row], node.astype(np.uint64))
        order = np.lexsort((priority, row))
        row, node = row[order], node[order]
    rank = np.arange(row.size) - pointer(np.bincount(row, minlength=centres.size))[row]
    taken = rank < num_neighbors
    out = np.full((centres.size, num_neighbors), -1, np.int64)
    out[row[taken], rank[taken]] = node[taken]
    return out


class NeighborTextSampler:
    """Texts of centres and of their sampled neighbours, ready for a text encoder.

    Args:
        store: The tokens of all nodes, without special tokens.
        edge_index: The edges along which neighbours are taken.
        tokenizer: Knows the tokens at a text's start and end.
        num_neighbors: How many at most; 0 for none.
        max_tokens: Tokens of a text that are kept, special ones included; no cut by default.
        choice: See :func:`sample_neighbors`.
        seed: Of the draw.
        disjoint: Whether every centre gets its own copy of a neighbour's text, as the bidirectional model needs.

    Shapes: **edge_index** (2, E)

    Raises:
        ValueError: If the tokenizer has no token for a text's start or end, or **max_tokens** leaves no room.
    """

    def __init__(
        self,
        store: TokenStore,
        edge_index: Tensor,
        tokenizer: PreTrainedTokenizerBase,
        num_neighbors: int = 5,
        max_tokens: int | None = None,
        choice: Choice = "uniform",
        seed: int = 0,
        disjoint: bool = False,
    ) -> None:
        if max_tokens is not None and max_tokens < 3:
            raise ValueError(f"NeighborTextSampler: 'max_tokens' is {max_tokens}, expected at least 3")
        self.store, self.num_neighbors, self.max_tokens = store, num_neighbors, max_tokens
        self.graph = CSRGraph.from_edge_index(edge_index.cpu().numpy(), len(store))
        self.ends = text_ends(tokenizer)
        self.choice, self.seed, self.disjoint = choice, seed, disjoint

    def texts(self, nodes: Tensor, num_centres: int = 0) -> PackedTexts:
        """The packed texts of nodes, special tokens added. Shapes: **nodes** (n,)."""
        limit = None if self.max_tokens is None else self.max_tokens - 2
        ids, count = self.store.gather(nodes, max_tokens=limit)
        return PackedTexts.pack(*add_ends(ids, count, *self.ends), num_centres)

    def neighbors(self, centres: Tensor, exclude: Tensor | None = None, epoch: int = 0) -> Tensor:
        """The sampled neighbours of centres, as nodes. Shapes: (C,) -> (C, num_neighbors), −1 where there are fewer."""
        found = sample_neighbors(
            self.graph,
            centres.numpy(),
            self.num_neighbors,
            exclude=None if exclude is None else exclude.numpy(),
            choice=self.choice,
            seed=self.seed,
            epoch=epoch,
        )
        return torch.from_numpy(found)

    def __call__(self, centres: Tensor, exclude: Tensor | None = None, epoch: int = 0) -> NeighborBatch:
        """A batch of neighbourhoods.

        Args:
            centres: Nodes; one may occur more than once.
            exclude: The other end of each centre's edge to be predicted.
            epoch: Another epoch draws other neighbours.

        Shapes: **centres**, **exclude** (C,)
        """
        found = self.neighbors(centres, exclude, epoch)  # [C, K]
        valid = found >= 0
        if self.disjoint:
            others, number = found[valid], torch.arange(int(valid.sum()))
        else:
            others, number = found[valid].unique(return_inverse=True)
        neighbors = found.masked_scatter(valid, number + centres.numel())
        node = torch.cat([centres, others])
        return NeighborBatch(self.texts(node, centres.numel()), neighbors, node, self.disjoint)


def text_ends(tokenizer: PreTrainedTokenizerBase) -> tuple[int, int]:
    """The special tokens before and after a text.

    Raises:
        ValueError: If the tokenizer lacks one.
    """
    first, last = tokenizer.cls_token_id, tokenizer.sep_token_id
    if first is None or last is None:
        raise ValueError("the tokenizer has no cls_token or no sep_token, expected both")
    return int(first), int(last)


def add_ends(ids: Tensor, count: Tensor, first: int, last: int) -> tuple[Tensor, Tensor]:
    """Puts a token before and after every text. Shapes: (T,), (n,) -> (T + 2n,), (n,)."""
    end = count.cumsum(0)
    out = ids.new_empty(ids.numel() + 2 * count.numel())
    text = torch.repeat_interleave(count)
    out[torch.arange(ids.numel()) + 2 * text + 1] = ids
    number = torch.arange(count.numel())
    out[end - count + 2 * number] = first
    out[end + 2 * number + 1] = last
    return out, count + 2

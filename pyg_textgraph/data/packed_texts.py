"""Many texts as one sequence of tokens without padding, and the neighbourhoods that some of them are centres of."""

from __future__ import annotations

from dataclasses import dataclass, fields
from itertools import accumulate
from typing import Any, Self

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class PackedTexts:
    """Texts sorted so that equally long ones stand together: attention needs neither padding nor gathers.

    The first texts may be *centres*; they stay first. Within centres and within the rest, shorter texts come first.

    Shapes:
        - **input_ids**, **position** (T,), positions count from 0 in every text
        - **runs** how many texts of which length follow each other; no run holds centres and others
        - **first** (n,) place of each text's first token, by the text's number as given
        - **order** (n,) number of the text at each place
    """

    input_ids: Tensor
    position: Tensor
    runs: tuple[tuple[int, int], ...]
    first: Tensor
    order: Tensor
    num_centres: int = 0

    @classmethod
    def pack(cls, input_ids: Tensor, num_tokens: Tensor, num_centres: int = 0) -> Self:
        """Sorts texts.

        Args:
            input_ids: The tokens, text after text.
            num_tokens: How many each text has.
            num_centres: How many of the texts, from the first, are centres.

        Shapes:
            - **input_ids** (T,); **num_tokens** (n,)

        Raises:
            ValueError: If a text has no tokens, or the counts do not add up.
        """
        if num_tokens.numel() and int(num_tokens.min()) < 1:
            raise ValueError(f"PackedTexts: text {int(num_tokens.argmin())} has no tokens, expected at least 1")
        if int(num_tokens.sum()) != input_ids.numel():
            raise ValueError(
                f"PackedTexts: 'num_tokens' adds up to {int(num_tokens.sum())} but there are {input_ids.numel()} tokens"
            )
        key = num_tokens + (torch.arange(num_tokens.numel()) >= num_centres) * (int(input_ids.numel()) + 1)
        order = key.argsort(stable=True)
        values, counts = key[order].unique_consecutive(return_counts=True)
        lengths = values % (int(input_ids.numel()) + 1)
        length = num_tokens[order]
        start = length.cumsum(0) - length  # [n], packed
        position = torch.arange(input_ids.numel()) - start.repeat_interleave(length)
        source = (num_tokens.cumsum(0) - num_tokens)[order].repeat_interleave(length) + position
        return cls(
            input_ids[source],
            position,
            tuple(zip(counts.tolist(), lengths.tolist(), strict=True)),
            torch.empty_like(start).index_put_((order,), start),
            order,
            num_centres,
        )

    @property
    def num_texts(self) -> int:
        return self.order.numel()

    @property
    def max_length(self) -> int:
        return max((length for _, length in self.runs), default=0)

    @property
    def num_centre_tokens(self) -> int:
        return self.tokens_of(self.num_centres)

    def tokens_of(self, num_texts: int) -> int:
        """How many tokens the first packed texts have, whole runs only."""
        return sum(count * length for count, length in self._first_runs(num_texts))

    def centres(self) -> Self:
        """The centres' texts alone."""
        n, tokens = self.num_centres, self.num_centre_tokens
        return self._replace(
            input_ids=self.input_ids[:tokens],
            position=self.position[:tokens],
            runs=self._first_runs(n),
            first=self.first[:n],
            order=self.order[:n],
        )

    def _first_runs(self, num_texts: int) -> tuple[tuple[int, int], ...]:
        ends = accumulate(count for count, _ in self.runs)
        return tuple(run for run, end in zip(self.runs, ends, strict=True) if end <= num_texts)

    def with_ids(self, input_ids: Tensor) -> Self:
        """The same texts with other tokens."""
        return self._replace(input_ids=input_ids)

    def to(self, device: torch.device | str) -> Self:
        return self._replace(**{key: x.to(device) for key, x in _tensors(self).items()})

    def _replace(self, **changes: Any) -> Self:
        return type(self)(**({field.name: getattr(self, field.name) for field in fields(self)} | changes))


@dataclass(frozen=True, eq=False)
class NeighborBatch:
    """Centres, their sampled neighbours, and the texts of all.

    Text c < C is centre c's. Neighbours' texts follow; unless **disjoint**, a node's text occurs there once, however
    many centres it is a neighbour of.

    Shapes:
        - **neighbors** (C, K) number of the text, −1 where there is none
        - **node** (n,) the node of each text
    """

    texts: PackedTexts
    neighbors: Tensor
    node: Tensor
    disjoint: bool = False

    @property
    def num_centres(self) -> int:
        return self.neighbors.size(0)

    @property
    def members(self) -> Tensor:
        """Texts of each neighbourhood, the centre first, −1 where there is none: (C, 1 + K)."""
        centre = torch.arange(self.num_centres, device=self.neighbors.device)
        return torch.cat([centre[:, None], self.neighbors], dim=1)

    @property
    def neighbor_nodes(self) -> Tensor:
        """Nodes instead of texts, −1 where there is none: (C, K)."""
        return torch.where(self.neighbors < 0, -1, self.node[self.neighbors])

    def with_ids(self, input_ids: Tensor) -> Self:
        """The same batch with other tokens."""
        return type(self)(self.texts.with_ids(input_ids), self.neighbors, self.node, self.disjoint)

    def to(self, device: torch.device | str) -> Self:
        return type(self)(self.texts.to(device), self.neighbors.to(device), self.node.to(device), self.disjoint)


def _tensors(texts: PackedTexts) -> dict[str, Tensor]:
    return {name: x for name, x in vars(texts).items() if isinstance(x, Tensor)}

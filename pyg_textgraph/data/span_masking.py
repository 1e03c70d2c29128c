"""Masked copies of packed texts: whole spans, as GraphFormers' first training stage reads them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from pyg_textgraph.data.packed_texts import NeighborBatch

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


class SpanMasking:
    r"""Replaces spans of tokens (`Yang et al., 2021 <https://arxiv.org/abs/2105.02605>`_, Sec. 3.3).

    In every text a share of the tokens is chosen, rounded up or down at random so that it is right on average. They
    are chosen in spans: lengths are geometric in **p**, clipped at **longest** and at what is still missing, and starts
    are random. A span stops at the text's end and at what is already chosen. Of the chosen tokens 80 % become the mask
    token, 10 % a random token that is not special, and 10 % stay. Special tokens are never chosen.

    Args:
        tokenizer: Knows the mask token and the special ones.
        share: Share of a text's ordinary tokens.
        p: Of the geometric distribution.
        longest: Longest span.
        centres_only: Whether the neighbours' texts stay whole.

    Raises:
        ValueError: If the tokenizer has no mask token, or **share** or **p** is out of range.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        share: float = 0.15,
        p: float = 0.2,
        longest: int = 10,
        centres_only: bool = False,
    ) -> None:
        if tokenizer.mask_token_id is None:
            raise ValueError("SpanMasking: 'tokenizer' has no mask_token, expected one")
        if not 0 <= share <= 1 or not 0 < p <= 1:
            raise ValueError(f"SpanMasking: 'share' and 'p' are {share} and {p}, expected [0, 1] and (0, 1]")
        self.mask_id: int = tokenizer.mask_token_id
        self.special = torch.tensor(sorted(tokenizer.all_special_ids))
        ordinary = torch.ones(len(tokenizer), dtype=torch.bool)
        ordinary[self.special[self.special < len(tokenizer)]] = False
        self.ordinary = ordinary.nonzero().view(-1)
        self.share, self.p, self.longest, self.centres_only = share, p, longest, centres_only

    def __call__(self, batch: NeighborBatch, generator: torch.Generator) -> NeighborBatch:
        """The batch with masked texts."""
        texts = batch.texts
        parts, start = [], 0
        for count, length in texts.runs:
            ids = texts.input_ids[start : start + count * length].view(count, length)
            if start < texts.num_centre_tokens or not self.centres_only:
                ids = self.replace(ids, self.choose(~torch.isin(ids, self.special), generator), generator)
            parts.append(ids.reshape(-1))
            start += count * length
        return batch.with_ids(torch.cat(parts)) if parts else batch

    def choose(self, ordinary: Tensor, generator: torch.Generator) -> Tensor:
        """The chosen tokens of equally long texts. Shapes: **ordinary** (n, L) bool -> (n, L) bool."""
        count, length = ordinary.shape
        place = torch.arange(length)
        chosen = torch.zeros_like(ordinary)
        total = ordinary.sum(1)
        missing = (total * self.share + torch.rand(count, generator=generator)).long()  # [n]
        missing = torch.minimum(missing, total)  # n + 0.999… is n + 1 in float32
        while (missing > 0).any():  # each round one span, of one token at least, for every text that lacks some
            free = ordinary & ~chosen
            chance = torch.rand(count, length, generator=generator).masked_fill(~free, -1)
            start = chance.argmax(1)
            span = torch.empty(count).geometric_(self.p, generator=generator).clamp(max=self.longest).long()
            size = torch.minimum(span, missing)
            after = place >= start[:, None]
            met = (~free & after).cumsum(1) > 0  # from the first token on that is not free
            new = after & (place < (start + size)[:, None]) & ~met
            chosen |= new
            missing = missing - new.sum(1)
        return chosen

    def replace(self, ids: Tensor, chosen: Tensor, generator: torch.Generator) -> Tensor:
        """Masked, random and kept tokens, 80/10/10. Shapes: (n, L), (n, L) bool -> (n, L)."""
        chance = torch.rand(ids.shape, generator=generator)
        other = self.ordinary[torch.randint(self.ordinary.numel(), ids.shape, generator=generator)]
        ids = torch.where(chosen & (chance < 0.8), self.mask_id, ids)
        return torch.where(chosen & (chance >= 0.9), other, ids)

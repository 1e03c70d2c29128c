"""What comes after the text graph: tokens that see all of it and, of each other, what a tree of branches shows."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from torch_geometric.data import Batch, Data

from pyg_textgraph.data import append_to_target
from pyg_textgraph.data.prompts import drop_answer
from pyg_textgraph.nn.models.text_graph_lm.attention import PackedContext, Scoring


@dataclass
class DecodeContext:
    """Attention of new tokens, one graph per row, over the kept keys and values of the packed graphs.

    New tokens continue the target, so what they see of the graph, and the bias on it, is what the target's node does.

    Args:
        prefix: The context of the packed pass, with its keys and values kept.
        target: The target's node in each graph, (B,).
        sees: Which earlier and present new token each present new token sees, (L, S + L) bool.
        position: Rotary positions of the present new tokens, (B, L).
        keep: Whether the present tokens' keys and values are kept for later ones.
    """

    prefix: PackedContext
    target: Tensor
    sees: Tensor
    position: Tensor
    keep: bool = True
    earlier: dict[int, tuple[Tensor, Tensor]] = field(default_factory=dict)  # layer -> k, v [B, H_kv, S, D]
    earlier_position: Tensor | None = None  # [B, S]

    def __post_init__(self) -> None:
        layout = self.prefix.layout
        size = layout.graph_ptr.diff().tolist()

        def rows(x: Tensor, fill: float) -> Tensor:
            return pad_sequence(list(x.split(size)), batch_first=True, padding_value=fill)

        self.key_node = rows(layout.node, 0)  # [B, P]
        self.key_position = rows(layout.position, 0)
        self.key_inside = rows(torch.ones_like(layout.is_target), 0)
        self.size = size
        seen = self.prefix.seen_by(self.target)
        if seen is not None:
            self.key_inside &= seen.gather(1, self.key_node) | self.in_target
        self._padded: dict[int, tuple[Tensor, Tensor]] = {}
        self._rows: dict[int, Tensor | None] = {}

    @property
    def in_target(self) -> Tensor:
        """Which keys belong to the target, (B, P)."""
        return self.key_node == self.target[:, None]

    def advance(self, sees: Tensor, position: Tensor) -> None:
        """The present tokens become earlier ones."""
        self.earlier_position, self.sees, self.position = self._positions(), sees, position

    def _positions(self) -> Tensor:
        """Of all new tokens so far, (B, S + L)."""
        return self.position if self.earlier_position is None else torch.cat([self.earlier_position, self.position], 1)

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, scoring: Scoring) -> Tensor:
        if layer in self.earlier:
            k, v = (torch.cat(pair, 2) for pair in zip(self.earlier[layer], (k, v), strict=True))
        if self.keep:
            self.earlier[layer] = (k, v)
        b, h, new, d = q.shape
        past_k, past_v = self._prefix(layer)
        k, v = torch.cat([past_k, k], 2), torch.cat([past_v, v], 2)  # [B, H_kv, P + S, D]
        grouped = q.reshape(b, k.size(1), -1, d)  # [B, H_kv, H/H_kv · L, D]: heads of a group share keys
        score = scoring(grouped, k).view(b, h, new, -1)
        past = past_k.size(2)
        if layer not in self._rows:  # the same at every step
            self._rows[layer] = self.prefix.rows_of(self.target, layer)
        rows = self._rows[layer]
        if rows is not None:
            row = rows.gather(2, self.key_node[:, None].expand(-1, h, -1))  # [B, H, P]
            score[..., :past] += row.masked_fill(self.in_target[:, None], 0)[:, :, None]
        score = score.masked_fill(~self._visible(scoring.window)[:, None], -torch.inf)
        weight = score.softmax(-1).to(v.dtype).view(*grouped.shape[:3], -1)
        return (weight @ v).view(b, h, new, d).transpose(1, 2)

    def _prefix(self, layer: int) -> tuple[Tensor, Tensor]:
        if layer not in self._padded:
            assert self.prefix.kept is not None
            k, v = (
                pad_sequence([part.transpose(0, 1) for part in x.split(self.size, 1)], batch_first=True).transpose(1, 2)
                for x in self.prefix.kept.pop(layer)
            )
            self._padded[layer] = (k, v)
        return self._padded[layer]

    def _visible(self, window: int | None) -> Tensor:
        """Shapes: **returns** (B, L, P + S)."""
        b, new = self.position.shape
        past = self.key_inside[:, None].expand(b, new, -1)
        now = self.sees.expand(b, *self.sees.shape)
        if window is not None:
            now = now & (self.position[:, :, None] - self._positions()[:, None] < window)
            near = self.position[:, :, None] - self.key_position[:, None] < window
            past = past & (near | ~self.in_target[:, None])
        return torch.cat([past, now], -1)


def branches(names: list[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    """Several continuations of one prefix as one row: each sees itself, none sees another.

    Args:
        names: Token ids of each continuation.

    Shapes:
        - **returns** ids (L,), place within the own continuation (L,), and which sees which (L, L) bool
    """
    which = torch.repeat_interleave(torch.tensor([x.numel() for x in names]))
    place = torch.cat([torch.arange(x.numel()) for x in names])
    sees = (which[:, None] == which) & (place[:, None] >= place)
    return torch.cat(names), place, sees


def append_new_tokens(batch: Data, ids: Tensor) -> Batch:
    """The batch with tokens added to its targets in place of their answers, negative ones left out.

    Shapes: **ids** (B, L)
    """
    graphs = batch.to_data_list() if isinstance(batch, Batch) else [batch]
    rows = (row[row >= 0] for row in ids)
    return Batch.from_data_list([append_to_target(drop_answer(g), row) for g, row in zip(graphs, rows, strict=True)])

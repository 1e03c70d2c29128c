"""Where a target's last token looks, node by node."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from pyg_textgraph.nn.models.text_graph_lm.attention import PackedContext, Scoring


@dataclass
class NodeAttentionContext:
    """Attention as **packed** does it, which also keeps how the last token of every graph spreads over the nodes.

    Shapes: **kept** per layer (B, H, N), each row sums to one
    """

    packed: PackedContext
    kept: dict[int, Tensor] = field(default_factory=dict)

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, scoring: Scoring) -> Tensor:
        layout = self.packed.layout
        last, node = layout.last, layout.node
        key = k[0].repeat_interleave(q.size(1) // k.size(1), dim=0).float()  # [H, T, D]
        score = scoring(q[0][:, last].float(), key).transpose(0, 1)  # [B, H, T]
        own = node == node[last][:, None]  # [B, T]; other graphs are hidden below
        rows = self.packed.rows_of(node[last], layer)
        if rows is not None:
            spread = rows.gather(2, node.expand(*rows.shape[:2], -1))  # [B, H, T]
            score = score + spread.masked_fill(own[:, None], 0)
        sees = layout.visible(window=scoring.window)[last]  # [B, T]
        hops = self.packed.seen_by(node[last])
        if hops is not None:
            sees = sees & (own | hops.gather(1, node.expand(len(last), -1)))
        weight = score.masked_fill(~sees[:, None], -torch.inf).softmax(-1)
        out = weight.new_zeros(*weight.shape[:2], layout.most_nodes)
        self.kept[layer] = out.scatter_add_(2, node.expand_as(weight), weight)
        return self.packed.attend(layer, q, k, v, scoring)

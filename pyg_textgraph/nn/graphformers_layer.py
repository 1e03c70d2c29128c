"""One layer of a text encoder with a graph step in front of its attention."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from pyg_textgraph.data.packed_texts import PackedTexts
from pyg_textgraph.nn.text_encoders import EncoderSteps
from pyg_textgraph.ops import neighborhood_attention, packed_attention
from pyg_textgraph.ops.packed_attention import row_attention


class NeighborhoodAttention(nn.Module):
    r"""The graph step: multi-head attention of a centre over the states of itself and its neighbours.

    Untrained, values are the states themselves and all weights nearly equal: the graph vector starts as the mean of
    the neighbourhood, a state such as the encoder's layers know.

    Args:
        hidden_size: Size d of a state.
        num_heads: Number H of heads.
        relation_bias: Whether centre–centre, centre–neighbour and neighbour–neighbour have a learned bias per head.

    Shapes:
        - **members** (C, M, d), the centre first; **valid** (C, M)
        - **returns** (C, d), or (C, M, d) if all members ask
    """

    def __init__(self, hidden_size: int, num_heads: int, relation_bias: bool = True) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.query = nn.Linear(hidden_size, hidden_size)
        self.key = nn.Linear(hidden_size, hidden_size, bias=False)
        self.value = nn.Linear(hidden_size, hidden_size)
        self.bias = nn.Parameter(torch.zeros(3, num_heads), requires_grad=relation_bias)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        for layer in (self.query, self.key):
            nn.init.normal_(layer.weight, std=0.02)
        nn.init.eye_(self.value.weight)
        for bias in (self.query.bias, self.value.bias, self.bias):
            nn.init.zeros_(bias)

    def forward(self, members: Tensor, valid: Tensor, everyone: bool = False) -> Tensor:
        heads = (self.num_heads, -1)
        out = neighborhood_attention(
            members,
            self.query.weight.unflatten(0, heads),
            self.key.weight.unflatten(0, heads),
            self.value.weight.unflatten(0, heads),
            valid,
            self.bias,
            query_bias=self.query.bias.unflatten(0, heads),
            value_bias=self.value.bias.unflatten(0, heads),
            num_queries=members.size(1) if everyone else 1,
        )
        return out if everyone else out[:, 0]


class GraphFormersLayer(nn.Module):
    r"""A layer of a text encoder in which the tokens of some texts also attend to a graph vector.

    Asymmetric (`Yang et al., 2021 <https://arxiv.org/abs/2105.02605>`_, Eq. 4): the graph vector gives a key and a
    value through the layer's own projections, and nothing else. Without a graph vector it is the encoder's own layer.

    Args:
        steps: The encoder, see :func:`~pyg_textgraph.nn.text_encoders.encoder_steps`.
        index: Which of its layers.

    Shapes:
        - **x** (T, d), packed tokens; **graph** (C, d), one for each of the first C packed texts
        - **returns** (T, d), and with **symmetric** also the graph vectors' own new states (C, d)
    """

    def __init__(self, steps: EncoderSteps, index: int) -> None:
        super().__init__()
        self.steps, self.index = steps, index
        self.layer: nn.Module = steps.layers[index]

    def forward(
        self,
        x: Tensor,
        texts: PackedTexts,
        graph: Tensor | None = None,
        *,
        position_bias: Tensor | None = None,
        symmetric: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        steps, index = self.steps, self.index
        plain_q, plain_k, v = steps.project(index, x)
        q, k = steps.rotate(index, plain_q, plain_k, texts.position)
        dropout = steps.attention_dropout(index)
        slot_key, slot_value = (None, None) if graph is None else steps.keys_values(index, graph)
        attended = packed_attention(
            q,
            k,
            v,
            texts.runs,
            slot_key=slot_key,
            slot_value=slot_value,
            slot_query=None if graph is None or plain_q is q else plain_q[: texts.tokens_of(len(graph))],
            bias=position_bias,
            window=steps.window(index),
            dropout=dropout,
        )
        out = steps.finish(index, attended, x)
        if not symmetric or graph is None or slot_key is None or slot_value is None:
            return out, None
        # no positions: the graph vector has none
        row = row_attention(
            steps.queries(index, graph),
            plain_k,
            v,
            texts.runs,
            slot_key=slot_key,
            slot_value=slot_value,
            dropout=dropout,
        )
        return out, steps.finish(index, row, graph)

    def first_tokens(
        self, x: Tensor, texts: PackedTexts, graph: Tensor | None = None, *, position_bias: Tensor | None = None
    ) -> Tensor:
        """The layer's output for the first token of every text alone, all that is read of a last layer.

        Shapes:
            - **x** (T, d), **graph** (C, d) as for the whole layer
            - **returns** (n, d), by the texts' own numbers
        """
        steps, index = self.steps, self.index
        first = x[texts.first[texts.order]]  # [n, d], packed order
        k, v = steps.keys_values(index, x)
        _, k = steps.rotate(index, k, k, texts.position)  # the queries stand at place 0, where rotation does nothing
        slot_key, slot_value = (None, None) if graph is None else steps.keys_values(index, graph)
        attended = row_attention(
            steps.queries(index, first),
            k,
            v,
            texts.runs,
            slot_key=slot_key,
            slot_value=slot_value,
            bias=None if position_bias is None else position_bias[:, 0],
            window=steps.window(index),
            dropout=steps.attention_dropout(index),
        )
        return steps.finish(index, attended, first)[texts.order.argsort()]

"""A language model that reads a graph as one soft token per node."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.data import Data
from transformers import PreTrainedModel
from transformers.utils import ModelOutput

from pyg_textgraph.data import TextAttributedData, TokenLayout
from pyg_textgraph.nn.models.graph_token_lm.config import GraphTokenConfig
from pyg_textgraph.nn.models.graph_token_lm.reconstruction import choose_masked, feature_loss, topology_loss
from pyg_textgraph.nn.models.text_graph_lm import TextGraphLM
from pyg_textgraph.nn.models.text_graph_lm.attention import PackedContext


@dataclass
class GraphTokenOutput(ModelOutput):
    """What :class:`GraphTokenLM` returns.

    Shapes:
        - **loss** () the weighted sum of the losses that there are, None without any
        - **logits** (S, V) where a supervised token is predicted; without any, at the last token of each graph
        - **labels** (S,) the token each row of **logits** should predict, None without labels
        - **answer_loss** () mean cross-entropy over the supervised tokens, None without labels
        - **feature_loss**, **topology_loss** () unweighted, None outside of training
    """

    loss: Tensor | None = None
    logits: Tensor | None = None
    labels: Tensor | None = None
    answer_loss: Tensor | None = None
    feature_loss: Tensor | None = None
    topology_loss: Tensor | None = None


class GraphTokens(nn.Module):
    """From node vectors to soft tokens, and from a language model's states at them back to vectors and edges.

    Args:
        hidden: The language model's channels.
        scale: Root mean square of its token embeddings, which soft tokens start with.
        config: Sizes.
    """

    def __init__(self, hidden: int, scale: float, config: GraphTokenConfig) -> None:
        super().__init__()
        norm = nn.RMSNorm(hidden)
        nn.init.constant_(norm.weight, scale)
        self.projector = nn.Sequential(nn.Linear(config.channels, hidden), nn.GELU(), nn.Linear(hidden, hidden), norm)
        self.hidden_vector = nn.Parameter(torch.zeros(config.channels))
        self.feature_head = nn.Linear(hidden, config.channels)
        self.source = nn.Linear(hidden, config.topology_channels, bias=False)
        self.sink = nn.Linear(hidden, config.topology_channels, bias=False)

    def forward(self, x: Tensor, masked: Tensor | None = None) -> Tensor:
        """Shapes: **x** (N, d); **masked** (N,) bool, whose vectors are hidden; **returns** (N, hidden)."""
        return self.projector(x if masked is None else torch.where(masked[:, None], self.hidden_vector, x))


class _Packed(NamedTuple):
    layout: TokenLayout
    embedding: Tensor  # [T, hidden] in packed order
    node: Tensor  # [N] packed places of the soft tokens
    token: Tensor  # [t] packed places of the targets' tokens
    stored: Tensor  # [t] places of the same in batch.input_ids
    x: Tensor  # [N, d]
    masked: Tensor | None  # [N] whose vectors are hidden
    num_nodes: Tensor  # [B]


class GraphTokenLM(TextGraphLM):
    r"""A decoder that reads a graph as one soft token per node, then the target's text; a baseline for :class:`GTLM`.

    It stands for the graph-token language models of the GTLM paper's comparison (there, *RGLM-Decoder*), of which that
    paper tells the following: a node's text is one vector of a text encoder, projected into the language model; hidden
    vectors and edges are reconstructed in training, with weights 4.0 and 0.6 and a mask ratio of 0.4; the projector
    learns at a rate of 2e-3. **All that follows is ours.**

    - *Sequence.* Soft tokens of the context nodes in stored order, that of the target, then the target's tokens, with
      question and answer; read causally at positions 0, 1, …. So the target's soft token has seen every node, and its
      text all soft tokens. The texts of context nodes are not read, ``data.x`` stands for them.
    - *Projector.* :math:`\mathrm{RMSNorm}(W_2\,\mathrm{GELU}(W_1 x_v + b_1) + b_2)`, its gain starting at the root mean
      square of the token embeddings.
    - *Feature reconstruction.* In training, :math:`\lfloor 0.4 N + \frac12 \rfloor` nodes of each graph get one learned
      vector in place of :math:`x_v`, and :math:`\mathcal{L}_F` is the mean over them of
      :math:`1 - \cos(W_F h_v + b_F, x_v)`, where :math:`h_v` is the last hidden state at the soft token.
    - *Topology reconstruction.* Every ordered pair of different nodes of a graph is an edge or not, by the score
      :math:`s_{uv} = (W_S h_u) \cdot (W_T h_v) / \sqrt r`; :math:`\mathcal{L}_T` is the binary cross-entropy, mean over
      edges and mean over the others in equal parts.
    - *Loss.* :math:`\mathcal{L} + 4.0\,\mathcal{L}_F + 0.6\,\mathcal{L}_T` of one reading; in evaluation nothing is
      hidden and the loss is :math:`\mathcal{L}`, the cross-entropy of the answer. Edges are in the losses only.

    Args:
        base_model: A decoder with its language-model head, or a :class:`~peft.PeftModel` of one, as for :class:`GTLM`.
        tokenizer: Its tokenizer; needed for names and texts in :meth:`classify` and :meth:`generate`.
        lora: Adapters to add, on all linear layers unless ``target_modules`` says otherwise.
        config: Sizes and weights.
        new_tokens: See :class:`TextGraphLM`.
        **kwargs: Single fields of :class:`GraphTokenConfig`.

    Raises:
        ValueError: If the architecture cannot work.

    Example:
        >>> data.x = embed_texts(data.text)
        >>> model = GraphTokenLM.from_pretrained(SMOLLM2, lora=LoraConfig(r=32, lora_alpha=64))
        >>> model.train()(batch).loss.backward()
    """

    kind = "graph_token_lm"
    own_module = "graph_tokens"
    config_class = GraphTokenConfig
    _sequence = "a graph"

    graph_tokens: GraphTokens

    def _make_own(self, decoder: PreTrainedModel) -> GraphTokens:
        embed = decoder.get_input_embeddings()
        with torch.no_grad():  # of the module's output: some families scale it
            some = torch.arange(min(embed.num_embeddings, 4096), device=embed.weight.device)
            scale = float(embed(some).float().square().mean().sqrt())
        return GraphTokens(self.text_config.hidden_size, scale, self.config)

    def param_groups(self, lr: float, projector_lr: float = 2e-3, weight_decay: float = 0.1) -> list[dict[str, Any]]:
        """Parameter groups for an optimizer: adapters, and projector and reconstruction heads."""
        return self._groups(lr, projector_lr, weight_decay)

    def forward(self, batch: Data) -> GraphTokenOutput:
        """Reads a batch of text graphs.

        Args:
            batch: A :class:`~pyg_textgraph.data.TextAttributedData` or a PyG batch of them, with ``target``, tokens of
                the targets, ``edge_index`` and ``x``.

        Shapes:
            - **batch.x** (N, d) the nodes' vectors, such as :func:`~pyg_textgraph.train.embed_texts` of their texts

        Raises:
            ValueError: If ``x`` or a target is missing, or a token or position is out of range.
        """
        features, topology = (
            weight if self.training else 0.0 for weight in (self.config.feature_weight, self.config.topology_weight)
        )
        packed = self._pack(batch, hide=features > 0)
        at, labels = packed.layout.last, None
        if "labels" in batch:
            of_targets = batch.labels[packed.stored]
            if bool((of_targets >= 0).any()):
                at, labels = packed.token[of_targets >= 0] - 1, of_targets[of_targets >= 0]
        out = self._read(packed, self._context(packed), at, output_hidden_states=features + topology > 0)
        found = GraphTokenOutput(logits=out.logits[0], labels=labels)
        losses = []
        if labels is not None:
            found.answer_loss = F.cross_entropy(out.logits[0].float(), labels)
            losses.append(found.answer_loss)
        if features + topology > 0:
            # [N, hidden], after the last norm
            state = out.hidden_states[-1][0, packed.node].to(self.graph_tokens.hidden_vector.dtype)
        if features > 0:
            predicted = self.graph_tokens.feature_head(state[packed.masked])
            found.feature_loss = feature_loss(predicted, packed.x[packed.masked])
            losses.append(features * found.feature_loss)
        if topology > 0:
            source, sink = self.graph_tokens.source(state), self.graph_tokens.sink(state)
            found.topology_loss = topology_loss(source, sink, batch.edge_index, packed.num_nodes)
            losses.append(topology * found.topology_loss)
        found.loss = torch.stack(losses).sum() if losses else None
        return found

    def _pack(self, batch: Data, hide: bool = False, answers: bool = True) -> _Packed:
        texts = TokenLayout.from_data(batch, answers=answers)
        if texts.num_tokens == 0:
            raise ValueError("GraphTokenLM: the batch has no tokens")
        if isinstance(batch, TextAttributedData):
            batch.validate()
        self._check_targets(batch, texts)
        if batch.get("edge_index") is None:
            raise ValueError("GraphTokenLM: the batch has no 'edge_index'")
        x, channels = batch.get("x"), self.config.channels
        if x is None:
            raise ValueError(
                "GraphTokenLM: the batch has no 'x', expected one vector per node; set data.x = embed_texts(data.text)"
            )
        if x.shape != (batch.num_nodes, channels):
            raise ValueError(
                f"GraphTokenLM: 'x' is of shape {tuple(x.shape)}, expected ({batch.num_nodes}, {channels}), one vector "
                "per node"
            )
        stored = texts.order[texts.is_target]
        self._check_tokens(batch.input_ids[stored])
        of_node, of_token = torch.repeat_interleave(texts.num_nodes), texts.graph[texts.is_target]
        is_target = torch.zeros_like(of_node)
        is_target[torch.as_tensor(batch.target, device=of_node.device).view(-1)] = 1
        # graphs in turn; in each context nodes, the target, its tokens
        order = torch.cat([3 * of_node + is_target, 3 * of_token + 2]).argsort(stable=True)
        graph = torch.cat([of_node, of_token])[order]
        size = torch.bincount(graph, minlength=texts.num_graphs)
        start = size.cumsum(0) - size
        position = torch.arange(graph.numel(), device=graph.device) - start[graph]
        self._check_position(int(position.max()))
        words = self.base_model.get_input_embeddings()(batch.input_ids[stored])
        masked = choose_masked(texts.num_nodes, self.config.mask_ratio) if hide else None
        x = x.to(self.graph_tokens.hidden_vector.dtype)
        soft = self.graph_tokens(x, masked)
        layout = TokenLayout(  # one sequence is one node, a target: read causally
            order,
            torch.cat([start, size.sum()[None]]),
            torch.zeros_like(graph),
            position,
            torch.ones_like(graph, dtype=torch.bool),
            torch.ones_like(size),
        )
        embedding = torch.cat([soft.to(words.dtype), words])[order]
        node, token = order.argsort().tensor_split([of_node.numel()])
        return _Packed(layout, embedding, node, token, stored, x, masked, texts.num_nodes)

    def _context(self, packed: _Packed) -> PackedContext:
        return PackedContext(packed.layout, lambda layer, inputs: None, {})

    def _read(self, packed: _Packed, context: PackedContext, at: Tensor, **kwargs: Any) -> ModelOutput:
        """Shapes: **at** (S,) packed places; the result's **logits** (1, S, V)."""
        position, embedding = packed.layout.position[None], packed.embedding[None]
        return self._decoder(position, context, inputs_embeds=embedding, logits_to_keep=at, **kwargs)

    def _read_prefix(self, batch: Data, keep: bool = True) -> tuple[Tensor, PackedContext, Tensor]:
        packed = self._pack(batch, answers=False)
        context = self._context(packed)
        context.kept = {} if keep else None
        logits = self._read(packed, context, packed.layout.last).logits[0]
        return logits, context, torch.zeros_like(packed.layout.last)

"""The graph transformer language model: a decoder that reads a graph of texts."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

import torch
import torch.nn.functional as F
from peft import LoraConfig, PeftModel, get_peft_model
from torch import Tensor, nn
from torch_geometric.data import Batch, Data
from transformers import PreTrainedModel
from transformers.utils import ModelOutput

from pyg_textgraph.data import TextAttributedData, TokenLayout, answer_ids, append_to_target
from pyg_textgraph.data.prompts import drop_answer
from pyg_textgraph.nn.bias import GraphBias, PairFeatures
from pyg_textgraph.nn.models.gtlm import storage
from pyg_textgraph.nn.models.gtlm.attention import AttentionContext, PackedContext, install
from pyg_textgraph.nn.models.gtlm.config import GTLMConfig
from pyg_textgraph.nn.models.gtlm.decoding import DecodeContext, branches
from pyg_textgraph.nn.models.gtlm.node_attention import NodeAttentionContext
from pyg_textgraph.nn.models.gtlm.visibility import visible_pairs

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


@dataclass
class GTLMOutput(ModelOutput):
    """What :class:`GTLM` returns.

    Shapes:
        - **loss** () mean cross-entropy over the supervised tokens, None without labels
        - **logits** (S, V), see :meth:`GTLM.forward`
        - **labels** (S,) the token each row of **logits** should predict, None without labels
    """

    loss: Tensor | None = None
    logits: Tensor | None = None
    labels: Tensor | None = None


class GTLM(nn.Module):
    r"""Graph transformer language model (arXiv 2605.10247) around any Hugging Face decoder with rotary positions.

    The decoder reads the texts of all nodes at once. Every node's positions start at 0; the texts of context nodes see
    each other in both directions; the target, whose text is continued, comes last and is read causally. What the graph
    looks like enters each attention score as a learned bias per pair of nodes, :attr:`graph_bias`. The order of the
    context nodes changes nothing, and a graph of one target node gives the language model's own logits.

    The language model is frozen; **lora** adds trainable adapters.

    Args:
        base_model: A decoder with its language-model head, or a :class:`~peft.PeftModel` of one. Its attention is
            switched to graph attention in place.
        tokenizer: Its tokenizer; needed for names and texts in :meth:`classify` and :meth:`generate`.
        lora: Adapters to add, on all linear layers unless ``target_modules`` says otherwise.
        config: Biases, visibility and backend.
        **kwargs: Single fields of :class:`GTLMConfig`.

    Raises:
        ValueError: If the architecture cannot work.

    Example:
        >>> model = GTLM.from_pretrained("HuggingFaceTB/SmolLM2-135M-Instruct", lora=LoraConfig(r=32, lora_alpha=64))
        >>> model(batch).loss.backward()
    """

    def __init__(
        self,
        base_model: PreTrainedModel | PeftModel,
        tokenizer: PreTrainedTokenizerBase | None = None,
        lora: LoraConfig | None = None,
        config: GTLMConfig | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__()
        self.config = GTLMConfig(**((config or GTLMConfig()).to_dict() | kwargs))
        self.tokenizer = tokenizer
        decoder = base_model.get_base_model() if isinstance(base_model, PeftModel) else base_model
        install(decoder)
        if not isinstance(base_model, PeftModel):
            base_model.requires_grad_(False)
        if lora is not None:
            if isinstance(base_model, PeftModel):
                raise ValueError("GTLM: 'base_model' already has adapters and 'lora' asks for more; give one of them")
            lora = copy.copy(lora)
            lora.target_modules = lora.target_modules or "all-linear"
            lora.task_type = lora.task_type or "CAUSAL_LM"
            base_model = get_peft_model(base_model, lora)
        self.base_model = base_model
        text_config = decoder.config.get_text_config()
        self.max_positions: int | None = getattr(text_config, "max_position_embeddings", None)
        self.graph_bias = GraphBias(text_config.num_hidden_layers, text_config.num_attention_heads, self.config)
        self.graph_bias.to(decoder.get_input_embeddings().weight.device)

    @classmethod
    def from_pretrained(
        cls,
        name: str | Path,
        *,
        lora: LoraConfig | None = None,
        config: GTLMConfig | None = None,
        dtype: torch.dtype | str | None = None,
        revision: str | None = None,
        gguf_file: str | None = None,
        trainable: bool = False,
        **kwargs: Any,
    ) -> Self:
        """Loads a saved GTLM, or makes one of a language model.

        Args:
            name: A folder written by :meth:`save_pretrained`, or a language model's name or folder.
            lora: Adapters to add to a language model.
            config: Configuration of a new GTLM.
            dtype: Type of the language model's weights; its own, or the saved one, by default.
            revision: Revision of a language model on the Hub.
            gguf_file: GGUF file of a language model.
            trainable: Whether a saved GTLM's adapters go on training.
            **kwargs: Single fields of :class:`GTLMConfig`.

        Raises:
            ValueError: If **lora** or a configuration is given with a saved folder, which has its own.
        """
        if storage.is_saved(name):
            if lora is not None or config is not None or kwargs:
                raise ValueError(f"GTLM: {str(name)!r} is a saved GTLM with a configuration and adapters of its own")
            return storage.load(cls, Path(name), dtype, trainable)
        base, tokenizer = storage.load_base(str(name), dtype=dtype, revision=revision, gguf_file=gguf_file)
        model = cls(base, tokenizer, lora, config, **kwargs)
        model._source = {"name": str(name), "revision": revision, "gguf_file": gguf_file}
        return model

    _source: dict[str, Any] | None = None

    def save_pretrained(self, folder: str | Path) -> None:
        """Writes adapters, biases, tokenizer and configuration; the language model's own weights only if they have no
        name to load them by, or were trained."""
        storage.save(self, Path(folder))

    @property
    def device(self) -> torch.device:
        return next(self.graph_bias.parameters(), next(self.base_model.parameters())).device

    def param_groups(self, lr: float, bias_lr: float, weight_decay: float = 0.1) -> list[dict[str, Any]]:
        """Parameter groups for an optimizer: adapters (and whatever else of the language model trains), and biases."""
        adapters = [p for p in self.base_model.parameters() if p.requires_grad]
        groups = [
            {"name": "adapters", "params": adapters, "lr": lr, "weight_decay": weight_decay},
            {"name": "graph_bias", "params": list(self.graph_bias.parameters()), "lr": bias_lr, "weight_decay": 0.0},
        ]
        return [group for group in groups if group["params"]]

    def activation_checkpointing_enable(self, **kwargs: Any) -> None:
        """Computes activations again in backward, as on any Hugging Face model."""
        # transformers 5.24 renamed it
        renamed = getattr(self.base_model, "activation_checkpointing_enable", None)
        (renamed or self.base_model.gradient_checkpointing_enable)(**kwargs)
        self.base_model.enable_input_require_grads()

    gradient_checkpointing_enable = activation_checkpointing_enable

    def forward(self, batch: Data, logits: Literal["supervised", "all"] = "supervised") -> GTLMOutput:
        """Reads a batch of text graphs.

        Args:
            batch: A :class:`~pyg_textgraph.data.TextAttributedData` or a PyG batch of them, with the features that the
                enabled biases need.
            logits: ``"supervised"`` computes logits only where a supervised token is predicted (without any: at the
                last token of each graph, and there is no loss), ``"all"`` at every token in packed order.

        Raises:
            ValueError: If a feature is missing, a token or position is out of range, or the first token of a target is
                supervised.
        """
        layout = TokenLayout.from_data(batch)
        predicts, labels = None, None
        packed = batch.labels[layout.order] if "labels" in batch else layout.order.new_full(layout.order.shape, -100)
        place = (packed >= 0).nonzero().view(-1)
        if place.numel():
            if bool((layout.position[place] == 0).any()):
                raise ValueError("GTLM: 'labels' supervises the first token of a target, which nothing predicts")
            predicts, labels = place - 1, packed[place]
        if logits == "all":
            out = self._read(batch, layout, torch.arange(layout.num_tokens, device=layout.order.device))
            predicted = out if predicts is None else out[predicts]
        else:
            out = predicted = self._read(batch, layout, layout.last if predicts is None else predicts)
        loss = None if labels is None else F.cross_entropy(predicted.float(), labels)
        return GTLMOutput(loss=loss, logits=out, labels=labels)

    def _context(self, batch: Data, layout: TokenLayout) -> PackedContext:
        if layout.num_tokens == 0:
            raise ValueError("GTLM: the batch has no tokens")
        if isinstance(batch, TextAttributedData):
            batch.validate()
        self._check_position(int(layout.position.max()))
        k_hop = self.config.k_hop
        pairs = None if k_hop is None else visible_pairs(batch, k_hop, self.config.through_target)
        features = PairFeatures.from_batch(batch, self.config.biases, pairs=pairs)
        return PackedContext(layout, self.graph_bias, self.graph_bias.prepare(features), pairs, self.config.backend)

    def _read(self, batch: Data, layout: TokenLayout, at: Tensor, context: AttentionContext | None = None) -> Tensor:
        """The logits at some packed places. Shapes: **at** (S,); **returns** (S, V)."""
        input_ids = batch.input_ids[layout.order]
        vocabulary = self.base_model.get_input_embeddings().num_embeddings
        if bool((input_ids < 0).any()) or bool((input_ids >= vocabulary).any()):
            bad = int(input_ids.max() if int(input_ids.max()) >= vocabulary else input_ids.min())
            raise ValueError(f"GTLM: 'input_ids' holds {bad}, the language model's vocabulary has {vocabulary} tokens")
        context = context or self._context(batch, layout)
        return self._decoder(input_ids[None], layout.position[None], context, logits_to_keep=at)[0]

    def _decoder(self, ids: Tensor, position: Tensor, context: AttentionContext, **kwargs: Any) -> Tensor:
        # adapters are float32 beside half-precision weights: without autocast their products would be, too
        half = self.base_model.dtype in (torch.bfloat16, torch.float16)
        with torch.autocast(ids.device.type, self.base_model.dtype) if half else nullcontext():
            return self.base_model(
                input_ids=ids, position_ids=position, use_cache=False, text_graph=context, **kwargs
            ).logits

    @torch.no_grad()
    def classify(
        self, batch: Data, names: Sequence[str] | Sequence[Tensor], prior: Tensor | None = None, chunk: int = 1024
    ) -> Tensor:
        """Scores the possible answers, reading each graph once for all of them; answers in the data are not looked at.

        Args:
            batch: Text graphs with targets.
            names: The possible answers, or their token ids with the end token.
            prior: Mean score per answer over unlabelled inputs, which is subtracted (small frozen models need it).
            chunk: How many answer tokens of a graph are read at a time.

        Shapes:
            - **prior** (C,)
            - **returns** (B, C) log-probability of each answer, end token included
        """
        ids = [x if isinstance(x, Tensor) else answer_ids(self._tokenizer(), x) for x in names]
        if not ids:
            raise ValueError("GTLM: 'names' is empty, expected the possible answers")
        with self._evaluating():
            first, context, target = self._read_prefix(batch)  # [B, V]
            scores = torch.log_softmax(first.float(), -1)[:, torch.stack([x[0] for x in ids]).to(first.device)]
            groups: list[list[int]] = [[]]
            for c, x in enumerate(ids):
                if groups[-1] and sum(ids[i].numel() for i in groups[-1]) + x.numel() > chunk:
                    groups.append([])
                if x.numel() > 1:
                    groups[-1].append(c)
            start = context.layout.position[context.layout.last][:, None] + 1
            decode: DecodeContext | None = None
            for group in filter(None, groups):
                row, place, sees = (x.to(self.device) for x in branches([ids[c][:-1] for c in group]))
                position = start + place
                if decode is None:
                    decode = DecodeContext(context, target, sees, position, keep=False)
                decode.sees, decode.position = sees, position
                logits = self._continue(row.expand(len(target), -1), position, decode)
                log_p = torch.log_softmax(logits.float(), -1)  # [B, L, V]
                following = torch.cat([ids[c][1:] for c in group]).to(self.device)
                gained = log_p.gather(-1, following.expand(len(target), -1)[..., None])[..., 0]
                owner = torch.repeat_interleave(torch.tensor(group), torch.tensor([ids[c].numel() - 1 for c in group]))
                scores = scores.index_add(1, owner.to(self.device), gained)
        return scores if prior is None else scores - prior.to(scores)

    @torch.no_grad()
    def generate(
        self,
        batch: Data,
        max_new_tokens: int,
        *,
        use_cache: bool = True,
        do_sample: bool = False,
        temperature: float = 1.0,
        return_ids: bool = False,
    ) -> list[str] | list[Tensor]:
        """Continues the targets' texts; answers in the data are not looked at.

        Args:
            batch: Text graphs with targets.
            max_new_tokens: How many tokens at most.
            use_cache: Whether keys and values are kept; without, every token reads the graph again.
            do_sample: Whether to draw tokens instead of taking the likeliest.
            temperature: Divides the logits when drawing.
            return_ids: Whether to return token ids instead of texts.

        Returns:
            One text per graph, or its token ids without the end token.
        """
        if max_new_tokens < 1:
            raise ValueError(f"GTLM: 'max_new_tokens' is {max_new_tokens}, expected at least 1")
        if temperature <= 0:
            raise ValueError(f"GTLM: 'temperature' is {temperature}, expected a positive number")
        end = self._end_tokens()
        with self._evaluating():
            logits, context, target = self._read_prefix(batch, keep=use_cache)
            start = context.layout.position[context.layout.last][:, None] + 1
            ids = torch.empty(len(target), 0, dtype=torch.long, device=self.device)
            ended = torch.zeros(len(target), dtype=torch.bool, device=self.device)
            decode: DecodeContext | None = None
            while True:
                weights = torch.softmax(logits.float() / temperature, -1)
                new = torch.multinomial(weights, 1) if do_sample else logits.argmax(-1, keepdim=True)
                ids = torch.cat([ids, new], 1)
                ended |= torch.isin(new[:, 0], end)
                if bool(ended.all()) or ids.size(1) == max_new_tokens:
                    break
                if not use_cache:
                    logits = self._read_prefix(append_new_tokens(batch, ids), keep=False)[0]
                    continue
                sees = torch.ones(1, ids.size(1), dtype=torch.bool, device=self.device)
                position = start + ids.size(1) - 1
                if decode is None:
                    decode = DecodeContext(context, target, sees, position)
                else:
                    decode.advance(sees, position)
                logits = self._continue(new, position, decode)[:, -1]
        rows = []
        for row in ids:
            stop = torch.isin(row, end).nonzero()
            rows.append(row[: int(stop[0])] if len(stop) else row)
        return rows if return_ids else self._tokenizer().batch_decode(rows)

    @torch.no_grad()
    def node_attention(self, batch: Data) -> Tensor:
        """How the last token before each answer spreads its attention over the nodes of its graph.

        Compares every token with every other one: for looking at small graphs.

        Shapes:
            - **returns** (L, B, H, N) float32, sums over N to one; 0 where a graph has fewer nodes
        """
        layout = self._prefix_layout(batch)
        context = NodeAttentionContext(self._context(batch, layout))
        with self._evaluating():
            self._read(batch, layout, layout.last, context)
        return torch.stack([context.kept[layer] for layer in sorted(context.kept)])

    def _prefix_layout(self, batch: Data) -> TokenLayout:
        layout = TokenLayout.from_data(batch, answers=False)
        if "target" not in batch or not bool(layout.is_target[layout.last].all()):
            raise ValueError("GTLM: every graph needs a 'target' with tokens before its answer")
        return layout

    def _read_prefix(self, batch: Data, keep: bool = True) -> tuple[Tensor, PackedContext, Tensor]:
        """Logits after each graph's last token (B, V), the context with keys and values kept, and target nodes (B,)."""
        layout = self._prefix_layout(batch)
        context = self._context(batch, layout)
        context.kept = {} if keep else None
        return self._read(batch, layout, layout.last, context), context, layout.node[layout.last]

    def _continue(self, ids: Tensor, position: Tensor, context: DecodeContext) -> Tensor:
        self._check_position(int(position.max()))
        return self._decoder(ids, position, context)

    def _check_position(self, last: int) -> None:
        if self.max_positions is not None and last >= self.max_positions:
            raise ValueError(
                f"GTLM: a node has {last + 1} tokens, the language model reads {self.max_positions} at most"
            )

    def _tokenizer(self) -> PreTrainedTokenizerBase:
        if self.tokenizer is None:
            raise ValueError("GTLM: texts need a tokenizer; pass tokenizer= to GTLM, or token ids")
        return self.tokenizer

    def _end_tokens(self) -> Tensor:
        config = self.base_model.generation_config
        end = config.eos_token_id if config is not None and config.eos_token_id is not None else []
        ids = set(end if isinstance(end, list) else [end])
        if self.tokenizer is not None and self.tokenizer.eos_token_id is not None:
            ids.add(self.tokenizer.eos_token_id)
        return torch.tensor(sorted(ids), dtype=torch.long, device=self.device)

    @contextmanager
    def _evaluating(self) -> Iterator[None]:
        was_training = self.training
        self.eval()
        try:
            yield
        finally:
            self.train(was_training)

    def extra_repr(self) -> str:
        return f"k_hop={self.config.k_hop}, backend={self.config.backend!r}"


def append_new_tokens(batch: Data, ids: Tensor) -> Batch:
    """The batch with tokens added to its targets in place of their answers. Shapes: **ids** (B, L)."""
    graphs = batch.to_data_list() if isinstance(batch, Batch) else [batch]
    return Batch.from_data_list([append_to_target(drop_answer(g), row) for g, row in zip(graphs, ids, strict=True)])

"""What language models that read text graphs share: adapters, files, class scores and generation."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Generator, Mapping, Sequence
from contextlib import closing, nullcontext
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from torch import Tensor, nn
from torch_geometric.data import Data
from transformers import PreTrainedModel
from transformers.utils import ModelOutput

from pyg_textgraph.data import TokenLayout, answer_ids
from pyg_textgraph.nn.decoders import decoder_of
from pyg_textgraph.nn.models.text_graph_lm import provenance, storage
from pyg_textgraph.nn.models.text_graph_lm.attention import AttentionContext, PackedContext, install
from pyg_textgraph.nn.models.text_graph_lm.decoding import DecodeContext, append_new_tokens, branches
from pyg_textgraph.nn.models.text_graph_lm.vocabulary import add_tokens, num_embeddings
from pyg_textgraph.nn.modes import evaluating

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


class TextGraphLM(nn.Module, ABC):
    """A frozen Hugging Face decoder, adapters in it, and one module of its own beside it, :attr:`own_module`.

    The base class of :class:`GTLM` and :class:`GraphTokenLM`. A subclass says how a batch becomes one packed sequence;
    saving, scoring class names and generating are the same for all.

    Args:
        base_model: A decoder with its language-model head, or a :class:`~peft.PeftModel` of one. Its attention is
            switched to graph attention in place.
        tokenizer: Its tokenizer; needed for names and texts in :meth:`classify` and :meth:`generate`.
        lora: Adapters to add, on all linear layers unless ``target_modules`` says otherwise.
        config: A :attr:`config_class`.
        new_tokens: Tokens to add to the tokenizer, each with words that mean the same: its embedding starts as the mean
            of theirs and trains with the adapters, which hold it.
        **kwargs: Single fields of the configuration.

    Raises:
        ValueError: If the architecture cannot work, or new tokens have no adapters to train with.
    """

    kind: ClassVar[str]  # names the file of the configuration, and its entry there
    own_module: ClassVar[str]  # the attribute whose parameters are saved beside the adapters
    config_class: ClassVar[Any]
    config: Any
    _source: dict[str, Any] | None = None
    _loaded: provenance.Loaded
    _sequence: ClassVar[str]  # whose positions must not run out

    def __init__(
        self,
        base_model: PreTrainedModel | PeftModel,
        tokenizer: PreTrainedTokenizerBase | None = None,
        lora: LoraConfig | None = None,
        config: Any = None,
        new_tokens: Mapping[str, str] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__()
        self.config = self.config_class(**(asdict(config or self.config_class()) | kwargs))
        self.tokenizer = tokenizer
        decoder = decoder_of(base_model)
        if isinstance(base_model, PeftModel):
            if lora is not None:
                raise ValueError(
                    f"{self._name}: 'base_model' already has adapters and 'lora' asks for more; give one of them"
                )
            if len(base_model.peft_config) > 1:
                raise ValueError(
                    f"{self._name}: 'base_model' has adapters {list(base_model.peft_config)}, expected one"
                )
        if new_tokens and lora is None:
            raise ValueError(f"{self._name}: 'new_tokens' train with adapters; give 'lora'")
        self.text_config = decoder.config.get_text_config()
        self.max_positions: int | None = getattr(self.text_config, "max_position_embeddings", None)
        before, trainable = decoder.config._attn_implementation, [p for p in decoder.parameters() if p.requires_grad]
        install(decoder, self._name)
        try:
            own = self._make_own(decoder).to(decoder.get_input_embeddings().weight.device)
            if not isinstance(base_model, PeftModel):
                base_model.requires_grad_(False)
            if lora is not None:
                lora = copy.copy(lora)
                lora.target_modules = lora.target_modules or "all-linear"
                lora.task_type = lora.task_type or "CAUSAL_LM"
                if new_tokens:
                    lora.trainable_token_indices = add_tokens(decoder, self._tokenizer(), new_tokens, lora)
                base_model = get_peft_model(base_model, lora)
        except Exception:  # the decoder is as it was
            decoder.set_attn_implementation(before)
            for parameter in trainable:
                parameter.requires_grad_(True)
            raise
        self.base_model = base_model
        setattr(self, self.own_module, own)
        self._loaded = provenance.loaded(base_model)

    @classmethod
    def from_pretrained(
        cls,
        name: str | Path,
        *,
        lora: LoraConfig | None = None,
        config: Any = None,
        dtype: torch.dtype | str | None = None,
        revision: str | None = None,
        gguf_file: str | None = None,
        trainable: bool = False,
        new_tokens: Mapping[str, str] | None = None,
        **kwargs: Any,
    ) -> Self:
        """Loads a saved model of this class, or makes one of a language model; in evaluation mode, as Hugging Face's.

        Args:
            name: A folder written by :meth:`save_pretrained`, or a language model's name or folder.
            lora: Adapters to add to a language model.
            config: Configuration of a new model.
            dtype: Type of the language model's weights; its own, or the saved one, by default.
            revision: Revision of a language model on the Hub.
            gguf_file: GGUF file of a language model.
            trainable: Whether a saved model's adapters go on training.
            new_tokens: Tokens to add to a language model.
            **kwargs: Single fields of the configuration.

        Raises:
            ValueError: If **lora**, a configuration or tokens are given with a saved folder, which has its own.
        """
        if storage.is_saved(cls, name):
            if lora is not None or config is not None or new_tokens or kwargs:
                raise ValueError(
                    f"{cls.__name__}: {str(name)!r} is a saved {cls.__name__} with a configuration and adapters of its "
                    "own"
                )
            return storage.load(cls, Path(name), dtype, trainable).eval()
        base, tokenizer = storage.load_base(str(name), dtype=dtype, revision=revision, gguf_file=gguf_file)
        model = cls(base, tokenizer, lora, config, new_tokens, **kwargs)
        model._source = {"name": str(name), "revision": revision, "gguf_file": gguf_file}
        model._loaded = replace(model._loaded, config=provenance.told(decoder_of(model.base_model).config))
        return model.eval()

    def save_pretrained(self, folder: str | Path, state_dict: dict[str, Tensor] | None = None) -> None:
        """Writes adapters, the module of its own, tokenizer and configuration; the language model's own weights only if
        they have no name to load them by, or were trained. A save that is killed leaves the old one as it was.

        Args:
            folder: Other files in it stay.
            state_dict: Values to write instead of the model's own, which may be sharded over processes.
        """
        storage.save(self, Path(folder), state_dict)

    @abstractmethod
    def _make_own(self, decoder: PreTrainedModel) -> nn.Module:
        """The module of its own, for a decoder."""

    @property
    def _name(self) -> str:
        return type(self).__name__

    @property
    def own(self) -> nn.Module:
        module: nn.Module = getattr(self, self.own_module)
        return module

    @property
    def device(self) -> torch.device:
        return next(self.own.parameters(), next(self.base_model.parameters())).device

    def _groups(self, lr: float, own_lr: float, weight_decay: float) -> list[dict[str, Any]]:
        """Parameter groups of the adapters (and whatever else of the language model trains) and of the own module."""
        adapters = [p for p in self.base_model.parameters() if p.requires_grad]
        own = [p for p in self.own.parameters() if p.requires_grad]
        groups = [
            {"name": "adapters", "params": adapters, "lr": lr, "weight_decay": weight_decay},
            {"name": self.own_module, "params": own, "lr": own_lr, "weight_decay": 0.0},
        ]
        return [group for group in groups if group["params"]]

    def activation_checkpointing_enable(
        self, activation_checkpointing_kwargs: dict[str, Any] | None = None, **kwargs: Any
    ) -> None:
        """Computes activations again in backward, as on any Hugging Face model.

        Raises:
            ValueError: If ``use_reentrant`` is asked for, which would lose gradients of what layers share.
        """
        if (activation_checkpointing_kwargs or {}).get("use_reentrant"):
            raise ValueError(f"{self._name}: 'use_reentrant' is True, expected False: layers share what has gradients")
        # transformers 5.24 renamed it
        renamed = getattr(self.base_model, "activation_checkpointing_enable", None)
        told = {"use_reentrant": False} | (activation_checkpointing_kwargs or {})
        (renamed or self.base_model.gradient_checkpointing_enable)(told, **kwargs)
        self.base_model.enable_input_require_grads()

    def gradient_checkpointing_enable(
        self, gradient_checkpointing_kwargs: dict[str, Any] | None = None, **kwargs: Any
    ) -> None:
        """:meth:`activation_checkpointing_enable` by its older name."""
        self.activation_checkpointing_enable(gradient_checkpointing_kwargs, **kwargs)

    @abstractmethod
    def _read_prefix(self, batch: Data, keep: bool = True) -> tuple[Tensor, PackedContext, Tensor]:
        """Logits after each graph's last token before its answer (B, V), the context, with keys and values kept if
        **keep**, and the nodes of the layout that new tokens continue (B,)."""

    def _decoder(self, position: Tensor, context: AttentionContext, **inputs: Any) -> ModelOutput:
        # adapters are float32 beside half-precision weights: without autocast their products would be, too
        half = self.base_model.dtype in (torch.bfloat16, torch.float16)
        with torch.autocast(position.device.type, self.base_model.dtype) if half else nullcontext():
            return self.base_model(position_ids=position, use_cache=False, text_graph=context, **inputs)

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
            raise ValueError(f"{self._name}: 'names' is empty, expected the possible answers")
        with evaluating(self):
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
            raise ValueError(f"{self._name}: 'max_new_tokens' is {max_new_tokens}, expected at least 1")
        if temperature <= 0:
            raise ValueError(f"{self._name}: 'temperature' is {temperature}, expected a positive number")
        end = self._end_tokens()
        with closing(self.decode_steps(batch, use_cache=use_cache)) as steps:
            logits = next(steps)
            ids = torch.empty(len(logits), 0, dtype=torch.long, device=self.device)
            ended = torch.zeros(len(logits), dtype=torch.bool, device=self.device)
            while True:
                weights = torch.softmax(logits.float() / temperature, -1)
                new = torch.multinomial(weights, 1) if do_sample else logits.argmax(-1, keepdim=True)
                ids = torch.cat([ids, new], 1)
                ended |= torch.isin(new[:, 0], end)
                if bool(ended.all()) or ids.size(1) == max_new_tokens:
                    break
                logits = steps.send(new[:, 0].masked_fill(ended, -1))
        rows = []
        for row in ids:
            stop = torch.isin(row, end).nonzero()
            rows.append(row[: int(stop[0])] if len(stop) else row)
        return rows if return_ids else self._tokenizer().batch_decode(rows)

    @torch.no_grad()
    def decode_steps(self, batch: Data, *, use_cache: bool = True) -> Generator[Tensor, Tensor, None]:
        """Continues the targets token by token, for a decoding of one's own; answers in the data are not looked at.

        A generator: ``next`` reads the graphs and gives the logits of the next tokens, ``send`` takes the tokens that
        were chosen and gives those of the tokens after them; −1 where a graph is done, whose logits mean nothing then.
        The model is in evaluation mode until it is closed.

        Shapes: **sent** (B,); **yields** (B, V)
        """
        with evaluating(self):
            logits, context, target = self._read_prefix(batch, keep=use_cache)
            start = context.layout.position[context.layout.last][:, None] + 1
            ids = torch.empty(len(target), 0, dtype=torch.long, device=self.device)
            decode: DecodeContext | None = None
            while True:
                new = (yield logits)[:, None]
                ids = torch.cat([ids, new], 1)
                if not use_cache:
                    logits = self._read_prefix(append_new_tokens(batch, ids), keep=False)[0]
                    continue
                sees = torch.ones(1, ids.size(1), dtype=torch.bool, device=self.device)
                position = start + (ids >= 0).sum(1, keepdim=True) - 1
                if decode is None:
                    decode = DecodeContext(context, target, sees, position)
                else:
                    decode.advance(sees, position)
                logits = self._continue(new.clamp(min=0), position, decode)[:, -1]

    def _check_tokens(self, input_ids: Tensor) -> None:
        vocabulary = num_embeddings(self.base_model)
        if bool((input_ids < 0).any()) or bool((input_ids >= vocabulary).any()):
            bad = int(input_ids.max() if int(input_ids.max()) >= vocabulary else input_ids.min())
            raise ValueError(
                f"{self._name}: 'input_ids' holds {bad}, the language model's vocabulary has {vocabulary} tokens"
            )

    def _check_targets(self, batch: Data, layout: TokenLayout) -> None:
        count = torch.bincount(layout.graph[layout.is_target], minlength=layout.num_graphs)
        if "target" not in batch or not bool(count.all()):
            raise ValueError(f"{self._name}: every graph needs a 'target' with tokens before its answer")

    def _continue(self, ids: Tensor, position: Tensor, context: DecodeContext) -> Tensor:
        self._check_position(int(position.max()))
        return self._decoder(position, context, input_ids=ids).logits

    def _check_position(self, last: int) -> None:
        if self.max_positions is not None and last >= self.max_positions:
            raise ValueError(
                f"{self._name}: {self._sequence} has {last + 1} tokens, the language model reads {self.max_positions} "
                "at most"
            )

    def _tokenizer(self) -> PreTrainedTokenizerBase:
        if self.tokenizer is None:
            raise ValueError(f"{self._name}: texts need a tokenizer; pass tokenizer= to {self._name}, or token ids")
        return self.tokenizer

    def _end_tokens(self) -> Tensor:
        config = self.base_model.generation_config
        end = config.eos_token_id if config is not None and config.eos_token_id is not None else []
        ids = set(end if isinstance(end, list) else [end])
        if self.tokenizer is not None and self.tokenizer.eos_token_id is not None:
            ids.add(self.tokenizer.eos_token_id)
        return torch.tensor(sorted(ids), dtype=torch.long, device=self.device)

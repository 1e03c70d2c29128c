"""Saving and loading a GTLM: what it added to a language model, and where that model comes from."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from peft import PeftModel, get_peft_model_state_dict, set_peft_model_state_dict
from peft.utils import SAFETENSORS_WEIGHTS_NAME
from safetensors.torch import save_file
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from pyg_textgraph.nn.models.gtlm.config import GTLMConfig
from pyg_textgraph.pretrained import gguf_options, load_tensors

if TYPE_CHECKING:
    from pyg_textgraph.nn.models.gtlm.model import GTLM

T = TypeVar("T", bound="GTLM")
CONFIG, BIAS, BASE, ADAPTER = "gtlm.json", "graph_bias.safetensors", "base", "adapter"


def is_saved(name: str | Path) -> bool:
    return (Path(name) / CONFIG).is_file()


def load_base(
    name: str, *, dtype: torch.dtype | str | None, revision: str | None = None, gguf_file: str | None = None
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """A language model and its tokenizer, from the Hub or a folder."""
    model = load_decoder(name, dtype, revision, gguf_file)
    return model, AutoTokenizer.from_pretrained(name, **_given(revision=revision, gguf_file=gguf_file))


def load_decoder(
    name: str, dtype: torch.dtype | str | None, revision: str | None = None, gguf_file: str | None = None
) -> PreTrainedModel:
    where = _given(revision=revision) | (gguf_options(gguf_file) if gguf_file is not None else {})
    return AutoModelForCausalLM.from_pretrained(name, dtype="auto" if dtype is None else dtype, **where)


def _given(**kwargs: Any) -> dict[str, Any]:
    return {key: value for key, value in kwargs.items() if value is not None}


def save(model: GTLM, folder: Path) -> None:
    """Writes ``gtlm.json`` (last: it marks a whole save), biases, adapters, tokenizer and, where needed, the model."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / CONFIG).unlink(missing_ok=True)
    base = model.base_model
    decoder = base.get_base_model() if isinstance(base, PeftModel) else base
    if isinstance(base, PeftModel):
        base.save_pretrained(str(folder / ADAPTER))
        trained = any(p.requires_grad for name, p in decoder.named_parameters() if "lora_" not in name)
    else:
        trained = any(p.requires_grad for p in decoder.parameters())
    source = dict(model._source) if model._source is not None else {"name": decoder.name_or_path or None}
    if trained or source["name"] is None:
        if isinstance(base, PeftModel):
            raise ValueError(
                "GTLM: adapters cannot be saved without a language model to load them into; save that with "
                "save_pretrained before adding LoRA, and load it from there"
            )
        decoder.save_pretrained(str(folder / BASE))
        source = {"name": None}
    source["revision"] = getattr(decoder.config, "_commit_hash", None) or source.get("revision")
    source["dtype"] = str(decoder.dtype).removeprefix("torch.")
    save_file(model.graph_bias.state_dict(), str(folder / BIAS))
    if model.tokenizer is not None:
        model.tokenizer.save_pretrained(str(folder))
    told = {"gtlm": model.config.to_dict(), "base": source, "adapter": isinstance(base, PeftModel),
            "tokenizer": model.tokenizer is not None}  # fmt: skip
    (folder / CONFIG).write_text(json.dumps(told, indent=1))


def load(cls: type[T], folder: Path, dtype: torch.dtype | str | None, trainable: bool) -> T:
    """The reverse of :func:`save`.

    Raises:
        ValueError: If a file is damaged, or the biases' file does not fit the configuration.
    """
    try:
        told = json.loads((folder / CONFIG).read_text())
        source, config = told["base"], GTLMConfig(**told["gtlm"])
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"GTLM: {folder / CONFIG} is damaged: {type(error).__name__}: {error}") from error
    dtype = dtype if dtype is not None else getattr(torch, source["dtype"])
    place = {key: source.get(key) for key in ("revision", "gguf_file")} if source["name"] else {}
    base = load_decoder(source["name"] or str(folder / BASE), dtype, **place)
    tokenizer = AutoTokenizer.from_pretrained(str(folder)) if told["tokenizer"] else None
    if told["adapter"]:
        base = PeftModel.from_pretrained(base, str(folder / ADAPTER), is_trainable=trainable)
    model = cls(base, tokenizer, config=config)
    model._source = {key: source.get(key) for key in ("name", "revision", "gguf_file")} if source["name"] else None
    _load_bias(model, folder)
    model.graph_bias.to(base.device)
    return model


def restore(model: GTLM, folder: Path) -> None:
    """Puts what :func:`save` wrote into a model that was made the same way; its parameters stay the same objects.

    Raises:
        ValueError: If a file is damaged, or the model is another one.
    """
    if not is_saved(folder):
        raise ValueError(f"GTLM: {folder} holds no saved GTLM, as it has no {CONFIG}")
    base = model.base_model
    if isinstance(base, PeftModel) != (folder / ADAPTER).is_dir():
        raise ValueError(f"GTLM: of the model and {folder}, one has adapters and the other has none")
    _load_bias(model, folder)
    if isinstance(base, PeftModel):
        saved, own = load_tensors(folder / ADAPTER / SAFETENSORS_WEIGHTS_NAME), get_peft_model_state_dict(base)
        _compare(folder / ADAPTER, saved, own)
        set_peft_model_state_dict(base, saved)
    elif (folder / BASE).is_dir():
        saved = load_decoder(str(folder / BASE), base.dtype).state_dict()
        _compare(folder / BASE, saved, base.state_dict())
        base.load_state_dict(saved)


def _load_bias(model: GTLM, folder: Path) -> None:
    saved = load_tensors(folder / BIAS)
    _compare(folder / BIAS, saved, model.graph_bias.state_dict())
    model.graph_bias.load_state_dict(saved)


def _compare(place: Path, saved: Mapping[str, Tensor], own: Mapping[str, Tensor]) -> None:
    for name in sorted(saved.keys() & own.keys()):
        if saved[name].shape != own[name].shape:
            got, expected = tuple(saved[name].shape), tuple(own[name].shape)
            raise ValueError(f"GTLM: {place} holds {name!r} of shape {got}, expected {expected}")
    if saved.keys() != own.keys():
        missing, beside = (sorted(a - b)[:3] for a, b in ((own.keys(), saved.keys()), (saved.keys(), own.keys())))
        raise ValueError(f"GTLM: {place} lacks {missing} and holds {beside} beside what {CONFIG} describes")

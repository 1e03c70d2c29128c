"""Saving and loading: what a model added to a language model, and where that language model comes from."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from peft import PeftModel, get_peft_model_state_dict, set_peft_model_state_dict
from peft.utils import SAFETENSORS_WEIGHTS_NAME
from safetensors.torch import save_file
from torch import Tensor
from torch.distributed.tensor import DTensor
from transformers import AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from pyg_textgraph.atomic import reading_folder, saving_folder
from pyg_textgraph.nn.decoders import decoder_of
from pyg_textgraph.nn.models.text_graph_lm.provenance import (
    adapter_names,
    changed,
    given,
    load_decoder,
    overrides,
    told,
)  # fmt: skip
from pyg_textgraph.nn.models.text_graph_lm.vocabulary import num_embeddings
from pyg_textgraph.pretrained import load_tensors

if TYPE_CHECKING:
    from pyg_textgraph.nn.models.text_graph_lm import TextGraphLM

T = TypeVar("T", bound="TextGraphLM")
BASE, ADAPTER = "base", "adapter"


def is_saved(kind: type[TextGraphLM], name: str | Path) -> bool:
    with reading_folder(name) as folder:
        return (folder / f"{kind.kind}.json").is_file()


def load_base(
    name: str, *, dtype: torch.dtype | str | None, revision: str | None = None, gguf_file: str | None = None
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """A language model and its tokenizer, from the Hub or a folder."""
    model = load_decoder(name, dtype, revision, gguf_file)
    return model, AutoTokenizer.from_pretrained(name, **given(revision=revision, gguf_file=gguf_file))


def save(model: TextGraphLM, folder: Path, state_dict: dict[str, Tensor] | None = None) -> None:
    """Writes the configuration, the own module, adapters, tokenizer and, where needed, the language model: all or
    nothing."""
    base = model.base_model
    decoder = decoder_of(base)
    adapters = adapter_names(base)
    source = dict(model._source) if model._source is not None else {"name": decoder.name_or_path or None}
    whole = source["name"] is None or changed(model, source)
    if whole and isinstance(base, PeftModel):
        why = "that was trained" if source["name"] is not None else "without a name to load it by"
        raise ValueError(
            f"{type(model).__name__}: adapters cannot be saved beside a language model {why}; save that with "
            "save_pretrained before adding LoRA, and load it from there"
        )
    state = model.state_dict() if state_dict is None else state_dict
    if any(isinstance(value, DTensor) for value in state.values()):
        raise ValueError(
            f"{type(model).__name__}: the parameters are sharded over processes; pass state_dict=, gathered on all of "
            "them by pyg_textgraph.train.gather_state, and save in one process"
        )
    missing = {
        name for name, p in model.named_parameters() if whole or p.requires_grad or any(x in name for x in adapters)
    } - state.keys()
    if missing:
        raise ValueError(f"{type(model).__name__}: 'state_dict' has no {min(missing)!r}, expected all that is saved")
    own, language_model = (_under(state, f"{name}.") for name in (model.own_module, "base_model"))
    with saving_folder(folder) as new:
        if isinstance(base, PeftModel):
            base.save_pretrained(
                str(new / ADAPTER), state_dict=language_model, save_embedding_layers=_embedding_layers(base)
            )
        elif whole:
            decoder.save_pretrained(str(new / BASE), state_dict=language_model)
            source = {"name": None}
        source["revision"] = getattr(decoder.config, "_commit_hash", None) or source.get("revision")
        source["dtype"] = str(decoder.dtype).removeprefix("torch.")
        source["config"] = {} if whole or source.get("gguf_file") else overrides(model, source)
        save_file(own, str(new / f"{model.own_module}.safetensors"))
        if model.tokenizer is not None:
            model.tokenizer.save_pretrained(str(new))
        adapter = base.active_adapter if isinstance(base, PeftModel) else None
        about = {model.kind: asdict(model.config), "base": source, "adapter": adapter,
                "tokenizer": model.tokenizer is not None, "vocabulary": num_embeddings(decoder)}  # fmt: skip
        (new / f"{model.kind}.json").write_text(json.dumps(about, indent=1))


def _under(state: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)}


def load(cls: type[T], folder: Path, dtype: torch.dtype | str | None, trainable: bool) -> T:
    """The reverse of :func:`save`.

    Raises:
        ValueError: If a file is damaged, or the own module's file does not fit the configuration.
    """
    with reading_folder(folder):
        return _load(cls, folder, dtype, trainable)


def _load(cls: type[T], folder: Path, dtype: torch.dtype | str | None, trainable: bool) -> T:
    file = folder / f"{cls.kind}.json"
    try:
        about = json.loads(file.read_text())
        source, config = about["base"], cls.config_class(**about[cls.kind])
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{cls.__name__}: {file} is damaged: {type(error).__name__}: {error}") from error
    dtype = dtype if dtype is not None else getattr(torch, source["dtype"])
    if source["name"]:
        place = {key: source.get(key) for key in ("revision", "gguf_file", "config")}
        base = load_decoder(source["name"], dtype, **place)
        # where nothing was changed, what it says now is what the source says
        there = told(base.config) if not source.get("config") else None
    else:
        base = load_decoder(str(folder / BASE), dtype)
        base.name_or_path = base.config._name_or_path = ""  # what is saved with a model goes with it
        there = None
    tokenizer = AutoTokenizer.from_pretrained(str(folder)) if about["tokenizer"] else None
    if about.get("vocabulary", 0) > num_embeddings(base):
        base.resize_token_embeddings(about["vocabulary"], mean_resizing=False)  # the adapter holds the new rows
    if about["adapter"]:
        name = _adapter_of(about)
        base = PeftModel.from_pretrained(base, str(_adapter_folder(folder, name)), name, is_trainable=trainable)
    model = cls(base, tokenizer, config=config)
    model._loaded = replace(model._loaded, config=there)
    model._source = {key: source.get(key) for key in ("name", "revision", "gguf_file")} if source["name"] else None
    _load_own(model, folder)
    model.own.to(base.device)
    return model


def restore(model: TextGraphLM, folder: Path) -> None:
    """Puts what :func:`save` wrote into a model that was made the same way; its parameters stay the same objects.

    Raises:
        ValueError: If a file is damaged, or the model is another one.
    """
    name, base = type(model).__name__, model.base_model
    if not is_saved(type(model), folder):
        raise ValueError(f"{name}: {folder} holds no saved {name}, as it has no {model.kind}.json")
    with reading_folder(folder):
        if isinstance(base, PeftModel) != (folder / ADAPTER).is_dir():
            raise ValueError(f"{name}: of the model and {folder}, one has adapters and the other has none")
        _load_own(model, folder)
        if isinstance(base, PeftModel):
            name = base.active_adapter
            place = _adapter_folder(folder, name)
            saved = load_tensors(place / SAFETENSORS_WEIGHTS_NAME)
            own = get_peft_model_state_dict(base, adapter_name=name, save_embedding_layers=_embedding_layers(base))
            _compare(model, place, saved, own)
            set_peft_model_state_dict(base, saved, adapter_name=name)
        elif (folder / BASE).is_dir():
            saved = load_decoder(str(folder / BASE), base.dtype).state_dict()
            _compare(model, folder / BASE, saved, base.state_dict())
            base.load_state_dict(saved)


def _embedding_layers(base: PeftModel) -> bool | str:
    """What peft is to write of them: beside trained rows it would write all, as there are more than in the model."""
    rows = any(getattr(config, "trainable_token_indices", None) for config in base.peft_config.values())
    return False if rows else "auto"


def _adapter_of(about: Mapping[str, Any]) -> str:
    return "default" if about["adapter"] is True else str(about["adapter"])


def _adapter_folder(folder: Path, name: str) -> Path:
    """Where peft writes an adapter."""
    return folder / ADAPTER if name == "default" else folder / ADAPTER / name


def _load_own(model: TextGraphLM, folder: Path) -> None:
    file = folder / f"{model.own_module}.safetensors"
    saved = load_tensors(file)
    _compare(model, file, saved, model.own.state_dict())
    model.own.load_state_dict(saved)


def _compare(model: TextGraphLM, place: Path, saved: Mapping[str, Tensor], own: Mapping[str, Tensor]) -> None:
    name = type(model).__name__
    for key in own:
        if key in saved and saved[key].shape != own[key].shape:
            got, expected = tuple(saved[key].shape), tuple(own[key].shape)
            raise ValueError(f"{name}: {place} holds {key!r} of shape {got}, expected {expected}")
    if saved.keys() != own.keys():
        missing, beside = (sorted(a - b)[:3] for a, b in ((own.keys(), saved.keys()), (saved.keys(), own.keys())))
        raise ValueError(f"{name}: {place} lacks {missing} and holds {beside} beside what {model.kind}.json describes")

"""Where a language model comes from, and what has changed since."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from peft import PeftModel
from torch import Tensor
from torch.distributed.tensor import DTensor
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedConfig, PreTrainedModel

from pyg_textgraph.nn.decoders import decoder_of
from pyg_textgraph.pretrained import gguf_options
from pyg_textgraph.versions import version

if TYPE_CHECKING:
    from pyg_textgraph.nn.models.text_graph_lm import TextGraphLM

# told by the weights, the tokenizer or the place they come from
_ELSEWHERE = frozenset(("vocab_size", "dtype", "torch_dtype", "architectures", "transformers_version", "_name_or_path"))


def load_decoder(
    name: str,
    dtype: torch.dtype | str | None,
    revision: str | None = None,
    gguf_file: str | None = None,
    config: Mapping[str, Any] | None = None,
) -> PreTrainedModel:
    """A language model; **config** overrides entries of its configuration."""
    where = given(revision=revision) | (gguf_options(gguf_file) if gguf_file is not None else {})
    if config:
        there = AutoConfig.from_pretrained(name, **given(revision=revision)).to_dict()
        where["config"] = AutoConfig.for_model(**_merged(there, config))
    return AutoModelForCausalLM.from_pretrained(name, dtype="auto" if dtype is None else dtype, **where)


def given(**kwargs: Any) -> dict[str, Any]:
    return {key: value for key, value in kwargs.items() if value is not None}


@dataclass(frozen=True)
class Loaded:
    """What a language model was when its model was made: what it is now and was not then has to be saved.

    Args:
        parameters: Identity and number of changes in place of every parameter, adapters aside.
        adapters: Whether there were any.
        dtype: Of its weights.
        config: Of the place it comes from, None where that was not read.
    """

    parameters: dict[str, tuple[int, int]]
    adapters: bool
    dtype: torch.dtype
    config: dict[str, Any] | None = None


def loaded(base: PreTrainedModel | PeftModel, config: dict[str, Any] | None = None) -> Loaded:
    """A language model as it is now."""
    parameters = {name: (id(p), version(p)) for name, p in _own_parameters(base)}
    return Loaded(parameters, isinstance(base, PeftModel), decoder_of(base).dtype, config)


def told(config: PreTrainedConfig) -> dict[str, Any]:
    """All entries of a configuration, as JSON has them."""
    entries: dict[str, Any] = json.loads(config.to_json_string(use_diff=False))
    return entries


def adapter_names(base: PreTrainedModel | PeftModel) -> tuple[str, ...]:
    """What the names of adapters' parameters have in them."""
    if not isinstance(base, PeftModel):
        return ()
    return (getattr(base.base_model, "prefix", "lora_"), "trainable_tokens_", "modules_to_save")


def _own_parameters(base: PreTrainedModel | PeftModel) -> list[tuple[str, Tensor]]:
    """The language model's parameters, adapters aside, by the names that they have without."""
    adapters = adapter_names(base)
    return [
        (name.replace(".base_layer.", ".").replace(".original_module.", ".").replace(".token_adapter.", "."), p)
        for name, p in decoder_of(base).named_parameters()
        if not any(x in name for x in adapters)
    ]


def changed(model: TextGraphLM, source: Mapping[str, Any]) -> bool:
    """Whether the language model has other weights than the place it was loaded from."""
    own, before = dict(_own_parameters(model.base_model)), model._loaded
    if before.adapters and not isinstance(model.base_model, PeftModel):  # they have been merged into the weights
        return True
    if any(p.requires_grad for p in own.values()):
        return True
    now = loaded(model.base_model, before.config)
    written = {
        name for name, p in own.items()
        if not isinstance(p, DTensor) and now.parameters[name] != before.parameters.get(name)
    }  # fmt: skip
    if not written:
        return False
    # perhaps with what they were: by a checkpoint of all weights, by DDP, by a copy
    where = {key: source.get(key) for key in ("revision", "gguf_file")}
    there = dict(load_decoder(source["name"], before.dtype, **where).named_parameters())
    for name in written:
        p = own[name].detach()
        if name not in there or not torch.equal(p[: len(there[name])].cpu(), there[name].detach().to(p.dtype)):
            return True
    model._loaded = now  # not to be compared again
    return False


def overrides(model: TextGraphLM, source: Mapping[str, Any]) -> dict[str, Any]:
    """What the configuration says otherwise than that of the place it is loaded from."""
    there = model._loaded.config
    if there is None:
        try:
            there = told(AutoConfig.from_pretrained(source["name"], **given(revision=source.get("revision"))))
        except OSError:  # not within reach now: all of it
            there = {}
    return _differences(told(decoder_of(model.base_model).config), there)


def _differences(own: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for key, value in own.items():
        if key in _ELSEWHERE or key.startswith("_") or value == other.get(key):
            continue
        if isinstance(value, dict) and isinstance(other.get(key), dict):
            value = _differences(value, other[key])
            if not value:
                continue
        out[key] = value
    return out


def _merged(own: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """The reverse of :func:`_differences`."""
    inner = {k: _merged(own[k], v) for k, v in changes.items() if isinstance(v, dict) and isinstance(own.get(k), dict)}
    return {**own, **changes, **inner}

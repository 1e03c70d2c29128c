"""Checkpoints that a crash cannot leave half written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from pyg_textgraph.atomic import reading_folder, saving_folder
from pyg_textgraph.pretrained import load_tensors


def trained_parameters(model: nn.Module) -> dict[str, Tensor]:
    """Everything that training changes: parameters with gradients, and saved buffers of modules that own some or that
    have no parameters."""
    found = {name: p.detach() for name, p in model.named_parameters() if p.requires_grad}
    for path, module in model.named_modules():
        own_parameters = list(module.parameters(recurse=False))
        if not own_parameters or any(p.requires_grad for p in own_parameters):
            own = module.state_dict(prefix=f"{path}." if path else "")
            found |= {name: own[name] for name, _ in module.named_buffers(path, recurse=False) if name in own}
    return found


def load_trained(model: nn.Module, values: dict[str, Tensor]) -> None:
    """Puts values of :func:`trained_parameters` back.

    Raises:
        ValueError: If names or shapes are not the model's.
    """
    own = trained_parameters(model)
    if own.keys() != values.keys():
        wrong = sorted(own.keys() ^ values.keys())
        raise ValueError(f"the checkpoint is of another model: {len(wrong)} names differ, first {wrong[0]!r}")
    for name, parameter in own.items():
        if parameter.shape != values[name].shape:
            got, expected = tuple(values[name].shape), tuple(parameter.shape)
            raise ValueError(f"the checkpoint is of another model: {name!r} is of shape {got}, expected {expected}")
        parameter.copy_(values[name])


def save_checkpoint(folder: Path, parameters: dict[str, Tensor], state: dict[str, Any]) -> None:
    """Puts a checkpoint in place of the folder's old one; at every moment one of them is whole."""
    with saving_folder(folder) as new:
        save_file({name: value.contiguous() for name, value in parameters.items()}, str(new / "parameters.safetensors"))
        torch.save(state, new / "state.pt")


def has_checkpoint(folder: Path) -> bool:
    """Whether there is a whole one."""
    with reading_folder(folder):
        return (folder / "state.pt").is_file()


def load_checkpoint(folder: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The last checkpoint that was written whole.

    Raises:
        FileNotFoundError: If there is none.
        ValueError: Naming a damaged file.
    """
    file = folder / "state.pt"
    with reading_folder(folder):
        if not file.is_file():
            raise FileNotFoundError(f"there is no checkpoint in {folder}")
        try:
            state = torch.load(file, map_location="cpu", weights_only=True)
        except Exception as error:  # of many types: a cut file, a pickle that is refused
            raise ValueError(f"{file} is damaged or not a checkpoint: {error}") from error
        return load_tensors(folder / "parameters.safetensors"), state

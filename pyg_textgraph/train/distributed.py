"""Training in several processes, replicated (DDP) or sharded (FSDP2): one loss, one checkpoint, any number of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict, set_state_dict
from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method

from pyg_textgraph.nn.decoders import decoder_of

if TYPE_CHECKING:
    from pyg_textgraph.nn import GTLM, GTLMOutput


def joint_loss(out: GTLMOutput) -> Tensor:
    """The loss to call ``backward`` on: averaged over the processes, its gradients are those of the joint batch's loss.

    A model's own loss is the mean over the supervised tokens of its process. Where answers are of unequal lengths, the
    mean of those means is another loss, which changes with the number of processes.

    Raises:
        ValueError: If nothing is supervised.
    """
    if out.loss is None or out.labels is None:
        raise ValueError("joint_loss: the output has no loss, expected supervised tokens in every process")
    if not dist.is_initialized():
        return out.loss
    total = out.labels.new_tensor(out.labels.numel())
    dist.all_reduce(total)
    return out.loss * (out.labels.numel() * dist.get_world_size() / total)


def mean_over_processes(loss: Tensor) -> float:
    """What to log: of a :func:`joint_loss`, the mean over the supervised tokens of all processes."""
    loss = loss.detach().clone()
    if dist.is_initialized():
        dist.all_reduce(loss)
        loss /= dist.get_world_size()
    return float(loss)


def shard(model: GTLM, **options: Any) -> GTLM:
    """Shards a GTLM over all processes in place, layer by layer (FSDP2).

    Make the optimizer afterwards: the parameters are new ones. :meth:`GTLM.classify`, ``generate`` and
    ``node_attention`` work as before, called in all processes at once with batches that need as many steps.

    Args:
        model: Put on its device before.
        **options: Of :func:`torch.distributed.fsdp.fully_shard`, such as ``mesh`` and ``mp_policy``.
    """
    decoder = decoder_of(model.base_model)
    for layer in decoder.get_decoder().layers:
        fully_shard(layer, **options)
    fully_shard(model, **options)
    for name in ("classify", "generate", "node_attention"):
        register_fsdp_forward_method(model, name)
    return model


def gather_state(model: nn.Module, optimizer: torch.optim.Optimizer) -> tuple[dict[str, Any], dict[str, Any]]:
    """What training changes, whole and on the CPU: parameters by name, and the optimizer's state.

    All processes call it; the first one gets the result, the others empty dictionaries. It depends on the number of
    processes, on DDP and on sharding in nothing, so :func:`restore_state` takes it in another setting, too.
    """
    options = StateDictOptions(full_state_dict=True, cpu_offload=True, ignore_frozen_params=True)
    parameters, state = get_state_dict(model, optimizer, options=options)
    return {name: cast(Tensor, value) for name, value in parameters.items()}, dict(state)


def restore_state(
    model: nn.Module, optimizer: torch.optim.Optimizer, parameters: dict[str, Any], state: dict[str, Any]
) -> None:
    """Puts back what :func:`gather_state` gave; all processes call it with all of it.

    Raises:
        ValueError: If the parameters and buffers are not those that training changes in the model.
    """
    changing = {name for name, p in model.named_parameters() if p.requires_grad}
    changing |= {name for name, _ in model.named_buffers()} & model.state_dict().keys()
    own = {name.removeprefix("module.") for name in changing}
    if own != parameters.keys():
        wrong = sorted(own ^ parameters.keys())
        raise ValueError(f"restore_state: the state is of another model: {len(wrong)} names differ, first {wrong[0]!r}")
    options = StateDictOptions(full_state_dict=True, ignore_frozen_params=True, strict=False)
    set_state_dict(model, optimizer, model_state_dict={**parameters}, optim_state_dict=state, options=options)

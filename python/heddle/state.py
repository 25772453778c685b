"""Checkpoints, whole parameters and exports of a model under heddle.fully_shard."""
from __future__ import annotations

import contextlib
import json
import os
from typing import Any, Iterator, Mapping

import torch
from torch import nn

from .errors import Error
from .sharding import Sharded, sharded

_EXTRA = "python.json"


def _states(one: Sharded, optimizer: Any, make: bool) -> list[tuple[int, str, torch.Tensor]]:
    """Returns the tensors of an optimizer's state: index of the shard, prefix of the name, tensor. `make`: first creates
    the state of parameters without state, as the optimizer would."""
    if optimizer is None:
        return []
    if make:
        _make_states(optimizer)
    index = {id(shard.tensor): i for i, shard in enumerate(one.shards)}
    out = []
    for tensor, state in optimizer.state.items():
        if id(tensor) not in index or tensor.numel() == 0:
            continue
        for key, value in state.items():
            if isinstance(value, torch.Tensor):
                _check_state(tensor, key, value)
                out.append((index[id(tensor)], f"{key}.", value))
    return sorted(out, key=lambda each: (each[0], each[1]))


def _check_state(tensor: torch.Tensor, key: str, value: torch.Tensor) -> None:
    if value.dim() > 0 and value.shape != tensor.shape:
        raise Error("not_built", f"optimizer state '{key}'", f"it has the shape {tuple(value.shape)}, but its shard has "
                    f"{tuple(tensor.shape)}", "use an optimizer whose state is 0-dim or has the shape of the parameter")


def _make_states(optimizer: Any) -> None:
    """Makes an optimizer create its state by a step with zero gradients and learning rates, and restores the values."""
    parameters = [each for group in optimizer.param_groups for each in group["params"] if each.requires_grad]
    if all(each in optimizer.state for each in parameters if each.numel() > 0):
        return
    kept = [(each, each.grad, each.detach().clone()) for each in parameters]
    rates = [(group, {key: group[key] for key in ("lr", "weight_decay") if key in group})
             for group in optimizer.param_groups]
    for group, values in rates:
        for key, value in values.items():
            group[key] = torch.zeros_like(value) if isinstance(value, torch.Tensor) else 0.0
    for each, _, _ in kept:
        each.grad = torch.zeros_like(each)
    optimizer.step()
    with torch.no_grad():
        for each, gradient, value in kept:
            each.grad = gradient
            each.copy_(value)
    for group, values in rates:
        group.update(values)


def save(directory: str | os.PathLike[str], model: nn.Module, optimizer: torch.optim.Optimizer | None = None,
         extra: Mapping[str, Any] | None = None) -> None:
    """Saves a checkpoint that any strategy and number of ranks can load. A collective of every rank.

    Args:
        directory: the directory to create. It must not exist, and appears once it is complete.
        model: a model under `heddle.fully_shard`.
        optimizer: an optimizer whose state is saved with the model.
        extra: data that the trainer needs to resume, such as ``{"step": 7}``, written as JSON.

    Raises:
        heddle.Error: ``"io"``, on every rank.
    """
    one = sharded(model)
    files = [(_EXTRA, json.dumps({"version": 1, "extra": dict(extra or {}), "groups": _groups(optimizer)}))]
    one.native.save(os.path.abspath(os.fspath(directory)), _states(one, optimizer, make=True), files)


def _groups(optimizer: Any) -> list[dict[str, Any]]:
    """Returns the settings of the parameter groups that JSON supports."""
    if optimizer is None:
        return []
    plain = (int, float, str, bool, type(None), list, tuple)
    return [{key: value for key, value in group.items() if key != "params" and isinstance(value, plain)}
            for group in optimizer.param_groups]


def load(directory: str | os.PathLike[str], model: nn.Module, optimizer: torch.optim.Optimizer | None = None) -> dict[str, Any]:
    """Loads a checkpoint of `heddle.save`, or of a run of the `heddle` program, into the model and the optimizer.
    A collective of every rank. The strategy and the number of ranks may differ from those of the saved run.

    Returns:
        The `extra` of `heddle.save`.

    Raises:
        heddle.Error: ``"input"``, naming the file, or the parameter that the checkpoint does not have.
    """
    one = sharded(model)
    path = os.path.abspath(os.fspath(directory))
    one.native.load(path, _states(one, optimizer, make=True))
    try:
        with open(os.path.join(path, _EXTRA), encoding="utf-8") as file:
            saved = json.load(file)
    except FileNotFoundError:  # a checkpoint of the program
        return {}
    if optimizer is not None:
        for group, values in zip(optimizer.param_groups, saved["groups"]):
            group.update({key: tuple(value) if isinstance(value, list) else value for key, value in values.items()})
    return dict(saved["extra"])


@contextlib.contextmanager
def unsharded(model: nn.Module) -> Iterator[nn.Module]:
    """A scope with whole parameters on every rank, for `generate`, whose lengths may differ between ranks, and for
    reading values. Forwards within it compute no gradients. Entering it is a collective of every rank."""
    one = sharded(model)
    with torch.no_grad(), one.whole():
        yield model


def full_state_dict(model: nn.Module, *, rank0_only: bool = True, device: str | torch.device = "cpu") -> dict[str, torch.Tensor]:
    """Returns copies of all parameters and persistent buffers by name, with a tied parameter under each of its names. A
    collective of every rank. With `rank0_only`, other ranks get an empty dict."""
    one = sharded(model)
    out: dict[str, torch.Tensor] = {}
    with one.whole() as whole:
        if rank0_only and one.world.rank != 0:
            return out
        for module_name, module in one.model().named_modules(remove_duplicate=False):
            dot = module_name + "." if module_name else ""
            for key, parameter in module._parameters.items():
                if parameter is not None:
                    out[dot + key] = whole[one.names[id(parameter)]].detach().to(device, copy=True)
            for key, buffer in module._buffers.items():
                if buffer is not None and key not in module._non_persistent_buffers_set:
                    out[dot + key] = buffer.detach().to(device, copy=True)
    return out


def save_pretrained(model: Any, directory: str | os.PathLike[str], **options: Any) -> None:
    """Writes a model of transformers with its own `save_pretrained` on rank 0. A collective of every rank.

    Args:
        options: arguments of ``PreTrainedModel.save_pretrained``, such as ``max_shard_size``.
    """
    one = sharded(model)
    inner = one.model()
    state = full_state_dict(inner)
    failed = ""
    if one.world.rank == 0:
        try:
            inner.save_pretrained(directory, state_dict=state, **options)  # type: ignore[operator]
        except Exception as error:  # reported to the other ranks
            failed = f"{type(error).__name__}: {error}"
    told = one.world.native.exchange(one.world.key("save_pretrained"), failed)[0]
    if told:
        raise Error("io", os.fspath(directory), told, "rank 0 could not write the model")

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
    """The tensors of an optimizer's state: index of the shard, prefix of the name, tensor. `make`: of parameters
    without state yet too, as the optimizer will make them."""
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
        raise Error("not_built", f"optimizer state '{key}'", f"it has the shape {tuple(value.shape)}, and its shard "
                    f"{tuple(tensor.shape)}", "only states without dims, or of the parameter's shape, can be saved")


def _make_states(optimizer: Any) -> None:
    """Lets an optimizer make its state, by a step with gradients of zero and rates of zero that changes nothing."""
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
    """Saves a checkpoint that any strategy and number of ranks loads. A collective of every rank.

    Args:
        directory: made by this call; it appears when it is complete. One that exists is refused.
        model: under `heddle.fully_shard`.
        optimizer: whose state is saved beside the model.
        extra: what the trainer needs to go on, such as ``{"step": 7}``; written as JSON.

    Raises:
        heddle.Error: ``"io"``, on every rank.
    """
    one = sharded(model)
    files = [(_EXTRA, json.dumps({"version": 1, "extra": dict(extra or {}), "groups": _groups(optimizer)}))]
    one.native.save(os.path.abspath(os.fspath(directory)), _states(one, optimizer, make=True), files)


def _groups(optimizer: Any) -> list[dict[str, Any]]:
    """The settings of the groups of parameters, those that JSON can hold."""
    if optimizer is None:
        return []
    plain = (int, float, str, bool, type(None), list, tuple)
    return [{key: value for key, value in group.items() if key != "params" and isinstance(value, plain)}
            for group in optimizer.param_groups]


def load(directory: str | os.PathLike[str], model: nn.Module, optimizer: torch.optim.Optimizer | None = None) -> dict[str, Any]:
    """Loads a checkpoint of `heddle.save`, or of a run of the `heddle` program, into the model and the optimizer.
    A collective of every rank; the strategy and the number of ranks may differ from those that saved.

    Returns:
        What `heddle.save` was given as `extra`.

    Raises:
        heddle.Error: ``"input"`` names the file, or the parameter that the checkpoint lacks.
    """
    one = sharded(model)
    path = os.path.abspath(os.fspath(directory))
    one.native.load(path, _states(one, optimizer, make=True))
    try:
        with open(os.path.join(path, _EXTRA), encoding="utf-8") as file:
            saved = json.load(file)
    except FileNotFoundError:  # of the program
        return {}
    if optimizer is not None:
        for group, values in zip(optimizer.param_groups, saved["groups"]):
            group.update({key: tuple(value) if isinstance(value, list) else value for key, value in values.items()})
    return dict(saved["extra"])


@contextlib.contextmanager
def unsharded(model: nn.Module) -> Iterator[nn.Module]:
    """Whole parameters on every rank for the length of a scope: for `generate`, whose lengths may differ between ranks,
    and for reading values. Forwards in it take no gradients. A collective of every rank at its begin."""
    one = sharded(model)
    with torch.no_grad(), one.whole():
        yield model


def full_state_dict(model: nn.Module, *, rank0_only: bool = True, device: str | torch.device = "cpu") -> dict[str, torch.Tensor]:
    """Returns copies of all parameters and persistent buffers under their usual names, tied ones under each of their
    names. A collective of every rank; with `rank0_only` other ranks get an empty dict."""
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
    """Writes a model of transformers as its own `save_pretrained` does, from rank 0. A collective of every rank.

    Args:
        options: those of ``PreTrainedModel.save_pretrained``, such as ``max_shard_size``.
    """
    one = sharded(model)
    inner = one.model()
    state = full_state_dict(inner)
    failed = ""
    if one.world.rank == 0:
        try:
            inner.save_pretrained(directory, state_dict=state, **options)  # type: ignore[operator]
        except Exception as error:  # the other ranks are told of it
            failed = f"{type(error).__name__}: {error}"
    told = one.world.native.exchange(one.world.key("save_pretrained"), failed)[0]
    if told:
        raise Error("io", os.fspath(directory), told, "rank 0 could not write the model")

"""Optimizers over shards: reports each step to the engine, and computes gradient norms over the whole model."""
from __future__ import annotations

import weakref
from typing import Any, Iterable

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from .errors import Error, error_in_text
from .released import Released

_watched: "weakref.WeakSet[Any]" = weakref.WeakSet()  # Sharded objects
_models_of: "weakref.WeakKeyDictionary[Any, tuple[int, list[Any]]]" = weakref.WeakKeyDictionary()
_installed = False


def watch(sharded: Any) -> None:
    """Reports steps of optimizers to this model from now on."""
    global _installed
    _watched.add(sharded)
    _models_of.clear()
    if _installed:
        return
    _installed = True
    register_optimizer_step_pre_hook(_before_step)
    register_optimizer_step_post_hook(_after_step)
    clip = torch.nn.utils.clip_grad
    original = clip._get_total_norm

    def total_norm(tensors: Any, norm_type: float = 2.0, error_if_nonfinite: bool = False,
                   foreach: bool | None = None) -> torch.Tensor:
        return _norm_of(original, list(tensors) if not isinstance(tensors, torch.Tensor) else [tensors], norm_type,
                        error_if_nonfinite, foreach)

    clip._get_total_norm = total_norm
    _translate_backward()


def check_free(model: torch.nn.Module) -> None:
    """Raises heddle.Error if a parameter of the model already belongs to a model under heddle.fully_shard."""
    taken = {id(parameter): name for one in _watched for unit in one.units for name, parameter in unit.parameters.items()}
    taken.update({id(shard.tensor): shard.name for one in _watched for shard in one.shards})
    for name, parameter in torch.nn.Module.named_parameters(model):
        if id(parameter) in taken:
            raise Error("usage", name, f"this parameter is '{taken[id(parameter)]}' of a model under heddle.fully_shard",
                        "call fully_shard once, on the whole model; two models share no parameters")


def _translate_backward() -> None:
    """Makes a backward raise errors of the engine's hooks as heddle.Error. autograd converts them to RuntimeError."""
    import torch.autograd

    run = torch.autograd._engine_run_backward

    def run_backward(*args: Any, **kwargs: Any) -> Any:
        try:
            return run(*args, **kwargs)
        except RuntimeError as error:
            found = error_in_text(str(error))
            if found is None:
                raise
            raise found from None

    torch.autograd._engine_run_backward = run_backward


def _models(optimizer: Any) -> list[Any]:
    """Returns the models whose shards an optimizer updates."""
    parameters = [each for group in optimizer.param_groups for each in group["params"]]
    known = _models_of.get(optimizer)
    if known is not None and known[0] == len(parameters):
        return known[1]
    ids = {id(each) for each in parameters}
    for each in parameters:
        if type(each) is Released:
            raise Error("usage", each._heddle_name, "the optimizer has a parameter of a model under heddle.fully_shard, of "
                        "which this rank updates only a shard",
                        "create the optimizer after fully_shard, from model.parameters()")
    models = [one for one in _watched if any(id(shard.tensor) in ids for shard in one.shards)]
    _models_of[optimizer] = (len(parameters), models)
    return models


def _before_step(optimizer: Any, args: Any, kwargs: Any) -> None:
    _models(optimizer)


def _after_step(optimizer: Any, args: Any, kwargs: Any) -> None:
    for model in _models(optimizer):
        model.native.parameters_changed()


def _norm_of(original: Any, gradients: list[Any], norm_type: float, error_if_nonfinite: bool,
             foreach: bool | None) -> torch.Tensor:
    """Computes torch.nn.utils.get_total_norm for shards: over the whole model instead of this rank's shards."""
    ids = {id(each) for each in gradients}
    models = []
    for one in _watched:
        own = [shard.tensor.grad for shard in one.shards if shard.tensor.grad is not None]
        among = sum(id(each) in ids for each in own)
        if among == 0:
            continue
        if among != len(own) or among != len(gradients):
            raise Error("usage", "clip_grad_norm_", f"these are {among} of the {len(own)} gradients of a model under "
                        "heddle.fully_shard" + (" and other gradients" if among != len(gradients) else ""),
                        "clip all parameters of the model together: heddle.clip_grad_norm_(model, max_norm)")
        models.append(one)
    if not models:
        return original(gradients, norm_type, error_if_nonfinite, foreach)
    norm = total_norm_of(models[0], norm_type)
    if error_if_nonfinite and not bool(torch.isfinite(norm)):
        raise RuntimeError(f"The total norm of order {norm_type} for gradients from `parameters` is non-finite")
    return norm


def total_norm_of(sharded: Any, norm_type: float) -> torch.Tensor:
    """Returns the norm of all gradients of a model, 0-dim, in the dtype of its first gradient. A collective."""
    like = next((s.tensor.grad for s in sharded.shards if s.tensor.grad is not None), None)
    norm = sharded.native.norm(float(norm_type))[0]
    return norm if like is None else norm.to(torch.promote_types(like.dtype, torch.float32))


def clip_grad_norm_(model: Any, max_norm: float, norm_type: float = 2.0) -> torch.Tensor:
    """Scales the gradients of a model so that their norm is at most `max_norm`. A collective of every rank.

    Returns the norm before scaling, over the whole model, as a 0-dim tensor. If it is not finite, skip the update.
    """
    from .sharding import sharded

    one = sharded(model)
    norm = total_norm_of(one, norm_type)
    gradients = [shard.tensor.grad for shard in one.shards if shard.tensor.grad is not None]
    if gradients:
        scale = torch.clamp(max_norm / (norm + 1e-6), max=1.0)
        with torch.no_grad():
            torch._foreach_mul_(gradients, scale.to(gradients[0].device))
    return norm


def parameters_changed(model: Any) -> None:
    """Reports new values of the shards to the engine. Steps of `torch.optim` optimizers are reported automatically."""
    from .sharding import sharded

    sharded(model).native.parameters_changed()



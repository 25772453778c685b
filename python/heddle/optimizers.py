"""Optimizers over shards: reports each step to the engine, and computes gradient norms over the whole model."""
from __future__ import annotations

import functools
import itertools
import weakref
from typing import Any, Callable, Iterable

import torch
from torch.optim.optimizer import (_foreach_supported_types, register_optimizer_step_post_hook,
                                   register_optimizer_step_pre_hook)

from .errors import Error, error_in_text, in_terms_of_python
from .released import Released, ShardParameter

_sharded: "weakref.WeakValueDictionary[int, Any]" = weakref.WeakValueDictionary()  # Sharded objects by number
_numbers = itertools.count()
_models_of: "weakref.WeakKeyDictionary[Any, tuple[int, list[Any]]]" = weakref.WeakKeyDictionary()
_installed = False
_accumulating: bool | None = None  # whether the backward under way sets gradients of parameters; None: no backward

# Class names, lower case without "_", of optimizers whose update of an element depends on other elements: factored second
# moments, orthogonalization, low ranks, preconditioners, norms, line searches, and step sizes of the whole model.
_NOT_ELEMENTWISE = set("""
    adafactor adahessian adalomo adammini adamp apollo apolloadamw came dadaptadagrad dadaptadam dadaptlion dadaptsgd dion
    distributedshampoo fusedlamb fusednovograd galoreadafactor galoreadamw galoreadamw8bit kron lamb lars lbfgs lomo muon
    muonwithauxadam novograd prodigy ranger sam scion sgdp shampoo singledevicemuon singledevicemuonwithauxadam sm3 soap
    stableadamw
""".split())
_NOT_ELEMENTWISE_PACKAGES = {"apollo_torch", "galore_torch", "lomo_optim"}


def watch(sharded: Any) -> None:
    """Reports steps of optimizers to this model from now on."""
    _sharded[next(_numbers)] = sharded
    _models_of.clear()
    _install()


def _watched() -> list[Any]:
    """Returns the Sharded objects in the order of fully_shard, which is the same on every rank."""
    return [one for _, one in sorted(_sharded.items())]


def _install() -> None:
    """Changes torch's optimizers, clipping, GradScaler and backward, once in a process."""
    global _installed
    if _installed:
        return
    _installed = True
    register_optimizer_step_pre_hook(_before_step)
    register_optimizer_step_post_hook(_after_step)
    _foreach_supported_types.append(ShardParameter)
    clip = torch.nn.utils.clip_grad
    _exchange(clip._get_total_norm, _norm_of)
    _exchange(clip._clip_grads_with_norm_, _clip)
    _exchange(clip.clip_grad_value_, _clip)
    _wrap(torch.optim.Optimizer, "zero_grad", _zero_grad)
    _wrap(torch.amp.GradScaler, "_unscale_grads_", _unscale)
    _wrap(torch.nn.parallel.DistributedDataParallel, "__init__", _refuse_ddp)
    _translate_backward()


def _exchange(function: Any, replacement: Callable[..., Any]) -> None:
    """Replaces the function inside clip_grad's wrapper, so that names that were imported earlier change too."""
    cell = function.__closure__[function.__code__.co_freevars.index("func")]
    cell.cell_contents = functools.partial(replacement, cell.cell_contents)


def _wrap(owner: type, name: str, replacement: Callable[..., Any]) -> None:
    """Replaces a method by `replacement`, whose first argument is the original."""
    original = getattr(owner, name)

    @functools.wraps(original)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        return replacement(original, self, *args, **kwargs)

    setattr(owner, name, torch._disable_dynamo(method))


def _refuse_ddp(original: Any, ddp: Any, module: Any, *args: Any, **kwargs: Any) -> None:
    if any("_heddle" in each.__dict__ for each in module.modules()):
        raise Error("usage", "DistributedDataParallel", f"this {type(module).__name__} is under heddle.fully_shard, which "
                    "reduces the gradients itself", "use the model without DistributedDataParallel. In a loop of accelerate, "
                    "call heddle.prepare(accelerator, model) in place of heddle.fully_shard(model)")
    original(ddp, module, *args, **kwargs)


def check_free(model: torch.nn.Module) -> None:
    """Raises heddle.Error if a parameter of the model already belongs to a model under heddle.fully_shard."""
    taken = {id(parameter): name for one in _watched() for unit in one.units for name, parameter in unit.parameters.items()}
    taken.update({id(shard.tensor): shard.name for one in _watched() for shard in one.shards})
    for name, parameter in torch.nn.Module.named_parameters(model):
        if id(parameter) in taken:
            raise Error("usage", name, f"this parameter is '{taken[id(parameter)]}' of a model under heddle.fully_shard",
                        "call fully_shard once, on the whole model; two models share no parameters")


def _translate_backward() -> None:
    """Makes a backward raise errors of the engine's hooks as heddle.Error. autograd converts them to RuntimeError."""
    import torch.autograd

    run = torch.autograd._engine_run_backward

    def run_backward(tensors: Any, *args: Any, **kwargs: Any) -> Any:
        global _accumulating
        _check_inputs(args[3] if len(args) > 3 else ())
        outer = _accumulating
        if outer is None:  # not a backward within a backward (reentrant checkpointing)
            inputs = args[3] if len(args) > 3 else ()
            _accumulating = kwargs.get("accumulate_grad", True) and (
                not inputs or any(isinstance(each, torch.nn.Parameter) for each in inputs))
        try:
            return run(tensors, *args, **kwargs)
        except RuntimeError as error:
            found = error_in_text(str(error))
            if found is None and "storage of size 0" in str(error) and any(any(one._freed) for one in _watched()):
                found = Error("not_built", "backward", "it needs values of a parameter that its unit has released: it runs "
                              "within the forward, or a unit has passed on a tensor other than in its return value",
                              "run the backward after the forward, return the tensor in a tuple, list, dict or data class, or "
                              "choose the strategy ddp")
            if found is None:
                raise
            raise in_terms_of_python(found) from None
        finally:
            _accumulating = outer

    torch.autograd._engine_run_backward = run_backward


def _check_inputs(inputs: Any) -> None:
    for each in inputs:
        if isinstance(each, ShardParameter):
            raise Error("usage", each._heddle_name, "a backward for this rank's shard alone (inputs=, or torch.autograd.grad) "
                        "computes nothing, because the forward uses the whole parameter",
                        "call backward() without inputs, or choose the strategy ddp")


def accumulates() -> bool:
    """Returns whether the backward under way sets gradients of parameters, which autograd.grad() does not."""
    return _accumulating is not False


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
                        "create the optimizer after fully_shard, from the model's own parameters() or named_parameters(), and "
                        "not from those of a part of it: select parameters of the model by their names")
    models = [one for one in _watched() if any(id(shard.tensor) in ids for shard in one.shards)]
    _check_elementwise(optimizer, models)
    _models_of[optimizer] = (len(parameters), models)
    return models


def _check_elementwise(optimizer: Any, models: list[Any]) -> None:
    """Raises heddle.Error for a known optimizer that would compute another update from shards than from parameters."""
    split = next((one for one in models if one.splits), None)
    if split is None:
        return
    for base in type(optimizer).__mro__:
        if (base.__name__.lower().replace("_", "") in _NOT_ELEMENTWISE
                or base.__module__.partition(".")[0] in _NOT_ELEMENTWISE_PACKAGES):
            raise Error("usage", type(optimizer).__name__, "this optimizer needs whole parameters, but under the strategy "
                        f"'{split.strategy}' each rank updates shards", "choose the strategy ddp, or an optimizer that "
                        "updates each element on its own, such as torch.optim.AdamW")


def _before_step(optimizer: Any, args: Any, kwargs: Any) -> None:
    models = _models(optimizer)
    for model in models:
        model.check_not_whole(f"{type(optimizer).__name__}.step")
    closure = kwargs.get("closure") or (args[1] if len(args) > 1 else None)
    if closure is None:  # otherwise the backward comes within the step
        _check_reduced(optimizer, models)


def _check_reduced(optimizer: Any, models: list[Any]) -> None:
    for model in models:
        model.check_reduced(f"{type(optimizer).__name__}.step")


def _after_step(optimizer: Any, args: Any, kwargs: Any) -> None:
    models = _models(optimizer)
    for model in models:
        model.parameters_changed()
    _check_reduced(optimizer, models)


def _zero_grad(original: Any, optimizer: Any, *args: Any, **kwargs: Any) -> None:
    original(optimizer, *args, **kwargs)
    if any(one.unreduced for one in _watched()):
        for model in _models(optimizer):
            model.gradients_reset()


def _unscale(original: Any, scaler: Any, optimizer: Any, inv_scale: torch.Tensor, found_inf: torch.Tensor,
             allow_fp16: bool) -> dict[torch.device, torch.Tensor]:
    """Unscales gradients, and lets all ranks skip the step if a shard of any rank has an Inf or NaN. A collective."""
    models = _models(optimizer)
    for model in models:
        model.check_reduced("GradScaler")
    found = original(scaler, optimizer, inv_scale, found_inf, allow_fp16)
    for model in models:
        if model.splits:
            finite = torch.isfinite(model.native.norm(float("inf"))[0])
            for each in found.values() or [found.setdefault(found_inf.device, found_inf)]:
                each.masked_fill_(~finite.to(each.device), 1.0)
    return found


def _clip(original: Any, parameters: Any, *args: Any, **kwargs: Any) -> None:
    """Clips gradients of given parameters. Raises heddle.Error where their gradients are not those of a step."""
    parameters = [parameters] if isinstance(parameters, torch.Tensor) else list(parameters)
    for each in parameters:
        if type(each) is Released:
            raise Error("usage", each._heddle_name, "gradients of a parameter of a model under heddle.fully_shard cannot be "
                        "clipped, because they are those of this rank's shard",
                        "clip all parameters of the model together: heddle.clip_grad_norm_(model, max_norm)")
    if any(one.unreduced for one in _watched()):
        ids = {id(each) for each in parameters}
        for one in _watched():
            if any(id(shard.tensor) in ids for shard in one.shards):
                one.check_reduced("clip_grad_norm_")
    original(parameters, *args, **kwargs)


def _norm_of(original: Any, tensors: Any, norm_type: float = 2.0, error_if_nonfinite: bool = False,
             foreach: bool | None = None) -> torch.Tensor:
    """Computes torch.nn.utils.get_total_norm for shards: over the whole model instead of this rank's shards."""
    gradients = [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)
    ids = {id(each) for each in gradients}
    models = []
    for one in _watched():
        own = [shard.tensor.grad for shard in one.shards if shard.tensor.grad is not None]
        among = sum(id(each) in ids for each in own)
        if among == 0:
            continue
        if among != len(own) or among != len(gradients):
            raise Error("usage", "clip_grad_norm_", f"these are {among} of the {len(own)} gradients of a model under "
                        "heddle.fully_shard" + (" and other gradients" if among != len(gradients) else ""),
                        "clip all parameters of the model together: heddle.clip_grad_norm_(model, max_norm)")
        one.check_reduced("clip_grad_norm_")
        models.append(one)
    if not models:
        return original(gradients, norm_type, error_if_nonfinite, foreach)
    norm = total_norm_of(models[0], norm_type)
    if error_if_nonfinite and not bool(torch.isfinite(norm)):
        raise RuntimeError(f"The total norm of order {norm_type} for gradients from `parameters` is non-finite")
    return norm


def total_norm_of(sharded: Any, norm_type: float) -> torch.Tensor:
    """Returns the norm of all gradients of a model, 0-dim, in the dtype of its first gradient. A collective."""
    if not norm_type > 0:
        raise Error("usage", "norm_type", f"{norm_type} is not above 0", "use the order of a norm above 0, or inf")
    like = next((s.tensor.grad for s in sharded.shards if s.tensor.grad is not None), None)
    norm = sharded.native.norm(float(norm_type))[0]
    return norm if like is None else norm.to(torch.promote_types(like.dtype, torch.float32))


def clip_grad_norm_(model: Any, max_norm: float, norm_type: float = 2.0) -> torch.Tensor:
    """Scales the gradients of a model so that their norm is at most `max_norm`. A collective of every rank.

    Returns the norm before scaling, over the whole model, as a 0-dim tensor. If it is not finite, skip the update.
    """
    from .sharding import sharded

    one = sharded(model)
    if max_norm is None:
        raise Error("usage", "max_norm", "it is None", "pass a number; inf computes the norm without clipping")
    one.check_reduced("clip_grad_norm_")
    norm = total_norm_of(one, norm_type)
    gradients = [shard.tensor.grad for shard in one.shards if shard.tensor.grad is not None]
    if gradients:
        scale = torch.clamp(max_norm / (norm + 1e-6), max=1.0)
        with torch.no_grad():
            torch._foreach_mul_(gradients, scale.to(gradients[0].device))
    return norm


def parameters_changed(model: Any) -> None:
    """Reports new values of the shards to the engine. Steps of `torch.optim` optimizers and operations in place on the
    shards are reported automatically, but not operations on their ``.data``."""
    from .sharding import sharded

    sharded(model).parameters_changed()



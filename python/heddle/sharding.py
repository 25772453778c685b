"""heddle.fully_shard(), which applies a strategy of heddle to a PyTorch model in place."""
from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
import threading
import weakref
from typing import Any, Callable, Iterator, Mapping, Sequence

import torch
from torch import nn
from torch.utils._pytree import tree_map

from . import optimizers
from .errors import Error, in_terms_of_python
from .released import Released, ShardParameter, switched
from .units import Unit, Units, find_units
from .world import World, init

_ORIGIN = "heddle.fully_shard"  # place of keyword fields in messages
_disable = torch._dynamo.disable if hasattr(torch, "_dynamo") else torch.compiler.disable


class Sharded:
    """The strategy of a model. `heddle.fully_shard` creates it, and functions of heddle find it by the model.

    Attributes:
        strategy: the strategy's name.
        shards: this rank's parts of the parameters, a list of `Shard` in execution order.
    """

    def __init__(self, model: nn.Module, world: World, configuration: str, origin: str, units: list[Unit],
                 source: Callable[..., bool] | None, averages: bool) -> None:
        self._model = weakref.ref(model)
        self.world = world
        self.units = units
        self._owners = _owners(model)  # modules and keys by parameter name
        given = [(unit.name or "root", list(unit.parameters.items()), unit.buffers) for unit in units]
        ended = weakref.WeakMethod(self._backward_ended)

        def backward_ended() -> None:
            call = ended()
            if call is not None:  # the graph has not outlived the model
                call()

        self.native = world._extension.Hosted(world.native, configuration, origin, given, source,
                                              backward_ended, averages)
        self.strategy: str = self.native.strategy()
        self._take_parameters()
        self.names = {id(each): name for unit in units for name, each in unit.parameters.items()}
        self.shards = [Shard(*each) for each in self.native.shards()]
        self.splits = any(shard.axes for shard in self.shards)  # parameters are split over ranks
        own = {id(each) for unit in units for each in unit.parameters.values()}
        self._apart = [shard for shard in self.shards if id(shard.tensor) not in own]  # not the module's own parameter
        self._values = self._states_of_shards()
        self._is_frozen = not any(shard.tensor.requires_grad for shard in self.shards)
        self.parameters = {name: each for unit in units for name, each in unit.parameters.items()}
        tensors = [*self.parameters.items(), *((shard.name, shard.tensor) for shard in self.shards)]
        self._trains = [(name, each, each.requires_grad) for name, each in tensors]
        weakref.finalize(self, switched.difference_update, [id(each) for _, each in tensors])
        self._running = False  # a forward of the model is running
        self._thread = 0  # thread of that forward
        self._held: dict[str, torch.Tensor] | None = None  # whole parameters by name, for a scope
        self._awaits = False  # a forward with gradients has ended, and no backward since
        self._synchronizes = True  # backwards reduce gradients
        self.unreduced = False  # a backward in no_sync() has accumulated gradients that no backward has reduced
        self._precision = [self.native.precision(index) for index in range(len(units))]
        self._autocast = self.native.autocast()
        self._release_all()
        self._hook()

    # -- parameters

    def _take_parameters(self) -> None:
        """Sets the new tensors of parameters that were on meta, and finds the parameters that are freed."""
        ids = {id(shard[1]) for shard in self.native.shards()}
        for unit in self.units:
            for name, parameter in list(unit.parameters.items()):
                if parameter.is_meta:
                    parameter = self._replace(name, self.native.parameter(name))
                    unit.parameters[name] = parameter
                parameter._heddle_name = name  # type: ignore[attr-defined]
                parameter._heddle_unit = _reference(unit)  # type: ignore[attr-defined]
        self._freed: list[list[nn.Parameter]] = [
            [each for each in unit.parameters.values() if id(each) not in ids] for unit in self.units]
        uses: dict[int, list[int]] = {}
        for index, parameters in enumerate(self._freed):
            for each in parameters:
                uses.setdefault(id(each), []).append(index)
        self._sharing = [sorted({other for each in parameters for other in uses[id(each)]} - {index})
                         for index, parameters in enumerate(self._freed)]
        self._stack: list[int] = []  # running units, innermost last
        self._versions_of: list[list[int]] = [[] for _ in self.units]  # version counters of the running units' parameters
        self._around = [index == 0 for index in range(len(self.units))]  # units that run other units inside

    def _replace(self, name: str, tensor: torch.Tensor) -> nn.Parameter:
        if not isinstance(tensor, nn.Parameter):
            tensor.__class__ = nn.Parameter
        for module, key in self._owners[name]:
            module._parameters[key] = tensor
        return tensor  # type: ignore[return-value]

    def _backward_ended(self) -> None:
        if self._running and any(self._freed):
            raise Error("not_built", "heddle.fully_shard", "a backward of the model runs within its forward, and frees "
                        f"parameters that the forward needs under the strategy '{self.strategy}'",
                        "choose the strategy ddp or single")
        self._awaits = False
        if optimizers.accumulates():
            self.unreduced = not self._synchronizes and self.strategy != "single"
        self._release_all()

    def _release_all(self) -> None:
        if self._held is not None:
            return
        if not self._running:
            self._stack.clear()
        for parameters in self._freed:
            for parameter in parameters:
                parameter.__class__ = Released

    # -- a forward

    def _hook(self) -> None:
        for index, unit in enumerate(self.units[1:], 1):
            before, after = _hooks_of(weakref.ref(self), index)
            unit.module.register_forward_pre_hook(before, prepend=True, with_kwargs=True)
            unit.module.register_forward_hook(after, always_call=True)

    def _runs_apart(self) -> bool:
        """Returns whether a part of the model is called by itself while parameters are whole. The engine skips such calls."""
        return self._held is not None and not self._running and not torch.is_grad_enabled()

    def _before(self, index: int) -> None:
        if self._runs_apart():
            return
        try:
            self.native.before(index)
        except Error as error:
            raise self._explained(index, error) from None
        if self._stack:
            self._around[self._stack[-1]] = True
        self._stack.append(index)
        for parameter in self._freed[index]:
            parameter.__class__ = nn.Parameter
        self._versions_of[index] = [parameter._version for parameter in self._freed[index]]

    def _check_unchanged(self, index: int) -> None:
        """Checks that the forward of a unit has not changed its parameters: such values would be lost."""
        versions = [parameter._version for parameter in self._freed[index]]
        if versions == self._versions_of[index] or self._held is not None:
            return
        changed = next(each for each, *both in zip(self._freed[index], versions, self._versions_of[index])
                       if both[0] != both[1])
        raise Error("not_built", changed._heddle_name, "the forward changes this parameter in place, which the strategy "
                    f"'{self.strategy}' does not keep: each rank only has a shard",
                    "make it a buffer, change the shards of model.parameters() after the backward, or choose the strategy ddp")

    def _explained(self, index: int, error: Error) -> Error:
        if "runs outside of a forward" not in error.message:
            return in_terms_of_python(error)
        unit = self.units[index]
        return Error("usage", unit.name, f"this {type(unit.module).__name__} runs outside of a forward of the model",
                     "call the model itself, model(...), and not model.forward(...), another of its methods or one of its "
                     "modules. Without gradients these also run within heddle.unsharded(model)")

    def _after(self, index: int, result: Any) -> None:
        if self._runs_apart() or not (self._running or self._stack):  # the second: _before() has raised
            return
        self.native.after(index, result)
        self._stack.pop()
        self._check_unchanged(index)
        # A unit that contains others stays whole until the end of the backward, which may recompute parts of it.
        if self._held is not None or index in self._stack or (self._around[index] and torch.is_grad_enabled()):
            return
        for parameter in self._freed[index]:
            parameter.__class__ = Released
        for other in self._sharing[index]:  # another whole unit also uses these parameters
            if other in self._stack or self._around[other]:
                for parameter in self._freed[other]:
                    parameter.__class__ = nn.Parameter

    def forward(self, call: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Runs the model's own call as a forward of the engine."""
        if self._running:  # the model calls itself
            if threading.get_ident() != self._thread:
                raise Error("usage", type(self.model()).__name__, "another thread is in a forward of this model",
                            "call a model from one thread, or build one for each thread")
            return call(*args, **kwargs)
        self._begin()
        inputs, outputs = self._precision[0]
        if inputs is not None:
            args, kwargs = _cast(args, inputs), _cast(kwargs, inputs)
        try:
            with self._autocasts():
                result = call(*args, **kwargs)
            if outputs is not None:
                result = _cast_outputs(result, outputs)
            self._end(result)
            return result
        except BaseException:
            self._abandon()
            raise

    def _autocasts(self) -> Any:
        if self._autocast is None:
            return contextlib.nullcontext()
        return torch.autocast(self.shards[0].tensor.device.type, self._autocast)

    @_disable
    def _begin(self) -> None:
        self.world.check_process()
        if torch.is_grad_enabled():
            if switched:
                self._check_switched()
            if self._awaits and torch._C._current_graph_task_id() != -1 and self.strategy != "single":
                raise Error("not_built", type(self.model()).__name__, "torch.utils.checkpoint with use_reentrant=False runs the "
                            f"whole model again in the backward, which the strategy '{self.strategy}' cannot do",
                            "checkpoint parts of the model, or pass use_reentrant=True")
            if any(self._freed) and _differentiates():
                raise Error("not_built", type(self.model()).__name__, "torch.func transforms this forward, whose parameters "
                            f"the strategy '{self.strategy}' frees", "choose the strategy ddp or single")
        if self._held is None:
            self.notice_changes()
        self.native.begin(torch.is_grad_enabled())
        self._thread = threading.get_ident()
        self._running = True
        try:
            self._before(0)
        except BaseException:
            self._abandon()
            raise

    def _check_switched(self) -> None:
        """Checks that requires_grad is as in fully_shard. Adapters may change it temporarily around a forward."""
        for name, parameter, trains in self._trains:
            if id(parameter) in switched and parameter.requires_grad != trains:
                raise Error("usage", name, f"requires_grad is {parameter.requires_grad}, but it was {trains} in "
                            "heddle.fully_shard", "freeze parameters before fully_shard")
        switched.difference_update(id(parameter) for _, parameter, _ in self._trains)

    @_disable
    def _end(self, result: Any) -> None:
        try:
            self._after(0, result)
            self._running = False
            self.native.end()
            self._awaits = torch.is_grad_enabled() and not self._is_frozen
        except Error as error:
            raise in_terms_of_python(error) from None

    @_disable
    def _abandon(self) -> None:
        self._running = False
        self.native.abandon()
        self._release_all()

    @contextlib.contextmanager
    def whole(self) -> Iterator[dict[str, torch.Tensor]]:
        """Yields every whole parameter by name, within a scope. Edits within it are written back to the shards."""
        self.world.check_process()
        if self._held is not None:
            yield self._held
            return
        self.notice_changes()
        whole = self._held = self.native.hold_whole()
        for parameters in self._freed:
            for parameter in parameters:
                parameter.__class__ = nn.Parameter
        versions = self._versions()
        edited = False
        try:
            yield whole
            edited = self._write_back(versions)
        finally:
            self._held = None
            self._release_all()
            self.native.release_whole()
        if edited:
            self.parameters_changed()

    def check_not_whole(self, what: str) -> None:
        """Checks that no scope with whole parameters is open, whose edits have not reached the shards yet."""
        if self._held is not None and any(self._freed):
            raise Error("usage", what, "it is called within heddle.unsharded, whose edits reach the shards at its end",
                        "call it after the scope")

    # -- values of shards

    def _states_of_shards(self) -> tuple[list[int], list[int]]:
        """Returns version counters and addresses of the shards' values."""
        tensors = [shard.tensor for shard in self._apart]
        return [each._version for each in tensors], [each.data_ptr() for each in tensors]

    def parameters_changed(self) -> None:
        """Reports new values of the shards to the engine."""
        for shard, address in zip(self._apart, self._values[1]):
            if shard.tensor.data_ptr() != address:
                shard.return_values()
        self.native.parameters_changed()
        self._values = self._states_of_shards()

    def notice_changes(self) -> None:
        """Reports changes of shards outside of an optimizer: in place, or by a new tensor in `.data`. Changes of `.data` in
        place cannot be seen. A loop may change a frozen model so, as a moving average of another one, but never steps it."""
        if self._apart and (self._is_frozen or self._states_of_shards() != self._values):
            self.parameters_changed()

    def _versions(self) -> dict[int, int]:
        """Returns the version counters of parameters and shards, which in-place operations increment."""
        return {id(each): each._version for _, each, _ in self._trains}

    def _write_back(self, versions: dict[int, int]) -> bool:
        """Copies edits of whole parameters to the shards. Returns whether a parameter or a shard was edited."""
        edited = {key for key, version in self._versions().items() if version != versions[key]}
        unseen = []  # shards whose values differ from the whole parameter, though no operation was counted
        for shard in self.shards:
            parameter = self.parameters[shard.name]
            if parameter is shard.tensor or shard.tensor.numel() == 0:
                continue
            if id(parameter) in edited:
                if id(shard.tensor) in edited:
                    raise Error("usage", shard.name, "the whole parameter and its shard have both changed within "
                                "heddle.unsharded", "change either the parameters of modules or the shards of "
                                "model.parameters()")
                shard.write_back(parameter)
            elif id(shard.tensor) not in edited:
                unseen.append((shard, shard.differences(parameter).any()))
        _check_unseen(unseen)
        return bool(edited)

    # -- gradients

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        kept, self._synchronizes = self._synchronizes, False
        self.native.synchronize(False)
        try:
            yield
        finally:
            self._synchronizes = kept
            self.native.synchronize(kept)

    def check_reduced(self, what: str) -> None:
        """Checks that the gradients are those of all ranks, before `what` reads them."""
        if self.unreduced:
            raise Error("usage", what, "the last backward ran within model.no_sync(), so the gradients of the ranks are not "
                        "reduced", "run the last backward of a step outside of no_sync()")

    def gradients_reset(self) -> None:
        """Called after a zero_grad(). The engine keeps what no_sync() has accumulated apart from the shards' gradients."""
        if not self.unreduced:
            return
        if any(self._freed):
            raise Error("usage", "zero_grad", "the gradients that backwards within model.no_sync() have accumulated cannot "
                        f"be discarded under the strategy '{self.strategy}'",
                        "run a backward outside of no_sync() before zero_grad()")
        gradients = [shard.tensor.grad for shard in self.shards]
        self.unreduced = any(each is not None and bool(each.any()) for each in gradients)

    def model(self) -> nn.Module:
        model = self._model()
        assert model is not None
        return model


class Shard:
    """This rank's part of a parameter: a box of the whole parameter.

    Attributes:
        name: the parameter's name in the model.
        tensor: the tensor that the optimizer updates; ``.grad`` is its gradient after a backward.
        shape: shape of the whole parameter.
        offset: offset of the box in the whole parameter.
        axes: names of the mesh axes that split the parameter.
    """

    def __init__(self, name: str, tensor: torch.Tensor, shape: list[int], offset: list[int], axes: list[str]) -> None:
        if type(tensor) is torch.Tensor:
            tensor.__class__ = ShardParameter
            tensor._heddle_name = name  # type: ignore[attr-defined]
        self.name, self.tensor, self.shape, self.offset, self.axes = name, tensor, shape, offset, axes
        self._values = tensor.detach()  # in the engine's storage

    def return_values(self) -> None:
        """Copies the values to the engine's storage after the loop has set `.data` to another tensor."""
        if self.tensor.shape != self._values.shape or self.tensor.dtype != self._values.dtype:
            raise Error("usage", self.name, f"the data of this shard was set to a tensor of the shape {tuple(self.tensor.shape)} "
                        f"and {self.tensor.dtype}", f"keep the shape {tuple(self._values.shape)} and {self._values.dtype}")
        with torch.no_grad():
            self._values.copy_(self.tensor)
            self.tensor.data = self._values

    def differences(self, whole: torch.Tensor) -> torch.Tensor:
        """Returns which elements differ from the whole parameter, whose dtype may be narrower. NaN differs from nothing."""
        box = self._box(whole)
        return (box != self.tensor.to(box.dtype)) & (box == box)

    def write_back(self, whole: torch.Tensor) -> None:
        """Copies the elements of the whole parameter that differ."""
        box = self._box(whole)
        with torch.no_grad():
            self.tensor.copy_(torch.where(box == self.tensor.to(box.dtype), self.tensor, box.to(self.tensor.dtype)))

    def _box(self, whole: torch.Tensor) -> torch.Tensor:
        box = whole.detach()
        for dim, (offset, size) in enumerate(zip(self.offset, self.tensor.shape, strict=True)):
            box = box.narrow(dim, offset, size)
        return box


def _check_unseen(unseen: Sequence[tuple[Shard, torch.Tensor]]) -> None:
    """Checks that no shard differs from its whole parameter at the end of a scope in which neither was edited."""
    if not unseen or not bool(torch.stack([each for _, each in unseen]).any()):
        return
    name = next(shard.name for shard, differs in unseen if bool(differs))
    raise Error("usage", name, "the whole parameter and its shard differ at the end of heddle.unsharded, but no in-place "
                "operation on either was seen", "edit the parameter itself, not its .data. After a change of a shard's .data "
                "call heddle.parameters_changed(model)")


def _differentiates() -> bool:
    """Returns whether a transform of torch.func that computes derivatives is active."""
    active = torch._C._functorch.peek_interpreter_stack()
    return active is not None and active.key().name in ("Grad", "Jvp")


def _hooks_of(sharded: "weakref.ref[Sharded]", index: int) -> tuple[Callable[..., None], Callable[..., None]]:
    one = sharded()
    assert one is not None
    inputs, outputs = one._precision[index]

    @_disable
    def before(module: nn.Module, args: Any, kwargs: Any) -> Any:
        sharded()._before(index)  # type: ignore[union-attr]
        return None if inputs is None else (_cast(args, inputs), _cast(kwargs, inputs))

    @_disable
    def after(module: nn.Module, args: Any, result: Any) -> Any:
        made = result if outputs is None else _cast_outputs(result, outputs)
        sharded()._after(index, made)  # type: ignore[union-attr]
        return None if outputs is None else made

    return before, after


def _cast(values: Any, dtype: torch.dtype, minimum: int = 0) -> Any:
    """Casts floating-point tensors of at least `minimum` elements."""
    def cast(value: Any) -> Any:
        if isinstance(value, torch.Tensor) and value.is_floating_point() and value.numel() >= minimum:
            return value.to(dtype)
        return value
    return tree_map(cast, values)


def _cast_outputs(values: Any, dtype: torch.dtype) -> Any:
    """Casts floating-point tensors, except a loss of one element."""
    return _cast(values, dtype, minimum=2)


def _reference(unit: Unit) -> str:
    """Returns how `root=` names a unit: by its path, or by its class if other layers have the same class."""
    kind = type(unit.module)
    is_layer = unit.name.rpartition(".")[2].isdigit() and not kind.__module__.startswith("torch.")
    return kind.__name__ if is_layer else unit.name


def _owners(model: nn.Module) -> dict[str, list[tuple[nn.Module, str]]]:
    first = {id(parameter): name for name, parameter in nn.Module.named_parameters(model)}
    owners: dict[str, list[tuple[nn.Module, str]]] = {}
    for module in model.modules():
        for key, parameter in module._parameters.items():
            if parameter is not None:
                owners.setdefault(first[id(parameter)], []).append((module, key))
    return owners


class _ShardedModel(nn.Module):
    """Methods that fully_shard adds to the class of a model."""

    _heddle: Sharded

    def __deepcopy__(self, memo: Any) -> Any:
        raise Error("usage", "copy.deepcopy",
                    "a model under heddle.fully_shard cannot be copied, because each rank has only a shard",
                    "copy it before fully_shard, or build a second model and load it with heddle.load")

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise Error("usage", "pickle",
                    "a model under heddle.fully_shard cannot be pickled, because each rank has only a shard",
                    "use heddle.save or heddle.save_pretrained")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._heddle.forward(super().__call__, args, kwargs)  # type: ignore[misc]

    def named_parameters(self, prefix: str = "", recurse: bool = True,
                         remove_duplicate: bool = True) -> Iterator[tuple[str, nn.Parameter]]:
        """Yields this rank's shards with the parameters' names. A parameter with several boxes is repeated."""
        dot = prefix + "." if prefix else ""
        for shard in self._heddle.shards:
            if recurse or "." not in shard.name:
                yield dot + shard.name, shard.tensor  # type: ignore[misc]

    def parameters(self, recurse: bool = True) -> Iterator[nn.Parameter]:
        for _, parameter in self.named_parameters(recurse=recurse):
            yield parameter

    def zero_grad(self, set_to_none: bool = True) -> None:
        super().zero_grad(set_to_none)  # type: ignore[misc]
        self._heddle.gradients_reset()

    def no_sync(self) -> Any:
        """Disables gradient reduction within a scope, for all microbatches of a step except the last."""
        return self._heddle.no_sync()

    def _apply(self, fn: Callable[..., Any], recurse: bool = True) -> Any:
        for shard in self._heddle.shards:
            with torch.no_grad():
                made = fn(shard.tensor)
            if made.dtype != shard.tensor.dtype or made.device != shard.tensor.device:
                raise Error("usage", shard.name, f"a model under heddle.fully_shard stays {shard.tensor.dtype} on "
                            f"{shard.tensor.device}, but this call would make it {made.dtype} on {made.device}",
                            "convert and move the model before fully_shard, or set mp_policy to compute in another dtype")
            break
        return self

    def requires_grad_(self, requires_grad: bool = True) -> Any:
        if any(shard.tensor.requires_grad != requires_grad for shard in self._heddle.shards):
            raise Error("usage", "requires_grad_", "requires_grad cannot be changed under heddle.fully_shard",
                        "freeze parameters before fully_shard")
        return self

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        if any(self._heddle._freed):
            raise Error("usage", "state_dict", "each rank only has shards of the parameters",
                        "use heddle.save, heddle.save_pretrained, or heddle.full_state_dict")
        return super().state_dict(*args, **kwargs)  # type: ignore[misc]

    def load_state_dict(self, *args: Any, **kwargs: Any) -> Any:
        if any(self._heddle._freed):
            raise Error("usage", "load_state_dict", "each rank only has shards of the parameters",
                        "use heddle.load, or load the values before fully_shard")
        loaded = super().load_state_dict(*args, **kwargs)  # type: ignore[misc]
        self._heddle.parameters_changed()
        return loaded


class _GeneratingModel(_ShardedModel):
    def generate(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the model's `generate` with whole parameters. Lengths may differ between ranks. A collective."""
        with torch.no_grad(), self._heddle.whole():
            return super().generate(*args, **kwargs)  # type: ignore[operator]


def sharded(model: Any) -> Sharded:
    """Returns the strategy of a model. Raises heddle.Error for a model without one."""
    found = getattr(model, "__dict__", {}).get("_heddle")
    if found is None:
        inner = getattr(model, "module", None) or getattr(model, "_orig_mod", None)
        if inner is not None and inner is not model:
            return sharded(inner)
        if not isinstance(model, nn.Module):
            raise Error("usage", "model", f"a {type(model).__name__} is no model", "pass the model under heddle.fully_shard")
        raise Error("usage", type(model).__name__, "this model is not under heddle.fully_shard",
                    "call heddle.fully_shard(model, ...) first")
    return found


# The default of fsdp2 in Python: keywords replace a call of fully_shard of PyTorch, whose policies cast the inputs of units.
_BFLOAT16 = {"param_dtype": "bfloat16", "reduce_dtype": "float32", "cast_forward_inputs": True}


def configuration_of(model: nn.Module, config: Any, fields: Mapping[str, Any], origin: str = _ORIGIN) -> tuple[str, str]:
    """Returns the YAML of `distributed:` and `dist_env:` with a name for messages, or "" with the path of a file."""
    if config is not None and fields:
        raise Error("usage", origin, f"config= and {', '.join(fields)}= are both given",
                    "pass the fields either in the file or as keywords")
    if isinstance(config, (str, os.PathLike)):
        return "", os.fspath(config)
    if config is not None and not isinstance(config, Mapping):
        raise Error("usage", "config", f"{config!r} is neither a path nor a mapping", "pass the path of a recipe, or a "
                    "mapping with the section distributed")
    devices = {parameter.device.type for parameter in model.parameters()} - {"meta"}
    section: dict[str, Any] = {"distributed": dict(fields)}
    if config is None and fields.get("strategy", "fsdp2") == "fsdp2" and fields.get("mp_policy") is None:
        section["distributed"]["mp_policy"] = _BFLOAT16
    if config is not None:
        section = dict(config) if "distributed" in config else {"distributed": dict(config)}
    if devices <= {"cpu"}:
        section.setdefault("dist_env", {"backend": "gloo"})
    return json.dumps(section, default=_written), origin


def _written(value: Any) -> Any:
    """Writes policies of PyTorch's fully_shard as mappings, and dtypes by their names."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        return fields or None  # OffloadPolicy() offloads nothing
    return str(value).replace("torch.", "")


@contextlib.contextmanager
def errors_of_keywords(origin: str = _ORIGIN) -> Iterator[None]:
    """Removes the line from errors of fields that are given as keywords: there is no file."""
    try:
        yield
    except Error as error:
        for each in error.all:
            each.where = each.where.replace(f"{origin}:1 ", f"{origin} ")
        raise


def _check_ranks(world: World, units: Sequence[Unit], gradients: str) -> None:
    """Checks that all ranks have the same parameters and units. A collective of every rank."""
    if world.size == 1:
        return
    parameters = {name: each for unit in units for name, each in unit.parameters.items()}
    parts = {
        "parameters": [f"{name} {list(each.shape)} {each.dtype} requires_grad={each.requires_grad}"
                       for name, each in sorted(parameters.items())],
        "units": [unit.name or "(root)" for unit in units],
        "gradients": [gradients],
    }
    key = world.key("fully_shard")
    digests = world.native.exchange(key, hashlib.sha256(json.dumps(parts).encode()).hexdigest())
    if len(set(digests)) == 1:
        return
    first, *others = [json.loads(text) for text in world.native.exchange(key + " parts", json.dumps(parts))]
    rank, other = next((rank, other) for rank, other in enumerate(others, 1) if other != first)
    part = next(name for name in parts if first[name] != other[name])
    extra = {0: set(first[part]) - set(other[part]), rank: set(other[part]) - set(first[part])}
    found = " and ".join(f"only rank {number} has {min(names)}" for number, names in extra.items() if names)
    raise Error("usage", "heddle.fully_shard", f"the {part} of the ranks differ: {found or 'their order'}",
                "build the same model and pass the same arguments on every rank")


def _check_parameters(model: nn.Module) -> None:
    """Checks that the parameters can be split and reduced, and that hooks can gather them."""
    for name, module in model.named_modules():
        if isinstance(module, torch.jit.ScriptModule) and any(True for _ in module.parameters()):
            raise Error("not_built", name or type(model).__name__, "this module is compiled by torch.jit, which runs no hooks",
                        "use the module without torch.jit.script")
    for name, each in nn.Module.named_parameters(model):
        if isinstance(each, nn.parameter.UninitializedParameter):
            raise Error("usage", name, "this parameter of a lazy module has no shape yet",
                        "run a forward of the model before heddle.fully_shard")
        if each.is_complex():
            raise Error("not_built", name, f"this parameter is {each.dtype}, and complex numbers are not reduced over ranks",
                        "store torch.view_as_real of it, and call torch.view_as_complex in the forward")


def _check_sparse(model: nn.Module, strategy: str) -> None:
    for name, module in model.named_modules():
        if getattr(module, "sparse", False) is True and strategy in ("ddp", "fsdp2") and next(module.parameters()).requires_grad:
            raise Error("not_built", name, f"the strategy '{strategy}' does not reduce sparse gradients",
                        f"build this {type(module).__name__} with sparse=False")


def _generates(model: nn.Module) -> bool:
    """Returns whether a model has a `generate` of these packages, which computes no gradients."""
    return any("generate" in base.__dict__ and base.__module__.partition(".")[0] in ("transformers", "peft", "trl")
               for base in type(model).__mro__)


def fully_shard(model: nn.Module, *, config: Any = None, units: Units = None, root: Units = (), gradients: str = "average",
                from_pretrained_dir: str | None = None, **fields: Any) -> _ShardedModel:
    """Applies a strategy of heddle to a model in place. A collective of every rank.

    Args:
        model: a model on the device of the run, or on meta. Parameters get rank 0's values. Buffers keep the values of each
            rank, except under `ddp`, which sends rank 0's.
        config: the path of a recipe or a mapping, whose ``distributed:`` section is used.
        units: modules that are each gathered, run and released together: one or a list of modules, classes, class names,
            paths or path patterns, or a function of path and module. Default: the layers in transformers'
            ``_no_split_modules``, and embeddings, linear and attention layers outside of them. Without such layers, the
            members of every ``ModuleList`` and ``Sequential``.
        root: modules that are not units, in the same forms: those whose parameters the model's own forward reads, as a
            fused loss reads the weight of the head. The root stays whole until the end of the backward.
        gradients: ``"average"`` over the data-parallel ranks, as under DDP and FSDP2, or ``"sum"``.
        from_pretrained_dir: for a model on meta, the Hugging Face directory with its safetensors. Each rank reads its
            shards only.
        fields: fields of ``distributed:``, such as ``strategy="fsdp2"``, ``mp_policy={"param_dtype": "float32"}`` or
            ``mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16)`` of PyTorch. By default `fsdp2` computes in bfloat16,
            casts the inputs of units, and sums gradients in float32.

    Returns:
        The same model. Its ``parameters()`` are this rank's shards, plain tensors for any optimizer. Its modules keep
        their own parameters, which are whole while the modules run, and ``heddle.Released`` in between.

    Raises:
        heddle.Error: for a field or a strategy that is refused, with its place.
    """
    if not isinstance(model, nn.Module):
        raise Error("usage", "heddle.fully_shard", f"{model!r} is not a module", "pass an instance of torch.nn.Module")
    if gradients not in ("average", "sum"):
        raise Error("usage", "gradients", f"{gradients!r} is unknown", "use 'average' or 'sum'")
    if "_heddle" in model.__dict__:
        raise Error("usage", type(model).__name__, "this model is under heddle.fully_shard already",
                    "call fully_shard once for a model")
    optimizers.check_free(model)
    on_meta = any(each.is_meta for each in model.parameters())
    if from_pretrained_dir is not None and not on_meta:
        raise Error("usage", "from_pretrained_dir", f"{type(model).__name__} has values on a device, so no file would be read",
                    "build the model on meta, under accelerate.init_empty_weights(include_buffers=False), or load its values "
                    "before heddle.fully_shard")
    if on_meta and hasattr(model, "tie_weights"):  # accelerate makes tied parameters two
        model.tie_weights()
    _check_parameters(model)
    ranks = init()
    configuration, origin = configuration_of(model, config, fields)
    found = find_units(model, units, root)
    _check_ranks(ranks, found, gradients)
    source = None
    if on_meta:
        from .files import source_of

        source = source_of(model, from_pretrained_dir)
    with errors_of_keywords():
        one = Sharded(model, ranks, configuration, origin, found, source, gradients == "average")
    _check_sparse(model, one.strategy)
    if one.native.checkpoints():
        if not hasattr(model, "gradient_checkpointing_enable"):
            raise Error("not_built", "distributed.activation_checkpointing", f"{type(model).__name__} has no "
                        "gradient_checkpointing_enable()",
                        "call torch.utils.checkpoint in its forward, and remove the field")
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    model.__dict__["_heddle"] = one
    own = type(model)
    added = _GeneratingModel if _generates(model) else _ShardedModel
    model.__class__ = type(own.__name__, (added, own), {"__module__": own.__module__, "__doc__": own.__doc__})
    optimizers.watch(one)
    return model  # type: ignore[return-value]

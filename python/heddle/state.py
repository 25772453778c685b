"""Checkpoints, whole parameters and exports of a model under heddle.fully_shard."""
from __future__ import annotations

import collections
import contextlib
import io
import json
import os
import warnings
from typing import Any, Callable, Iterator, Mapping

import torch
from torch import nn

from .errors import Error
from .files import SavedTensors
from .importing import STATES
from .sharding import Sharded, sharded

_DOCUMENT, _BUFFERS = "python.json", "buffers.pt"
_WRAPPERS = ("accelerate", "lightning", "pytorch_lightning")  # packages whose optimizers wrap one of torch
_REBUILD = "build the model as in the saved run"
_REGROUP = "create the optimizer with the parameter groups of the saved run, or load the model without an optimizer"
_REPLACE = "copy the checkpoint again, or load another one"
_OF_THE_RUN = ("foreach", "fused", "capturable", "differentiable")  # options that a checkpoint does not override


def save(directory: str | os.PathLike[str], model: nn.Module, optimizer: torch.optim.Optimizer | None = None,
         extra: Mapping[str, Any] | None = None) -> None:
    """Saves a checkpoint that any strategy and number of ranks can load. A collective of every rank. The model and the
    optimizer are not changed.

    Args:
        directory: the directory to create. It must not exist or be empty, and appears once it is complete.
        model: a model under `heddle.fully_shard`. Its persistent buffers are saved with the values of rank 0.
        optimizer: an optimizer whose state is saved with the model. Parameters that have not been updated have no state.
        extra: data that the trainer needs to resume, such as ``{"step": 7}``, written as JSON.

    Raises:
        heddle.Error: ``"io"``, on every rank.
    """
    one = sharded(model)
    optimizer = _checked(one, optimizer, "heddle.save")
    document: dict[str, Any] = {"version": 1, "groups": _options(optimizer)}
    states: list[_State] = []

    def collect() -> list[str]:
        document["extra"] = _plain_extra(extra)
        one.check_not_whole("heddle.save")
        one.notice_changes()
        states.extend(_states(one, optimizer))
        return [prefix[:-1] for _, prefix, _ in states]

    keys = sorted({key for found in _on_every_rank(one, "save", collect) for key in found})
    if optimizer is not None:
        names = _group_names(one, optimizer)
        document.update(optimizer=type(optimizer).__name__, states=keys, parameters=names)
    files: list[tuple[str, Any]] = [(_DOCUMENT, json.dumps(document))]
    buffers = dict(_persistent_buffers(one.model()))
    if buffers and one.world.rank == 0:
        files.append((_BUFFERS, _bytes_of(buffers)))
    one.native.save(os.path.abspath(os.fspath(directory)), states, files)


def load(directory: str | os.PathLike[str], model: nn.Module, optimizer: torch.optim.Optimizer | None = None) -> dict[str, Any]:
    """Loads a checkpoint of `heddle.save`, or of a run of the `heddle` program, into the model and the optimizer.
    A collective of every rank. The strategy and the number of ranks may differ from those of the saved run.

    The checkpoint has to fit: the same parameters and shapes, and for the optimizer the same parameter groups and kinds of
    state. Otherwise nothing is changed. The options of the groups, such as the learning rate, come from the checkpoint,
    except ``foreach``, ``fused``, ``capturable`` and ``differentiable``. If a checkpoint has no buffers, those of the model
    keep their values and a warning is given.

    Returns:
        The `extra` of `heddle.save`.

    Raises:
        heddle.Error: ``"input"``, naming the file and the parameter, buffer or group that does not fit.
    """
    one = sharded(model)
    optimizer = _checked(one, optimizer, "heddle.load")
    groups = _group_names(one, optimizer)
    found: list[_Checkpoint] = []

    def check() -> None:
        found.append(_Checkpoint(os.path.abspath(os.fspath(directory)), one, optimizer, groups))

    _on_every_rank(one, "load", check)
    return found[0].load()


_State = tuple[int, str, torch.Tensor]  # index of the shard, prefix of the name, tensor


def _plain_extra(extra: Mapping[str, Any] | None) -> dict[str, Any]:
    try:
        return json.loads(json.dumps(dict(extra or {})))
    except (TypeError, ValueError) as error:
        raise Error("usage", "extra", f"it cannot be written as JSON: {error}",
                    "use a dict of numbers, strings, lists and dicts") from None


def _on_every_rank(one: Sharded, work: str, compute: Callable[[], Any]) -> list[Any]:
    """Returns the result of every rank, which has to be JSON. An error of one rank is raised on all ranks."""
    one.world.check_process()
    try:
        told = {"result": compute()}
    except Error as error:
        told = {"error": (error.code, error.where, error.message, error.hint)}
    ranks = [json.loads(text) for text in one.world.native.exchange(one.world.key(work), json.dumps(told))]
    for each in ranks:
        if "error" in each:
            raise Error(*each["error"])
    return [each["result"] for each in ranks]


def _checked(one: Sharded, optimizer: Any, call: str) -> Any:
    """Returns the optimizer without a wrapper of accelerate or Lightning. Checks that it updates shards of the model."""
    if type(optimizer).__module__.split(".")[0] in _WRAPPERS:
        optimizer = getattr(optimizer, "optimizer", optimizer)
    if optimizer is None:
        return None
    if not hasattr(optimizer, "param_groups") or not hasattr(optimizer, "state"):
        raise Error("usage", call, f"optimizer is a {type(optimizer).__name__}, but a checkpoint holds the state of one "
                    "optimizer", "pass one torch.optim.Optimizer. With several optimizers, use one directory for each")
    known = {id(shard.tensor) for shard in one.shards}
    for each in _parameters(optimizer):
        if id(each) not in known:
            raise Error("usage", call, f"the optimizer {type(optimizer).__name__} updates a parameter of the shape "
                        f"{tuple(each.shape)} that is no shard of this {type(one.model()).__name__}",
                        "create the optimizer after heddle.fully_shard from model.parameters(), one for each model")
    return optimizer


def _parameters(optimizer: Any) -> list[torch.Tensor]:
    return [each for group in optimizer.param_groups for each in group["params"]]


def _states(one: Sharded, optimizer: Any) -> list[_State]:
    """Returns the tensors of an optimizer's state."""
    if optimizer is None:
        return []
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


def _new_states(optimizer: Any, wanted: set[int]) -> dict[int, dict[str, Any]]:
    """Returns the state that an optimizer creates for parameters, both by the parameter's id. A copy of the optimizer takes
    a step with zero gradients and learning rates on copies of the parameters, so the optimizer does not change."""
    copies: dict[int, nn.Parameter] = {}
    groups = []
    for group in optimizer.param_groups:
        own = {id(each): nn.Parameter(each.detach().clone()) for each in group["params"] if id(each) in wanted}
        zeros = {key: _zero_like(group[key]) for key in ("lr", "weight_decay") if key in group}
        copies.update(own)
        if own:
            groups.append({**group, **zeros, "params": list(own.values())})
    if not groups:
        return {}
    for each in copies.values():
        each.grad = torch.zeros_like(each)
    trial = object.__new__(type(optimizer))
    trial.__dict__.update(optimizer.__dict__, param_groups=groups, state=collections.defaultdict(dict),
                          _optimizer_step_pre_hooks={}, _optimizer_step_post_hooks={})
    try:
        type(optimizer).step(trial)  # optimizer.step may be a wrapper of a scheduler
    except Exception as error:  # reported to the other ranks
        raise Error("not_built", type(optimizer).__name__, "the optimizer cannot create its state by a step with zero "
                    f"gradients: {type(error).__name__}: {error}", "load the model without the optimizer") from error
    return {key: dict(trial.state[each]) for key, each in copies.items()}


def _zero_like(value: Any) -> Any:
    return torch.zeros_like(value) if isinstance(value, torch.Tensor) else 0.0


def _options(optimizer: Any) -> list[dict[str, Any]]:
    """Returns the options of the parameter groups that JSON supports. Scalar tensors are converted to numbers."""
    if optimizer is None:
        return []
    plain = (int, float, str, bool, type(None), list, tuple)
    groups = [{key: value.item() if isinstance(value, torch.Tensor) and value.dim() == 0 else value
               for key, value in group.items() if key != "params"} for group in optimizer.param_groups]
    return [{key: value for key, value in group.items() if isinstance(value, plain)} for group in groups]


def _set_options(group: dict[str, Any], saved: Mapping[str, Any]) -> None:
    """Sets the options of a parameter group to those of a checkpoint. Tensors and tuples keep their type."""
    for key, value in saved.items():
        present = group.get(key)
        if key in _OF_THE_RUN:
            continue
        if isinstance(present, torch.Tensor):
            present.fill_(value)
        else:
            group[key] = tuple(value) if isinstance(value, list) else value


def _group_names(one: Sharded, optimizer: Any) -> list[list[str]]:
    """Returns the names of the parameters of each group over all ranks: some strategies give a scalar to one rank only.
    A collective of every rank."""
    names = {id(shard.tensor): shard.name for shard in one.shards}
    groups = [] if optimizer is None else optimizer.param_groups

    def collect() -> list[list[str]]:
        return [[names[id(each)] for each in group["params"]] for group in groups]

    ranks = _on_every_rank(one, "groups", collect)
    most = max(map(len, ranks))
    return [sorted({name for found in ranks if index < len(found) for name in found[index]}) for index in range(most)]


def _tensors_by_name(model: nn.Module, kind: str) -> Iterator[tuple[str, nn.Module, str, torch.Tensor]]:
    """Yields name, module, key and tensor of ``_parameters`` or ``_buffers``. A tied tensor has several names."""
    for module_name, module in model.named_modules(remove_duplicate=False):
        for key, tensor in getattr(module, kind).items():
            if tensor is not None:
                yield (module_name + "." if module_name else "") + key, module, key, tensor


def _persistent_buffers(model: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    for name, module, key, buffer in _tensors_by_name(model, "_buffers"):
        if key not in module._non_persistent_buffers_set:
            yield name, buffer


def _bytes_of(buffers: Mapping[str, torch.Tensor]) -> bytes:
    """Returns a file of torch.save with copies of the buffers, of which one with several names is written once."""
    copies = {id(each): each.detach().to("cpu", copy=True).contiguous() for each in buffers.values()}
    file = io.BytesIO()
    torch.save({name: copies[id(each)] for name, each in buffers.items()}, file)
    return file.getvalue()


class _Checkpoint:
    """A checkpoint that fits a model and an optimizer. The constructor raises heddle.Error if it does not fit, and changes
    neither of them. Checkpoints of the program and of `heddle.import_checkpoint` do not name groups and kinds of state."""

    def __init__(self, path: str, one: Sharded, optimizer: Any, groups: list[list[str]]) -> None:
        self._path, self._one, self._optimizer, self._groups = path, one, optimizer, groups
        self._names = {id(shard.tensor): shard.name for shard in one.shards}
        self._model = SavedTensors(os.path.join(path, "model"))
        self._document = self._read_document()
        self._check_model()
        self._buffers = self._read_buffers()
        self._check_buffers()
        if optimizer is not None:
            self._check_groups()
            self._keys_by_name = self._read_keys()
            self._made = self._check_states()

    def load(self) -> dict[str, Any]:
        """Loads the checkpoint and returns its `extra`. A collective of every rank."""
        if self._optimizer is not None:
            for each in _parameters(self._optimizer):
                if id(each) in self._made:
                    self._optimizer.state[each] = self._made[id(each)]
                elif not self._saved_keys(each):
                    self._optimizer.state.pop(each, None)
        self._one.native.load(self._path, _states(self._one, self._optimizer))
        with torch.no_grad():
            for name, buffer in _persistent_buffers(self._one.model()):
                if name in self._buffers:
                    buffer.copy_(self._buffers[name])
        if self._optimizer is not None:
            for group, saved in zip(self._optimizer.param_groups, self._document["groups"]):
                _set_options(group, saved)
        return dict(self._document["extra"])

    def _file(self, name: str) -> str:
        return os.path.join(self._path, name)

    def _read_document(self) -> dict[str, Any]:
        try:
            with open(self._file(_DOCUMENT), encoding="utf-8") as file:
                return json.load(file)
        except FileNotFoundError:  # a checkpoint of the program
            return {"extra": {}, "groups": []}
        except ValueError as error:
            raise Error("input", self._file(_DOCUMENT), f"the file is damaged: {error}", _REPLACE) from None

    def _check_model(self) -> None:
        """Checks the names and shapes of the parameters. The checkpoint may have a tied parameter under several names."""
        where, saved = self._file("model/manifest.json"), self._model.shapes
        shards = [shard for shard in self._one.shards if 0 not in shard.shape]  # empty parameters are not saved
        lacking = sorted({shard.name for shard in shards} - saved.keys())
        if lacking:
            raise Error("input", where, f"the checkpoint lacks {_listed('parameter', lacking)} of the model", _REBUILD)
        for shard in shards:
            if saved[shard.name] != list(shard.shape):
                raise Error("input", where, f"the parameter '{shard.name}' has the shape {saved[shard.name]}, but that of "
                            f"the model has {list(shard.shape)}", _REBUILD)
        model = self._one.model()
        known = {each[0] for kind in ("_parameters", "_buffers") for each in _tensors_by_name(model, kind)}
        known.update(shard.name for shard in self._one.shards)
        _check_none_left(where, [name for name in saved if name not in known])

    def _read_buffers(self) -> dict[str, torch.Tensor]:
        """Reads the buffers. Imported checkpoints have them among the parameters."""
        names = [name for name, _ in _persistent_buffers(self._one.model())]
        if not os.path.exists(self._file(_BUFFERS)):
            return {name: self._model.read(name) for name in names if name in self._model.shapes}
        try:
            return torch.load(self._file(_BUFFERS), map_location="cpu", weights_only=True)
        except Exception as error:
            raise Error("input", self._file(_BUFFERS), f"the file is damaged: {error}", _REPLACE) from None

    def _check_buffers(self) -> None:
        buffers = dict(_persistent_buffers(self._one.model()))
        lacking = [name for name in buffers if name not in self._buffers]
        complete = os.path.exists(self._file(_BUFFERS))
        where = self._file(_BUFFERS if complete else "model/manifest.json")
        if lacking and complete:
            raise Error("input", where, f"the checkpoint lacks {_listed('buffer', lacking)} of the model", _REBUILD)
        if lacking and self._one.world.rank == 0:
            warnings.warn(f"the checkpoint {self._path} lacks {_listed('buffer', lacking)} of the model. They keep their "
                          "present values.")
        _check_none_left(where, [name for name in self._buffers if name not in buffers])
        for name, value in self._buffers.items():
            if value.shape != buffers[name].shape:
                raise Error("input", where, f"the buffer '{name}' has the shape {list(value.shape)}, but that of the model "
                            f"has {list(buffers[name].shape)}", _REBUILD)

    def _check_groups(self) -> None:
        """Checks the number of parameter groups, and the parameters of each group if the checkpoint names them."""
        where, saved, groups = self._file(_DOCUMENT), self._document["groups"], self._groups
        if saved and len(saved) != len(groups):
            raise Error("input", where, f"the checkpoint has {len(saved)} parameter groups, but the optimizer has "
                        f"{len(groups)}", _REGROUP)
        for index, (theirs, ours) in enumerate(zip(self._document.get("parameters", []), groups)):
            for name in sorted(set(theirs) ^ set(ours)):
                holder, other = ("checkpoint", "optimizer") if name in theirs else ("optimizer", "checkpoint")
                raise Error("input", where, f"parameter group {index} of the {holder} has '{name}', but that of the {other} "
                            "does not", _REGROUP)

    def _saved_keys(self, parameter: torch.Tensor) -> set[str]:
        """Returns the kinds of state that the checkpoint has for a parameter of the optimizer."""
        return self._keys_by_name.get(self._names[id(parameter)], set())

    def _read_keys(self) -> dict[str, set[str]]:
        """Returns the kinds of state in the checkpoint by parameter name."""
        keys: dict[str, set[str]] = {}
        if os.path.isdir(self._file("optim")):
            for name in SavedTensors(self._file("optim")).shapes:
                key, _, parameter = name.partition(".")
                if key in self._document.get("states", [key]):
                    keys.setdefault(parameter, set()).add(key)
        return keys

    def _check_states(self) -> dict[int, dict[str, Any]]:
        """Checks that the optimizer keeps the kinds of state of the checkpoint. Returns new state of parameters that have
        none, by the parameter's id."""
        complete = "states" in self._document  # parameters without state had none when they were saved
        if complete and not self._keys_by_name and self._document["optimizer"] != type(self._optimizer).__name__:
            raise self._misfit(f"the checkpoint was saved with the optimizer {self._document['optimizer']}, which had no "
                               f"state, but this optimizer is {type(self._optimizer).__name__}")
        used = [each for each in _parameters(self._optimizer)
                if each.numel() > 0 and (self._saved_keys(each) or not complete and each.requires_grad)]
        made = _new_states(self._optimizer, {id(each) for each in used if not self._optimizer.state.get(each)})
        for each in used:
            state = made.get(id(each)) or self._optimizer.state.get(each, {})
            tensors = {key: value for key, value in state.items() if isinstance(value, torch.Tensor)}
            self._check_keys(each, set(tensors))
            for key, value in tensors.items():
                _check_state(each, key, value)
        return made

    def _check_keys(self, parameter: torch.Tensor, ours: set[str]) -> None:
        name, kind = self._names[id(parameter)], type(self._optimizer).__name__
        theirs = self._saved_keys(parameter) & ours.union(self._document.get("states", STATES))
        for key in sorted(theirs - ours):
            raise self._misfit(f"the checkpoint has the state '{key}' of '{name}', which this {kind} does not keep")
        for key in sorted(ours - theirs):
            raise self._misfit(f"this {kind} keeps the state '{key}' of '{name}', but the checkpoint lacks it")

    def _misfit(self, message: str) -> Error:
        """Returns the error of an optimizer whose state differs from that of the checkpoint, with the saved options that
        are on in only one of them."""
        groups = zip(self._document["groups"], _options(self._optimizer))
        switched = {key: value for theirs, ours in groups for key, value in theirs.items()
                    if key in ours and bool(ours[key]) != bool(value) and key not in (*_OF_THE_RUN, "weight_decay")}
        saved = [self._document["optimizer"]] if "optimizer" in self._document else []
        saved += [f"{key}={value!r}" for key, value in switched.items()]
        return Error("input", self._file("optim"), message, "create the optimizer as in the saved run"
                     + (f" ({', '.join(saved)})" if saved else "") + ", or load the model without an optimizer")


def _check_none_left(where: str, names: list[str]) -> None:
    """Raises heddle.Error if the checkpoint has tensors that the model lacks."""
    if names:
        raise Error("input", where, f"the checkpoint has {_listed('tensor', names)}, which the model lacks", _REBUILD)


def _listed(noun: str, names: list[str]) -> str:
    """Returns a noun with the first two names and the number of the other names."""
    shown = [f"'{name}'" for name in names[:2]] + ([f"{len(names) - 2} more"] if len(names) > 2 else [])
    return f"the {noun} {shown[0]}" if len(shown) == 1 else f"the {noun}s {', '.join(shown[:-1])} and {shown[-1]}"


@contextlib.contextmanager
def unsharded(model: nn.Module) -> Iterator[nn.Module]:
    """A scope with whole parameters on every rank, for `generate`, whose lengths may differ between ranks, and for
    reading values. Forwards within it compute no gradients. Entering it is a collective of every rank."""
    one = sharded(model)
    with torch.no_grad(), one.whole():
        yield model


def full_state_dict(model: nn.Module, *, rank0_only: bool = True, device: str | torch.device = "cpu") -> dict[str, torch.Tensor]:
    """Returns copies of all parameters and persistent buffers by name, with one copy of a tied parameter under each of its
    names. A collective of every rank. With `rank0_only`, other ranks get an empty dict."""
    one = sharded(model)
    out: dict[str, torch.Tensor] = {}
    with one.whole() as whole:
        if rank0_only and one.world.rank != 0:
            return out
        copies: dict[str, torch.Tensor] = {}
        for name, _, _, parameter in _tensors_by_name(one.model(), "_parameters"):
            first = one.names[id(parameter)]
            if first not in copies:
                copies[first] = whole[first].detach().to(device, copy=True)
            out[name] = copies[first]
        for name, buffer in _persistent_buffers(one.model()):
            out[name] = buffer.detach().to(device, copy=True)
    return out


def save_pretrained(model: Any, directory: str | os.PathLike[str], **options: Any) -> None:
    """Writes a model of transformers with its own `save_pretrained` on rank 0. A collective of every rank.

    Args:
        options: arguments of ``PreTrainedModel.save_pretrained``, such as ``max_shard_size``.
    """
    one = sharded(model)
    inner = one.model()
    if not hasattr(inner, "save_pretrained"):
        raise Error("usage", type(inner).__name__, "this model is not one of transformers, so it has no save_pretrained",
                    "use heddle.full_state_dict or heddle.save")
    state = full_state_dict(inner)

    def write() -> None:
        if one.world.rank != 0:
            return
        try:
            inner.save_pretrained(directory, state_dict=state, **options)  # type: ignore[operator]
        except Exception as error:
            raise Error("io", os.fspath(directory), f"{type(error).__name__}: {error}",
                        "rank 0 could not write the model") from error

    _on_every_rank(one, "save_pretrained", write)

"""Finds the units of a model: modules that are gathered, run and released together."""
from __future__ import annotations

import dataclasses
import fnmatch
from typing import Callable, Iterable, Iterator, Sequence, Union

import torch
from torch import nn

from .errors import Error

Units = Union[None, str, nn.Module, type, Callable[[str, nn.Module], bool], Sequence[Union[str, nn.Module, type]]]


@dataclasses.dataclass
class Unit:
    """A module and the parameters that are gathered for it.

    Attributes:
        name: the module's path; "" for the root.
        parameters: by their first name in the model. A tied parameter is in each unit that uses it.
    """

    name: str
    module: nn.Module
    parameters: dict[str, nn.Parameter]
    buffers: list[torch.Tensor]


def _matches(wanted: str, name: str, module: nn.Module) -> bool:
    return wanted == type(module).__name__ or fnmatch.fnmatchcase(name, wanted)


def _chosen(model: nn.Module, units: Units, argument: str) -> list[tuple[str, nn.Module]]:
    """Returns the modules that the user selects by modules, classes, class names, paths, path patterns, or a function.
    `argument`: name of the user's argument."""
    named = [(name, module) for name, module in model.named_modules() if module is not model]
    if units is None or isinstance(units, (str, nn.Module, type)):
        units = [] if units is None else [units]
    if callable(units):
        return [(name, module) for name, module in named if units(name, module)]
    if not isinstance(units, Iterable):
        raise _unknown(argument, units)
    found: dict[int, tuple[str, nn.Module]] = {}
    for wanted in units:
        hits = _hits(named, wanted, argument)
        if not hits:
            raise Error("usage", argument, f"no module of {type(model).__name__} is {wanted!r}", _FORMS)
        found.update((id(module), (name, module)) for name, module in hits)
    return [each for each in named if id(each[1]) in found]


_FORMS = "use modules, their classes, their paths or patterns such as 'model.layers.*'"


def _unknown(argument: str, value: object) -> Error:
    return Error("usage", argument, f"{value!r} selects no modules", _FORMS + ", or a function of path and module")


def _hits(named: list[tuple[str, nn.Module]], wanted: object, argument: str) -> list[tuple[str, nn.Module]]:
    if isinstance(wanted, nn.Module):
        return [each for each in named if each[1] is wanted]
    if isinstance(wanted, type):
        return [each for each in named if isinstance(each[1], wanted)]
    if isinstance(wanted, str):
        return [each for each in named if _matches(wanted, *each)]
    raise _unknown(argument, wanted)


def _layers(model: nn.Module) -> set[str]:
    """Returns the class names in `_no_split_modules` of the model and its submodels."""
    names: set[str] = set()
    for module in model.modules():
        names.update(getattr(module, "_no_split_modules", None) or ())
    return names


# Modules that are units outside of layers. The last three read the parameters of their linear layers.
_ALONE = (nn.Embedding, nn.Linear, nn.MultiheadAttention, nn.TransformerEncoderLayer, nn.TransformerDecoderLayer)
_LISTS = (nn.ModuleList, nn.ModuleDict)  # have no forward, so they are no units
_LARGE = 1 << 24  # elements of a table that is a unit even if it is not that of the vocabulary
_PARAMETERS = (nn.ParameterList, nn.ParameterDict)


def _vocabulary(model: nn.Module) -> int:
    """Returns the number of rows of the input embedding of a transformers model, or of the largest embedding."""
    if callable(getattr(model, "get_input_embeddings", None)):
        try:
            table = model.get_input_embeddings()
        except (NotImplementedError, AttributeError):
            table = None
        if isinstance(table, nn.Embedding):
            return table.num_embeddings
    tables = [each for each in model.modules() if isinstance(each, nn.Embedding)]
    return max(tables, key=lambda each: each.weight.numel()).num_embeddings if tables else 0


def _default(model: nn.Module) -> list[tuple[str, nn.Module]]:
    """Returns the layers of a transformers model, else the modules of lists, and embeddings and linear layers outside."""
    layers = _layers(model)
    vocabulary = _vocabulary(model)
    out: list[tuple[str, nn.Module]] = []

    def walk(prefix: str, module: nn.Module, in_list: bool) -> None:
        for name, child in module.named_children():
            path = f"{prefix}{name}"
            is_list = isinstance(child, _LISTS)
            is_layer = type(child).__name__ in layers if layers else in_list and not is_list
            alone = isinstance(child, _ALONE) and (not in_list or bool(layers))
            if isinstance(child, nn.Embedding) and child.num_embeddings != vocabulary and child.weight.numel() < _LARGE:
                continue  # a table of positions or types, whose values other modules may read: it belongs to the root
            if isinstance(child, _PARAMETERS):
                continue
            if child is not model and (is_layer or alone):
                out.append((path, child))
            else:
                walk(path + ".", child, isinstance(child, (nn.ModuleList, nn.Sequential)) or in_list and is_list)

    walk("", model, isinstance(model, (nn.ModuleList, nn.Sequential)))
    known: set[int] = set()
    return [each for each in out if _first(each[1], known) and any(True for _ in each[1].parameters())]


def _first(module: nn.Module, known: set[int]) -> bool:
    fresh = id(module) not in known
    known.add(id(module))
    return fresh


def _names(model: nn.Module) -> dict[int, str]:
    return {id(parameter): name for name, parameter in nn.Module.named_parameters(model)}


def _own(modules: Iterable[nn.Module]) -> Iterator[nn.Parameter]:
    for module in modules:
        yield from (each for each in module._parameters.values() if each is not None)


def find_units(model: nn.Module, units: Units = None, root: Units = ()) -> list[Unit]:
    """Returns the units of a model in the order of its modules, beginning with the root. A parameter belongs to the
    innermost unit that contains its module. `root`: modules that are not units."""
    chosen = _default(model) if units is None else _chosen(model, units, "units")
    rooted = {id(module) for _, module in _chosen(model, root, "root")}
    chosen = [each for each in chosen if id(each[1]) not in rooted]
    names = _names(model)
    inside = {id(module) for _, module in chosen}

    def reach(module: nn.Module, seen: set[int]) -> Iterator[nn.Module]:
        """Yields the module and its descendants outside of inner units."""
        if id(module) in seen:
            return
        seen.add(id(module))
        yield module
        for child in module.children():
            if id(child) not in inside:
                yield from reach(child, seen)

    out = []
    for name, module in [("", model), *chosen]:
        modules = list(reach(module, set()))
        parameters = {names[id(each)]: each for each in _own(modules)}
        buffers = [each for part in modules for each in part._buffers.values() if each is not None]
        out.append(Unit(name, module, parameters, buffers))
    return out


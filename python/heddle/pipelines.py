"""heddle.pipeline(), which trains a sequence of modules in a pipeline of ranks."""
from __future__ import annotations

import json
import os
from typing import Any, Callable, Mapping, Sequence

import torch
from torch import nn

from .errors import Error
from .sharding import configuration_of, errors_of_keywords
from .world import init

_ORIGIN = "heddle.pipeline"  # place of keyword fields in messages
_TENSORS = ("tokens", "labels", "positions", "documents", "padding", "extra")  # of a batch
Piece = tuple[str, nn.Module, Callable[[list[torch.Tensor], Any], Sequence[torch.Tensor]]]


class Pipeline:
    """A pipeline, created by `heddle.pipeline`. Each rank has some stages, and does not touch modules of other ranks."""

    def __init__(self, native: Any, batch: Callable[[], Any]) -> None:
        self._native, self._batch = native, batch

    def _made(self, batches: Any) -> list[Any]:
        out = []
        for given in [batches] if isinstance(batches, Mapping) else batches:
            batch = self._batch()
            for name, value in given.items():
                if value is None:
                    continue
                if name not in _TENSORS or not isinstance(value, torch.Tensor):
                    raise Error("usage", name, f"a batch cannot have this {type(value).__name__}",
                                "pass a mapping with the tensors tokens and labels, and positions, documents, padding or "
                                "extra if the pieces read them")
                setattr(batch, name, value)
            if given.get("labels") is None:
                raise Error("usage", "labels", "the batch has none, so its tokens with a loss cannot be counted",
                            "pass labels, int64 [batch, sequence], with -100 for tokens without a loss")
            out.append(batch)
        if not out:
            raise Error("usage", "batches", "the list is empty", "pass one batch or more")
        return out

    def step(self, batches: Any, lr: float, weight_decay: float = 0.0) -> tuple[float, float]:
        """Takes one step of AdamW. A collective of every rank.

        Args:
            batches: one mapping, or several whose gradients accumulate, with ``tokens`` and ``labels`` (int64 [batch,
                sequence]; -100 has no loss), and ``positions``, ``documents``, ``padding``, ``extra`` if the pieces read
                them. All ranks of a pipeline get the same batches. The schedule splits a batch into microbatches by rows.

        Returns:
            The loss, which is the sum of the token losses divided by the number of labels over all ranks, and the gradient
            norm before clipping.
        """
        return self._native.step(self._made(batches), float(lr), float(weight_decay))

    def evaluate(self, batches: Any) -> float:
        """Returns the loss without computing gradients. A collective of every rank."""
        return self._native.evaluate(self._made(batches))

    def save(self, directory: str | os.PathLike[str], extra: Mapping[str, Any] | None = None) -> None:
        """Saves a checkpoint like `heddle.save`, with the state of AdamW."""
        files = [("python.json", json.dumps({"version": 1, "extra": dict(extra or {}), "groups": []}))]
        self._native.save(os.path.abspath(os.fspath(directory)), files)

    def load(self, directory: str | os.PathLike[str]) -> dict[str, Any]:
        """Loads a checkpoint and returns its `extra`."""
        path = os.path.abspath(os.fspath(directory))
        self._native.load(path)
        with open(os.path.join(path, "python.json"), encoding="utf-8") as file:
            return dict(json.load(file)["extra"])


def pipeline(pieces: Sequence[Piece], *, config: Any = None, max_norm: float | None = 1.0,
             betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8, **fields: Any) -> Pipeline:
    """Builds a pipeline from a sequence of pieces. A collective of every rank.

    Args:
        pieces: tuples of a name, a module and a function. ``function(inputs, batch)`` gets the tensors that the previous
            piece returned (the first piece gets an empty list), and returns a list of tensors. The last piece returns the
            sum of its token losses, one element. ``batch`` has ``tokens``, ``labels`` and more, of one microbatch.
            Parameter names are NAME.PARAMETER. A module in two pieces is tied.
        config: the path of a recipe or a mapping, whose ``distributed:`` section is used.
        max_norm: maximum gradient norm for clipping. None disables clipping.
        fields: fields of ``distributed:``, such as ``strategy="fsdp2", pp_size=2, pipeline={"pp_schedule": "1f1b",
            "pp_microbatch_size": 1}``.

    Raises:
        heddle.Error: for a field, a strategy or a split that is refused, with its place.
    """
    if not pieces:
        raise Error("usage", "pieces", "the list is empty", "pass a name, a module and a function for each piece")
    for each in pieces:
        if not (isinstance(each, (tuple, list)) and len(each) == 3 and isinstance(each[1], nn.Module) and callable(each[2])):
            raise Error("usage", "pieces", f"{each!r} is no piece", "pass a name, a module and a function for each piece")
    world = init()
    row = nn.ModuleList(module for _, module, _ in pieces)
    configuration, origin = configuration_of(row, config, fields, _ORIGIN)
    names: dict[int, str] = {}
    given = []
    for name, module, function in pieces:
        for path, parameter in module.named_parameters():
            names.setdefault(id(parameter), f"{name}.{path}")
        parameters = [(names[id(parameter)], parameter) for parameter in module.parameters()]
        given.append(((name, parameters, list(module.buffers())), lambda inputs, batch, call=function: list(call(inputs, batch))))
    with errors_of_keywords(_ORIGIN):
        native = world._extension.Pipelined(world.native, configuration, origin, given, max_norm or 0.0, betas, eps)
    return Pipeline(native, world._extension.Batch)

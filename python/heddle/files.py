"""Reads tensors of safetensors: of a Hugging Face directory for a model on meta, of which each rank reads only its own
boxes, and of a checkpoint of heddle."""
from __future__ import annotations

import json
import os
import warnings
from typing import Any, Callable

import torch
from torch import nn

from .errors import Error

_INDEX, _SINGLE = "model.safetensors.index.json", "model.safetensors"
_MANIFEST = "manifest.json"  # of a checkpoint of heddle
_AGAIN = "download or copy the directory again"


class Weights:
    """The tensors of a directory by name. Slices are read on demand.

    Attributes:
        bytes_read: the number of bytes that this rank has read.
    """

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._open: dict[str, Any] = {}
        index = os.path.join(directory, _INDEX)
        if os.path.exists(index):
            try:
                with open(index, encoding="utf-8") as file:
                    self._file_of = dict(json.load(file)["weight_map"])
            except (ValueError, KeyError, TypeError):
                raise Error("input", index, "the file is damaged: it has no weight_map", _AGAIN) from None
        else:
            self._file_of = {name: _SINGLE for name in self._file(_SINGLE).keys()}
        self.bytes_read = 0

    def _file(self, name: str) -> Any:
        from safetensors import safe_open

        if name not in self._open:
            path = os.path.join(self._directory, name)
            if not os.path.exists(path):
                raise Error("input", path, "the file does not exist",
                            f"use a directory with {_SINGLE}, or with {_INDEX} and its files")
            try:
                self._open[name] = safe_open(path, framework="pt")
            except Exception as error:
                raise Error("input", path, f"the file is damaged: {error}", _AGAIN) from None
        return self._open[name]

    def __contains__(self, name: str) -> bool:
        return name in self._file_of

    def read(self, name: str, offset: list[int], sizes: list[int], shape: list[int]) -> torch.Tensor:
        """Returns the box of a tensor, in the dtype of the file."""
        part = self._file(self._file_of[name]).get_slice(name)
        if list(part.get_shape()) != shape:
            raise Error("input", f"{self._directory} {name}", f"the file has the shape {part.get_shape()}, but the model "
                        f"has {shape}", "use the directory of this model's configuration")
        box = part[tuple(slice(o, o + n) for o, n in zip(offset, sizes))] if shape else part[...]
        self.bytes_read += box.numel() * box.element_size()
        return box


class SavedTensors:
    """The tensors in the directory ``model`` or ``optim`` of a checkpoint of heddle.

    Attributes:
        shapes: shapes of the whole tensors by name.
    """

    def __init__(self, directory: str) -> None:
        self._directory = directory
        path = os.path.join(directory, _MANIFEST)
        try:
            with open(path, encoding="utf-8") as file:
                self._tensors = dict(json.load(file)["tensors"])
        except OSError as error:
            raise Error("input", path, f"the file cannot be read: {error.strerror}",
                        "use a directory that heddle.save or the program `heddle` wrote") from None
        except (ValueError, KeyError, TypeError):
            raise Error("input", path, "the file is damaged", "copy the checkpoint again, or load another one") from None
        self.shapes: dict[str, list[int]] = {name: each["shape"] for name, each in self._tensors.items()}

    def read(self, name: str) -> torch.Tensor:
        """Returns a whole tensor."""
        from safetensors import safe_open

        whole = torch.empty(0)
        for box in self._tensors[name]["boxes"]:
            with safe_open(os.path.join(self._directory, box["file"]), framework="pt") as file:
                part = file.get_tensor(box["key"])
            if whole.dtype != part.dtype or list(whole.shape) != self.shapes[name]:
                whole = torch.empty(self.shapes[name], dtype=part.dtype)
            whole[tuple(slice(o, o + n) for o, n in zip(box["offset"], box["size"]))] = part
        return whole


def source_of(model: nn.Module, directory: str | None) -> Callable[..., bool]:
    """Returns a function that fills shards of parameters on meta. Buffers of the model must have values."""
    if directory is None:
        raise Error("usage", type(model).__name__, "the model has parameters on meta, which have no values",
                    "set from_pretrained_dir to the directory of its safetensors, or build the model on a device")
    weights = Weights(os.fspath(directory))
    model.__dict__["_heddle_weights"] = weights
    names: dict[str, list[str]] = {}  # files may have a tied parameter under any of its names
    first = {id(parameter): name for name, parameter in nn.Module.named_parameters(model)}
    for name, parameter in nn.Module.named_parameters(model, remove_duplicate=False):
        names.setdefault(first[id(parameter)], []).append(name)
    for name, buffer in model.named_buffers():
        if buffer.is_meta:
            raise Error("usage", name, "this buffer is on meta, so it has no values",
                        "build the model under accelerate.init_empty_weights(include_buffers=False)")

    converted: dict[str, torch.Tensor] = {}

    def box(name: str, offset: list[int], sizes: list[int], shape: list[int]) -> torch.Tensor:
        prefix = getattr(model, "base_model_prefix", "")
        for each in names.get(name, [name]):
            for stored in (each, each.removeprefix(prefix + "."), f"{prefix}.{each}"):
                if stored in weights:
                    return weights.read(stored, offset, sizes, shape)
        if not converted:
            converted.update(_converted(model, os.fspath(directory), name))
        return converted[name][tuple(slice(o, o + n) for o, n in zip(offset, sizes))]

    def read(name: str, tensor: torch.Tensor, offset: list[int], shape: list[int]) -> bool:
        with torch.no_grad():
            tensor.copy_(box(name, offset, list(tensor.shape), shape))
        return True

    return read


def _converted(model: nn.Module, directory: str, name: str) -> dict[str, torch.Tensor]:
    """Returns all parameters by name as transformers loads them, from files with other names or shapes: those with a tensor
    for each expert, for instance. `name`: a parameter that the files lack."""
    error = Error("input", directory, f"the files have no tensor '{name}'", "use the directory of this model's configuration")
    if not hasattr(model, "from_pretrained"):
        raise error
    try:
        loaded, report = type(model).from_pretrained(directory, config=model.config, output_loading_info=True)
    except Exception as failed:
        raise Error("input", directory, f"transformers cannot load the files: {failed}",
                    "use the directory of this model's configuration") from failed
    if report["missing_keys"]:
        raise error
    warnings.warn(f"the files in {directory} have no tensor '{name}', so transformers converts them, and each rank reads the "
                  "whole model")
    return {key: each.detach() for key, each in nn.Module.named_parameters(loaded, remove_duplicate=False)}

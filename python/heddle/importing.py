"""Converts checkpoints of PyTorch's DCP and of NeMo AutoModel to checkpoints of heddle."""
from __future__ import annotations

import json
import os
import re
from typing import Any

import torch

from .errors import Error
from .world import init

STATES = ("exp_avg", "exp_avg_sq", "max_exp_avg_sq", "momentum_buffer", "step")  # kinds of optimizer state
_OPTIMIZER = re.compile(r"^(?:.*\.)?state\.(?P<name>.+)\.(?P<key>" + "|".join(STATES) + ")$")
_FOLDER = re.compile(r"epoch_(\d+)_step_(\d+)$")
_COUNTERS = re.compile(r"^(?:.*\.)?(step|global_step|epoch)$")


def _read(reader: Any, keys: list[str]) -> dict[str, Any]:
    """Returns values of a DCP checkpoint: whole tensors, and other values unchanged."""
    import torch.distributed.checkpoint as dcp

    known = reader.read_metadata().state_dict_metadata
    state: dict[str, Any] = {}
    for key in keys:
        about = known[key]
        state[key] = torch.empty(about.size, dtype=about.properties.dtype) if hasattr(about, "size") else None
    dcp.load(state, storage_reader=reader, no_dist=True)
    return state


def _dcp(directory: str) -> Any:
    from torch.distributed.checkpoint import FileSystemReader

    return FileSystemReader(directory)


def _safetensors(directory: str) -> Any:
    from torch.distributed.checkpoint import HuggingFaceStorageReader

    return HuggingFaceStorageReader(directory)


def _split(reader: Any) -> tuple[dict[str, str], dict[str, str], list[str]]:
    """Returns the keys of a DCP checkpoint: of parameters by name, of optimizer state by `KEY.NAME`, and of counters."""
    metadata = reader.read_metadata()
    known, paths = metadata.state_dict_metadata, metadata.planner_data or {}
    states = {f"{found['key']}.{found['name']}": key for key in known if (found := _OPTIMIZER.match(key))}
    names = {key.split(".", 1)[1] for key in states}
    tensors = [key for key, about in known.items() if hasattr(about, "size") and key not in states.values()]
    tensors = [key for key in tensors if ".param_groups." not in f".{key}"]
    model: dict[str, str] = {}
    for key in tensors:
        # The last part of the path is a name of the model's state_dict(), whatever the entries above are called.
        own = _name_with_state(key, names) or (str(paths[key][-1]) if key in paths else key)
        if own in model:
            raise Error("input", own, f"the checkpoint has this tensor twice, as '{model[own]}' and '{key}'",
                        "save a checkpoint with one model")
        model[own] = key
    counters = [key for key in known if _COUNTERS.match(key) and key not in states.values() and key not in model.values()]
    return model, states, counters


def _name_with_state(key: str, names: set[str]) -> str | None:
    """Returns the end of a key that is the name of a parameter with optimizer state, or None."""
    parts = key.split(".")
    return next((".".join(parts[i:]) for i in range(len(parts)) if ".".join(parts[i:]) in names), None)


def _automodel(directory: str) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor], dict[str, Any]]:
    """Reads AutoModel's layout: safetensors in model/, DCP in optim/, and epoch and step in the folder's name."""
    reader = _safetensors(os.path.join(directory, "model"))
    keys = [key for key, about in reader.read_metadata().state_dict_metadata.items() if hasattr(about, "size")]
    model = _read(reader, keys)
    states: dict[str, Any] = {}
    if os.path.exists(os.path.join(directory, "optim", ".metadata")):
        reader = _dcp(os.path.join(directory, "optim"))
        _, found, _ = _split(reader)
        values = _read(reader, list(found.values()))
        states = {name: values[key] for name, key in found.items()}
    extra: dict[str, Any] = {}
    if named := _FOLDER.search(os.path.normpath(directory)):
        extra = {"epoch": int(named[1]), "step": int(named[2]) + 1}
    return model, states, extra


def _plain_dcp(directory: str) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor], dict[str, Any]]:
    reader = _dcp(directory)
    model, states, counters = _split(reader)
    values = _read(reader, [*model.values(), *states.values(), *counters])
    extra = {}
    for key in counters:
        value = values[key]
        extra[key.rsplit(".", 1)[-1]] = value.item() if isinstance(value, torch.Tensor) else value
    return ({name: values[key] for name, key in model.items()}, {name: values[key] for name, key in states.items()}, extra)


def import_checkpoint(directory: str | os.PathLike[str], out: str | os.PathLike[str]) -> dict[str, Any]:
    """Converts a checkpoint to one that `heddle.load` reads. The source is a DCP checkpoint of PyTorch with the model's
    parameter names (``get_state_dict`` or ``model.state_dict()``), or a checkpoint of NeMo AutoModel
    (``model/*.safetensors``, ``optim/`` in DCP).

    Run it on one rank. It keeps the whole model and the optimizer state in host memory. The state of data loaders,
    schedulers and random generators is skipped. Import only checkpoints that you trust: DCP's metadata is a pickle.

    Args:
        directory: the checkpoint to read.
        out: the directory to create. It must not exist or be empty.

    Returns:
        ``parameters`` and ``states`` (numbers of tensors), and ``step`` and ``epoch`` if the checkpoint has them, which
        `heddle.load` also returns.

    Raises:
        heddle.Error: ``"input"`` if the directory is not such a checkpoint.
    """
    path = os.path.abspath(os.fspath(directory))
    if os.path.exists(os.path.join(path, ".metadata")):
        model, states, extra = _plain_dcp(path)
    elif os.path.isdir(os.path.join(path, "model")):
        model, states, extra = _automodel(path)
    else:
        raise Error("input", path, "the directory has neither a .metadata of DCP nor a model/ of AutoModel",
                    "use the directory of one checkpoint")
    if not model:
        raise Error("input", path, "the checkpoint has no model tensors", "save the model's state_dict() in it")
    for name in [each for each in states if each.startswith("step.")]:
        states[name] = states[name].reshape(()).float()
    world = init()
    if world.size != 1:
        raise Error("usage", "heddle.import_checkpoint", f"it was called in a run of {world.size} ranks",
                    "import on one rank, then load on all ranks")
    files = [("python.json", json.dumps({"version": 1, "extra": extra, "groups": []}))]
    world._extension.write_checkpoint(world.native, os.path.abspath(os.fspath(out)), list(model.items()),
                                      list(states.items()), files)
    return {"parameters": len(model), "states": len(states), **extra}

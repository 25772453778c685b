"""A room of core includes itself and lower numbers; siblings of one number never each other; base, config and
schedule know no LibTorch; a plugin includes the SDK, public headers of core and its own folder, never another
plugin, never engine; CUDA is known in plugins/nccl alone."""
import re

import tree

ROOMS = {"base": 0, "config": 1, "schedule": 2, "mesh": 2, "model": 3, "parallel": 4, "plugin": 5, "checkpoint": 6,
         "train": 6, "engine": 7}
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', re.M)
CUDA = re.compile(r"^((c10|ATen|torch/csrc)/cuda/|cuda|nccl\.h)")
LIBTORCH = re.compile(r"^(torch|ATen|c10|caffe2)/")


def core_faults(room, include):
    if CUDA.match(include):
        return "CUDA is known in plugins/nccl alone"
    if room in ("base", "config", "schedule") and LIBTORCH.match(include):
        return "includes LibTorch"
    if not include.startswith("heddle/"):
        return None
    other = include.split("/")[1]
    if other.endswith(".h"):
        return "core does not include the SDK"
    if other == room:
        return None
    if other not in ROOMS:
        return f"no such room: {other}"
    if ROOMS[other] >= ROOMS[room]:
        return f"room {room} [{ROOMS[room]}] may not include {other} [{ROOMS[other]}]"
    return None


def plugin_faults(include, own_files, folder):
    if CUDA.match(include):
        return None if folder == "nccl" else "CUDA is known in plugins/nccl alone"
    if include.startswith("heddle/engine/"):
        return "a plugin does not include the engine"
    if "/" in include or include in own_files or not include.endswith(".h"):
        return "a plugin does not include another plugin" if include.startswith("plugins/") or ".." in include else None
    return f"not in the plugin's folder: {include}"


def sharding_faults(include, own_files):
    if CUDA.match(include):
        return "CUDA is known in plugins/nccl alone"
    if include.startswith("heddle/") and include.split("/")[1] not in ("base", "mesh", "model", "parallel", "sharding"):
        return "the sharding engine includes base, mesh, model and parallel"
    if "/" not in include and include.endswith(".h") and include not in own_files:
        return f"not in the engine's folder: {include}"
    return None


def faults(root):
    found = []
    for path in tree.sources(root, ("core",)):
        room = path.relative_to(root / "core" / "heddle").parts[0]
        for include in INCLUDE.findall(path.read_text()):
            if fault := core_faults(room, include):
                found.append(f"{path.relative_to(root)}: {include}: {fault}")
    for path in tree.sources(root, ("plugins",)):
        folder = root / "plugins" / path.relative_to(root / "plugins").parts[0]
        own = {file.name for file in folder.iterdir()} | {"dlfcn.h", "unistd.h"}
        for include in INCLUDE.findall(path.read_text()):
            if fault := plugin_faults(include, own, folder.name):
                found.append(f"{path.relative_to(root)}: {include}: {fault}")
    for path in tree.sources(root, ("lib/sharding", "sdk/include/heddle/sharding")):
        own = {file.name for file in (root / "lib" / "sharding").iterdir()}
        for include in INCLUDE.findall(path.read_text()):
            if fault := sharding_faults(include, own):
                found.append(f"{path.relative_to(root)}: {include}: {fault}")
    for path in tree.sources(root, ("trainer",)):
        for include in INCLUDE.findall(path.read_text()):
            if include.startswith("plugins/"):
                found.append(f"{path.relative_to(root)}: {include}: the trainer knows plugins by name only")
    return found


if __name__ == "__main__":
    tree.report(faults(tree.root_from_arguments()), "rooms")

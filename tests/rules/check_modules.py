"""Checks include directions between modules. A module is a folder of core, lib or the SDK's headers. It includes itself and
the modules that MODULES lists for it. base, config, schedule and drawing do not use LibTorch. A folder of lib/run includes
the folders before it in RUN_FOLDERS. A plugin includes public headers (sdk/include) and its own folder, never another
plugin or the engine. lib/simulated is a plugin too: it includes public headers of its modules and its own folder. The
trainer includes public headers, lib/run and the modules of its library, lib/drawing and lib/transport/meeting. Only
plugins/nccl uses CUDA."""
import re

import tree

BELOW_PARALLEL = ("base", "config", "schedule", "mesh", "model")
MODULES = {
    "base": (),
    "config": ("base",),
    "schedule": ("base", "config"),
    "mesh": ("base", "config", "ops"),
    "model": ("base", "config", "mesh"),
    "data": ("base",),
    "ops": ("base",),
    "parallel": BELOW_PARALLEL,
    "plugin": (*BELOW_PARALLEL, "data", "parallel"),
    "drawing": ("base", "schedule"),
    "transport": ("base", "mesh"),
    "nn": ("base", "config", "mesh", "model", "ops"),
    "decoder": ("base", "config", "mesh", "model", "nn", "ops"),
    "sharding": ("base", "mesh", "model", "nn", "parallel"),
    "checkpoint": ("base", "config", "mesh", "model", "parallel"),
    "train": (*BELOW_PARALLEL, "parallel", "ops", "nn"),
    # Entry points of a program, which combine all modules.
    "engine": (*BELOW_PARALLEL, "parallel", "plugin", "ops", "transport", "nn", "checkpoint", "train"),
    # The simulated device, a plugin that no other module includes.
    "simulated": ("base", "mesh", "model", "nn", "plugin"),
    # A run from its recipe to its last step, built on the entry points, and its parts.
    "lib/data": (*BELOW_PARALLEL, "data", "parallel", "plugin", "nn", "checkpoint"),
    "cost": (*BELOW_PARALLEL, "parallel", "plugin", "ops", "transport", "nn", "decoder", "train", "checkpoint", "engine", "drawing"),
    "report": (*BELOW_PARALLEL, "parallel", "plugin", "nn", "transport", "checkpoint", "train", "engine", "cost"),
    "run": (*BELOW_PARALLEL, "data", "parallel", "plugin", "drawing", "ops", "transport", "nn", "decoder", "checkpoint", "train",
            "engine", "lib/data", "cost", "report"),
    # Headers with which plugin authors test plugins and adapt foreign models.
    "testing": (*BELOW_PARALLEL, "parallel", "plugin", "transport", "nn", "decoder", "train", "engine"),
    "adapters": ("base", "model", "nn", "parallel", "checkpoint"),
}
RUN_FOLDERS = ("trace", "recipe", "model", "spec", "checkpointing", "facts", "preflight", "plan", "generate",
               "loop", "convert")
WITHOUT_LIBTORCH = ("base", "config", "schedule", "drawing")
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', re.M)
IN_QUOTES = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.M)
CUDA = re.compile(r"^((c10|ATen|torch/csrc)/cuda/|cuda|nccl\.h)")
LIBTORCH = re.compile(r"^(torch|ATen|c10|caffe2)/")
INTERNAL = ("core/", "lib/")


def module_of(path):
    """Returns the module of core/mesh/x.h, lib/nn/cpu/x.h, sdk/include/heddle/mesh/x.h or heddle/mesh/x.h, or None. The
    module data is the interface of data sets (core/data), which lib/data implements."""
    if path.startswith("lib/data/"):
        return "lib/data"
    parts = path.removeprefix("sdk/include/").split("/")
    return parts[1] if parts[0] in ("core", "lib", "heddle") and len(parts) > 2 else None


def module_faults(module, include):
    if CUDA.match(include):
        return "only plugins/nccl may use CUDA"
    if module in WITHOUT_LIBTORCH and LIBTORCH.match(include):
        return "includes LibTorch"
    if include == "heddle/sdk.h":
        return "only plugins may include heddle/sdk.h"
    other = module_of(include)
    if other is None or other == module:
        return None
    if module == "simulated" and include.startswith(INTERNAL):
        return "the simulated device may include only public headers and its own headers"
    if other not in MODULES:
        return f"unknown module {other}"
    return None if other in MODULES[module] else f"module {module} may not include {other}"


def run_faults(path, include):
    """Checks that a folder of lib/run includes only itself and the folders before it."""
    folder, other = (name.split("/")[2] for name in (path, include))
    for name in (folder, other):
        if name not in RUN_FOLDERS:
            return f"unknown folder {name} of lib/run"
    return None if RUN_FOLDERS.index(other) <= RUN_FOLDERS.index(folder) else f"{folder} may not include {other}"


TRAINER_INCLUDES = ("lib/run/", "lib/data/", "lib/cost/", "lib/report/", "lib/drawing/", "lib/transport/meeting/",
                    "lib/checkpoint/huggingface/read_config.h")


def trainer_faults(include):
    if include.startswith("plugins/"):
        return "the trainer may not include plugins; it loads them by name"
    if include.startswith(INTERNAL) and not include.startswith(TRAINER_INCLUDES):
        return "the trainer may include only public headers, " + ", ".join(TRAINER_INCLUDES)
    return None


def plugin_faults(include, folder):
    if CUDA.match(include):
        return None if folder == "nccl" else "only plugins/nccl may use CUDA"
    if include.startswith("heddle/engine/"):
        return "a plugin may not include the engine"
    if include.startswith(INTERNAL):
        return "a plugin may include only public headers (heddle/...)"
    if include.startswith("plugins/") or ".." in include:
        return "a plugin may not include another plugin"
    return None


def plugin_folder_faults(root):
    for path in tree.sources(root, ("plugins",)):
        folder = root / "plugins" / path.relative_to(root / "plugins").parts[0]
        own = {file.name for file in folder.rglob("*.h")}
        for include in INCLUDE.findall(path.read_text()):
            if ".." in include and (path.parent / include).resolve().is_relative_to(folder.resolve()):
                continue
            if fault := plugin_faults(include, folder.name):
                yield f"{path.relative_to(root)}: {include}: {fault}"
        for include in IN_QUOTES.findall(path.read_text()):
            if "/" not in include and include not in own:
                yield f"{path.relative_to(root)}: {include}: not in the plugin's folder"


def faults(root):
    found = list(plugin_folder_faults(root))
    for path in tree.sources(root, ("core", "lib", "sdk/include")):
        relative = str(path.relative_to(root))
        module = module_of(relative)
        public = relative.startswith("sdk/include/")
        for include in INCLUDE.findall(path.read_text()):
            if public and include.startswith(INTERNAL):
                found.append(f"{relative}: {include}: a public header may include only public headers")
            elif module and (fault := module_faults(module, include)):
                found.append(f"{relative}: {include}: {fault}")
            elif relative.startswith("lib/run/") and include.startswith("lib/run/"):
                if fault := run_faults(relative, include):
                    found.append(f"{relative}: {include}: {fault}")
    for path in tree.sources(root, ("trainer",)):
        for include in INCLUDE.findall(path.read_text()):
            if fault := trainer_faults(include):
                found.append(f"{path.relative_to(root)}: {include}: {fault}")
    return found


if __name__ == "__main__":
    tree.report(faults(tree.root_from_arguments()), "modules")

"""Checks that code asks for declared properties: nothing compares kind(), only model::as casts to a module's class, core and
lib name no plugin, and only the files of BRANCHES branch on a tensor's device."""
import re

import tree

# Folders that define these modules.
MODEL_LIBRARY = ("lib/decoder", "sdk/include/heddle/decoder")
AS = "sdk/include/heddle/model/module_unit.h"
CLASS = re.compile(r"\b(?:class|struct)\s+(?:HEDDLE_API\s+)?(\w+)[^;{:]*:\s*(?:public\s+)?(?:heddle::|decoder::)?(\w+)")
CAST = re.compile(r"(?:dynamic_cast|static_cast)<\s*(?:const\s+)?(?:\w+::)*(\w+)\s*[*&]")
KIND = re.compile(r"kind\(\)\s*[!=]=\s*\"|\"\s*[!=]=\s*[\w.>-]*kind\(\)")
# Words of recipes and file formats that are also names of plugins.
WORDS = {
    "core/engine/read_model.cpp": "known families without a plugin",
    "core/engine/sections.cpp": "the values of dist_env.backend in recipes",
    "core/mesh/views.h": "the view of all parameters except experts",
    "lib/decoder/units.cpp": "the metrics group of mixtures of experts",
    "lib/run/recipe/section_names.h": "sections of recipes, with or without their plugin",
    "lib/data/tokenizer/tokenizer.cpp": "a request to the tokenizer process",
    "lib/run/trace/trace_file.cpp": "a key of the trace",
    "lib/checkpoint/sharded/placements.cpp": "a key of a checkpoint",
    "lib/run/spec/settings.cpp": "names of dtypes",
    "lib/run/recipe/readers/samples.cpp": "a key of validation_samples, like --chat of heddle generate",
    "lib/checkpoint/quantized/quantization.cpp": "formats of weights in files",
}
# Files that branch on a tensor's device, by reason. Other code uses model::device_kernel.
BRANCHING = ("lib/nn", "lib/train", "lib/decoder", "plugins")
BRANCH = re.compile(r"\bis_(?:cpu|cuda|meta)\(\)")
BRANCHES = {
    "CPU kernels report which tensors they support": (
        "lib/nn/cpu/attend_blocked_cpu.cpp", "lib/nn/cpu/attend_one_cpu.cpp", "lib/nn/cpu/cpu_rows.h",
        "lib/nn/cpu/grouped_product_cpu.cpp", "lib/nn/cpu/row_product_cpu.cpp", "lib/nn/experts/expert_pass.cpp",
        "lib/nn/matrix_product.cpp", "lib/nn/random/draws.cpp", "lib/decoder/latent/latent_rows_cpu.cpp",
        "lib/train/optimizer/adamw.cpp", "lib/train/optimizer/norm.cpp", "lib/train/optimizer/replicated_cpu.cpp", "plugins/quantize/packed.cpp"),
    "on meta a layer records the kernel of the CPU": (
        "lib/nn/activation/swiglu.cpp", "lib/nn/meta/recorded_kernels.h", "lib/nn/rotary.cpp"),
    "attention selects an implementation of LibTorch or of the CPU": (
        "lib/nn/attention/attend_device.cpp", "lib/nn/attention/attend_fused.cpp", "lib/nn/attention_core.cpp",
        "plugins/context/attention.cpp"),
    "values on the CPU are checked at once, values on a device only when they are read anyway": (
        "lib/nn/token_loss_rows.cpp", "plugins/distill/loss.cpp", "lib/train/side_totals.cpp", "lib/train/step.cpp"),
    "a size or a decision depends on values, which meta tensors do not have": (
        "lib/decoder/embedding.cpp", "lib/nn/embedding.cpp", "lib/nn/layer_norm.cpp", "lib/nn/meta/log_sum_exp.h", "lib/nn/experts/expert_activation.cpp", "lib/nn/experts/expert_adapters.h",
        "lib/nn/experts/expert_rows.cpp", "lib/nn/experts/experts.cpp", "lib/nn/experts/load_balance.cpp",
        "lib/decoder/attention/attention.cpp", "lib/decoder/delta_net/delta_rule.cpp",
        "lib/decoder/recurrence/document_marks.cpp",
        "lib/decoder/mtp/multi_token_prediction.cpp", "lib/decoder/latent/choose_keys.cpp",
        "lib/decoder/compressed/entry_indexer.cpp", "lib/decoder/compressed/entry_table.cpp",
        "lib/decoder/compressed/pooled_entries.cpp", "lib/decoder/compressed/window_attention.cpp", "lib/decoder/mamba/state_scan.cpp", "lib/train/cut.cpp", "lib/train/step_counts.cpp", "plugins/context/joined.cpp", "plugins/context/mixers.cpp",
        "plugins/lora/dora.cpp", "plugins/quantize/plugin.cpp",
        "plugins/row_repair/repair.cpp", "plugins/ddp/bucket.cpp", "plugins/ddp/stage.cpp", "plugins/fp8/products.cpp", "plugins/fp8/te_products.cpp", "plugins/fsdp2/gradients.cpp",
        "plugins/megatron_fsdp/bucket.cpp", "plugins/megatron_fsdp/checks.cpp", "plugins/megatron_fsdp/model.cpp",
        "plugins/moe/all_to_all.cpp", "plugins/moe/capacity.cpp", "plugins/moe/gathered.cpp",
        "plugins/moe/plugin.cpp", "plugins/moe/token_exchange.cpp"),
    "host memory and device memory are stored, sent and freed differently": (
        "lib/nn/device_ops.cpp", "lib/train/optimizer/on_device.cpp", "plugins/fsdp2/group.cpp", "plugins/fsdp2/memory.cpp",
        "plugins/nccl/cuda/device_ops.cpp", "plugins/nccl/cuda/group.cpp", "plugins/nccl/cuda/staged_group.cpp"),
}


def branch_faults(root):
    allowed = {file for files in BRANCHES.values() for file in files}
    there = set()
    for path in tree.sources(root, BRANCHING):
        code = "\n".join(re.sub(r"//.*", "", line) for line in path.read_text().splitlines())
        if BRANCH.search(code):
            there.add(str(path.relative_to(root)))
    for file in sorted(there - allowed):
        yield f"{file}: branches on a tensor's device: use model::device_kernel, or list the file with its reason"
    for file in sorted(allowed - there):
        if (root / file).exists():
            yield f"{file}: does not branch on a tensor's device: remove it from BRANCHES"


def plugin_names(root):
    folders = root / "plugins"
    return sorted(path.name for path in folders.iterdir() if path.is_dir()) if folders.is_dir() else []


def modules(root):
    """Returns the names of Module's subclasses that the SDK and lib declare."""
    parents = {}
    for path in tree.sources(root, ("sdk", "lib")):
        for name, parent in CLASS.findall(path.read_text()):
            parents.setdefault(name, parent)

    def is_module(name):
        return name == "Module" or (name in parents and parents[name] != name and is_module(parents[name]))

    return {name for name in parents if is_module(name)}


def faults_of(relative, lines, classes, names):
    quoted = re.compile("|".join(f'"{name}"' for name in names)) if names else None
    # A class of the file with the same name that is not a Module.
    others = {name for name, parent in CLASS.findall("\n".join(lines)) if parent != "Module" and parent not in classes}
    for number, line in enumerate(lines, 1):
        code = re.sub(r"//.*", "", line)
        if KIND.search(code):
            yield f"{relative}:{number}: compares kind(): use traits(): {line.strip()}"
        if str(relative) != AS and not str(relative).startswith(MODEL_LIBRARY):
            for cast in CAST.findall(code):
                if cast in classes and cast not in others:
                    yield f"{relative}:{number}: casts to {cast}: use model::as or model::each"
        named = quoted is not None and relative.parts[0] in ("core", "lib") and str(relative) not in WORDS
        if named and quoted.search(code):
            yield f"{relative}:{number}: names a plugin: {line.strip()}"


def faults(root):
    classes, names = modules(root), plugin_names(root)
    found = list(branch_faults(root))
    for path in tree.sources(root, ("core", "lib", "plugins", "sdk", "trainer")):
        relative = path.relative_to(root)
        found += faults_of(relative, path.read_text().splitlines(), classes, names)
    return found


if __name__ == "__main__":
    tree.report(faults(tree.root_from_arguments()), "contracts")

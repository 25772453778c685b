"""Checks sizes: at most 600 lines per file, 60 lines per function, 25 files per folder and 105 public headers. A header and
its source have at least 40 lines together, or a source of at least 40 lines if one file includes the header. A source
without a header has at least 30 lines. Exceptions are listed here with their reason."""
import pathlib
import re

import tree

MAX_FILE = 600
MAX_FUNCTION = 60
MAX_FOLDER = 25  # files per folder
MAX_PUBLIC = 105  # headers that the SDK installs, including the generated version.h
FILE_EXCEPTIONS = {}  # path: reason
FUNCTION_EXCEPTIONS = {  # "path:name": reason
    "python/engine/module.cpp:def": "a chain of bindings, one line each",
}

PRODUCTION = ("core", "lib", "plugins", "sdk", "trainer", "python")
PAIR, SOURCE = 40, 30  # minimum lines of a header and source, and of a source alone
FRAGMENTS = {  # path: reason
    "core/base/real.h": "float parsing that does not depend on the locale, for two readers of numbers",
    "core/config/component.cpp": "the implementation of a public header",
    "core/data/dataset.cpp": "defaults of a public interface",
    "core/engine/optimizer_parts.cpp": "the implementation of one function of a public header, apart from the engine",
    "core/mesh/alone.cpp": "the implementation of a public header",
    "core/mesh/communicator.cpp": "defaults of a public interface",
    "core/model/aten_autocast.h": "the only place that names ATen's autocast functions",
    "core/model/family.cpp": "defaults of a public interface",
    "core/model/slot.cpp": "the implementation of a public header",
    "core/model/wrapped_unit.h": "the base of units that wrap others, for two such units",
    "core/parallel/features.h": "names of features that plugins and the engine compare",
    "core/parallel/map_stages.cpp": "the implementation of a public header",
    "lib/checkpoint/huggingface/note_size.h": "one limit for every JSON file of a model directory",
    "lib/cost/shared_cores.h": "used without LibTorch by the program, which links no library",
    "lib/decoder/latent/chosen_keys.h": "passed between layers without the attention that makes it",
    "lib/decoder/mixer.cpp": "defaults of a public interface",
    "lib/decoder/recurrence/initial_values.h": "initial values that three mixers share",
    "lib/decoder/recurrence/recurrence_cost.h": "cost formulas that three operators share",
    "lib/nn/attention/attend_whole.h": "a template that is compiled for each level of instructions",
    "lib/nn/attention/row_loops.h": "a template that is compiled for each level of instructions",
    "lib/nn/cpu/row_kernels.h": "declares kernels, each in a source that is compiled for each level of instructions",
    "lib/nn/experts/check_result.cpp": "the implementation of a public header",
    "lib/nn/experts/expert_products.cpp": "the implementation of a public header",
    "lib/nn/experts/gated_rows.h": "a template that is compiled for each level of instructions",
    "lib/nn/experts/packed_pairs.h": "a template that is compiled for each level of instructions",
    "lib/nn/experts/packed_product.h": "a template that is compiled for each level of instructions",
    "lib/nn/meta/log_sum_exp.h": "an operator that LibTorch lacks on meta, for two layers",
    "lib/nn/meta/recorded_kernels.h": "kernels that record their cost, apart from the layers that ask for them",
    "lib/nn/random/hash.h": "the counter-based generator that two layers share",
    "lib/nn/soft_cap.h": "one formula for two losses",
    "lib/run/recipe/fields.h": "what all sections of a recipe share, without their types",
    "lib/run/spec/stop_request.h": "shared by the run and the launcher, which do not include each other",
    "lib/run/trace/request.h": "the part of a trace that the run spec holds, without the trace",
    "lib/simulated/current.h": "the current device and stream, without the machine",
    "lib/train/optimizer/on_device.h": "copies to a device, for the step and its tests",
    "lib/transport/gloo/wire.h": "the interface of two wires",
    "lib/transport/launch/loopback.h": "used without LibTorch by the program, which links no library",
    "lib/transport/liveness/running_time.h": "one clock for three waits",
    "plugins/context/flight.h": "a send and a receive, for two exchanges",
    "plugins/dense/families.h": "declares the models of the plugin, each in a source of its own",
    "plugins/dense/plugin.cpp": "the entry point of a plugin with several models",
    "plugins/fsdp2/reduce_buffers.h": "buffers that outlive the group, apart from it for their tests",
    "plugins/gemma/families.h": "declares the models of the plugin, each in a source of its own",
    "plugins/llama/families.h": "declares the models of the plugin, each in a source of its own",
    "plugins/llama/plugin.cpp": "the entry point of a plugin with several models",
    "plugins/megatron_fsdp/plugin.cpp": "the entry point of a plugin with two strategies",
    "plugins/mistral/files.h": "names in files that two models share",
    "plugins/mixtures/families.h": "declares the models of the plugin, each in a source of its own",
    "plugins/mixtures/plugin.cpp": "the entry point of a plugin with several models",
    "plugins/mock/draws.h": "random numbers that two data sets share",
    "plugins/mock/plugin.cpp": "the entry point of a plugin with two data sets",
    "plugins/moe/flights.h": "exchanges in flight, for two dispatchers",
    "plugins/nccl/cuda/check.h": "one check of the results of CUDA and NCCL",
    "plugins/nccl/cuda/device_rendezvous.h": "apart from the device, because the simulated device runs it without CUDA",
    "plugins/nccl/cuda/events.h": "apart from the communicator, because the simulated device runs it without CUDA",
    "plugins/nccl/cuda/kernels/elementwise.h": "kernels of one kind in a library that is compiled as one source",
    "plugins/nccl/cuda/kernels/experts.h": "kernels of one kind in a library that is compiled as one source",
    "plugins/nccl/cuda/kernels/rms_norm.h": "kernels of one kind in a library that is compiled as one source",
    "plugins/nccl/cuda/kernels/round_fp8.h": "kernels of one kind in a library that is compiled as one source",
    "plugins/nccl/cuda/kernels/token_loss.h": "kernels of one kind in a library that is compiled as one source",
    "plugins/nccl/environment.h": "apart from the device, because tests set the environment without CUDA",
    "plugins/nccl/plugin.cpp": "the entry point; the device is opened without CUDA",
    "plugins/pipeline/gpipe.cpp": "one schedule, as the other schedules beside it",
    "plugins/pipeline/one_forward_one_backward.cpp": "one schedule, as the other schedules beside it",
    "plugins/tensor/parts.h": "arithmetic of even parts, for four sources",
    "sdk/kits/runs/deadlock_detector.h": "detects deadlocks, apart from the communicators that report waits",
    "sdk/kits/runs/rank_optimizer.h": "the optimizer on one rank, apart from what the kit checks",
    "sdk/kits/schedule/plain_schedule.h": "the schedule of runs without a pipeline, for two kits",
    "trainer/cli/launch/shared_memory.h": "memory that the launcher and its ranks share, for three sources",
    "trainer/cli/launch/stop.h": "the stop of a run, apart from the launch that passes it",
    "trainer/cli/main/memory_settings.h": "benchmarks set the same allocator options as the program",
    "trainer/cli/main/schedule_file.h": "the file that `heddle schedule` reads, outside the library",
    "trainer/cli/run_commands.h": "declares the commands, each in a source of its own",
}

# In clang-format's layout, the opening brace of a function body is at the end of a line that starts left of the
# body, and the closing brace is in the same column as the start of that line.
OPENING = re.compile(r"^( *)(?!namespace|class|struct|enum|union|extern|if|for|while|switch|else|do|try|catch|\}|case|"
                     r"return|#)(?:.*[\w>)&*\]]\s+)?([~\w:<>,]+|operator\S+)\(.*\{$|^( *)[^=;]*\) (?:const |override |noexcept )*\{$")


def functions(lines):
    """Yields (name, first line from 1, number of lines) of function definitions."""
    for number, line in enumerate(lines):
        match = OPENING.match(line)
        if not match:
            continue
        start = number
        while start > 0 and (lines[start - 1].rstrip().endswith((",", "(", "(const")) or
                             lines[start].lstrip().startswith(": ")):  # a constructor's initializer list
            start -= 1
        indent = re.match(r" *", lines[start]).group()
        if re.match(r"\s*(if|for|while|switch|else|do|try|catch|namespace|class|struct|return|\})", lines[start]):
            continue
        for end in range(number + 1, len(lines)):
            if re.match(indent + r"\}", lines[end]):
                name = re.search(r"([~\w:]+)\(", lines[start])
                yield (name.group(1) if name else "?", start + 1, end - start + 1)
                break


def tree_faults(root):
    found = []
    folders = {path.parent for path in tree.sources(root)}
    for folder in sorted(folders):
        count = sum(file.is_file() for file in folder.iterdir())
        if count > MAX_FOLDER:
            found.append(f"{folder.relative_to(root)}: {count} files, at most {MAX_FOLDER}")
    public = 1 + sum(1 for _ in tree.sources(root, ("sdk/include",)))
    if public > MAX_PUBLIC:
        found.append(f"sdk/include: {public} public headers, at most {MAX_PUBLIC}")
    return found


def users(root, files):
    """Returns {header: paths of the files that include the header}."""
    out = {}
    for path in [*files, *tree.sources(root, ("tests", "bench", "examples")), *(root / "plugins").rglob("*.cu")]:
        plugin = root / pathlib.Path(*path.relative_to(root).parts[:2])
        for name in re.findall(r'#include "([^"]+)"', path.read_text()):
            for place in (root, path.parent, plugin, root / "tests"):
                if (place / name).is_file():
                    out.setdefault((place / name).resolve(), set()).add(path)
                    break
    return out


def fragments(root):
    files = [path for path in tree.sources(root, PRODUCTION)
             if "template" not in path.parts and "include" not in path.relative_to(root).parts]
    lines = {path: len(path.read_text().splitlines()) for path in files}
    included = users(root, files)
    for path in files:
        own = path.with_suffix(".cpp" if path.suffix == ".h" else ".h")
        if path.suffix == ".cpp":
            if lines[path] < SOURCE and own not in lines:
                yield path, f"{lines[path]} lines: merge the source into another source"
        elif lines[path] + lines.get(own, 0) < PAIR:
            yield path, f"{lines[path] + lines.get(own, 0)} lines with its source: merge them into other files"
        elif lines.get(own, 0) < PAIR and len(included.get(path.resolve(), set()) - {own}) < 2:
            yield path, "one file includes it: merge the header into that file"


def fragment_faults(root):
    found = {str(path.relative_to(root)): fault for path, fault in fragments(root)}
    for path, fault in found.items():
        if path not in FRAGMENTS:
            yield f"{path}: {fault}, or list it in FRAGMENTS with the reason"
    for path in FRAGMENTS if (root / "CMakeLists.txt").exists() else ():
        if path not in found:
            yield f"{path}: needs no exception: remove it from FRAGMENTS"


def faults(root):
    found = [*tree_faults(root), *fragment_faults(root)]
    for path in tree.sources(root):
        relative = str(path.relative_to(root))
        lines = path.read_text().splitlines()
        if len(lines) > MAX_FILE and relative not in FILE_EXCEPTIONS:
            found.append(f"{relative}: {len(lines)} lines, at most {MAX_FILE}")
        for name, first, count in functions(lines):
            if count > MAX_FUNCTION and name != "TEST" and f"{relative}:{name}" not in FUNCTION_EXCEPTIONS:
                found.append(f"{relative}:{first}: {name} has {count} lines, at most {MAX_FUNCTION}")
    return found


if __name__ == "__main__":
    tree.report(faults(tree.root_from_arguments()), "size")

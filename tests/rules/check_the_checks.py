"""Checks that each rule finds its fault in a small tree made for it."""
import pathlib
import tempfile

import check_contracts
import check_documents
import check_format
import check_names
import check_modules
import check_operators
import check_size
import check_unity
import check_words
import tree

LONG = "int f() {\n" + "  g();\n" * 61 + "}\n"
CASES = [  # rule, file, text, part of the fault (None: no fault)
    (check_modules, "core/mesh/a.cpp", '// a\n#include "heddle/train/step.h"\n', "may not include train"),
    (check_modules, "lib/train/a.cpp", '// a\n#include "heddle/checkpoint/x.h"\n', "may not include checkpoint"),
    (check_modules, "core/base/a.cpp", "// a\n#include <ATen/ATen.h>\n", "includes LibTorch"),
    (check_modules, "lib/train/a.cpp", '// a\n#include "heddle/mesh/x.h"\n', None),
    (check_modules, "lib/simulated/a.cpp", '// a\n#include "heddle/nn/device_ops.h"\n#include "lib/simulated/b.h"\n', None),
    (check_modules, "lib/simulated/a.cpp", '// a\n#include "core/mesh/layout.h"\n', "only public headers and its own"),
    (check_modules, "lib/simulated/a.cpp", '// a\n#include "heddle/train/step.h"\n', "may not include train"),
    (check_modules, "lib/run/a.cpp", '// a\n#include "lib/simulated/machine.h"\n', "may not include simulated"),
    (check_modules, "plugins/p/a.cpp", '// a\n#include "heddle/engine/engine.h"\n', "may not include the engine"),
    (check_modules, "plugins/p/a.cpp", '// a\n#include "core/mesh/layout.h"\n', "only public headers"),
    (check_modules, "sdk/include/heddle/mesh/a.h", '// a\n#include "core/mesh/layout.h"\n', "only public headers"),
    (check_modules, "plugins/p/a.cpp", '// a\n#include "../q/b.h"\n', "another plugin"),
    (check_modules, "plugins/p/r/a.cpp", '// a\n#include "../../q/b.h"\n', "another plugin"),
    (check_modules, "plugins/p/r/a.cpp", '// a\n#include "../s/b.h"\n', None),
    (check_modules, "plugins/p/a.cpp", "// a\n#include <c10/cuda/CUDAStream.h>\n", "only plugins/nccl may use CUDA"),
    (check_modules, "core/mesh/a.cpp", "// a\n#include <nccl.h>\n", "only plugins/nccl may use CUDA"),
    (check_modules, "plugins/nccl/cuda/a.cpp", "// a\n#include <nccl.h>\n", None),
    (check_modules, "plugins/p/a.cpp", '// a\n#include "other.h"\n', "not in the plugin's folder"),
    (check_modules, "plugins/p/a.cpp", "// a\n#include <fnmatch.h>\n", None),
    (check_size, "core/base/a.cpp", "// a\n" * 601, "601 lines"),
    (check_size, "core/base/a.cpp", "// a\n" + LONG, "f has 63 lines"),
    (check_size, "core/base/a.cpp", "// a\n" * 29, "29 lines: merge the source"),
    (check_size, "core/base/a.h", "// a\n" * 39, "39 lines with its source"),
    (check_size, "core/base/a.h", "// a\n" * 40, "one file includes it"),
    (check_size, "core/base/a.cpp", "// a\n" + LONG.replace("  g();\n", "", 5), None),
    (check_names, "core/base/a.cpp", '// a\nint n = by_name("fsdp2");\n', "core may not name a plugin"),
    (check_names, "core/base/a.cpp", "// fsdp2 is a plugin\n", None),
    (check_names, "core/base/a.cpp", "// a\nclass RankManager {};\n", "has no meaning"),
    (check_names, "plugins/tensor/a.cpp", '// a\nint n = by_name("q_proj");\n', "only the family's plugin"),
    (check_names, "plugins/p/plugin.cpp", '// a\nint n = by_name("q_proj");\nHEDDLE_PLUGIN("p", "0.1.0", "model p") {}\n', None),
    (check_names, "core/base/a.cpp", "#pragma once\n", "first line"),
    (check_names, "core/base/a.cpp", "// a\nint n = place_of(key);\n", "not the usual word"),
    (check_names, "core/base/a.cpp", "// a\nint n = dtype_of(tensor);\n", None),
    (check_names, "lib/nn/a.h", "// a\nvoid add(const Tensor& one, int count);\n", "named by a pronoun"),
    (check_names, "lib/nn/a.h", "// a\nvoid add(const Tensor& x, int count);  // (adds one, of all)\n", None),
    (check_names, "tests/core/a.cpp", "// a\nTEST(Disk, OfNoRoomIsTold) {}\n", "must begin with a verb"),
    (check_names, "tests/core/a.cpp", "// a\nTEST(Disk, IsReportedWhenFull) {}\n", None),
    (check_contracts, "plugins/p/a.cpp", '// a\nbool b = module.kind() == "rms_norm";\n', "compares kind()"),
    (check_contracts, "plugins/p/a.cpp", "// a\nbool b = node.kind() == Node::Kind::text;\n", None),
    (check_contracts, "lib/nn/a.h", "// a\nclass Wide : public Module {};\nauto* w = dynamic_cast<Wide*>(m);\n", "casts to Wide"),
    (check_contracts, "lib/nn/a.h", "// a\nclass Wide : public Other {};\nauto* w = dynamic_cast<Wide*>(m);\n", None),
    (check_contracts, "lib/nn/a.cpp", "// a\nbool b = x.is_cpu();\n", "branches on a tensor's device"),
    (check_contracts, "lib/nn/device_ops.cpp", "// a\nbool b = x.is_cpu();\n", None),
    (check_contracts, "lib/nn/device_ops.cpp", "// a\n", "does not branch on a tensor"),
    (check_documents, "docs/a.md", "# a\n[b](b.md)\n", "docs/a.md:2: links to b.md, which does not exist"),
    (check_documents, "docs/a.md", "# a\n" + "word " * 1500, "docs/a.md: 1502 words, at most 1500"),
    (check_documents, "docs/reference/a.md", "# a\n" + "word " * 1500, None),
    (check_documents, "docs/a.md", "# a\n[b](#b)\n", "docs/a.md:2: links to #b, which docs/a.md does not have"),
    (check_documents, "docs/a.md", "## `Two` words_here: x\n[a](a.md#two-words_here-x)\n", None),
    (check_documents, "docs/a.md", "# part\n[a](a.md#part)\n```\n[b](b.md)\n```\n[c](https://c.org)\n", None),
    (check_documents, "docs/a.md", "# a\nInclude `heddle/b.h`.\n", "docs/a.md:2: names heddle/b.h, which does not exist"),
    (check_documents, "docs/a.md", "# a\nSee plugins/b/plugin.cpp.\n", "docs/a.md:2: names plugins/b/plugin.cpp, which does not"),
    (check_documents, "docs/a.md", "# a\nA folder `tests/core/MODULE`, here in docs/a.md.\n", None),
    (check_documents, "sdk/template/a/b.h", "// See heddle/b.h.\n", "sdk/template/a/b.h:1: names heddle/b.h"),
    (check_operators, "lib/nn/a.cpp", '// a\nstruct N final : LayerNode {\n  N() : LayerNode("NBackward") {}\n};\n', "NBackward has no entry"),
    (check_operators, "lib/nn/a.cpp", "// a\nstruct N final : model::LayerNode {\n  N() : LayerNode(kName) {}\n};\n", "a literal name"),
    (check_operators, "lib/nn/a.cpp", '// a\nstruct N : LayerNode {\n  N() : LayerNode("WeightBackward") {}\n};\n', None),
    (check_words, "core/a/DECISIONS.md", "# A\n\n**Title.** Context of `a`. It does b. It costs c.\n", None),
    (check_words, "core/a/DECISIONS.md", "# A\n\n**Title.** One. Two. Three. Four.\n", "4 sentences"),
    (check_words, "core/a/DECISIONS.md", "# A\n\n**Title.** One.\n\nTwo.\n", "begins with a title"),
    (check_words, "lib/a/README.md", "# A\n\nWould change: nothing foreseen.\n", "says what would change it"),
    (check_words, "plugins/a/README.md", "# a\n", "no example in YAML"),
    (check_words, "core/data/a.h", "// Of plugins\n", "begins with its subject"),
    (check_words, "core/data/a.h", "// A file of plugins,\n// Of plugins\nint a;  // a number\n", None),
    (check_words, "core/data/a.h", "// A file\nint a;  // Of plugins\n", "begins with its subject"),
    (check_words, "scripts/a", "#!/usr/bin/env bash\n# Of plugins\n", "begins with its subject"),
    (check_words, "core/CMakeLists.txt", "add(a)  # Of plugins\n", "begins with its subject"),
    (check_words, "scripts/a", "plain text\n# Of plugins\n", None),
    (check_words, "bench/a.py", 'def f():\n    """Of plugins."""\n', "a docstring begins with its subject"),
    (check_words, "bench/a.py", 'r"""The same of plugins."""\n', "a docstring begins with its subject"),
    (check_words, "bench/a.py", 'def f():\n    """Reads plugins.\n\n    Of plugins."""\n', None),
    (check_words, "core/data/a.h", '// A file\nconst char* a = "Of plugins";\n', "begins with its subject"),
    (check_format, "core/base/a.cpp", "// a\nint  x  =1;\n", "run scripts/format --all"),
]

faults = []
for rule, name, text, wanted in CASES:
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        file = root / name
        file.parent.mkdir(parents=True)
        file.write_text(text)
        (root / ".clang-format").write_text("BasedOnStyle: Google\n")
        found = rule.faults(root)
    if wanted is None and found:
        faults.append(f"{rule.__name__}: found in good text {text[:40]!r}: {found}")
    if wanted is not None and not any(wanted in fault for fault in found):
        faults.append(f"{rule.__name__}: did not find {wanted!r} in {text[:40]!r}: {found}")

with tempfile.TemporaryDirectory() as folder:
    root = pathlib.Path(folder)
    for name, count in (("lib/nn", 26), ("sdk/include/heddle", check_size.MAX_PUBLIC)):
        (root / name).mkdir(parents=True)
        for number in range(count):
            (root / name / f"a{number}.h").write_text("// a\n")
    found = check_size.tree_faults(root)
    for wanted in ("lib/nn: 26 files", f"{check_size.MAX_PUBLIC + 1} public headers"):
        if not any(wanted in fault for fault in found):
            faults.append(f"check_size: did not find {wanted!r}: {found}")

GUIDE = [  # a line of CONTRIBUTING.md, part of the fault (None: no fault)
    ("`HEDDLE_KNOWN=1 scripts/test`, HEDDLE_PRESET=asan", None),
    ("HEDDLE_UNKNOWN", "names the variable HEDDLE_UNKNOWN"),
    ("scripts/build", "names scripts/build"),
    ("cmake --preset fast", "names the preset fast"),
    ("word " * 1801, "at most 1800"),
]
for line, wanted in GUIDE:
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        for name, text in (("CONTRIBUTING.md", line), ("scripts/test", "HEDDLE_KNOWN HEDDLE_PRESET"), ("cmake/heddle_build.cmake", ""),
                           ("CMakePresets.json", '{"configurePresets": [{"name": "asan"}]}')):
            (root / name).parent.mkdir(exist_ok=True)
            (root / name).write_text(text)
        found = check_documents.faults(root)
    if (wanted is None) == bool(found) or not all((wanted or "") in fault for fault in found):
        faults.append(f"check_documents: {line[:40]!r}: {found}")

PAIRS = [  # contents of anonymous namespaces in two files of a folder, part of the fault
    ("struct One {};", "class One {\n};", "One is declared in"),
    ("constexpr int kMost = 2;", "constexpr double kMost = 2.5;", "kMost is declared in"),
    ("using Line = int;", "using Line = long;", "Line is declared in"),
    ("using Line = int;", "using Line = int;", None),
    ("int count(int a) {\n  return a;\n}", "int count(long a) {\n  return 1;\n}", None),
]
for first, second, wanted in PAIRS:
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        (root / "core").mkdir()
        for name, text in (("a", first), ("b", second)):
            (root / "core" / f"{name}.cpp").write_text(f"// {name}\nnamespace {{\n\n{text}\n\n}}  // namespace\n")
        found = check_unity.faults(root)
    if (wanted is None) == bool(found) or not all((wanted or "") in fault for fault in found):
        faults.append(f"check_unity: {first!r} and {second!r}: {found}")
tree.report(faults, "the checks")

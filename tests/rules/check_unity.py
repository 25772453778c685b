"""Checks that names in anonymous namespaces are unique within a module or test program, because a unity build compiles its
files together."""
import collections
import re

import tree

LIBRARIES = ("core", "plugins", "trainer", "lib", "tests")
OPEN = re.compile(r"^namespace \{")
CLOSE = re.compile(r"^\}\s+// namespace$")
# Declarations at namespace level, which are not indented.
TYPE = re.compile(r"^(?:template <[^>]*>\s*)?(?:class|struct|enum class|enum)\s+(?:alignas\([^)]*\)\s*)?(\w+)\s*(?:final\s*)?[:{]")
ALIAS = re.compile(r"^(?:using (\w+) =|namespace (\w+) =)(.*)")
CONSTANT = re.compile(r"^(?:inline |static )?(?:constexpr|const|thread_local)\b[^(]*?\b(\w+)\s*(?:\[[^\]]*\])?\s*(?:=|\{|;|\(\")")
FUNCTION = re.compile(r"^(?!using|namespace|return|template|struct|class|enum|constexpr char)[\w:<>,*&\[\]() \"-]*?[\s*&](\w+)\((.*)$")


def declared(path):
    """Yields (name, kind, definition) of each declaration in the anonymous namespaces of a file."""
    inside = False
    for line in path.read_text().splitlines():
        if OPEN.match(line):
            inside = True
        elif CLOSE.match(line):
            inside = False
        elif inside and line and not line[0].isspace() and not line.startswith(("//", "#", "}", ")")):
            if found := ALIAS.match(line):
                yield found[1] or found[2], "alias", found[3].strip()
            elif found := TYPE.match(line):
                yield found[1], "type", ""
            elif found := CONSTANT.match(line):
                yield found[1], "constant", ""
            elif (found := FUNCTION.match(line)) and found[1] != "__attribute__":
                yield found[1], "function", re.sub(r"\s*\w+\s*([,)])", r"\1", found[2])


BASE = ("core/base/", "core/config/", "core/schedule/", "lib/drawing/")
WORDS_TESTS = ("core/base/", "core/config/", "core/schedule/", "drawing/", "plugins/pipeline/", "transport/rank_place_test.cpp")
PLUGIN_TESTS = ("plugins/", "sharding/")
OWN_TESTS = ("flow", "dry", "gpu", "hosts", "kills", "examples")


def compiled_with(path):
    """Returns the module or program whose files may be compiled together with this file."""
    parts = path.parts
    if str(path).startswith(BASE):
        return "base"
    if path.name.endswith("_cpu.cpp") or str(path) == "core/mesh/sums.cpp":
        return "kernels"
    if parts[0] != "tests" or len(parts) < 3:
        return parts[0] if parts[0] == "trainer" else "/".join(parts[:-1][:2])
    within = "/".join(parts[1:])
    if parts[1] in OWN_TESTS:
        return f"tests/{parts[1]}"
    if within.startswith(WORDS_TESTS):
        return "tests: words"
    return "tests: plugins" if within.startswith(PLUGIN_TESTS) else "tests: core"


def faults(root):
    found = []
    modules = collections.defaultdict(lambda: collections.defaultdict(set))
    for path in tree.sources(root, LIBRARIES):
        if path.suffix == ".cpp" and "bad_plugins" not in path.parts:  # each bad plugin is a separate library
            for name, kind, what in declared(path):
                modules[compiled_with(path.relative_to(root))][name].add((str(path.relative_to(root)), kind, what))
    for module, names in modules.items():
        for name, uses in names.items():
            files = sorted({file for file, _, _ in uses})
            alike = len({(kind, what) for _, kind, what in uses}) == 1 and all(kind == "alias" for _, kind, _ in uses)
            signatures = {(file, what) for file, kind, what in uses if kind == "function"}
            overloads = len(signatures) == len({what for _, what in signatures}) and all(kind == "function" for _, kind, _ in uses)
            if len(files) > 1 and not alike and not overloads:
                found.append(f"{module}: {name} is declared in the anonymous namespaces of {', '.join(files)}")
    return found


if __name__ == "__main__":
    tree.report(faults(tree.root_from_arguments()), "unity")

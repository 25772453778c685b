"""Checks names: core names no plugin; only a family's own plugin names its modules; no name is meaningless; no function is
named X_of where X is not the usual word, and no parameter of a header by a pronoun; the first line of every file describes it;
the name of a test case begins with a verb (TEST(Unit, DoesSomethingWhenCondition))."""
import re

import tree

PLUGIN = re.compile(r"fsdp|\bddp\b|megatron|\bmoe\b", re.I)
MODULE = re.compile(r"\b(?:[qkvo]|gate|up|down)_proj\b|\bself_attn\b|\bembed_tokens\b|\blm_head\b|\bmodel\.layers\b")
# The cache of `heddle generate` narrows the head's input by its path. The refusal of `lm_head_precision` for a tied
# head uses the recipe's words. Muon leaves embeddings and the head to AdamW, by the names of AutoModel's groups.
# Adapter files name the two projections of transformers' experts, which every family has.
NAMES_A_MODULE = ("lib/run/generate/kv_cache.cpp", "lib/run/generate/kv_cache.h", "plugins/moe/head.cpp",
                  "plugins/muon/muon.cpp", "plugins/lora/files.cpp")
# The manifest of a plugin that offers a model family. This plugin may name the family's modules.
FAMILY = re.compile(r"HEDDLE_PLUGIN\([^)]*\"model ")
COMMENT = re.compile(r"^\s*(//|\*)")
EMPTY_NAME = re.compile(r"\b(?:class|struct)\s+(?:HEDDLE_API\s+)?\w*(?:Manager|Helper|Utils?|Handler|Context|Base)\b")
UNUSUAL = re.compile(r"\b(?:wide|word|fault|place|what|way|talks|moment|doubts|beginning)_of\(")
PRONOUN = re.compile(r"(?:\w|[>&*\]]) *[ &*](?:one|of|given|at|what|others|more|all)(?= *[,)])")
STRING = re.compile(r'"(?:\\.|[^"\\])*"')
NO_VERB = re.compile(
    r"^TEST(?:_[FP])?\(\w+, *(?:Of|That|Those|An?|Without|With|By|What|Which|Every|One|In|For|From|At|On|To|And|But|If|When|"
    r"Where|The|As|Both|Its?|All|Any|Each|No|Not|Only|Same|Others?|Beside|After|Before|Between|Under|Over|Until|While)"
    r"[A-Z]")
FIRST_LINE = re.compile(r"^(//|#!) ?.*\S")


def families(root):
    return [path.parent.relative_to(root).parts for path in sorted(root.glob("plugins/*/plugin.cpp")) if FAMILY.search(path.read_text())]


def knows_no_model(relative, folders):
    own = relative.parts[:2] in folders or str(relative) in NAMES_A_MODULE
    return relative.parts[0] in ("core", "plugins", "trainer") and not own


def faults(root):
    found, folders = [], families(root)
    for path in tree.sources(root):
        relative = path.relative_to(root)
        lines = path.read_text().splitlines()
        if not lines or not FIRST_LINE.match(lines[0]):
            found.append(f"{relative}: the first line must be a comment that describes the file")
        for number, line in enumerate(lines, 1):
            code = re.sub(r"//.*", "", line)
            if relative.parts[0] == "core" and not COMMENT.match(line) and PLUGIN.search(code):
                found.append(f"{relative}:{number}: core may not name a plugin: {line.strip()}")
            if knows_no_model(relative, folders) and MODULE.search(line):
                found.append(f"{relative}:{number}: only the family's plugin may name its modules: {line.strip()}")
            if EMPTY_NAME.search(code):
                found.append(f"{relative}:{number}: a name has no meaning: {line.strip()}")
            if UNUSUAL.search(code):
                found.append(f"{relative}:{number}: the X of X_of() is not the usual word: {line.strip()}")
            if path.suffix == ".h" and relative.parts[0] in ("core", "lib", "sdk") and PRONOUN.search(STRING.sub('""', code)):
                found.append(f"{relative}:{number}: a parameter is named by a pronoun: {line.strip()}")
            if NO_VERB.match(line):
                found.append(f"{relative}:{number}: the name of a test case must begin with a verb: {line.strip()}")
    return found


if __name__ == "__main__":
    tree.report(faults(tree.root_from_arguments()), "names")

"""Checks documents: no merge conflict markers; links lead to existing files, folders and headings; headers and paths that a
document or a file of the SDK names exist; CONTRIBUTING.md and SECURITY.md name only existing presets and variables. Word limits: 1,800 for CONTRIBUTING.md, 1,500 for a
guide in docs."""
import json
import re

import tree

MAX_WORDS = 1800  # words of CONTRIBUTING.md
MAX_GUIDE_WORDS = 1500  # words of a page in docs; docs/reference has no limit
LINK = re.compile(r"\]\(([^)#:\s]*)(?:#([^)\s]*))?\)")
VARIABLE = re.compile(r"\bHEDDLE_[A-Z_]+\b")
PATH = re.compile(r"(?<![\w./-])(?:core|lib|plugins|sdk|trainer|tests|bench|examples|scripts|docs|cmake)/[\w./-]*\w")
HEADER = re.compile(r"(?<![\w/.])heddle/[\w/]+\.h\b")
GENERATED = ("heddle/base/version.h",)
PRESET = re.compile(r"(?:HEDDLE_PRESET=|--preset )(\w+)")
GUIDES = ("CONTRIBUTING.md", "SECURITY.md")


def pages(root):
    for path in sorted(root.rglob("*.md")):
        if not path.relative_to(root).parts[0].startswith(("build", ".")):
            yield path


def conflict_faults(root):
    for page in [*pages(root), *tree.sources(root)]:
        for number, line in enumerate(page.read_text().splitlines(), 1):
            if line.startswith(("<<<<<<< ", ">>>>>>> ")):
                yield f"{page.relative_to(root)}:{number}: contains a merge conflict marker"


def anchors(page):
    """Returns the anchors of a page: heading slugs as GitHub makes them, and HTML ids."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.M | re.S)
    headings = re.findall(r"^#+ (.*)$", text, re.M)
    plain = [re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).strip().lower() for heading in headings]
    return {re.sub(r"[^\w\- ]", "", heading).replace(" ", "-") for heading in plain} | set(re.findall(r'<a id="([^"]+)"', text))


def link_faults(root):
    known = {}
    for page in pages(root):
        folder = root if page.name == "installed.md" else page.parent  # README of an installed tree
        code = False
        for number, line in enumerate(page.read_text().splitlines(), 1):
            if line.startswith("```"):
                code = not code
            if code:
                continue
            for link, anchor in LINK.findall(re.sub(r"`[^`]*`", "", line.replace("](`", "]("))):
                place = f"{page.relative_to(root)}:{number}"
                goal = folder / link if link else page
                if not goal.exists():
                    yield f"{place}: links to {link}, which does not exist"
                elif anchor and goal.suffix == ".md" and page.name != "installed.md":
                    goal = goal.resolve()
                    if goal not in known:
                        known[goal] = anchors(goal)
                    if anchor not in known[goal]:
                        yield f"{place}: links to #{anchor}, which {goal.relative_to(root.resolve())} does not have"


def name_faults(root):
    """Names in upper case (tests/core/MODULE) and libraries (lib/libheddle.so) stand for files that are made or chosen."""
    sdk = [path for folder in ("sdk", "examples") for path in sorted((root / folder).rglob("*"))
           if path.suffix in (".h", ".cpp", ".txt", ".in")]
    documents = [page for page in pages(root) if page.name != "CHANGELOG.md"]
    for file in [*documents, *sdk]:
        for number, line in enumerate(file.read_text().splitlines(), 1):
            place = f"{file.relative_to(root)}:{number}"
            for header in HEADER.findall(line):
                if header not in GENERATED and not re.search("[A-Z]", header) and not (root / "sdk/include" / header).exists():
                    yield f"{place}: names {header}, which does not exist"
            for path in PATH.findall(line) if file in documents else ():
                known = any((folder / path).exists() or [*folder.glob(path + ".*")] for folder in (root, file.parent))
                if not known and not re.search(r"/[A-Z_]{2,}\b|\.so$", path):
                    yield f"{place}: names {path}, which does not exist"


def guide_faults(root, name):
    text = (root / name).read_text()
    code = "\n".join(path.read_text() for path in [*tree.sources(root), *sorted((root / "scripts").glob("*"))] if path.is_file())
    presets = {preset["name"] for preset in json.loads((root / "CMakePresets.json").read_text())["configurePresets"]}
    options = re.findall(r"option\((HEDDLE_\w+)", (root / "cmake/heddle_build.cmake").read_text())
    for variable in sorted(set(VARIABLE.findall(text))):
        if variable not in code and variable not in options:
            yield f"{name}: names the variable {variable}, which no source reads"
    for preset in sorted(set(PRESET.findall(text)) - presets):
        yield f"{name}: names the preset {preset}, which does not exist"
    if name == "CONTRIBUTING.md" and len(text.split()) > MAX_WORDS:
        yield f"{name}: {len(text.split())} words, at most {MAX_WORDS}"


def length_faults(root):
    for page in sorted((root / "docs").rglob("*.md")):
        words = len(page.read_text().split())
        if "reference" not in page.relative_to(root).parts and words > MAX_GUIDE_WORDS:
            yield f"{page.relative_to(root)}: {words} words, at most {MAX_GUIDE_WORDS}"


def faults(root):
    found = [*conflict_faults(root), *link_faults(root), *name_faults(root), *length_faults(root)]
    for name in GUIDES:
        if (root / name).exists():
            found += guide_faults(root, name)
    return found


if __name__ == "__main__":
    tree.report(faults(tree.root_from_arguments()), "documents")

#!/usr/bin/env python3
"""Checks that the list of mutations fits a tree: check.py [TREE]

Each text to replace occurs exactly once in its file, each filter names existing test suites, and the list has at least
forty mutations. So a change of a mutated line must also change the list."""
import collections
import fnmatch
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import mutations  # noqa: E402

LEAST = 40
NAMES = re.compile(r"^(?:TYPED_)?TEST(?:_[FP])?\((\w+),", re.MULTILINE)


def suites_in(tree):
    names = set()
    for file in (tree / "tests").rglob("*.cpp"):
        names.update(NAMES.findall(file.read_text(encoding="utf-8")))
    return names


def faults(tree, listed, suites):
    for one in listed:
        file = tree / one.file
        count = file.read_text(encoding="utf-8").count(one.before) if one.before and file.is_file() else 0
        if not file.is_file():
            yield f"{one.id}: the file {one.file} does not exist"
        elif count != 1:
            yield f"{one.id}: its text occurs {count} times in {one.file}; it must occur once"
        elif one.before == one.after:
            yield f"{one.id}: the mutation does not change its text"
        for part in mutations.suite(one)[1].split("-")[0].split(":"):
            name = part.split(".")[0].rsplit("/", 1)[-1]
            if not any(fnmatch.fnmatchcase(suite, name) for suite in suites):
                yield f"{one.id}: no test suite matches '{part}'"
    for name, times in collections.Counter(one.id for one in listed).items():
        if times > 1:
            yield f"{name}: {times} mutations have this id"
    if len(listed) < LEAST:
        yield f"the list has {len(listed)} mutations, but at least {LEAST} are required"


def main():
    tree = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve()
    found = list(faults(tree, mutations.ALL, suites_in(tree)))
    for fault in found:
        print(f"tests/mutations: {fault}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())

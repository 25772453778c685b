#!/usr/bin/env python3
"""Compares the functions and data that the engine's libraries export with sdk/abi/surface.txt.

surface.py BUILD [--write]: prints the differences and exits with 1. With --write, writes the list instead."""
import pathlib
import re
import subprocess
import sys

LIBRARIES = ("libheddle_base.so", "libheddle.so", "libheddle_kits.so")
LIST = pathlib.Path(__file__).with_name("surface.txt")


def exported(library):
    """Returns strong symbols, demangled. Weak symbols (inline functions, type information) depend on the optimizer."""
    out = subprocess.run(["nm", "-D", "-C", "--defined-only", library], check=True, capture_output=True, text=True)
    found = (re.match(r"[0-9a-f]+ [TDBR] (.*)", line) for line in out.stdout.splitlines())
    return sorted({match[1].replace("[abi:cxx11]", "") for match in found if match and "heddle" in match[1]})


def main():
    build = pathlib.Path(sys.argv[1])
    lines = [f"{library}: {name}" for library in LIBRARIES for name in exported(build / library)]
    if "--write" in sys.argv:
        LIST.write_text("\n".join(lines) + "\n")
        return 0
    known, now = set(LIST.read_text().splitlines()), set(lines)
    for name in sorted(known - now):
        print(f"no longer exported: {name}")
    for name in sorted(now - known):
        print(f"newly exported: {name}")
    if known != now:
        print(f"The exported symbols differ from {LIST}. Raise HEDDLE_SDK_NUMBER if a symbol of a public header was removed, "
              f"then write the list again: {sys.argv[0]} {build} --write")
    return known != now


if __name__ == "__main__":
    sys.exit(main())

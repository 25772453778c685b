"""Source files that the rules check, and the report of a rule."""
import pathlib
import sys

FOLDERS = ("core", "lib", "plugins", "sdk", "trainer", "python", "tests", "bench", "examples")
SUFFIXES = (".h", ".cpp")


def sources(root, folders=FOLDERS):
    for folder in folders:
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in SUFFIXES and path.is_file():
                yield path


def root_from_arguments():
    return pathlib.Path(sys.argv[1]).resolve()


def report(faults, rule):
    for fault in faults:
        print(fault)
    print(f"{rule}: {len(faults)} faults")
    sys.exit(1 if faults else 0)

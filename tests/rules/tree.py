"""Source files that the rules check, and the report of a rule."""
import pathlib
import re
import sys

FOLDERS = ("core", "lib", "plugins", "sdk", "trainer", "python", "tests", "bench", "examples")
SUFFIXES = (".h", ".cpp")
BUILT = re.compile(r"build($|-)")


def sources(root, folders=FOLDERS):
    for folder in folders:
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in SUFFIXES and path.is_file():
                yield path


def is_script(path):
    """Returns whether the file is Python, shell or CMake."""
    if path.suffix in (".py", ".pyi", ".sh", ".cmake") or path.name == "CMakeLists.txt":
        return True
    return not path.suffix and path.is_file() and path.read_bytes()[:3] == b"#!/"


def scripts(root):
    for folder in sorted(root.iterdir()):
        if folder.is_file() or folder.name[0] == "." or BUILT.match(folder.name):
            continue
        yield from (path for path in sorted(folder.rglob("*")) if is_script(path))


def root_from_arguments():
    return pathlib.Path(sys.argv[1]).resolve()


def report(faults, rule):
    for fault in faults:
        print(fault)
    print(f"{rule}: {len(faults)} faults")
    sys.exit(1 if faults else 0)

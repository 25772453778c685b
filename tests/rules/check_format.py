"""Checks that every source file is formatted by clang-format 14. --apply formats changed files (scripts/format), with --all
every file."""
import shutil
import subprocess
import sys

import tree


def program():
    return shutil.which("clang-format-14") or shutil.which("clang-format")


def faults(root):
    if program() is None:
        return ["clang-format-14 is not installed (scripts/setup installs it)"]
    files = [str(path) for path in tree.sources(root)]
    result = subprocess.run([program(), "--dry-run", "-Werror", *files], capture_output=True, text=True, cwd=root)
    places = [line.partition(": error:")[0] for line in result.stderr.splitlines() if ": error:" in line]
    return [f"{place.removeprefix(f'{root}/')}: the format differs from clang-format's: run scripts/format --all" for place in places]


def changed(root):
    """Returns the files that differ from the last commit, and untracked files."""
    names = set()
    for arguments in (["diff", "--name-only", "--diff-filter=d", "--relative", "HEAD"],
                      ["ls-files", "--others", "--exclude-standard"]):
        result = subprocess.run(["git", *arguments], capture_output=True, text=True, cwd=root, check=True)
        names |= set(result.stdout.splitlines())
    return {root / name for name in names}


def apply(root, every):
    files = list(tree.sources(root)) if every else sorted(changed(root) & set(tree.sources(root)))
    if program() is None:
        sys.exit("clang-format-14 is not installed (scripts/setup installs it)")
    before = {path: path.read_bytes() for path in files}
    if files:
        subprocess.run([program(), "-i", *map(str, files)], cwd=root, check=True)
    count = 0
    for path in files:
        if path.read_bytes() != before[path]:
            print(path.relative_to(root))
            count += 1
    print(f"format: formatted {count} of {len(files)} files")


if __name__ == "__main__":
    if "--apply" in sys.argv:
        apply(tree.root_from_arguments(), "--all" in sys.argv)
    else:
        tree.report(faults(tree.root_from_arguments()), "format")

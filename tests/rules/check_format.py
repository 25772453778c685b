"""Every source file stands as clang-format 14 lays it out."""
import shutil
import subprocess

import tree


def faults(root):
    program = shutil.which("clang-format-14") or shutil.which("clang-format")
    if program is None:
        return ["clang-format-14 is not installed (scripts/setup installs it)"]
    files = [str(path) for path in tree.sources(root)]
    result = subprocess.run([program, "--dry-run", "-Werror", *files], capture_output=True, text=True, cwd=root)
    return [line for line in result.stderr.splitlines() if "error:" in line]


if __name__ == "__main__":
    tree.report(faults(tree.root_from_arguments()), "format")

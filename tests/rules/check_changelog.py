"""Checks that the SDK's changelog, docs/plugins/loading.md and every find_package(HeddleSdk) have the SDK's version."""
import re

import tree


def number(root, path, pattern):
    found = re.search(pattern, (root / path).read_text(), re.M)
    return int(found.group(1)) if found else None


def faults(root):
    sdk = number(root, "CMakeLists.txt", r"^set\(HEDDLE_SDK_NUMBER (\d+)\)")
    found = []
    for path, pattern in (("sdk/CHANGELOG.md", r"^## (\d+)"), ("docs/plugins/loading.md", r"`sdk=(\d+) ")):
        said = number(root, path, pattern)
        if said != sdk:
            found.append(f"{path}: the newest number is {said}, but HEDDLE_SDK_NUMBER is {sdk}")
    builds = [file for file in tree.scripts(root) if file.name == "CMakeLists.txt"]
    files = [*builds, *root.glob("docs/**/*.md"), *root.glob("sdk/**/*.md")]
    for file in files:
        for asked in re.findall(r"find_package\(HeddleSdk ([\d.]+) REQUIRED", file.read_text()):
            if asked.rstrip(")") != str(sdk):
                found.append(f"{file.relative_to(root)}: asks for HeddleSdk {asked}, but HEDDLE_SDK_NUMBER is {sdk}")
    return found


if __name__ == "__main__":
    tree.report(faults(tree.root_from_arguments()), "changelog")

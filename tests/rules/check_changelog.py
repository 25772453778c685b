"""The newest entry of the SDK's changelog and the tag in docs/plugins/loading.md have the SDK's number."""
import re

import tree


def number(root, path, pattern):
    found = re.search(pattern, (root / path).read_text(), re.M)
    return int(found.group(1)) if found else None


def faults(root):
    sdk = number(root, "CMakeLists.txt", r"^set\(HEDDLE_SDK_NUMBER (\d+)\)")
    found = []
    for path, pattern in (("sdk/CHANGELOG.md", r"^## (\d+)$"), ("docs/plugins/loading.md", r"`sdk=(\d+) ")):
        said = number(root, path, pattern)
        if said != sdk:
            found.append(f"{path}: its newest number is {said}, and HEDDLE_SDK_NUMBER is {sdk}")
    return found


if __name__ == "__main__":
    tree.report(faults(tree.root_from_arguments()), "changelog")

"""Checks that an entry of tests/operators names every autograd node of lib/nn and lib/decoder (a struct derived from LayerNode
or a call of recomputed()), and that node names are unique. The tests check that the entry's outputs have the node."""
import collections
import re

import tree

FOLDERS = ("lib/nn", "lib/decoder")
NODE = re.compile(r"\bstruct\s+(\w+)\s+(?:final\s*)?:\s*(?:public\s+)?(?:\w+::)*LayerNode\b")
NAME = re.compile(r"\bLayerNode\(\"(\w+)\"\)")
RECOMPUTED = re.compile(r"\brecomputed\(\s*\"(\w+)\"")
ENTRIES = "tests/operators"
# Nodes without an entry, with the reason.
EXCEPTIONS = {
    "WeightBackward": "starts deferred gradients in WeightGradients::drain(); weight_gradients_test.cpp compares their bits",
}


def faults(root):
    entries = "".join(path.read_text() for path in tree.sources(root, (ENTRIES,)))
    places = collections.defaultdict(list)
    found = []
    for path in tree.sources(root, FOLDERS):
        text, relative = path.read_text(), path.relative_to(root)
        names = NAME.findall(text)
        if len(names) != len(NODE.findall(text)):
            found.append(f"{relative}: each struct derived from LayerNode must pass a literal name")
        for name in names + RECOMPUTED.findall(text):
            places[name].append(relative)
    for name, files in sorted(places.items()):
        if len(files) > 1:
            found.append(f"{files[1]}: a node in {files[0]} also has the name {name}")
        if (f'"{name}"' in entries) == (name in EXCEPTIONS):
            found.append(f"{files[0]}: the node {name} " + ("is listed as an exception and has an entry" if name in EXCEPTIONS
                                                           else f"has no entry: add its operator to {ENTRIES}"))
    found += [f"check_operators: there is no node {name}" for name in EXCEPTIONS if places and name not in places]
    return found


if __name__ == "__main__":
    tree.report(faults(tree.root_from_arguments()), "operators")

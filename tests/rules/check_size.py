"""Sizes of files, functions, folders and of the SDK: at most 600 lines a file, 60 lines a function, 25 files a folder and
105 public headers. Exceptions are listed here with their reason."""
import re

import tree

MAX_FILE = 600
MAX_FUNCTION = 60
MAX_FOLDER = 25  # files
MAX_PUBLIC = 105  # headers that the SDK installs, the generated version.h among them
FILE_EXCEPTIONS = {}  # path: reason
FUNCTION_EXCEPTIONS = {  # "path:name": reason
    "python/engine/module.cpp:def": "a chain of bindings, one line each",
}

# With clang-format's layout a function's body opens at the end of a line that starts left of its body, and closes
# with a brace at the same column.
OPENING = re.compile(r"^( *)(?!namespace|class|struct|enum|union|extern|if|for|while|switch|else|do|try|catch|\}|case|"
                     r"return|#)(?:.*[\w>)&*\]]\s+)?([~\w:<>,]+|operator\S+)\(.*\{$|^( *)[^=;]*\) (?:const |override |noexcept )*\{$")


def functions(lines):
    """(name, first line from 1, number of lines) of what looks like a function's definition."""
    for number, line in enumerate(lines):
        match = OPENING.match(line)
        if not match:
            continue
        start = number
        while start > 0 and (lines[start - 1].rstrip().endswith((",", "(", "(const")) or
                             lines[start].lstrip().startswith(": ")):  # a constructor's initialisers
            start -= 1
        indent = re.match(r" *", lines[start]).group()
        if re.match(r"\s*(if|for|while|switch|else|do|try|catch|namespace|class|struct|return|\})", lines[start]):
            continue
        for end in range(number + 1, len(lines)):
            if re.match(indent + r"\}", lines[end]):
                name = re.search(r"([~\w:]+)\(", lines[start])
                yield (name.group(1) if name else "?", start + 1, end - start + 1)
                break


def tree_faults(root):
    found = []
    folders = {path.parent for path in tree.sources(root)}
    for folder in sorted(folders):
        count = sum(file.is_file() for file in folder.iterdir())
        if count > MAX_FOLDER:
            found.append(f"{folder.relative_to(root)}: {count} files, at most {MAX_FOLDER}")
    public = 1 + sum(1 for _ in tree.sources(root, ("sdk/include",)))
    if public > MAX_PUBLIC:
        found.append(f"sdk/include: {public} public headers, at most {MAX_PUBLIC}")
    return found


def faults(root):
    found = tree_faults(root)
    for path in tree.sources(root):
        relative = str(path.relative_to(root))
        lines = path.read_text().splitlines()
        if len(lines) > MAX_FILE and relative not in FILE_EXCEPTIONS:
            found.append(f"{relative}: {len(lines)} lines, at most {MAX_FILE}")
        for name, first, count in functions(lines):
            if count > MAX_FUNCTION and name != "TEST" and f"{relative}:{name}" not in FUNCTION_EXCEPTIONS:
                found.append(f"{relative}:{first}: {name} has {count} lines, at most {MAX_FUNCTION}")
    return found


if __name__ == "__main__":
    tree.report(faults(tree.root_from_arguments()), "size")

"""Checks words of documents, comments and help texts. Each paragraph of a DECISIONS.md has a title and at most three
sentences: context, decision, consequences. No document says "Would change". The README of a plugin has an example in YAML.
No comment of a source, script or build file, no docstring and no string of C++ begins with a word that drops its subject."""
import re

import check_documents
import tree

SENTENCES = 3
DROPS_ITS_SUBJECT = r"(?:Of|With|As|Those|Which|What|Where|Both|It|The same)\b"
COMMENT_LINE = {"//": re.compile(r"\s*//+!?<? ?(.*)$"), "#": re.compile(r"\s*#(?!!) ?(.*)$")}
COMMENT_BEHIND_CODE = {"//": re.compile(r"[;{},)] +// (.*)$"), "#": re.compile(r'\S  # ([^"]*)$')}
COMMENT_FAULT = re.compile(DROPS_ITS_SUBJECT)
DOCSTRING = re.compile(r'\s*[rR]?"""(' + DROPS_ITS_SUBJECT + r".*)")
STRING_FAULT = re.compile(r'"(' + DROPS_ITS_SUBJECT + r' [a-z][^"]*)"')
TITLE = re.compile(r"\*\*[^*]+\.\*\* ")
END_OF_SENTENCE = re.compile(r"[.?!][)`]* +(?=[A-Z`(*0-9])|[.?!][)`]*$")


def decision_faults(name, number, line):
    if not TITLE.match(line):
        yield f"{name}:{number}: a decision begins with a title in bold that ends with a full stop"
        return
    sentences = len(END_OF_SENTENCE.findall(TITLE.sub("", line, count=1)))
    if sentences > SENTENCES:
        yield f"{name}:{number}: {sentences} sentences, at most {SENTENCES}: context, decision, consequences"


def document_faults(root):
    for page in check_documents.pages(root):
        relative = page.relative_to(root)
        text = page.read_text()
        preamble = True
        for number, line in enumerate(text.splitlines(), 1):
            if "Would change" in line:
                yield f"{relative}:{number}: says what would change it; the consequences say so where it is foreseen"
            preamble = preamble and not line.startswith("**")
            if page.name == "DECISIONS.md" and line and not line.startswith("#") and not preamble:
                yield from decision_faults(relative, number, line)
        if relative.parts[0] == "plugins" and page.name == "README.md" and "```yaml\n" not in text:
            yield f"{relative}: has no example in YAML"


def comments(lines, mark):
    """Yields the first line of each comment block, and each trailing comment. Comments begin with the mark."""
    continues = False
    for number, line in enumerate(lines, 1):
        alone = COMMENT_LINE[mark].match(line)
        behind = None if alone else COMMENT_BEHIND_CODE[mark].search(line)
        if (alone and not continues) or behind:
            yield number, (alone or behind).group(1)
        continues = bool(alone or behind)


def marked_files(root):
    """Yields (path, mark of comments) of every source, script and build file."""
    for path in tree.sources(root):
        yield path, "//"
    for path in tree.scripts(root):
        yield path, "#"


def comment_faults(root):
    for path, mark in marked_files(root):
        relative, lines = path.relative_to(root), path.read_text().splitlines()
        for number, text in comments(lines, mark):
            if COMMENT_FAULT.match(text):
                yield f"{relative}:{number}: a comment begins with its subject or a verb: {text}"
        for number, line in enumerate(lines, 1):
            for text in STRING_FAULT.findall(line) if mark == "//" else []:
                yield f"{relative}:{number}: a text begins with its subject or a verb: {text}"
            if mark == "#" and (docstring := DOCSTRING.match(line)):
                yield f"{relative}:{number}: a docstring begins with its subject or a verb: {docstring[1]}"


def faults(root):
    return [*document_faults(root), *comment_faults(root)]


if __name__ == "__main__":
    tree.report(faults(tree.root_from_arguments()), "words")

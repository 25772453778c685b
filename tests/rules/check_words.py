"""Checks words of documents, comments and help texts. Each paragraph of a DECISIONS.md has a title and at most three
sentences: context, decision, consequences. No document says "Would change". The README of a plugin has an example in YAML.
In the folders of COVERED no comment and no string begins with a word that drops its subject. Add a folder to COVERED when
its last such comment is rewritten."""
import re

import check_documents
import tree

SENTENCES = 3
# Folders whose comments and strings are checked.
COVERED = ("bench", "core", "examples", "lib/checkpoint", "lib/cost", "lib/data", "lib/decoder", "lib/drawing",
           "lib/nn", "lib/ops", "lib/report", "lib/run", "lib/sharding", "lib/simulated", "lib/testing", "lib/train",
           "lib/transport", "plugins", "python", "sdk", "tests", "trainer")
DROPS_ITS_SUBJECT = r"(?:Of|With|As|Those|Which|What|Where|Both|It|The same)\b"
COMMENT_LINE = re.compile(r"\s*//+!?<? ?(.*)$")
COMMENT_BEHIND_CODE = re.compile(r"[;{},)] +// (.*)$")
COMMENT_FAULT = re.compile(DROPS_ITS_SUBJECT)
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


def comments(lines):
    """Yields the first line of each comment block, and each trailing comment."""
    continues = False
    for number, line in enumerate(lines, 1):
        alone = COMMENT_LINE.match(line)
        behind = None if alone else COMMENT_BEHIND_CODE.search(line)
        if (alone and not continues) or behind:
            yield number, (alone or behind).group(1)
        continues = bool(alone or behind)


def comment_faults(root):
    for path in tree.sources(root):
        relative = str(path.relative_to(root))
        if not relative.startswith(tuple(folder + "/" for folder in COVERED)):
            continue
        lines = path.read_text().splitlines()
        for number, text in comments(lines):
            if COMMENT_FAULT.match(text):
                yield f"{relative}:{number}: a comment begins with its subject or a verb: {text}"
        for number, line in enumerate(lines, 1):
            for text in STRING_FAULT.findall(line):
                yield f"{relative}:{number}: a text begins with its subject or a verb: {text}"


def faults(root):
    return [*document_faults(root), *comment_faults(root)]


if __name__ == "__main__":
    tree.report(faults(tree.root_from_arguments()), "words")

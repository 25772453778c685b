"""Checks that `heddle data --tokenizer` gives the ids of the library `tokenizers`, and `heddle generate` its texts.

    check_tokens.py HEDDLE
"""

import json
import pathlib
import struct
import subprocess
import sys
import tempfile

from tokenizers import Tokenizer, models, pre_tokenizers

import make_tokenizers


def heddle(*words, text=None):
    done = subprocess.run([sys.argv[1], *map(str, words)], input=text, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


def tokens_of(file):
    data = file.read_bytes()
    magic, version, count, width = struct.unpack("<4i", data[:16])
    width = 2 if magic == 20240520 else width
    assert version == 1 and len(data) == 1024 + count * width, file
    return width, list(struct.unpack(f"<{count}{'H' if width == 2 else 'I'}", data[1024:]))


def wanted(tokenizer, end, documents):
    """Returns the library's ids of each document, followed by the end token."""
    ids = []
    for document in documents:
        found = tokenizer.encode(document).ids
        ids += found if found[-1:] == [end] else found + [end]
    return ids


def same(name, file, tokenizer, end, documents):
    width, got = tokens_of(file)
    want = wanted(tokenizer, end, documents)
    assert width == (2 if tokenizer.get_vocab_size() <= 65536 else 4), name
    at = next((i for i, pair in enumerate(zip(got, want)) if pair[0] != pair[1]), None)
    assert got == want, f"{name}: {len(got)} tokens, not {len(want)}; the first that differs is number {at}"
    print(f"{name:40} {len(got):8} tokens of {len(documents)} documents, equal", flush=True)


def check_ids(folder, name, tokenizer, end_token, text):
    end, out = tokenizer.token_to_id(end_token), folder / "out.bin"
    make_tokenizers.save(tokenizer, end_token, folder)
    run = ["--tokenizer", folder, "--out", out, "--force"]
    # Files are written with newline="", so that no byte of the text changes.
    (folder / "whole.txt").write_text(text, encoding="utf-8", newline="")
    (folder / "short.txt").write_text("In the beginning", encoding="utf-8", newline="")
    heddle("data", folder / "whole.txt", folder / "short.txt", *run)
    same(f"{name}, two files", out, tokenizer, end, [text, "In the beginning"])
    heddle("data", "-", *run, text=text[:3000].encode())
    same(f"{name}, standard input", out, tokenizer, end, [text[:3000]])

    lines = [line.removesuffix("\r") for line in text[:200000].split("\n")]
    (folder / "lines.txt").write_text("\n".join(lines), encoding="utf-8", newline="")
    lines = [line for line in lines if line]
    heddle("data", folder / "lines.txt", *run, "--lines")
    same(f"{name}, lines", out, tokenizer, end, lines)
    rows = [{"id": number, "body": line} for number, line in enumerate(lines)]
    (folder / "rows.json").write_text("\n".join(json.dumps(row, ensure_ascii=row["id"] % 2 == 0) for row in rows))
    heddle("data", folder / "rows.json", *run, "--field", "body")
    same(f"{name}, JSON lines", out, tokenizer, end, lines)
    (folder / "rows.jsonl").write_text("\n \n".join(json.dumps({"text": line}) for line in lines[:100]))
    heddle("data", folder / "rows.jsonl", *run)
    same(f"{name}, *.jsonl", out, tokenizer, end, lines[:100])
    # Texts without a place to split: one letter, spaces, a four-byte character.
    for odd in ("a" * 300000, "b" + " " * 300000, "\U0001f600" * 140000):
        (folder / "odd.txt").write_text(odd, encoding="utf-8")
        heddle("data", folder / "odd.txt", *run)
        same(f"{name}, repeated {odd[-1]!a}", out, tokenizer, end, [odd])


def wide():
    """Returns a tokenizer with more tokens than 16 bits can represent, and a text."""
    vocabulary = {word: number for number, word in enumerate(["<unk>", "</s>", *(f"w{n}" for n in range(70000))])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return tokenizer, "</s>", " ".join(f"w{n}" for n in range(69990, 60000, -7))


def main():
    with tempfile.TemporaryDirectory() as place:
        folder = pathlib.Path(place)
        text = make_tokenizers.mixed_text(900000)
        print(f"{len(text.encode())} bytes of text")
        assert len(text.encode()) > 1 << 20
        lines = text.split("\n")[:3000]
        for name, make in make_tokenizers.KINDS.items():
            tokenizer, end = make(lines)
            check_ids(folder / name, name, tokenizer, end, text)
        tokenizer, end, words = wide()
        make_tokenizers.save(tokenizer, end, folder / "wide")
        (folder / "wide.txt").write_text(words)
        heddle("data", folder / "wide.txt", "--tokenizer", folder / "wide", "--out", folder / "wide.bin")
        same("70,002 tokens", folder / "wide.bin", tokenizer, tokenizer.token_to_id(end), [words])


if __name__ == "__main__":
    main()

"""Writes a .samples file: tokens in order, indices and runs in separate files that are joined at the end."""

import array
import json
import mmap
import os
import shutil
import struct
import sys
import tempfile

HEADER = 192
ALIGN = 64
LAST_IS_INPUT, ROWS_DROPPED, LABELS_ARE_INPUTS = 1, 2, 4  # flags


def integers(bits):
    """Returns the type code of array.array for integers of this many bits."""
    return next(code for code in "HILQ" if array.array(code).itemsize * 8 == bits)


def little(values):
    if sys.byteorder != "little":
        values.byteswap()
    return values


def wrong(ids, spans):
    """Returns a description of a sample's fault, or None if the sample is valid."""
    at = 0
    for begin, end in spans:
        if not at <= begin < end <= len(ids):
            return f"of {len(ids)} ids whose runs do not rise inside it: {spans}"
        at = end + 1
    return None if len(ids) < 1 << 32 else f"of {len(ids)} ids"


class SamplesFile:
    """A .samples file that is written. spread: samples are reordered at the end, so their tokens are first written to a
    temporary file."""

    def __init__(self, path, vocabulary, flags=0, spread=False):
        folder = os.path.dirname(os.path.abspath(path))
        self.wide = 4 if vocabulary > 1 << 16 else 2
        self.code = integers(8 * self.wide)
        self.file = open(path, "wb+", buffering=1 << 20)
        self.file.write(bytes(HEADER))
        self.firsts, self.run_firsts, self.runs = (tempfile.TemporaryFile(dir=folder) for _ in range(3))
        self.words = tempfile.TemporaryFile(dir=folder) if spread else self.file
        self.order, self.folder = None, folder
        self.flags, self.unlabelled = flags, 0 if flags & LABELS_ARE_INPUTS else 1  # number of first tokens without a label
        self.samples = self.tokens = self.run_count = self.labels = self.empty = self.longest = 0

    def add(self, samples):
        """Appends samples, pairs of (ids, runs). Runs are the [begin, end) of trained tokens."""
        firsts, run_firsts, runs, tokens = (array.array(integers(bits)) for bits in (64, 64, 32, 8 * self.wide))
        for ids, spans in samples:
            firsts.append(self.tokens + len(tokens))
            run_firsts.append(self.run_count + len(runs) // 2)
            tokens.extend(ids)
            labels = 0
            for begin, end in spans:
                runs.append(begin)
                runs.append(end)
                labels += max(0, end - max(begin, self.unlabelled))
            self.labels += labels
            self.empty += labels <= 0
            self.longest = max(self.longest, len(ids))
        self.samples += len(firsts)
        self.tokens += len(tokens)
        self.run_count += len(runs) // 2
        for values, file in ((tokens, self.words), (firsts, self.firsts), (run_firsts, self.run_firsts),
                             (runs, self.runs)):
            file.write(little(values).tobytes())

    def section(self, source=None, data=b""):
        """Writes a section at the next multiple of ALIGN bytes; returns its offset and size."""
        self.file.write(bytes(-self.file.tell() % ALIGN))
        begin = self.file.tell()
        if source is not None:
            source.seek(0)
            shutil.copyfileobj(source, self.file, 1 << 20)
        self.file.write(data)
        return begin, self.file.tell() - begin

    def close(self, ids, description):
        """Writes the header and the description. ids: vocabulary size, and ids of bos, eos and pad (-1: none). Checksums are
        zero until heddle writes them."""
        if self.order is not None:
            self.reorder()
        places = [(HEADER, self.tokens * self.wide)]
        for source, last in ((self.firsts, self.tokens), (self.run_firsts, self.run_count)):
            places.append(self.section(source, struct.pack("<Q", last)))
        places.append(self.section(self.runs))
        places.append(self.section(data=json.dumps(description, ensure_ascii=False, sort_keys=True).encode()))
        self.file.seek(0)
        self.file.write(struct.pack("<8sII3QII4q", b"HDLSMPL\0", 1, HEADER, self.samples, self.tokens, self.run_count,
                                    self.wide, self.flags, *ids))
        for place in places:
            self.file.write(struct.pack("<QQ", *place))
        self.file.flush()
        os.fsync(self.file.fileno())

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for file in {self.file, self.words, self.firsts, self.run_firsts, self.runs}:
            file.close()

    def reorder(self):
        """Writes the stored samples in the order of `order`."""
        old = {}
        for name, last in (("words", None), ("firsts", self.tokens), ("run_firsts", self.run_count), ("runs", None)):
            stream = getattr(self, name)
            stream.write(b"" if last is None else struct.pack("<Q", last))
            stream.flush()
            old[name] = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) if stream.tell() else b""
        for stream in (self.words, self.firsts, self.run_firsts, self.runs):
            stream.close()
        self.words, self.firsts, self.run_firsts, self.runs = self.file, *(
            tempfile.TemporaryFile(dir=self.folder) for _ in range(3))
        tokens = run_count = 0
        for sample in self.order:
            begin, end = struct.unpack_from("<QQ", old["firsts"], 8 * sample)
            run, last = struct.unpack_from("<QQ", old["run_firsts"], 8 * sample)
            self.firsts.write(struct.pack("<Q", tokens))
            self.run_firsts.write(struct.pack("<Q", run_count))
            self.words.write(old["words"][begin * self.wide:end * self.wide])
            self.runs.write(old["runs"][8 * run:8 * last])
            tokens, run_count = tokens + end - begin, run_count + last - run

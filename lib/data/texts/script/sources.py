"""Reads the rows of a split from its files, in batches."""

import os

import arrow_rows
import json_rows
from bad_rows import BadRows
from faults import Fault

BATCH = 1000
LINES = (".jsonl", ".ndjson")


class Batch:
    """Rows with their places, for messages."""

    def __init__(self, rows, places):
        self.rows, self.places = rows, places


def of_size(batches, size=BATCH):
    """Regroups rows into batches of exactly `size`, except for the last."""
    rows, places = [], []
    for batch in batches:
        rows += batch.rows
        places += batch.places
        while len(rows) >= size:
            yield Batch(rows[:size], places[:size])
            rows, places = rows[size:], places[size:]
    if rows:
        yield Batch(rows, places)


class Json:
    def __init__(self, file, bad):
        self.file, self.bad, self.rows = file, bad, None

    def pairs(self, bad):
        if os.path.splitext(self.file)[1].lower() in LINES:
            return json_rows.lines(self.file, bad)
        return json_rows.values(self.file, bad)

    def count(self):
        if self.rows is None:
            bad = BadRows(self.bad.skip)
            self.rows = sum(1 for _ in self.pairs(bad))
            bad.tell()
        return self.rows

    def read(self, begin, end):
        rows, lines, number = [], [], 0
        if begin < end:
            for line, row in self.pairs(self.bad):
                if number >= begin:
                    rows.append(row)
                    lines.append(f"{self.file}:{line}")
                number += 1
                if len(rows) == BATCH:
                    yield Batch(rows, lines)
                    rows, lines = [], []
                if number >= end:
                    break
        if rows:
            yield Batch(rows, lines)


class Table:
    def __init__(self, reader):
        self.reader, self.count, self.file = reader, reader.count, reader.file
        self.cheap = isinstance(reader, arrow_rows.Parquet)

    def read(self, begin, end):
        for first, rows in self.reader.read(begin, end):
            yield Batch(rows, [f"{self.reader.file}: row {row}" for row in range(first, first + len(rows))])


def check_kind(file):
    """Raises a fault for a path that is not a file, or a format that is not read."""
    if not os.path.isfile(file):
        raise Fault("is not a file" if os.path.exists(file) else f"File not found: {file}", file)
    kind = os.path.splitext(file)[1].lower()
    if kind in (".gz", ".zst", ".zip", ".bz2", ".xz", ".csv", ".tsv"):
        raise Fault(f"a data file of the kind {kind}", file, "heddle reads JSON, JSONL, Parquet and Arrow files")


def opened(file, columns, bad):
    check_kind(file)
    kind = os.path.splitext(file)[1].lower()
    if kind in (".parquet", ".geoparquet", ".gpq"):
        return Table(arrow_rows.Parquet(file, columns))
    if kind == ".arrow":
        return Table(arrow_rows.Arrow(file, columns))
    return Json(file, bad)


class Split:
    """The files of a split as one list of rows. `bad` collects invalid rows. expected: number of rows in the card."""

    def __init__(self, files, bad, columns=None, expected=None):
        if not files:
            raise Fault("No data files provided")
        self.files, self.bad = [opened(file, columns, bad) for file in files], bad
        self.expected = expected
        self.check(self.known())

    def check(self, rows):
        if None not in (rows, self.expected) and rows != self.expected and not self.bad.skip and not self.bad.faults:
            raise Fault(f"has {rows} rows with the other files of its split, but the data set's card says {self.expected}",
                        self.files[0].file, "Correct num_examples in the card, or list the data files instead.")

    def count(self):
        return sum(file.count() for file in self.files)

    def known(self):
        """Returns the number of rows if no file must be read for it, else None."""
        return self.count() if all(isinstance(file, Table) and file.cheap for file in self.files) else None

    def read(self, begin=0, end=None):
        """Yields batches of the rows [begin, end), each from one file."""
        at = seen = 0
        for index, file in enumerate(self.files):
            if end is not None and at >= end:
                return
            last = index + 1 == len(self.files)
            if begin <= at and end is None or last:  # reads the whole file without counting its rows
                rows = None
            else:
                rows = file.count()
            if rows is None or at + rows > begin:
                for batch in file.read(max(0, begin - at), float("inf") if end is None else end - at):
                    seen += len(batch.rows)
                    yield batch
            at += rows or 0
        if begin == 0 and end is None:
            self.check(seen)

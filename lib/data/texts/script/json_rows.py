"""Reads rows of JSON files (lines, an array, or consecutive values), each in bounded memory."""

import codecs
import json
import re

from faults import Fault

CHUNK = 1 << 20
LONGEST = 16 << 20  # maximum bytes of a row
DIGITS = 4000  # maximum digits of a number
SPACE = re.compile(r"[ \t\r\n]*")


def whole(digits):
    if len(digits) > DIGITS:
        raise ValueError(f"a number of {len(digits)} digits")
    return int(digits)


DECODER = json.JSONDecoder(parse_int=whole)


def decode(function, text, where):
    """Calls function(text) and converts JSON errors to a Fault at where(line or None)."""
    try:
        return function(text)
    except json.JSONDecodeError as error:
        raise Fault(f"is not JSON: {error.msg}, column {error.colno}", where(error.lineno)) from None
    except RecursionError:
        raise Fault("is nested too deeply", where(None), "flatten or remove the row") from None
    except ValueError as error:
        raise Fault(f"is not JSON: {error}", where(None)) from None


def no_object(row, where):
    return Fault(f"is {type(row).__name__}, not an object with the columns of a row", where)


def too_long(where):
    return Fault(f"a row of more than {LONGEST >> 20} MiB", where, "write one row per line; split or remove longer rows")


def lines(file, bad):
    """Yields (line, row); invalid lines go to `bad`."""
    with open(file, "rb") as stream:
        number = 0
        for line in iter(lambda: stream.readline(LONGEST + 1), b""):
            number += 1
            if len(line) > LONGEST:
                if not bad.skip:
                    bad.tell(too_long(f"{file}:{number}"))
                bad.take(too_long(f"{file}:{number}"), file)
                while line and not line.endswith(b"\n"):
                    line = stream.readline(LONGEST)
                continue
            if number == 1 and line.startswith(codecs.BOM_UTF8):
                line = line[len(codecs.BOM_UTF8):]
            try:
                row = one(line, lambda _, number=number: f"{file}:{number}")
            except Fault as fault:
                bad.take(fault, file)
                continue
            if row is not None:
                yield number, row


def one(line, where):
    """Returns the row of a line of bytes, None for an empty line."""
    try:
        text = line.decode("utf-8").strip()
    except UnicodeDecodeError as error:
        raise Fault(f"is not UTF-8: byte {line[error.start]:#04x} at {error.start} of the line", where(None)) from None
    row = decode(DECODER.decode, text, where) if text else None
    if text and not isinstance(row, dict):
        raise no_object(row, where(None))
    return row


class Text:
    """Text of a file, which is read on demand and discarded after use."""

    def __init__(self, file):
        self.file, self.text, self.at, self.line, self.ended = file, "", 0, 1, False
        self.stream = open(file, "rb")
        self.decoder = codecs.getincrementaldecoder("utf-8-sig")()

    def where(self, line=None):
        return f"{self.file}:{self.line + (line or 1) - 1}"

    def more(self, size=CHUNK):
        data = self.stream.read(size)
        self.ended = len(data) < size
        self.line += self.text.count("\n", 0, self.at)
        try:
            self.text = self.text[self.at:] + self.decoder.decode(data, self.ended)
        except UnicodeDecodeError as error:
            line = self.text.count("\n", self.at) + data.count(b"\n", 0, error.start) + 1
            raise Fault(f"is not UTF-8: {error.reason}", self.where(line)) from None
        self.at = 0

    def peek(self):
        """Returns the next character that is not whitespace; "" at the end."""
        while True:
            self.at = SPACE.match(self.text, self.at).end()
            if self.at < len(self.text) or self.ended:
                return self.text[self.at:self.at + 1]
            self.more()

    def value(self):
        """Returns the value that starts here, reading more text if the value is incomplete."""
        size = CHUNK
        while True:
            try:
                value, self.at = decode(lambda text: DECODER.raw_decode(text, self.at), self.text, self.place)
                return value
            except Fault as fault:
                if self.ended or "nested" in fault.what:
                    raise
            if len(self.text) - self.at > LONGEST:
                raise too_long(self.where())
            self.more(size)
            size = min(2 * size, LONGEST)

    def place(self, line):
        begun = self.text.count("\n", 0, self.at) + 1
        return self.where(line if line is not None else begun)


def values(file, bad):
    """Yields (line, row) of an array or of consecutive values; values that are not objects go to `bad`."""
    text = Text(file)
    with text.stream:
        array = text.peek() == "["
        if array:
            text.at += 1
            if text.peek() == "]":
                return
        while array or text.peek():
            text.peek()
            line = text.line + text.text.count("\n", 0, text.at)
            row = text.value()
            if isinstance(row, dict):
                yield line, row
            else:
                bad.take(no_object(row, f"{file}:{line}"))
            if not array:
                continue
            after = text.peek()
            if after not in (",", "]"):
                raise Fault(f"is not JSON: {after!r} after a row, where ',' or ']' was expected" if after else
                            "ends inside its array", text.where(text.text.count("\n", 0, text.at) + 1))
            text.at += 1
            if after == "]":
                return

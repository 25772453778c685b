"""Errors of data preparation, with the messages that heddle prints."""

import os

OF_A_ROW = (KeyError, TypeError, ValueError, AttributeError, IndexError, RecursionError)


class Fault(Exception):
    """An error of data preparation. kind: "input" (data and files), "config" (the recipe), "package" (a Python package is
    missing) or "plugin" (the format module)."""

    def __init__(self, what, where="", hint="", kind="input"):
        super().__init__(what)
        self.what, self.where, self.hint, self.kind = what, where, hint, kind
        self.index = None  # index of the row in the current batch
        self.text = None  # index of the text in the current batch
        self.error = None  # the original exception, attributed to a row
        self.more = []  # faults of other rows
        self.of_all = False  # whether the fault applies to all rows, although one row caused it

    def message(self):
        words = {"kind": self.kind, "where": self.where, "what": self.what, "hint": self.hint}
        return {**words, "more": [fault.message() for fault in self.more]} if self.more else words


def about_row(error):
    """Returns the fault for an exception of OF_A_ROW."""
    fault = Fault(f"the row has no {error}" if isinstance(error, KeyError) else str(error))
    fault.error = error
    return fault


def of_module(error, script, place, of_a_row=(ValueError, KeyError, RecursionError)):
    """Returns the fault of the format module `script` if one of its lines raised the error, else None. Exceptions of the types
    `of_a_row` are faults of a row."""
    if error is None or isinstance(error, of_a_row):
        return None
    line, at = None, error.__traceback__
    while at is not None:
        file = os.path.abspath(at.tb_frame.f_code.co_filename)
        if file == os.path.abspath(script):
            line = at.tb_lineno
        elif os.path.dirname(file) == os.path.dirname(os.path.abspath(__file__)):
            line = None
        at = at.tb_next
    what = f"line {line} of the format module throws {type(error).__name__}: {error}, at {place}"
    return None if line is None else Fault(what, f"{script}:{line}", kind="plugin")


def package(error, needs):
    """Returns the fault for an ImportError; `needs`: what the package is used for."""
    name = (error.name or str(error)).split(".")[0]
    return Fault(name, "", f"pip install {name}, or set HEDDLE_PYTHON to a Python that has it: {needs}", "package")

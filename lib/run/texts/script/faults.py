"""What goes wrong while data are prepared, in the words that heddle prints."""


class Fault(Exception):
    """kind: input (data and files), config (the recipe), package (Python lacks one)."""

    def __init__(self, what, where="", hint="", kind="input"):
        super().__init__(what)
        self.what, self.where, self.hint, self.kind = what, where, hint, kind
        self.index = None  # of the row among those that were being converted
        self.text = None  # of the text among those that were being tokenized

    def message(self):
        return {"kind": self.kind, "where": self.where, "what": self.what, "hint": self.hint}


def package(error, needs):
    """The fault of an ImportError; `needs` says what for."""
    name = (error.name or str(error)).split(".")[0]
    return Fault(name, "", f"pip install {name}, or let HEDDLE_PYTHON name a Python that has it: {needs}", "package")

"""The error that every function of heddle raises: what is wrong, where, and what to do about it."""
from __future__ import annotations

import json
import re
from typing import Any, Mapping, Sequence


class Error(Exception):
    """A fault that heddle found.

    Attributes:
        code: ``"config"``, ``"input"``, ``"usage"``, ``"not_built"``, ``"mesh"``, ``"plugin_missing"``,
            ``"plugin_abi"``, ``"plugin_conflict"``, ``"plugin_failed"``, ``"rank_lost"``, ``"timeout"``, ``"io"``,
            ``"memory"``, ``"internal"`` or ``"diverged"``.
        where: the file with its line and the key, a parameter's name, or a part of heddle.
        message: the value given and what is allowed.
        hint: what to do about it, or ``""``.
        all: every error that was found together with this one, this one first.
    """

    def __init__(self, code: str, where: str, message: str, hint: str = "") -> None:
        super().__init__(code, where, message, hint)
        self.code = code
        self.where = where
        self.message = message
        self.hint = hint
        self.all: Sequence[Error] = (self,)

    def __str__(self) -> str:
        """The block of text that the program prints: ``error[CODE] WHERE: MESSAGE`` and a line for the hint."""
        return "\n".join(f"error[{e.code}] {e.where}: {e.message}" + (f"\n  hint: {e.hint}" if e.hint else "")
                         for e in self.all)


def error_from_json(record: Mapping[str, Any]) -> Error:
    """Returns the error of ``{"error": {...}, "errors": [...]}``, which the program prints under ``--json``."""
    listed = record.get("errors") or [record["error"]]
    errors = [Error(one["code"], one["where"], one["what"], one.get("hint", "")) for one in listed]
    errors[0].all = tuple(errors)
    return errors[0]


def error_in_output(output: str) -> Error | None:
    """Returns the error of the first line of JSON that holds one, or None."""
    for line in output.splitlines():
        if not line.startswith('{"') or '"error"' not in line:
            continue
        try:
            record = json.loads(line)
        except ValueError:
            continue
        if isinstance(record, dict) and isinstance(record.get("error"), dict):
            return error_from_json(record)
    return None


_BLOCK = re.compile(r"error\[(?P<code>\w+)\] (?P<where>.*?): (?P<message>.*?)(?:\n  hint: (?P<hint>.*))?", re.DOTALL)


def error_in_text(text: str) -> Error | None:
    """Returns the error of a block `error[CODE] WHERE: MESSAGE` with or without a line for the hint, or None."""
    found = _BLOCK.fullmatch(text.rstrip("\n"))
    return None if found is None else Error(found["code"], found["where"], found["message"], found["hint"] or "")

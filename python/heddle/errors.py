"""heddle.Error, the exception of all functions of heddle, with a place, a message and a hint."""
from __future__ import annotations

import json
import re
from typing import Any, Mapping, Sequence


class Error(Exception):
    """An error that heddle reports.

    Attributes:
        code: ``"config"``, ``"input"``, ``"usage"``, ``"not_built"``, ``"mesh"``, ``"plugin_missing"``,
            ``"plugin_abi"``, ``"plugin_conflict"``, ``"plugin_failed"``, ``"rank_lost"``, ``"timeout"``, ``"io"``,
            ``"internal"`` or ``"diverged"``.
        where: the file with its line and the key, a parameter's name, or a part of heddle.
        message: the value given and what is allowed.
        hint: the next action, or ``""``.
        all: all errors that were found together, beginning with this one.
    """

    def __init__(self, code: str, where: str, message: str, hint: str = "") -> None:
        super().__init__(code, where, message, hint)
        self.code = code
        self.where = where
        self.message = message
        self.hint = hint
        self.all: Sequence[Error] = (self,)

    def __str__(self) -> str:
        """Returns the text that the program prints: ``error[CODE] WHERE: MESSAGE`` and a line with the hint."""
        return "\n".join(f"error[{e.code}] {e.where}: {e.message}" + (f"\n  hint: {e.hint}" if e.hint else "")
                         for e in self.all)


def error_from_json(record: Mapping[str, Any]) -> Error:
    """Returns the error of ``{"error": {...}, "errors": [...]}``, which the program prints with ``--json``."""
    listed = record.get("errors") or [record["error"]]
    errors = [Error(one["code"], one["where"], one["what"], one.get("hint", "")) for one in listed]
    errors[0].all = tuple(errors)
    return errors[0]


def error_in_output(output: str) -> Error | None:
    """Returns the error of the first line that is a JSON object with an error, or None."""
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
    """Returns the error of a block `error[CODE] WHERE: MESSAGE` with or without a hint line, or None."""
    found = _BLOCK.fullmatch(text.rstrip("\n"))
    return None if found is None else Error(found["code"], found["where"], found["message"], found["hint"] or "")


_TIMEOUT = "dist_env.timeout_minutes"
_DIFFERENT = "ranks call different collectives"


def in_terms_of_python(error: Error) -> Error:
    """Returns an error with hints for a Python loop: on ranks whose calls differ, and on a timeout."""
    if _TIMEOUT in error.hint:
        return Error(error.code, error.where, error.message, error.hint.replace(_TIMEOUT, "heddle.init(timeout=...)"))
    found = error.message.find(_DIFFERENT)
    if found < 0:
        return error
    return Error("usage", "heddle.fully_shard", error.message[found:], "run the same calls on every rank, in the same "
                 "order: look for a forward, a backward, an evaluation or a save that only some ranks run, as within "
                 "'if rank == 0', or a unit that only some ranks run within torch.utils.checkpoint")

"""Parses `split` like the library datasets: "train", "train[64:128]", "train[:10%]", and sums with "+"."""

import re

from faults import Fault

PART = re.compile(r"^(?P<name>\w+(?:\.\w+)*)(?:\[(?:(?P<begin>-?[\d_]+)(?P<begin_share>%)?)?:"
                  r"(?:(?P<end>-?[\d_]+)(?P<end_share>%)?)?\])?(?:\((?P<rounding>[^)]*)\))?$", re.ASCII)
ROUNDINGS = (None, "closest", "pct1_dropremainder")


def fault(what, hint=""):
    return Fault(what, "dataset.split", hint, "config")


class Part:
    """The name and the slice of a split."""

    def __init__(self, text):
        found = PART.match(text.strip())
        if not found:
            raise fault(f"Unrecognized instruction format: {text}",
                        "write train, train[64:128], train[:10%] or a sum of them")
        self.text, self.name, self.rounding = text.strip(), found["name"], found["rounding"]
        self.begin, self.end = (None if found[key] is None else int(found[key]) for key in ("begin", "end"))
        self.shares = bool(found["begin_share"] or found["end_share"])
        self.sliced = "[" in text
        if self.rounding not in ROUNDINGS or (self.rounding and not self.shares):
            raise fault(f"{text}: the rounding is not known", "closest or pct1_dropremainder, of a slice with %")
        if self.shares and any(abs(bound) > 100 for bound in (self.begin, self.end) if bound is not None):
            raise fault(f"{text}: Percent slice boundaries must be > -100 and < 100.")

    def needs_count(self):
        return self.shares or any(bound is not None and bound < 0 for bound in (self.begin, self.end))

    def bound(self, value, rows, absent):
        if value is None:
            return absent
        if self.shares:
            value = value * (rows // 100) if self.rounding == "pct1_dropremainder" else round(value * rows / 100.0)
        return min(max(rows + value, 0) if value < 0 else value, rows)

    def rows(self, count):
        """Returns [begin, end) of `count()` rows. end is None for a slice up to the last row. Calls count() only if the slice
        depends on it."""
        if not self.needs_count():
            return self.begin or 0, self.end
        total = count()
        if self.rounding == "pct1_dropremainder" and total < 100:
            raise fault(f'Using "pct1_dropremainder" rounding on a split with less than 100 elements is forbidden: '
                        f"it always results in an empty dataset. {self.name} has {total}")
        return self.bound(self.begin, total, 0), self.bound(self.end, total, total)


def parse(text):
    return [Part(part) for part in re.split(r"\s*\+\s*", text.strip())]

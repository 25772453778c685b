"""Collects invalid rows: reports the first ones together, or skips and counts all."""

import time

MOST = 20  # reported rows, and reasons with their own count
SECONDS = 30  # time limit for reading rows after the first invalid one
OTHERS = "other reasons"


class BadRows:
    def __init__(self, skip=False):
        self.skip, self.faults, self.first = skip, [], 0.0
        self.lines, self.reasons = {}, {}  # lines that are not JSON by file; [rows, place of the first] by reason

    def take(self, fault, file=None):
        """Records the fault of a row, or of a line of `file` that is not JSON. Returns why the row is skipped."""
        if not self.skip:
            self.first = self.first if self.faults else time.monotonic()
            self.faults.append(fault)
            if len(self.faults) == MOST:
                fault.hint = fault.hint or f"These are the first {MOST} wrong rows; there may be more."
                self.tell()
        elif file is not None:
            self.lines[file] = self.lines.get(file, 0) + 1
        reason = fault.what if fault.what in self.reasons or len(self.reasons) < MOST else OTHERS
        if self.skip and file is None:
            self.reasons.setdefault(reason, [0, fault.where])[0] += 1
        return reason

    def tell(self, last=None):
        """Raises the recorded faults, followed by `last`."""
        faults = self.faults + ([] if last is None else [last])
        if faults:
            faults[0].more = faults[1:]
            raise faults[0]

    def tell_in_time(self):
        if self.faults and time.monotonic() - self.first > SECONDS:
            self.tell()

    def sentences(self):
        """Returns warnings that count the skipped rows."""
        out = [f"Skipped {lines} malformed JSONL line(s) from {file} (skip_invalid_samples=True)"
               for file, lines in self.lines.items()]
        return out + [f"Skipped {rows} row(s) (skip_invalid_samples=True): {reason}; the first is {place}"
                      for reason, (rows, place) in self.reasons.items()]

"""Tools of a format module. heddle_prepare.py documents the functions for plugins."""

import datetime
import hashlib
import re

import chat
import labels
import samples_file
import splits
from bad_rows import BadRows
from chat_template import ChatTemplate, resolved
from faults import OF_A_ROW, Fault, about_row
from permutation import permutation
from sources import Batch, Split, check_kind, of_size
from text_tokenizer import TextTokenizer

CUTS = (True, "longest_first", "only_first")
PADDINGS = (False, True, None, "longest", "max_length", "do_not_pad")
ALL = "all"  # selects every split, in the order of the data set
PLAIN_SLICE = re.compile(r"^(\w+)\[(\d*):(\d*)\]$", re.ASCII)  # a slice that is applied after shuffling


class Tools:
    def __init__(self, job, say):
        self.job, self.say, self.arguments = job, say, job["arguments"]
        self.local = job.get("is_local", False) and not self.arguments.get("apply_split")
        self.flags, self.filled, self.filled_to, self.replaces = 0, None, None, False
        self.generated = self.order = self.cached = None
        self.asked, self.told = (None, None), lambda rows: None
        self.parts, self.dropped, self.notes, self.facts, self.warned, self.bad = [], {}, {}, {}, set(), BadRows()

    # ---- tokenizer and samples

    @property
    def tokenizer(self):
        if self.cached is None:
            if not self.job.get("tokenizer"):
                raise Fault("Tokenizer is required", "dataset.tokenizer", "name a model's directory that has one",
                            "config")
            self.cached = TextTokenizer(self.job["tokenizer"], self.job.get("model_type", ""),
                                        self.job.get("tokenizer_arguments"))
            for warning in self.cached.warnings:
                self.warn(warning)
            self.limit = self.cached.limit(self.arguments.get("truncation", False), self.arguments.get("seq_length"))
        return self.cached

    def prompt_and_answer(self, pairs, answer_only=True):
        """Returns samples of (prompt, answer) like AutoModel, truncated to seq_length if `truncation` is set."""
        ends = self.tokenizer.templates is None and self.arguments.get("truncation", False) is None
        return labels.prompt_and_answer(self.tokenizer, pairs, self.limit, answer_only,
                                        self.arguments.get("exact_answer_mask", False), ends, self.tell)

    def has_template(self, given=None):
        return given is not None or self.tokenizer.templates is not None

    def chat(self, given=None, **options):
        """Returns a Chat with the recipe's template, else with the tokenizer's template. Its samples() takes (messages,
        tools)."""
        templates = self.tokenizer.templates if given is None else resolved(given)
        if templates is None:
            raise Fault("Tokenizer lacks a usable chat template (chat_template/apply_chat_template)",
                        "dataset.chat_template", "set it to Jinja text, or to a file that contains it", "config")
        self.tokenizer.fill_pad()
        try:
            date = datetime.date.fromisoformat(self.job["date"])
        except ValueError:
            raise Fault(f"{self.job['date']!r} is not a date", "dataset.date", "write YYYY-MM-DD", "config") from None
        template = ChatTemplate(templates, self.tokenizer.named(), date)
        self.facts.update(template_sha256=hashlib.sha256(template.text.encode("utf-8", "replace")).hexdigest(),
                          template_asks_for_date=template.date)
        if template.date:
            self.warn(f"the chat template puts the date into every row: {date}; dataset.date fixes it")
        return chat.Chat(self.tokenizer, template, self.limit, warn=self.warn, tell=self.tell, **options)

    def fill(self, seq_length=None):
        """Returns the length to which `padding: max_length` pads every row. Warns if seq_length has no effect."""
        padding, tokenizer = self.arguments.get("padding", False), self.tokenizer
        if padding not in PADDINGS:
            raise self.fault(f"{padding!r} is not one of {', '.join(map(str, PADDINGS))}", "padding")
        if seq_length is not None and self.limit is None and padding != "max_length":
            self.warn(f"`seq_length={seq_length}` has no effect: truncation is disabled and `padding` is not 'max_length'. "
                      "Set `truncation=True` to cap long rows, or `padding='max_length'` to pad to `seq_length`.")
        if seq_length is None and self.limit is None and self.arguments.get("truncation") in CUTS:
            self.warn("`truncation` has no effect: seq_length is not set, and the tokenizer has no model_max_length. Set "
                      "`seq_length`.")
        if padding == "max_length":
            longest = tokenizer.longest
            self.filled = seq_length if seq_length is not None else longest - 1 if longest < 10**20 else None

    # ---- rows

    def read(self, split, limit=None, columns=None, first=None, exact=False, shuffle_seed=None, skip_invalid=False):
        """Selects the rows to convert: the `first` rows of `split`. With `exact`, fewer rows are an error. `limit` appends
        [:limit] to the split. shuffle_seed shuffles the split before slicing."""
        self.asked = (split, shuffle_seed)
        for file in (file for files in self.job["files"].values() for file in files):
            check_kind(file)
        self.bad.skip = skip_invalid
        if self.local:
            self.parts = [(Split(self.job["files"][""], self.bad, columns), 0, None)]
        elif shuffle_seed is not None:
            self.mix(split, columns, shuffle_seed)
        else:
            self.parts = self.named(self.limited(split, limit), columns)
        if first is not None:
            self.cut(first, exact)

    def limited(self, split, limit):
        if limit is None:
            return split
        if "[" in split:
            self.warn(f"Dataset split {split} already has a slice, skipping limit_dataset_samples")
            return split
        return f"{split}[:{limit}]"

    def named(self, split, columns):
        if split == ALL:
            split = "+".join(self.job.get("splits") or ["train"])
        if split is None:
            names = sorted(name for name in self.job["files"] if name) or ["train"]
            raise splits.fault("this data set needs a split", f"set dataset.split: {' or '.join(names)}")
        parts, files = [], self.job["files"]
        for part in splits.parse(split):
            if part.name not in files and "" not in files:
                raise splits.fault(f'Unknown split "{part.name}". Should be one of {sorted(files)}.')
            rows = Split(files.get(part.name, files.get("")), self.bad, columns, self.job.get("rows", {}).get(part.name))
            parts.append((rows, *part.rows(rows.count)))
        return parts

    def mix(self, split, columns, seed):
        """Shuffles the rows of the split, then applies its slice."""
        plain = PLAIN_SLICE.match(split or "")
        self.parts = self.named(plain[1] if plain else split, columns)
        self.parts = [(rows, begin, last(rows, end)) for rows, begin, end in self.parts]
        order = permutation(seed, sum(max(0, end - begin) for _, begin, end in self.parts))
        if plain:
            order = order[slice(*(int(bound) if bound else None for bound in plain.groups()[1:]))]
        self.order = order

    def cut(self, first, exact):
        """Keeps the first rows, counted over all parts."""
        if exact:
            there = sum(max(0, last(rows, end) - begin) for rows, begin, end in self.parts)
            if first > there:
                raise self.fault(f"asks for {first} rows, but there are {there}", "limit_dataset_samples")
        parts = []
        for rows, begin, end in self.parts:
            if len(self.parts) > 1:
                end = last(rows, end)
            end = begin + first if end is None else min(end, begin + first)
            parts.append((rows, begin, end))
            first = max(0, first - (end - begin))
        self.parts = parts

    def generate(self, batches, vocabulary, eos=-1, pad=-1):
        """Generates samples without files. `batches` yields inputs for the function that plan() returns."""
        self.generated, self.generated_ids = batches, [vocabulary, -1, eos, pad]

    def batches(self):
        """Yields the rows in file order."""
        if self.generated is not None:
            return (Batch(rows, [f"sample {i}" for i in range(len(rows))]) for rows in self.generated)
        return of_size(batch for rows, begin, end in self.parts for batch in rows.read(begin, end))

    def total(self):
        """Returns the number of rows, or 0 if the rows must be read to count them."""
        if self.generated is not None:
            return 0
        known = [rows.known() for rows, _, _ in self.parts]
        if self.order is not None or any(count is None for count in known):
            return 0 if self.order is None else len(self.order)
        return sum(max(0, (count if end is None else min(end, count)) - begin)
                   for count, (_, begin, end) in zip(known, self.parts))

    # ---- skipped rows and messages

    def each(self, rows, function):
        """Returns [function(row)]. An error names its row."""
        out = []
        for index, row in enumerate(rows):
            try:
                out.append(function(row))
            except Fault as fault:
                fault.index = index
                raise
            except OF_A_ROW as error:
                fault = about_row(error)
                fault.index = index
                raise fault from None
        return out

    def drop(self, reason):
        """Counts a skipped row by its reason. A format module returns the result instead of a sample."""
        self.dropped[reason] = self.dropped.get(reason, 0) + 1
        self.flags |= samples_file.ROWS_DROPPED

    def tell(self, rows):
        """Reports that `rows` rows of the current batch are converted."""
        self.told(rows)

    def warn(self, text):
        if text not in self.warned:
            self.warned.add(text)
            self.say({"warning": text})

    def note(self, what):
        """Counts rows with the property `what`, and reports it at the first row, and at the end with the number of rows."""
        if what not in self.notes:
            self.say({"note": f"rows {what}"})
        self.notes[what] = self.notes.get(what, 0) + 1

    def fault(self, what, key):
        """Returns an error about a key of the recipe, which the caller raises."""
        return Fault(what, "dataset." + key, kind="config")

    def text(self, row, name):
        if not isinstance(row.get(name), str):
            kind = type(row.get(name)).__name__
            raise ValueError(f"{name} is {kind}, not a text" if name in row else f"has no {name}")
        return row[name]


def last(rows, end):
    """Returns the end of the slice [.., end) of `rows`."""
    return rows.count() if end is None else min(end, rows.count())

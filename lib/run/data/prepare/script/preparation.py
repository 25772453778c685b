"""What a format module works with: the tokenizer, the rows, and the ways from texts to samples."""

import importlib.util
import os
import time

import labels
import samples_file
import splits
from faults import Fault
from sources import Batch, Split
from text_tokenizer import TextTokenizer

SECONDS = 0.25  # between two messages about progress


class Tools:
    """See heddle_prepare.py for what a format module may use."""

    def __init__(self, job, say):
        self.job, self.say, self.arguments = job, say, job["arguments"]
        self.source, self.local = job.get("source", ""), job.get("is_local", False)
        self.made, self.flags, self.filled, self.replaces, self.parts = None, 0, 0, False, None
        self.dropped, self.facts, self.files, self.total, self.warned = {}, {}, {}, 0, set()
        self.cached = None

    @property
    def tokenizer(self):
        if self.cached is None:
            if not self.job.get("tokenizer"):
                raise Fault("Tokenizer is required", "dataset.tokenizer", "name a model's directory that has one", "config")
            self.cached = TextTokenizer(self.job["tokenizer"], self.job.get("model_type", ""),
                                        self.job.get("tokenizer_arguments"))
            for warning in self.cached.warnings:
                self.warn(warning)
        return self.cached

    def warn(self, text):
        if text not in self.warned:
            self.warned.add(text)
            self.say({"warning": text})

    def read(self, split, limit=None, columns=None):
        """The rows that `split` names, at most `limit` of them; those of local JSON files are all read."""
        text, left_out = splits.limited(split or "", limit)
        if left_out:
            self.warn(f"Dataset split {split} already has a slice, skipping limit_dataset_samples")
        self.parts = []
        for part in splits.parse(text):
            files = self.job["files"].get(part.name)
            if files is None:
                raise splits.fault(f'Unknown split "{part.name}". Should be one of {sorted(self.job["files"])}.')
            rows = Split(files, columns)
            self.parts.append((rows, *part.rows(rows.count)))

    def batches(self):
        """Batches of exactly BATCH rows, but for the last."""
        for rows, begin, end in self.parts:
            yield from rows.read(begin, end)

    def prompt_and_answer(self, pairs, answer_only=True):
        if self.cached is None or not hasattr(self, "limit"):
            self.limit = self.tokenizer.limit(self.arguments.get("truncation", False), self.arguments.get("seq_length"))
        return labels.prompt_and_answer(self.tokenizer, pairs, self.limit, answer_only,
                                        self.arguments.get("exact_answer_mask", False))


def module(path):
    """The format module of a plugin."""
    spec = importlib.util.spec_from_file_location("heddle_format_" + os.path.basename(path)[:-3], path)
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


def run(job, say):
    """Prepares what `job` asks for; say(message) tells of progress. Returns the counts."""
    tools = Tools(job, say)
    convert = module(job["script"]).plan(job["arguments"], tools)
    tokenizer = tools.tokenizer
    file = samples_file.SamplesFile(job["out"], max(job.get("vocabulary", 0), tokenizer.size()), tools.flags)
    told = time.monotonic()
    for batch in tools.batches():
        file.add(convert(batch.rows))
        if time.monotonic() - told >= SECONDS:
            told = time.monotonic()
            say({"rows": file.samples, "of": tools.total})
    ids = [tokenizer.size()] + [-1 if token is None else token
                                for token in (tokenizer.bos_id, tokenizer.eos_id, tokenizer.pad_id)]
    counts = {"samples": file.samples, "tokens": file.tokens, "labels": file.labels, "dropped": 0}
    file.close(ids, {**job.get("description", {}), **counts})
    return counts

"""Runs preparation jobs of tests in a temporary folder."""

import json
import os
import tempfile
import unittest

import cases
import harness


class Prepared(unittest.TestCase):
    """A test case that runs jobs in a temporary folder. self.messages holds the messages of the last job."""

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def write(self, name, given):
        """Writes a JSONL file of rows. Rows that are strings are written unchanged."""
        with open(self.path(name), "w", encoding="utf-8") as stream:
            stream.writelines((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in given)
        return self.path(name)

    def job(self, kind, tokenizer, given, local=True, files=None, **changes):
        """Returns a job for rows. `template` overrides the tokenizer's chat template."""
        case = (kind, tokenizer, changes)
        files = files or [self.write("rows.jsonl", given)]
        script, _, _, _ = cases.KINDS[kind]
        made = {**harness.arguments(case), **({"dataset_name": None, "path": "rows.jsonl"} if kind == "agent" else {})}
        return {"script": os.path.join(harness.ROOT, script), "arguments": made,
                "tokenizer": harness.directory(case, self.folder.name), "model_type": cases.TOKENIZERS[tokenizer][2],
                "tokenizer_arguments": dict(cases.TOKENIZERS[tokenizer][3]), "source": "rows",
                "files": {"" if local else "train": files}, "is_local": local, "out": self.path("out.samples.incomplete"),
                "vocabulary": 0, "jobs": 2, "date": "2026-11-24"}

    def run_job(self, job):
        import preparation
        self.messages = []
        self.counts = preparation.run(job, self.messages.append)
        self.samples, self.head = harness.read(job["out"])
        return self.samples

    def prepare(self, *arguments, **changes):
        return self.run_job(self.job(*arguments, **changes))

    def refused(self, *arguments, **changes):
        from faults import Fault
        with self.assertRaises(Fault) as caught:
            self.prepare(*arguments, **changes)
        return caught.exception

    def text(self, sample, trained=True):
        """Returns the trained tokens as text."""
        import text_tokenizer
        tokens = text_tokenizer.TextTokenizer(self.tokenizer).backend
        _, labels = harness.as_labels(sample, self.head["flags"])
        return tokens.decode([label for label in labels if label != -100], skip_special_tokens=False)

    @property
    def tokenizer(self):
        folder = self.path("tokenizers")
        return os.path.join(folder, sorted(os.listdir(folder))[0])

    def warnings(self):
        return [message["warning"] for message in self.messages if "warning" in message]


def squad(answer="Denver", context="c", question="q"):
    return {"context": context, "question": question, "answers": {"text": [answer], "answer_start": [0]}}


def talk(*said, **more):
    return {"messages": [{"role": role, "content": content} for role, content in said], **more}

"""Tests of the preparation script as heddle starts it: messages, output file, and inputs."""

import json
import os
import socket
import subprocess
import sys
import unittest
from unittest import mock

import cases
import harness
from prepared import Prepared, squad, talk

SCRIPT = os.path.join(harness.ROOT, "lib", "data", "texts", "script", "heddle_prepare.py")


class Process(Prepared):
    def start(self, job, *before):
        """Runs the process with `job`, and returns its messages and its status."""
        ours, theirs = socket.socketpair()
        with ours, subprocess.Popen([sys.executable, *before, SCRIPT, "-", str(theirs.fileno())],
                                    pass_fds=[theirs.fileno()]) as process:
            theirs.close()
            channel = ours.makefile("rwb")
            channel.write(json.dumps({**job, "bytes": 0}).encode() + b"\n")
            channel.flush()
            messages = [json.loads(line) for line in channel]
            channel.close()
        return messages, process.returncode

    def test_job_ends_with_done(self):
        job = self.job("squad", "bytes", [squad(str(i)) for i in range(3)], local=False)
        messages, status = self.start(job)
        self.assertEqual(messages[-1], {"done": {"samples": 3, "tokens": messages[-1]["done"]["tokens"], "labels":
                                                 messages[-1]["done"]["labels"], "dropped": 0}, "bytes": 0})
        self.assertEqual(status, 0)
        self.assertEqual(len(harness.read(job["out"])[0]), 3)

    def test_reports_a_fault(self):
        job = self.job("squad", "bytes", [squad(), {"context": 1}], local=False)
        messages, status = self.start(job)
        self.assertEqual(messages[-1]["error"], {"kind": "input", "where": job["files"]["train"][0] + ":2",
                                                 "what": "the row has no 'answers'", "hint": ""})
        self.assertEqual(status, 0)

    def test_names_a_missing_package(self):
        job = self.job("squad", "bytes", [squad()], local=False)
        messages, _ = self.start(job, "-S", "-E")
        self.assertEqual([messages[-1]["error"][key] for key in ("kind", "what")], ["package", "tokenizers"])
        self.assertIn("pip install tokenizers", messages[-1]["error"]["hint"])

    def test_reports_progress_within_a_batch(self):
        import chat
        import labels
        import preparation
        long = "river " * 40
        for kind, given in (("squad", [squad(long)] * 30), ("chat", [talk(("user", "x"), ("assistant", long))] * 30)):
            changes = {"chat_template": cases.CHATML} if kind == "chat" else {}
            with mock.patch.object(preparation, "SECONDS", 0), mock.patch.object(chat, "GROUP", 1000), \
                    mock.patch.object(labels, "GROUP", 1000):
                self.prepare(kind, "bytes", given, local=kind == "chat", **changes)
            told = [message["rows"] for message in self.messages if "rows" in message]
            self.assertGreater(len(told), 3, kind)
            self.assertEqual([told, told[-1]], [sorted(told), 30], kind)

    def test_reports_missing_columns_at_the_first_row_without_them(self):
        given = [{"ctx": "c", "ask": "q", "say": "a"}] * 1000 + [{"ask": "q", "say": "a"}] * 1500
        import preparation
        with mock.patch.object(preparation, "SECONDS", 0):
            self.prepare("columns", "bytes", given)
        what = "rows have no column 'ctx', which column_mapping names as the context: their context is empty"
        told = [message.get("note", message.get("rows")) for message in self.messages]
        self.assertEqual(told.count(what), 1)
        self.assertLess(told.index(what), told.index(2000))
        self.assertIn("1500 " + what, self.warnings())

    def test_reports_a_full_disk(self):
        if not os.path.exists("/dev/full"):
            self.skipTest("no /dev/full")
        job = self.job("squad", "bytes", [squad("x" * 9) for _ in range(3)], local=False)
        os.symlink("/dev/full", job["out"])
        messages, _ = self.start(job)
        self.assertIn("No space left on device", messages[-1]["error"]["what"])

    def test_memory_does_not_grow_with_the_rows(self):
        peaks = []
        for rows in (2000, 12000):
            job = self.job("squad", "bytes", [squad("x", "river " * 60)] * rows, local=False)
            code = ("import sys, json, resource; sys.path.insert(0, sys.argv[1]); import preparation; "
                    "preparation.run(json.loads(sys.argv[2]), lambda message: None); "
                    "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)")
            peaks.append(int(subprocess.run([sys.executable, "-c", code, os.path.dirname(SCRIPT), json.dumps(job)],
                                            stdout=subprocess.PIPE, check=True).stdout))
        self.assertLess(peaks[1] - peaks[0], 8 << 10)  # in KiB; the second input is 4 MiB larger


class File(Prepared):
    def test_has_header_and_sections(self):
        job = self.job("squad", "bytes", [squad()], local=False)
        job.update(description={"key": "k"})
        samples = self.run_job(job)
        self.assertEqual([self.head[key] for key in ("samples", "tokens", "runs", "bytes", "flags")],
                         [1, len(samples[0][0]), 1, 2, 0])
        self.assertEqual(self.head["ids"], (633, 1, 2, 0))
        self.assertEqual([self.head["key"], self.head["rows"], self.head["longest"]], ["k", 1, len(samples[0][0])])
        with open(job["out"], "rb") as stream:
            data = stream.read()
        self.assertEqual(data[160:192], bytes(32))
        job["vocabulary"] = 70000  # the model's vocabulary size
        self.assertEqual(self.run_job(job), samples)
        self.assertEqual(self.head["bytes"], 4)

    def test_shuffled_samples_keep_their_runs(self):
        given = [talk(("user", "of"), *[(role, f"{i} river") for role in ("assistant", "user")] * (i % 3 + 1))
                 for i in range(30)]
        job = self.job("chat", "bytes_plain", given, local=False, chat_template=cases.TWICE)
        job["arguments"]["split"] = "train"
        plain = self.run_job(job)
        job["arguments"]["shuffle_seed"] = 3
        import permutation
        self.assertEqual(self.run_job(job), [plain[i] for i in permutation.permutation(3, 30)])

    def test_permutations_equal_numpys(self):
        import permutation
        self.assertEqual(list(permutation.permutation(0, 3)), [2, 0, 1])  # numpy.random.default_rng(0).permutation(3)
        self.assertEqual(list(permutation.permutation(2**70 + 5, 6)), PERMUTED)
        self.assertEqual(sorted(permutation.permutation(9, 1000)), list(range(1000)))

    def test_template_uses_the_date_of_the_job(self):
        job = self.job("squad", "bytes_plain", [squad()], local=False, chat_template=cases.DATED)
        self.run_job(job)
        self.assertTrue(self.head["template_asks_for_date"])
        self.assertIn("the chat template puts the date into every row: 2026-11-24; dataset.date fixes it", self.warnings())
        first = self.samples
        job["date"] = "2026-11-25"
        self.assertNotEqual(self.run_job(job), first)

    def test_template_is_a_text_a_file_or_a_json_key(self):
        want = self.prepare("squad", "bytes", [squad()], local=False, chat_template=cases.CHATML)
        for name, text in (("a.jinja", cases.CHATML), ("a.json", json.dumps({"chat_template": cases.CHATML}))):
            with open(self.path(name), "w", encoding="utf-8") as stream:
                stream.write(text)
            self.assertEqual(self.prepare("squad", "bytes", [squad()], local=False, chat_template=self.path(name)), want)

    def test_opens_only_the_files_of_the_job(self):
        opened = []

        def hook(event, values):
            if event in ("open", "socket.connect", "subprocess.Popen", "os.system") and self.watched:
                opened.append(str(values[0]))
        self.watched = False
        sys.addaudithook(hook)
        job = self.job("chat", "bytes", [talk(("user", "x"), ("assistant", "y"))], chat_template=cases.CHATML)
        self.run_job(job)  # imports all dependencies
        self.watched = True
        import preparation
        preparation.run(job, lambda message: None)
        self.watched = False
        outside = {path for path in opened if not path.startswith((self.folder.name, harness.ROOT, "/proc/self/status"))}
        self.assertEqual({path for path in outside if not path.isdigit()}, set())


class FormatModules(Prepared):
    def said(self, body):
        """Returns the error of a format module whose plan() has this body."""
        job = self.job("squad", "bytes", [squad()], local=False)
        job["script"] = self.path("own.py")
        with open(job["script"], "w", encoding="utf-8") as stream:
            stream.write(f"def plan(arguments, tools):\n    tools.read('train')\n    {body}\n")
        from faults import Fault
        with self.assertRaises(Fault) as caught:
            self.run_job(job)
        self.fault = caught.exception
        return caught.exception.what

    def test_exception_names_the_line_of_the_module(self):
        for body, what in (("return lambda rows: rows[0].nothing", "AttributeError: 'dict' object has no attribute "
                            "'nothing', at {0}:1 or one of the 0 rows behind it"),
                           ("return lambda rows: tools.each(rows, lambda row: row[0:1] + 1 / 0)", "TypeError: "),
                           ("return lambda rows: tools.each(rows, lambda row: 1 / 0)", "ZeroDivisionError: "),
                           ("return lambda rows: [][0] if open('/no/file') else 0", "FileNotFoundError: "),
                           ("return lambda rows: int('many')", "ValueError: invalid literal"),
                           ("return lambda rows: {}['no' if 'no' in rows[0] else 'question']", "KeyError: 'question'"),
                           ("return lambda rows: exit(0)", "SystemExit: 0"),
                           ("open('/no/file')", "FileNotFoundError: "),
                           ("return lambda rows: tools.chat('{{ 1 }}').samples((row.talk, None) for row in rows)",
                            "AttributeError: ")):
            self.assertIn("line 3 of the format module throws " + what.format(self.path("rows.jsonl")), self.said(body))
            self.assertEqual([self.fault.kind, self.fault.where], ["plugin", self.path("own.py") + ":3"])
        self.assertEqual(self.said("return lambda rows: tools.each(rows, lambda row: row['no'])"), "the row has no 'no'")
        self.assertEqual(self.fault.kind, "input")
        self.assertIn("KeyError: 'no'", self.said("return lambda rows: [row['no'] for row in rows]"))
        self.assertEqual(self.fault.kind, "input")

    def test_refuses_invalid_modules_and_samples(self):
        self.assertIn("the format module fails: SyntaxError", self.said("return ("))
        self.assertIn("the format module fails: KeyError: 'no'", self.said("return arguments['no']"))
        self.assertIn("the format module fails: SystemExit: 3", self.said("raise SystemExit(3)"))
        self.assertEqual(self.said("return lambda rows: []"), "the format module made 0 samples of 1 rows")
        for spans in ("[(0, 3)]", "[(1, 1)]", "[(1, 2), (2, 3)]", "[(-1, 1)]"):
            self.assertIn("whose runs do not rise inside it", self.said(f"return lambda rows: [([1, 2], {spans})]"))

    def test_drops_rows(self):
        job = self.job("squad", "bytes", [squad(str(i)) for i in range(5)], local=False)
        job["script"] = self.path("own.py")
        with open(job["script"], "w", encoding="utf-8") as stream:
            stream.write("def plan(arguments, tools):\n    tools.read('train', shuffle_seed=1)\n    return lambda rows: ["
                         "([int(r['answers']['text'][0])], []) if r['answers']['text'] != ['3'] else tools.drop('three') "
                         "for r in rows]\n")
        import permutation
        expected = [i for i in permutation.permutation(1, 5) if i != 3]
        self.assertEqual([ids[0] for ids, _ in self.run_job(job)], expected)
        self.assertEqual([self.head["dropped"], self.head["flags"], self.counts["dropped"]], [{"three": 1}, 2, 1])


class TokenizerClasses(Prepared):
    def test_selects_the_class_of_transformers(self):
        import tokenizer_classes
        from tokenizer_files import Files

        def chosen(hub, model_type, remote=False):
            files = mock.Mock(spec=Files, hub_class=hub, remote=remote, warnings=[])
            made = tokenizer_classes.chosen(files, model_type)
            return made.name if made.rebuilt else None
        for hub, model_type, name in (
                ("LlamaTokenizer", "llama", "LlamaTokenizer"), ("LlamaTokenizerFast", "llama", "LlamaTokenizer"),
                ("PreTrainedTokenizerFast", "llama", None), (None, "llama", None), ("LlamaTokenizer", "mistral", None),
                ("LlamaTokenizer", "phi3", None), ("Qwen2Tokenizer", "qwen3", "Qwen2Tokenizer"),
                ("PreTrainedTokenizerFast", "qwen3", None), ("PreTrainedTokenizerFast", "qwen2", "Qwen2Tokenizer"),
                (None, "gemma2", "GemmaTokenizer"), ("GPT2TokenizerFast", "gpt2", "GPT2Tokenizer"),
                ("Something", "unheard", None), ("LlamaTokenizer", "deepseek_v3", None)):
            self.assertEqual(chosen(hub, model_type), name, (hub, model_type))

    def test_warns_of_an_unsupported_class(self):
        job = self.job("squad", "bytes", [squad()], local=False)
        with open(os.path.join(job["tokenizer"], "tokenizer_config.json"), "w", encoding="utf-8") as stream:
            json.dump({"tokenizer_class": "CodeLlamaTokenizer"}, stream)
        self.run_job(job)
        self.assertTrue(any("class CodeLlamaTokenizer has parts of its own" in text for text in self.warnings()))

    def loaded(self, name, config, arguments=None):
        """Loads the tokenizer of golden/NAME.json with these settings."""
        import text_tokenizer
        job = self.job("squad", name, [], local=False)
        harness.save(os.path.join(job["tokenizer"], "tokenizer_config.json"), config)
        return text_tokenizer.TextTokenizer(job["tokenizer"], job["model_type"], arguments)

    def test_adds_named_tokens_that_the_vocabulary_lacks(self):
        made = self.loaded("bytes", {"pad_token": "<c>", "eos_token": "<b>", "bos_token": "<a>", "image_token": "<d>"})
        self.assertEqual([made.bos_id, made.eos_id, made.pad_id, made.id("<d>"), made.size()], [633, 634, 635, 636, 637])
        made = self.loaded("gpt2", {"tokenizer_class": "GPT2Tokenizer", "unk_token": "<c>", "eos_token": "<b>",
                                    "bos_token": "<a>"})
        self.assertEqual([made.bos_id, made.eos_id, made.id("<c>")], [633, 634, 635])

    def test_qwen_keeps_spaces_next_to_special_tokens(self):
        end = {"__type": "AddedToken", "content": "<|im_end|>", "lstrip": True, "rstrip": True, "normalized": False,
               "single_word": False, "special": True}
        added = {"added_tokens_decoder": {"5": {key: end[key] for key in end if key != "__type"}}}
        for kind, name, special in (("qwen", "Qwen2Tokenizer", 2), ("gpt2", "GPT2Tokenizer", 0)):  # like transformers 5.12.1
            made = self.loaded(kind, {"tokenizer_class": name, "eos_token": end, **added}, {"use_nemo": False})
            tokens = made.encode(["x <|im_end|> y"], special=False, offsets=True)[0].tokens
            self.assertEqual(sum(token.startswith("\u0120") for token in tokens), special, tokens)

    def test_add_eos_token_has_no_effect_without_eos(self):
        plain = self.loaded("words", {"tokenizer_class": "PreTrainedTokenizerFast"})
        asked = self.loaded("words", {"tokenizer_class": "PreTrainedTokenizerFast"}, {"add_eos_token": True})
        self.assertEqual(asked.ids(["of"]), plain.ids(["of"]))
        own = self.loaded("words", {"eos_token": "[SEP]"}, {"add_eos_token": True})  # replaces [CLS] ... [SEP]
        self.assertEqual(own.ids(["of"]), [plain.ids(["of"])[0][1:]])

    def test_reports_an_error_of_the_tokenizer(self):
        job = self.job("squad", "bert", [squad("\u4e00\u4e01")], local=False)
        harness.save(os.path.join(job["tokenizer"], "tokenizer_config.json"),
                     {"tokenizer_class": "BertTokenizer", "unk_token": "[NEW]"})
        from faults import Fault
        with self.assertRaisesRegex(Fault, "the tokenizer fails: WordPiece error: Missing") as caught:
            self.run_job(job)
        self.assertEqual(caught.exception.where, job["tokenizer"])

    def test_reads_templates_by_name_and_from_files(self):
        job = self.job("chat", "bytes", [talk(("user", "x"), ("assistant", "y"), tools=[{"type": "function"}])])
        config = os.path.join(job["tokenizer"], "tokenizer_config.json")
        with open(config, encoding="utf-8") as stream:
            settings = json.load(stream)
        settings["chat_template"] = [{"name": "default", "template": cases.CHATML}, {"name": "tool_use", "template": cases.INST}]
        harness.save(config, settings)
        named = self.run_job(job)
        job["arguments"]["chat_template"] = cases.INST
        self.assertEqual(self.run_job(job), named)
        job["arguments"]["chat_template"] = None
        with open(os.path.join(job["tokenizer"], "chat_template.jinja"), "w", encoding="utf-8") as stream:
            stream.write(cases.CHATML)  # overrides the settings
        chatml = self.run_job(job)
        job["arguments"]["chat_template"] = cases.CHATML
        self.assertEqual(self.run_job(job), chatml)

    def test_refuses_a_tokenizer_without_template(self):
        self.assertEqual(self.refused("chat", "bytes", [talk(("assistant", "y"))]).what,
                         "ChatDataset requires a tokenizer with chat template support.")
        self.assertEqual(self.refused("xlam", "bytes", [{}], local=False).what,
                         "Tokenizer lacks a usable chat template (chat_template/apply_chat_template)")


PERMUTED = [1, 4, 2, 0, 3, 5]  # numpy.random.default_rng(2**70 + 5).permutation(6)


if __name__ == "__main__":
    unittest.main()

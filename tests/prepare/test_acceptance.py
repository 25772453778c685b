"""Behaviours that the specification names (24, 1 to 8)."""

import json
import os
import tempfile
import unittest

import cases
import harness
import rows

try:
    import pyarrow
    import pyarrow.parquet
except ImportError:
    pyarrow = None


class Prepared(unittest.TestCase):
    """Runs jobs in a folder of its own; self.messages has what was said."""

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def write(self, name, given):
        """A JSONL file of rows, or of texts as they are."""
        with open(self.path(name), "w", encoding="utf-8") as stream:
            stream.writelines((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in given)
        return self.path(name)

    def job(self, kind, tokenizer, given, local=True, files=None, **changes):
        """A job on rows; `template` is the tokenizer's own."""
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
        """What is trained on, as text."""
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


class Labels(Prepared):
    def test_squad_trains_from_the_answer_where_bos_is_added(self):
        samples = self.prepare("squad", "bytes", [squad()], local=False)
        self.assertEqual(self.text(samples[0]), " Denver")

    def test_squad_trains_one_token_later_without_bos(self):
        with_bos, spans = self.prepare("squad", "bytes", [squad("Denver river")], local=False)[0]
        without, later = self.prepare("squad", "bytes_plain", [squad("Denver river")], local=False)[0]
        self.assertEqual(with_bos[1:], without)
        self.assertEqual(later, [[spans[0][0], len(without)]])  # of one token less before it: one later in the text

    def test_chatml_trains_the_assistants_header_and_not_the_user(self):
        samples = self.prepare("squad", "qwen", [squad()], local=False, chat_template=cases.CHATML)
        self.assertEqual(self.text(samples[0]), "<|im_start|>assistant\nDenver<|im_end|>\n")

    def test_exact_answer_mask_trains_every_token_of_the_answer(self):
        samples = self.prepare("squad", "bytes_plain", [squad("12 1999")], local=False, exact_answer_mask=True)
        self.assertIn("12 1999", self.text(samples[0]))


class HellaSwag(Prepared):
    def rows(self):
        return [{"ctx": f"when {i}", "endings": ["a", f"river {i}", "c", "d"], "label": "1"} for i in range(20)]

    def check(self, tokenizer, begin):
        samples = self.prepare("hellaswag", tokenizer, self.rows(), local=False, pad_to_max_length=True)
        self.assertEqual(len(samples), 20)
        longest = max(len(ids) for ids, _ in samples)
        self.assertEqual(self.head["filled"], -(-longest // 8) * 8)
        for i, sample in enumerate(samples):
            ids, labels = harness.as_labels(sample, self.head["flags"])
            self.assertEqual(len(ids), len(labels))
            self.assertEqual(labels[-1], -100)
            self.assertEqual(self.text(sample), f"river {i}")
            self.assertEqual(ids[:1] == [1], begin)
            self.assertEqual(ids.count(1), int(begin))  # the answer's own BOS is taken away

    def test_a_tokenizer_with_bos(self):
        self.check("bytes", True)

    def test_a_tokenizer_without_bos(self):
        self.check("bytes_plain", False)

    def test_the_end_of_a_context_is_taken_away_where_the_first_has_one(self):
        samples = self.prepare("hellaswag", "unigram", self.rows(), local=False)
        for ids, spans in samples:
            self.assertEqual(ids.count(1), 1)  # the answer's </s> stays
            self.assertEqual(spans[-1][1], len(ids))


class Generation(Prepared):
    def test_a_block_that_is_cut(self):
        row = talk(("user", "of"), ("assistant", "the river in Denver"), ("user", "a"), ("assistant", "it's"))
        whole = self.prepare("chat", "qwen", [row], chat_template=cases.GENERATION)[0]
        self.assertEqual(len(whole[1]), 2)
        cut = self.prepare("chat", "qwen", [row], chat_template=cases.GENERATION, truncation=True,
                           seq_length=whole[1][0][0] + 2)[0]
        self.assertEqual(cut[1], [[whole[1][0][0], whole[1][0][0] + 2]])

    def test_left_truncation_before_the_first_block_leaves_no_label(self):
        row = talk(("user", "of"), ("assistant", "the river in Denver"), ("user", "a"), ("assistant", "it's"))
        samples = self.prepare("chat", "bytes_left", [row], chat_template=cases.GENERATION, truncation=True, seq_length=8)
        self.assertEqual(samples[0][1], [])
        self.assertIn("1 of 1 samples have no token that is trained on", self.warnings())

    def test_two_blocks_in_a_turn(self):
        samples = self.prepare("chat", "qwen", [talk(("user", "of"), ("assistant", "the river in Denver"))],
                               chat_template=cases.TWICE)
        self.assertEqual(len(samples[0][1]), 2)
        self.assertEqual(self.text(samples[0]), "the river in Denver")

    def test_no_block_no_label(self):
        samples = self.prepare("chat", "qwen", [talk(("user", "of"))], chat_template=cases.GENERATION)
        self.assertEqual(samples[0][1], [])


class Prefixes(Prepared):
    REWRITES = ("{% for m in messages %}{% if m.role == 'assistant' and not loop.last %}[short]{% else %}{{ m.content }}"
                "{% endif %}\n{% endfor %}")
    TALK = [("user", "of"), ("assistant", "the river"), ("user", "a"), ("assistant", "it's")]

    def test_a_template_that_rewrites_earlier_turns_is_refused(self):
        fault = self.refused("chat", "bytes", [talk(("user", "x"), ("assistant", "y")), talk(*self.TALK)],
                             chat_template=self.REWRITES)
        self.assertTrue(fault.what.startswith(
            "Cannot build an answer-only loss mask from conversation prefixes: rendering the first 2 message(s) alone does not "
            "reproduce a prefix of the fully rendered conversation."), fault.what)
        self.assertTrue(fault.where.endswith("rows.jsonl:2"), fault.where)

    def test_a_prefix_that_ends_in_eos_alone_passes(self):
        samples = self.prepare("chat", "bytes", [talk(*self.TALK)], chat_template=cases.ENDS)
        self.assertEqual(len(samples[0][1]), 2)

    def test_no_assistant(self):
        fault = self.refused("chat", "bytes", [talk(("user", "x"))], chat_template=cases.CHATML)
        self.assertEqual(fault.what, "At least one assistant message is required when answer_only_loss_mask=True")

    def test_several_system_messages(self):
        fault = self.refused("chat", "bytes", [talk(("system", "x"), ("system", "y"), ("assistant", "z"))],
                             chat_template=cases.CHATML)
        self.assertEqual(fault.what,
                         "System role appeared in multiple messages. Only a single system message is supported.")


class Columns(Prepared):
    ROWS = [{"ctx": "of", "ask": "who", "say": "Denver"}, {"ctx": "in", "ask": "when", "say": "it's"}]

    def prompt(self, **mapping):
        self.prepare("columns", "bytes", self.ROWS, column_mapping={**mapping, "answer": "say"})
        import text_tokenizer
        ids, spans = self.samples[0]
        return text_tokenizer.TextTokenizer(self.tokenizer).backend.decode(ids[:spans[0][0]])

    def test_context_and_question(self):
        self.assertEqual(self.prompt(context="ctx", question="ask"), "of who")

    def test_one_of_them(self):
        self.assertEqual(self.prompt(context="ctx"), "of")
        self.assertEqual(self.prompt(question="ask"), "who")

    def test_neither(self):
        for mapping, what in (({"answer": "say"}, "Expected 2 or 3 columns in column_mapping, got 1"),
                              ({"answer": "say", "x": "ctx"}, "Expected context or question to be in column_mapping"),
                              ({"question": "ask", "context": "ctx"}, "Expected answer to be in column_mapping")):
            fault = self.refused("columns", "bytes", self.ROWS, column_mapping=mapping)
            self.assertEqual([fault.what, fault.where, fault.kind], [what, "dataset.column_mapping", "config"])

    def test_an_empty_prompt(self):
        fault = self.refused("columns", "bytes", [{"ask": "", "say": "x"}],
                             column_mapping={"question": "ask", "answer": "say"})
        self.assertEqual(fault.what, "Expected prompt to be non-empty")

    def test_a_row_without_labels_gives_way_to_the_next(self):
        given = [{"ctx": "c", "ask": "q" * n, "say": f"river {n}"} for n in (90, 1, 95, 96, 2, 97)]
        samples = self.prepare("columns", "bytes", given, seq_length=24, truncation=True)
        self.assertEqual([samples.index(sample) for sample in samples], [0, 0, 2, 2, 2, 0])
        self.assertIn("river 1", self.text(samples[0]))
        self.assertIn("river 2", self.text(samples[2]))
        self.assertEqual(self.head["replaced"], 4)
        self.assertEqual(self.head["flags"], 2)

    def test_no_row_has_labels(self):
        fault = self.refused("columns", "bytes", [{"ctx": "c", "ask": "q" * 90, "say": "x"}], seq_length=8, truncation=True)
        self.assertTrue(fault.what.startswith("All samples in the dataset produced labels that are entirely -100."))

    def test_a_limit_above_the_rows(self):
        self.assertIn("asks for 3 rows, and there are 2",
                      self.refused("columns", "bytes", self.ROWS, limit_dataset_samples=3).what)


class Conversations(Prepared):
    TEMPLATE = ("{% for m in messages %}[{{ m.role }}]{{ m.content }}{% for c in m.tool_calls or [] %}{{ c | tojson }}"
                "{% endfor %}{{ '\\n' }}{% endfor %}")

    def rendered(self, row):
        import text_tokenizer
        ids, _ = self.prepare("chat", "bytes_plain", [row], chat_template=self.TEMPLATE)[0]
        return text_tokenizer.TextTokenizer(self.tokenizer).backend.decode(ids, skip_special_tokens=False)

    def test_sharegpt_is_as_openai(self):
        turns = [{"from": "human", "value": "who"}, {"from": "gpt", "value": "it's"}]
        self.assertEqual(self.rendered({"conversations": turns}), "[user]who\n[assistant]it's\n")
        self.assertEqual(self.rendered(talk(("user", "who"), ("assistant", "it's"))), "[user]who\n[assistant]it's\n")

    def test_calls_with_object_arguments_and_null_content(self):
        row = {"messages": [{"role": "user", "content": "who"}, {"role": "assistant", "content": None, "tool_calls": [
            {"function": {"name": "f", "arguments": {"é": 1}}}]}]}
        self.assertEqual(self.rendered(row), '[user]who\n[assistant]{"function": {"name": "f", "arguments": '
                         '"{\\"\\\\u00e9\\": 1}"}, "id": "call_0", "type": "function"}\n')

    def test_what_is_refused(self):
        for row, what in (
                ({"text": "x"}, "Each sample must contain a `messages` list (OpenAI format) or a `conversations` list"),
                ({"conversations": [{"from": "x", "value": "y"}]}, "Unsupported ShareGPT role 'x' in `conversations`."),
                (talk(("critic", "x")), "Unsupported role in messages: critic"),
                (talk(("assistant", "x"), tools="{"), "`tools` is a string but not valid JSON: "),
                ({"messages": [{"role": "tool", "content": "x"}]}, "tool message `tool_call_id` must be a non-empty string"),
                ({"messages": [{"role": "assistant", "tool_calls": {}}]}, "assistant message `tool_calls` must be a list"),
                ({"messages": [{"role": "assistant", "tool_calls": [{"function": {"name": "f"}}]}]},
                 "assistant message `tool_calls[0].function.arguments` is required")):
            fault = self.refused("chat", "bytes", [row], chat_template=cases.CHATML)
            self.assertTrue(fault.what.startswith(what), fault.what)
            self.assertTrue(fault.where.endswith("rows.jsonl:1"), fault.where)

    def test_agents_need_one_source(self):
        job = self.job("agent", "bytes", rows.rows("agent", 2))
        job["arguments"]["path"] = None
        from faults import Fault
        with self.assertRaisesRegex(Fault, "Exactly one of `dataset_name` or `path` must be provided"):
            self.run_job(job)

    def test_an_agents_fault_names_its_row(self):
        given = rows.rows("agent", 3) + [{"id": "no", "messages": [{"role": "x"}]}]
        fault = self.refused("agent", "bytes", given)
        self.assertEqual(fault.what, "Failed to format agent SFT example (id='no'): Unsupported role in agent messages: 'x'")
        self.assertTrue(fault.where.endswith("rows.jsonl:4"), fault.where)

    def test_overlong_agents_are_counted_or_dropped(self):
        given, length = rows.rows("agent", 12), {"seq_length": 100, "truncation": True, "filter_overlong": True}
        self.assertEqual(len(self.prepare("agent", "bytes", given, **length)), 12)
        cut = next(warning for warning in self.warnings() if "longer than seq_length" in warning)
        left = self.prepare("agent", "bytes", given, drop_overlong=True, **length)
        self.assertEqual(12 - len(left), int(cut.split()[0]))
        self.assertEqual(self.head["dropped"], {"longer than seq_length": 12 - len(left)})
        self.assertEqual(self.counts["dropped"], 12 - len(left))


class Order(Prepared):
    def numbers(self, **changes):
        """Which of 100 rows a job takes, in its order."""
        given = [squad(str(i)) for i in range(100)]
        samples = self.prepare("squad", "bytes_plain", given, local=False, exact_answer_mask=True, **changes)
        return [int(self.text(sample)) for sample in samples]

    def test_slices_and_limits(self):
        for split, expected in (("train", list(range(100))), ("train[64:80]", list(range(64, 80))),
                                ("train[:10%]", list(range(10))), ("train[-3:]", [97, 98, 99]),
                                ("train[:2] + train[-90:12]", [0, 1, 10, 11]), ("train[90:999]", list(range(90, 100)))):
            self.assertEqual(self.numbers(split=split), expected, split)
        self.assertEqual(self.numbers(limit_dataset_samples=3), [0, 1, 2])
        self.assertEqual(self.numbers(split="train[7:9]", limit_dataset_samples=1), [7, 8])
        self.assertIn("Dataset split train[7:9] already has a slice, skipping limit_dataset_samples", self.warnings())

    def test_splits_that_are_not_there(self):
        for split, what in (("test", 'Unknown split "test". Should be one of [\'train\'].'), ("train[a:]", "Unrecognized"),
                            ("train[5:5]", "has no rows"), ("train[:101%]", "Percent slice boundaries")):
            self.assertIn(what, self.refused("squad", "bytes", [squad()], local=False, split=split).what)

    def test_shuffle_seed_is_numpys_permutation(self):
        expected = [5, 6, 0, 7, 3, 2, 4, 9, 1, 8]  # numpy.random.default_rng(42).permutation(10)
        given = [talk(("user", "x"), ("assistant", str(i))) for i in range(10)]
        for changes, rows_ in (({"split": "train"}, expected), ({"split": "train[2:5]"}, expected[2:5])):
            job = self.job("chat", "bytes_plain", given, local=False, chat_template=cases.TWICE, shuffle_seed=42)
            job["arguments"].update(changes)
            self.assertEqual([self.text(sample) for sample in self.run_job(job)], [str(i) for i in rows_])

    def test_a_local_file_is_read_whole_and_says_so(self):
        job = self.job("chat", "bytes_plain", [talk(("assistant", str(i)), ("assistant", "x")) for i in range(5)],
                       chat_template=cases.GENERATION, shuffle_seed=1)
        job["arguments"]["split"] = "train[3:5]"
        self.assertEqual(len(self.run_job(job)), 5)
        said = [warning for warning in self.warnings() if "local JSON" in warning]
        self.assertEqual(said, ["split and shuffle_seed of a local JSON file: not applied, as in AutoModel; all 5 rows are "
                                "read. dataset.apply_split: true applies it"])
        job["arguments"].update(apply_split=True, shuffle_seed=None)
        self.assertEqual(len(self.run_job(job)), 2)

    @unittest.skipUnless(pyarrow, "pyarrow is not installed")
    def test_parquet_and_arrow(self):
        table = pyarrow.Table.from_pylist([squad(str(i)) for i in range(100)])
        pyarrow.parquet.write_table(table, self.path("a.parquet"), row_group_size=30)
        with pyarrow.OSFile(self.path("b.arrow"), "wb") as stream, pyarrow.ipc.new_stream(stream, table.schema) as out:
            out.write_table(table, max_chunksize=40)
        with pyarrow.OSFile(self.path("c.arrow"), "wb") as stream, pyarrow.ipc.new_file(stream, table.schema) as out:
            out.write_table(table, max_chunksize=40)
        for name in ("a.parquet", "b.arrow", "c.arrow"):
            for split, expected in (("train[64:128]", [*range(64, 100)]), ("train[28:33]", [*range(28, 33)]),
                                    ("train[-1:]+train[:1]", [99, 0])):
                job = self.job("squad", "bytes_plain", [], local=False, files=[self.path(name)], exact_answer_mask=True)
                job["arguments"]["split"] = split
                self.assertEqual([int(self.text(sample)) for sample in self.run_job(job)], expected, (name, split))
            job = self.job("squad", "bytes_plain", [], local=False, files=[self.path(name)] * 3)
            self.assertEqual(len(self.run_job(job)), 300)


if __name__ == "__main__":
    unittest.main()

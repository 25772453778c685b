"""Tests of the labels and the order of samples."""

import unittest

import cases
import harness
from prepared import Prepared, squad, talk

try:
    import pyarrow
    import pyarrow.parquet
except ImportError:
    pyarrow = None


class Labels(Prepared):
    def test_squad_trains_from_the_answer_with_bos(self):
        samples = self.prepare("squad", "bytes", [squad()], local=False)
        self.assertEqual(self.text(samples[0]), " Denver")

    def test_squad_trains_one_token_later_without_bos(self):
        with_bos, spans = self.prepare("squad", "bytes", [squad("Denver river")], local=False)[0]
        without, later = self.prepare("squad", "bytes_plain", [squad("Denver river")], local=False)[0]
        self.assertEqual(with_bos[1:], without)
        self.assertEqual(later, [[spans[0][0], len(without)]])  # equal index, so without BOS one token later in the text

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
            self.assertEqual(ids.count(1), int(begin))  # the answer's own BOS is removed

    def test_tokenizer_with_bos(self):
        self.check("bytes", True)

    def test_tokenizer_without_bos(self):
        self.check("bytes_plain", False)

    def test_removes_eos_of_contexts_if_the_first_context_has_one(self):
        samples = self.prepare("hellaswag", "unigram", self.rows(), local=False)
        for ids, spans in samples:
            self.assertEqual(ids.count(1), 1)  # the answer's </s> is kept
            self.assertEqual(spans[-1][1], len(ids))


class Generation(Prepared):
    def test_truncates_a_generation_block(self):
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

    def test_trains_on_two_generation_blocks_of_a_turn(self):
        samples = self.prepare("chat", "qwen", [talk(("user", "of"), ("assistant", "the river in Denver"))],
                               chat_template=cases.TWICE)
        self.assertEqual(len(samples[0][1]), 2)
        self.assertEqual(self.text(samples[0]), "the river in Denver")

    def test_gives_no_labels_without_a_generation_block(self):
        samples = self.prepare("chat", "qwen", [talk(("user", "of"))], chat_template=cases.GENERATION)
        self.assertEqual(samples[0][1], [])


class Prefixes(Prepared):
    REWRITES = ("{% for m in messages %}{% if m.role == 'assistant' and not loop.last %}[short]{% else %}{{ m.content }}"
                "{% endif %}\n{% endfor %}")
    TALK = [("user", "of"), ("assistant", "the river"), ("user", "a"), ("assistant", "it's")]

    def test_refuses_a_template_that_rewrites_earlier_turns(self):
        fault = self.refused("chat", "bytes", [talk(("user", "x"), ("assistant", "y")), talk(*self.TALK)],
                             chat_template=self.REWRITES)
        self.assertTrue(fault.what.startswith(
            "Cannot build an answer-only loss mask from conversation prefixes: rendering the first 2 message(s) alone does not "
            "reproduce a prefix of the fully rendered conversation."), fault.what)
        self.assertTrue(fault.where.endswith("rows.jsonl:2"), fault.where)

    def test_ignores_eos_at_the_end_of_a_prefix(self):
        samples = self.prepare("chat", "bytes", [talk(*self.TALK)], chat_template=cases.ENDS)
        self.assertEqual(len(samples[0][1]), 2)

    def test_refuses_a_conversation_without_assistant(self):
        fault = self.refused("chat", "bytes", [talk(("user", "x"))], chat_template=cases.CHATML)
        self.assertEqual(fault.what, "the conversation has no assistant message, so none of its tokens is trained on")

    def test_refuses_several_system_messages(self):
        fault = self.refused("chat", "bytes", [talk(("system", "x"), ("system", "y"), ("assistant", "z"))],
                             chat_template=cases.CHATML)
        self.assertEqual(fault.what,
                         "System role appeared in multiple messages. Only a single system message is supported.")


class Order(Prepared):
    def numbers(self, rows=100, **changes):
        """Returns the rows that a job selects out of `rows`, in order."""
        given = [squad(str(i)) for i in range(rows)]
        samples = self.prepare("squad", "bytes_plain", given, local=False, exact_answer_mask=True, **changes)
        return [int(self.text(sample)) for sample in samples]

    def test_applies_slices_and_limits(self):
        for split, expected in (("train", list(range(100))), ("train[64:80]", list(range(64, 80))),
                                ("train[:10%]", list(range(10))), ("train[-3:]", [97, 98, 99]),
                                ("train[:2] + train[-90:12]", [0, 1, 10, 11]), ("train[90:999]", list(range(90, 100)))):
            self.assertEqual(self.numbers(split=split), expected, split)
        self.assertEqual(self.numbers(limit_dataset_samples=3), [0, 1, 2])
        for rows, split, expected in ((30, "train[:5%]", 2), (50, "train[:5%]", 2), (70, "train[:5%]", 4)):
            self.assertEqual(self.numbers(rows, split=split), list(range(expected)))  # rounds half to even
        self.assertEqual(self.numbers(250, split="train[:2%](pct1_dropremainder)"), [0, 1, 2, 3])
        self.assertIn("is forbidden", self.refused("squad", "bytes", [squad()], local=False,
                                                   split="train[:2%](pct1_dropremainder)").what)
        self.assertEqual(self.numbers(split="train[7:9]", limit_dataset_samples=1), [7, 8])
        self.assertIn("Dataset split train[7:9] already has a slice, skipping limit_dataset_samples", self.warnings())

    def test_refuses_unknown_and_invalid_splits(self):
        for split, what in (("test", 'Unknown split "test". Should be one of [\'train\'].'), ("train[a:]", "Unrecognized"),
                            ("train[5:5]", "has no rows"), ("train[:101%]", "Percent slice boundaries")):
            self.assertIn(what, self.refused("squad", "bytes", [squad()], local=False, split=split).what)

    def test_batches_cross_files(self):
        import sources
        batches = [sources.Batch(list(range(begin, begin + rows)), list(range(begin, begin + rows)))
                   for begin, rows in ((0, 700), (700, 1), (701, 2299), (3000, 3))]
        made = list(sources.of_size(batches))
        self.assertEqual([len(batch.rows) for batch in made], [1000, 1000, 1000, 3])
        self.assertEqual([row for batch in made for row in batch.rows], list(range(3003)))
        self.assertEqual([place for batch in made for place in batch.places], list(range(3003)))

    def test_refuses_unknown_values_of_keys(self):
        for key, value, what in (("padding", "left", "'left' is not one of False, True, None, longest, max_length, do_not_pad"),
                                 ("truncation", "all", "truncation: all is not one of do_not_truncate, longest_first")):
            fault = self.refused("squad", "bytes", [squad()], local=False, **{key: value})
            self.assertEqual([fault.what[:len(what)], fault.where, fault.kind], [what, "dataset." + key, "config"])

    def test_padded_length_follows_padding(self):
        for changes, filled in (({}, None), ({"padding": "max_length", "seq_length": 64}, 64), ({"padding": True}, None),
                                ({"padding": "max_length"}, 4095)):
            self.prepare("squad", "bytes", [squad()], local=False, **changes)
            self.assertEqual(self.head["filled"], filled)

    def test_shuffle_seed_is_numpys_permutation(self):
        expected = [5, 6, 0, 7, 3, 2, 4, 9, 1, 8]  # numpy.random.default_rng(42).permutation(10)
        given = [talk(("user", "x"), ("assistant", str(i))) for i in range(10)]
        for changes, rows_ in (({"split": "train"}, expected), ({"split": "train[2:5]"}, expected[2:5])):
            job = self.job("chat", "bytes_plain", given, local=False, chat_template=cases.TWICE, shuffle_seed=42)
            job["arguments"].update(changes)
            self.assertEqual([self.text(sample) for sample in self.run_job(job)], [str(i) for i in rows_])

    def test_reads_a_local_file_whole_with_a_warning(self):
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
    def test_refuses_tables_that_are_broken_or_lack_columns(self):
        table = pyarrow.Table.from_pylist([squad(str(i)) for i in range(100)])
        pyarrow.parquet.write_table(table, self.path("whole.parquet"))
        with pyarrow.OSFile(self.path("whole.arrow"), "wb") as stream, pyarrow.ipc.new_stream(stream, table.schema) as out:
            out.write_table(table, max_chunksize=10)
        for kind in ("parquet", "arrow"):
            with open(self.path("whole." + kind), "rb") as stream:
                data = stream.read()
            for cut in (0, 3, len(data) // 2):
                with open(self.path("cut." + kind), "wb") as stream:
                    stream.write(data[:cut])
                fault = self.refused("squad", "bytes", [], local=False, files=[self.path("cut." + kind)])
                self.assertEqual([fault.what[:16], fault.where], ["cannot be read: ", self.path("cut." + kind)])
        pyarrow.parquet.write_table(table.drop_columns(["answers"]), self.path("less.parquet"))
        fault = self.refused("squad", "bytes", [], local=False, files=[self.path("less.parquet")])
        self.assertEqual([fault.what, fault.where], ["the row has no 'answers'", self.path("less.parquet") + ": row 0"])
        pyarrow.parquet.write_table(pyarrow.table({"x": [1]}), self.path("none.parquet"))
        fault = self.refused("squad", "bytes", [], local=False, files=[self.path("none.parquet")])
        self.assertEqual([fault.what, fault.hint], ["has none of the columns context, question, answers", "its columns: x"])

    @unittest.skipUnless(pyarrow, "pyarrow is not installed")
    def test_reads_parquet_and_arrow(self):
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

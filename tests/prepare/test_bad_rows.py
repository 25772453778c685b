"""Tests of invalid rows: they are reported together, skipped on request, and not reported as faults of the format module."""

import copy
import json
import unittest
from unittest import mock

import cases
import harness
import rows
from prepared import Prepared, squad, talk

GOOD, CHATML = talk(("user", "who"), ("assistant", "it's")), {"chat_template": cases.CHATML}
CRITIC = talk(("critic", "x"))


class ReportedRows(Prepared):
    def told(self, *arguments, **changes):
        """Returns [line of the file, message] of each invalid row, and the raised fault."""
        fault = self.refused(*arguments, **changes)
        return [[int(one.where.rsplit(":", 1)[1]), one.what] for one in (fault, *fault.more)], fault

    def test_are_reported_together(self):
        given = [json.dumps(GOOD), "{", json.dumps(CRITIC), json.dumps(GOOD), "[1]", json.dumps(talk(("user", "\ud800"),
                 ("assistant", "x")))]
        told, fault = self.told("chat", "bytes", given, **CHATML)
        self.assertEqual([line for line, _ in sorted(told)], [2, 3, 5, 6])
        self.assertIn([3, "Unsupported role in messages: critic"], told)
        self.assertIn([5, "is list, not an object with the columns of a row"], told)
        self.assertEqual(fault.hint, "Correct the row, or set dataset.skip_invalid_samples: true to leave such rows out.")
        self.assertEqual(len(fault.message()["more"]), 3)

    def test_are_at_most_twenty(self):
        told, fault = self.told("squad", "bytes", [squad()] * 3 + [{"context": "c"}] * 50, local=False)
        self.assertEqual(told, [[line, "the row has no 'answers'"] for line in range(4, 24)])
        self.assertEqual(fault.more[-1].hint, "These are the first 20 wrong rows; there may be more.")

    def test_end_at_an_error_that_stops_the_reader(self):
        with open(self.path("rows.json"), "w", encoding="utf-8") as stream:
            stream.write(f"[{json.dumps(squad())},\n7,\n{json.dumps(squad())},\n;]")
        told, _ = self.told("squad", "bytes", [], local=False, files=[self.path("rows.json")])
        self.assertEqual(told, [[2, "is int, not an object with the columns of a row"],
                                [4, "is not JSON: Expecting value, column 1"]])

    def test_are_collected_for_a_limited_time(self):
        import bad_rows
        with mock.patch.object(bad_rows, "SECONDS", -1):
            told, _ = self.told("chat", "bytes", [GOOD, CRITIC, GOOD, CRITIC], **CHATML)
        self.assertEqual(told, [[2, "Unsupported role in messages: critic"]])

    def test_include_failures_of_the_template(self):
        template = "{% for m in messages %}{{ raise_exception('no ' ~ m.content) if m.content == 'x' else m.content }}{% endfor %}"
        told, _ = self.told("chat", "bytes", [GOOD, talk(("assistant", "x")), GOOD, talk(("assistant", "x"))],
                            chat_template=template)
        self.assertEqual(told, [[line, "the chat template fails: TemplateError: no x"] for line in (2, 4)])

    def test_have_a_hint_if_the_template_needs_later_messages(self):
        fault = self.refused("chat", "bytes", [GOOD], chat_template="{{ messages[0].content }} and {{ messages[1].content }}")
        self.assertIn("UndefinedError", fault.what)
        self.assertIn("loop over the messages", fault.hint)

    def test_are_reported_by_a_probe(self):
        from faults import Fault
        job = {**self.job("chat", "bytes", [CRITIC, GOOD, CRITIC], **CHATML), "probe": True}
        with self.assertRaises(Fault) as caught:
            self.run_job(job)
        self.assertEqual([fault.where[-2:] for fault in (caught.exception, *caught.exception.more)], [":1", ":3"])


class SkippedRows(Prepared):
    def test_have_any_kind_of_fault(self):
        given = [json.dumps(GOOD), "{", json.dumps(CRITIC), "[1]", json.dumps(CRITIC), json.dumps({"text": "x"}),
                 json.dumps(talk(("user", "who"))), json.dumps(talk(("user", "\ud800"), ("assistant", "x"))), json.dumps(GOOD)]
        samples = self.prepare("chat", "bytes", given, skip_invalid_samples=True, **CHATML)
        self.assertEqual([len(samples), samples[0]], [2, samples[1]])
        path, said = self.path("rows.jsonl"), self.warnings()
        for sentence in (
                f"Skipped 2 malformed JSONL line(s) from {path} (skip_invalid_samples=True)",
                f"Skipped 2 row(s) (skip_invalid_samples=True): Unsupported role in messages: critic; the first is {path}:3",
                "Skipped 1 row(s) (skip_invalid_samples=True): Each sample must contain a `messages` list (OpenAI format) or "
                f"a `conversations` list (ShareGPT format); the first is {path}:6",
                "Skipped 1 row(s) (skip_invalid_samples=True): the conversation has no assistant message, so none of its "
                f"tokens is trained on; the first is {path}:7"):
            self.assertIn(sentence, said)
        self.assertTrue(any("half of a surrogate pair" in sentence for sentence in said), said)
        self.assertEqual([sum(self.head["dropped"].values()), self.head["flags"], self.counts["dropped"]], [5, 2, 5])

    def test_take_time_proportional_to_the_rows(self):
        import chat
        calls = []
        real = chat.Chat.plan
        with mock.patch.object(chat.Chat, "plan", lambda *given: calls.append(1) or real(*given)):
            samples = self.prepare("chat", "bytes", [GOOD, talk(("user", "x"))] * 500, skip_invalid_samples=True, **CHATML)
        self.assertEqual(len(samples), 500)
        self.assertLess(len(calls), 3000)

    def test_count_reasons_beyond_twenty_together(self):
        given = [GOOD] + [talk((f"role{i}", "x")) for i in range(25)]
        self.prepare("chat", "bytes", given, skip_invalid_samples=True, **CHATML)
        self.assertEqual(self.head["dropped"]["other reasons"], 5)
        self.assertEqual(len(self.head["dropped"]), 21)

    def test_include_a_line_of_many_megabytes(self):
        import json_rows
        with mock.patch.object(json_rows, "LONGEST", 2000):
            self.prepare("chat", "bytes", [GOOD, "x" * 9000, GOOD], skip_invalid_samples=True, **CHATML)
        self.assertEqual(len(self.samples), 2)

    def test_are_skipped_in_a_shuffled_split(self):
        given = [talk(("user", f"{i}"), ("assistant", "it's")) if i % 3 else CRITIC for i in range(30)]
        whole = self.prepare("chat", "bytes", given, local=False, split="train", skip_invalid_samples=True, **CHATML)
        mixed = self.prepare("chat", "bytes", given, local=False, split="train", skip_invalid_samples=True, shuffle_seed=1,
                             **CHATML)
        self.assertEqual([len(whole), sorted(map(str, mixed))], [20, sorted(map(str, whole))])


VALUES = [None, 7, 1.5, True, "x", "", "[1]", "{}", [], {}, [None], ["x"], [[]], [{}], {"x": 1}, {"type": "text", "text": None},
          [{"type": "text", "text": None}], "[" * 5000]


def places(value, path=()):
    """Yields the path of every value in a row."""
    yield path
    for key, item in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from places(item, (*path, key))


def changed(row, path, value):
    """Returns the row with another value at a path, or without the path if the value is KeyError."""
    made = copy.deepcopy(row)
    at = made
    for key in path[:-1]:
        at = at[key]
    if value is KeyError:
        del at[path[-1]]
    else:
        at[path[-1]] = copy.deepcopy(value)
    return made


CALLS = {"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": [{"type": "text", "text": "who"}]},
                      {"role": "assistant", "content": "", "reasoning_content": "r", "tool_calls": [
                          {"id": "a", "type": "function", "function": {"name": "f", "arguments": {"x": 1}}}]},
                      {"role": "tool", "content": "3", "tool_call_id": "a"}, {"role": "assistant", "content": "it's"}],
         "tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}]}
SHAREGPT = {"conversations": [{"from": "human", "value": "who"}, {"from": "gpt", "value": "it's"}]}


class AnyForm(Prepared):
    """Any JSON value at any place of a row either makes a sample or is reported as an invalid row."""

    def check(self, kind, tokenizer, given, **changes):
        import preparation
        from faults import Fault
        from sources import Batch
        from tools import Tools
        job = self.job(kind, tokenizer, given, **changes)
        tools = Tools(job, lambda message: None)
        function = preparation.module(job["script"]).plan(job["arguments"], tools)
        refused = 0
        for row in given:
            for path in list(places(row))[1:]:
                for value in [*VALUES, KeyError]:
                    made = changed(row, path, value)
                    try:
                        preparation.whole(tools, function, Batch([made], ["row 1"]))
                    except Fault as fault:
                        refused += 1
                        self.assertEqual([fault.kind, fault.where], ["input", "row 1"], f"{made}: {fault.what}")
        self.assertGreater(refused, 10)

    def test_chat(self):
        self.check("chat", "bytes", [CALLS, SHAREGPT], **CHATML)

    def test_agent(self):
        self.check("agent", "bytes", [*rows.rows("agent", 4), SHAREGPT], **CHATML)
        self.check("agent", "bytes", [CALLS], **CHATML, filter_no_assistant=True, trim_incomplete_last_turn=True)

    def test_xlam(self):
        self.check("xlam", "bytes_plain", rows.rows("xlam", 2), local=False, template=cases.CHATML)

    def test_squad(self):
        self.check("squad", "bytes", [squad()], local=False)
        self.check("squad", "bytes", [squad()], local=False, **CHATML)

    def test_hellaswag(self):
        self.check("hellaswag", "bytes", [{"ctx": "a", "endings": ["b", "c"], "label": "0"}], local=False)

    def test_columns(self):
        self.check("columns", "bytes", [{"ctx": "c", "ask": "q", "say": "a"}])
        self.check("columns", "bytes_plain", [{"ctx": "c", "ask": "q", "say": "a"}], template=cases.CHATML,
                   use_hf_chat_template=True)


class Messages(Prepared):
    def what(self, kind, row, **changes):
        return self.refused(kind, "bytes", [row], **changes).what

    def test_name_values_that_are_not_strings(self):
        for value, what in ((7, "context is int, not a string"), ({}, "context is dict, not a string")):
            self.assertEqual(self.what("columns", {"ctx": value, "ask": "q", "say": "a"}), what)
        part = {"messages": [{"role": "user", "content": [{"type": "text", "text": None}]}, {"role": "assistant", "content": "x"}]}
        self.assertEqual(self.what("chat", part, **CHATML), "the text of a message's content part is NoneType, not a string")
        self.assertEqual(self.what("chat", {"messages": ["x"]}, **CHATML), "Each message must be a dict, got str")
        self.assertIn("an item of `messages` must be an object, got str", self.what("agent", {"messages": ["x"]}, **CHATML))
        self.assertIn("a turn of `conversations` must be an object, got str",
                      self.what("agent", {"conversations": ["x"]}, **CHATML))
        row = {"query": "q", "tools": "7", "answers": "[]"}
        self.assertEqual(self.refused("xlam", "bytes_plain", [row], local=False, template=cases.CHATML).what,
                         "`tools` must be a list of objects, or JSON text of one, got int")

    def test_null_tool_calls_count_as_absent(self):
        calls = {"messages": [{"role": "user", "content": "who", "tool_calls": None},
                              {"role": "assistant", "content": "it's", "tool_calls": None}]}
        template = {"chat_template": "{% for m in messages %}{{ m.content }}{% if m.tool_calls is defined %}"
                                     "{{ m.tool_calls | length }}{% endif %}{% endfor %}"}
        self.assertEqual(self.prepare("chat", "bytes", [calls], **template), self.prepare("chat", "bytes", [GOOD], **template))

    def test_warn_of_seq_length_without_effect(self):
        for kind, row, changes in (("chat", GOOD, CHATML), ("agent", GOOD, CHATML), ("columns", {"ctx": "c", "ask": "q", "say": "a"}, {})):
            self.prepare(kind, "bytes", [row], seq_length=4, **changes)
            self.assertIn("`seq_length=4` has no effect: truncation is disabled and `padding` is not 'max_length'. Set "
                          "`truncation=True` to cap long rows, or `padding='max_length'` to pad to `seq_length`.",
                          self.warnings(), kind)
            self.prepare(kind, "bytes", [row], seq_length=4, padding="max_length", **changes)
            self.assertFalse([said for said in self.warnings() if "has no effect" in said])
            self.prepare(kind, "bytes", [row], seq_length=40, truncation=True, **changes)
            self.assertFalse([said for said in self.warnings() if "has no effect" in said])

    def test_warn_of_truncation_without_a_length(self):
        job = self.job("chat", "bytes", [GOOD], truncation=True, **CHATML)
        harness.save(job["tokenizer"] + "/tokenizer_config.json", {"bos_token": "<s>", "eos_token": "</s>"})
        self.run_job(job)
        self.assertIn("`truncation` has no effect: seq_length is not set, and the tokenizer has no model_max_length. Set "
                      "`seq_length`.", self.warnings())


class RowCount(Prepared):
    def test_must_equal_the_card(self):
        from faults import Fault
        for count, split, want in ((3, "train", True), (4, "train", False), (4, "train[:2]", True)):
            job = {**self.job("squad", "bytes", [squad()] * 3, local=False), "rows": {"train": count}}
            job["arguments"]["split"] = split
            if want:
                self.assertGreater(len(self.run_job(job)), 1)
                continue
            with self.assertRaises(Fault) as caught:
                self.run_job(job)
            self.assertEqual([caught.exception.what, caught.exception.where, caught.exception.hint],
                             ["has 3 rows with the other files of its split, but the data set's card says 4",
                              self.path("rows.jsonl"), "Correct num_examples in the card, or list the data files instead."])


class AllSplits(Prepared):
    def test_are_joined_in_the_order_of_the_data_set(self):
        files = {name: [self.write(name + ".jsonl", [squad(name)])] for name in ("test", "train", "extra")}
        job = {**self.job("squad", "bytes", [], local=False), "files": files, "splits": ["train", "test", "extra"]}
        job["arguments"]["split"] = "all"
        samples = self.run_job(job)
        self.assertEqual([self.text(sample).strip() for sample in samples], ["train", "test", "extra"])

    def test_select_every_row_of_a_file(self):
        job = self.job("squad", "bytes", [], files=[self.write("rows.jsonl", [squad()] * 3)])
        job["arguments"]["split"], job["is_local"] = "all", False
        self.assertEqual(len(self.run_job(job)), 3)

    def test_refuse_a_slice(self):
        self.assertIn('Unknown split "all"', self.refused("squad", "bytes", [squad()], local=False, split="all[:2]").what)


if __name__ == "__main__":
    unittest.main()

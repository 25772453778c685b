"""Tests of rows with named columns, conversations and agent traces."""

import unittest

import cases
import rows
from prepared import Prepared, talk


class Columns(Prepared):
    ROWS = [{"ctx": "of", "ask": "who", "say": "Denver"}, {"ctx": "in", "ask": "when", "say": "it's"}]

    def prompt(self, **mapping):
        self.prepare("columns", "bytes", self.ROWS, column_mapping={**mapping, "answer": "say"})
        import text_tokenizer
        ids, spans = self.samples[0]
        return text_tokenizer.TextTokenizer(self.tokenizer).backend.decode(ids[:spans[0][0]])

    def test_context_and_question(self):
        self.assertEqual(self.prompt(context="ctx", question="ask"), "of who")

    def test_context_or_question(self):
        self.assertEqual(self.prompt(context="ctx"), "of")
        self.assertEqual(self.prompt(question="ask"), "who")

    def test_refuses_invalid_mappings(self):
        for mapping, what in (({"answer": "say"}, "Expected 2 or 3 columns in column_mapping, got 1"),
                              ({"answer": "say", "x": "ctx"}, "Expected context or question to be in column_mapping"),
                              ({"question": "ask", "context": "ctx"}, "Expected answer to be in column_mapping")):
            fault = self.refused("columns", "bytes", self.ROWS, column_mapping=mapping)
            self.assertEqual([fault.what, fault.where, fault.kind], [what, "dataset.column_mapping", "config"])

    def test_refuses_an_empty_prompt(self):
        fault = self.refused("columns", "bytes", [{"ask": "", "say": "x"}],
                             column_mapping={"question": "ask", "answer": "say"})
        self.assertEqual(fault.what, "Expected prompt to be non-empty")

    def test_replaces_a_row_without_labels_by_the_next(self):
        given = [{"ctx": "c", "ask": "q" * n, "say": f"river {n}"} for n in (90, 1, 95, 96, 2, 97)]
        samples = self.prepare("columns", "bytes", given, seq_length=24, truncation=True)
        self.assertEqual([samples.index(sample) for sample in samples], [0, 0, 2, 2, 2, 0])
        self.assertIn("river 1", self.text(samples[0]))
        self.assertIn("river 2", self.text(samples[2]))
        self.assertEqual(self.head["replaced"], 4)
        self.assertEqual(self.head["flags"], 2)

    def test_refuses_rows_without_labels(self):
        fault = self.refused("columns", "bytes", [{"ctx": "c", "ask": "q" * 90, "say": "x"}], seq_length=8, truncation=True)
        self.assertTrue(fault.what.startswith("All samples in the dataset produced labels that are entirely -100."))

    def test_limits_a_sum_of_slices(self):
        given = [{"ctx": "c", "ask": "q", "say": f"{i} river"} for i in range(6)]
        samples = self.prepare("columns", "bytes", given, local=False, split="train[4:99]+train[:3]",
                               limit_dataset_samples=4)
        whole = self.prepare("columns", "bytes", given, local=False)
        self.assertEqual(samples, [whole[i] for i in (4, 5, 0, 1)])

    def test_refuses_a_limit_above_the_number_of_rows(self):
        self.assertIn("asks for 3 rows, but there are 2",
                      self.refused("columns", "bytes", self.ROWS, limit_dataset_samples=3).what)


class Conversations(Prepared):
    TEMPLATE = ("{% for m in messages %}[{{ m.role }}]{{ m.content }}{% for c in m.tool_calls or [] %}{{ c | tojson }}"
                "{% endfor %}{{ '\\n' }}{% endfor %}")

    def rendered(self, row):
        import text_tokenizer
        ids, _ = self.prepare("chat", "bytes_plain", [row], chat_template=self.TEMPLATE)[0]
        return text_tokenizer.TextTokenizer(self.tokenizer).backend.decode(ids, skip_special_tokens=False)

    def test_sharegpt_equals_openai(self):
        turns = [{"from": "human", "value": "who"}, {"from": "gpt", "value": "it's"}]
        self.assertEqual(self.rendered({"conversations": turns}), "[user]who\n[assistant]it's\n")
        self.assertEqual(self.rendered(talk(("user", "who"), ("assistant", "it's"))), "[user]who\n[assistant]it's\n")

    def test_calls_with_object_arguments_and_null_content(self):
        row = {"messages": [{"role": "user", "content": "who"}, {"role": "assistant", "content": None, "tool_calls": [
            {"function": {"name": "f", "arguments": {"é": 1}}}]}]}
        self.assertEqual(self.rendered(row), '[user]who\n[assistant]{"function": {"name": "f", "arguments": '
                         '"{\\"\\\\u00e9\\": 1}"}, "id": "call_0", "type": "function"}\n')

    def test_refuses_invalid_conversations(self):
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

    def test_agent_needs_one_source(self):
        job = self.job("agent", "bytes", rows.rows("agent", 2))
        job["arguments"]["path"] = None
        from faults import Fault
        with self.assertRaisesRegex(Fault, "Exactly one of `dataset_name` or `path` must be provided"):
            self.run_job(job)

    def test_error_of_agent_names_the_row(self):
        given = rows.rows("agent", 3) + [{"id": "no", "messages": [{"role": "x"}]}]
        fault = self.refused("agent", "bytes", given)
        self.assertEqual(fault.what, "Failed to format agent SFT example (id='no'): Unsupported role in agent messages: 'x'")
        self.assertTrue(fault.where.endswith("rows.jsonl:4"), fault.where)

    def test_counts_or_drops_overlong_agent_rows(self):
        given, length = rows.rows("agent", 12), {"seq_length": 100, "truncation": True, "filter_overlong": True}
        self.assertEqual(len(self.prepare("agent", "bytes", given, **length)), 12)
        cut = next(warning for warning in self.warnings() if "longer than seq_length" in warning)
        left = self.prepare("agent", "bytes", given, drop_overlong=True, **length)
        self.assertEqual(12 - len(left), int(cut.split()[0]))
        self.assertEqual(self.head["dropped"], {"longer than seq_length": 12 - len(left)})
        self.assertEqual(self.counts["dropped"], 12 - len(left))


if __name__ == "__main__":
    unittest.main()

"""Tests of messages about rows and recipes that a data set refuses."""

import json
import os
import unittest

import cases
from prepared import Prepared, squad, talk


class Messages(Prepared):
    def test_name_a_data_set_for_answers_that_are_strings(self):
        fault = self.refused("squad", "bytes", [squad(), {"context": "a", "question": "b", "answers": "c"}], local=False)
        self.assertEqual(fault.what, "`answers` must be {text: [...]}, as in rajpurkar/squad, and is a text; for an answer "
                                     "that is a text use ColumnMappedTextInstructionDataset")
        self.assertTrue(fault.where.endswith("rows.jsonl:2"), fault.where)

    def test_refuse_an_invalid_date(self):
        job = self.job("chat", "qwen", [talk(("user", "x"), ("assistant", "y"))], chat_template=cases.CHATML)
        from faults import Fault
        with self.assertRaises(Fault) as caught:
            self.run_job({**job, "date": "foo"})
        fault = caught.exception
        self.assertEqual((fault.where, fault.what, fault.hint), ("dataset.date", "'foo' is not a date", "write YYYY-MM-DD"))

    def test_ask_for_a_missing_split(self):
        fault = self.refused("chat", "qwen", [talk(("user", "x"), ("assistant", "y"))], local=False, split=None,
                             chat_template=cases.CHATML)
        self.assertEqual((fault.where, fault.what, fault.hint),
                         ("dataset.split", "this data set needs a split", "set dataset.split: train"))

    def test_warn_of_a_template_without_tool_calls(self):
        row = {"messages": [{"role": "user", "content": "x"},
                            {"role": "assistant", "content": "y",
                             "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]}],
               "tools": [{"type": "function", "function": {"name": "f"}}]}
        plain = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
        self.prepare("chat", "qwen", [row], chat_template=plain)
        self.assertEqual(self.warnings(), [
            "messages have `tool_calls`, and the chat template does not name them: the calls are not in the samples; "
            "dataset.chat_template gives another template",
            "rows have `tools`, and the chat template does not name them: they are not in the samples"])

    def test_do_not_warn_of_a_named_template_with_tools(self):
        row = {**talk(("user", "x"), ("assistant", "y")), "tools": [{"type": "function", "function": {"name": "f"}}]}
        job = self.job("chat", "qwen", [row])
        os.mkdir(os.path.join(job["tokenizer"], "additional_chat_templates"))
        for name, text in (("chat_template.jinja", cases.CHATML),
                           ("additional_chat_templates/tool_use.jinja", "{{ tools | tojson }}" + cases.CHATML)):
            with open(os.path.join(job["tokenizer"], name), "w", encoding="utf-8") as stream:
                stream.write(text)
        self.run_job(job)
        self.assertEqual(self.warnings(), [])

    def test_refuse_an_invalid_model_max_length(self):
        job = self.job("chat", "qwen", [talk(("user", "x"), ("assistant", "y"))], chat_template=cases.CHATML)
        file = os.path.join(job["tokenizer"], "tokenizer_config.json")

        def longest(value):
            with open(file, encoding="utf-8") as stream:
                settings = json.load(stream)
            with open(file, "w", encoding="utf-8") as stream:
                json.dump({**settings, "model_max_length": value}, stream)
            return self.run_job(job)

        from faults import Fault
        for value in (float("inf"), 10**30, 1e30):
            self.assertEqual(len(longest(value)), 1)
        for value, written in ((float("nan"), "nan"), (-1, "-1"), ("many", "'many'")):
            with self.assertRaises(Fault) as caught:
                longest(value)
            self.assertEqual((caught.exception.where, caught.exception.what),
                             (file, f"model_max_length is {written}, not a number of tokens"))

    def test_warn_of_a_mapped_column_that_no_row_has(self):
        self.prepare("columns", "bytes", [{"q": "how", "a": "so"}] * 3,
                     column_mapping={"context": "passge", "question": "q", "answer": "a"})
        self.assertIn("3 rows have no column 'passge', which column_mapping names as the context: their context is empty",
                      self.warnings())


if __name__ == "__main__":
    unittest.main()

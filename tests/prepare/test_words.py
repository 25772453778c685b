"""What a person is told whose rows or recipe are not what the data set takes."""

import unittest

import cases
from prepared import Prepared, squad, talk


class Words(Prepared):
    def test_an_answer_that_is_a_text(self):
        fault = self.refused("squad", "bytes", [squad(), {"context": "a", "question": "b", "answers": "c"}], local=False)
        self.assertEqual(fault.what, "`answers` must be {text: [...]}, as in rajpurkar/squad, and is a text; for an answer "
                                     "that is a text use ColumnMappedTextInstructionDataset")
        self.assertTrue(fault.where.endswith("rows.jsonl:2"), fault.where)

    def test_a_date_that_is_none(self):
        job = self.job("chat", "qwen", [talk(("user", "x"), ("assistant", "y"))], chat_template=cases.CHATML)
        from faults import Fault
        with self.assertRaises(Fault) as caught:
            self.run_job({**job, "date": "foo"})
        fault = caught.exception
        self.assertEqual((fault.where, fault.what, fault.hint), ("dataset.date", "'foo' is not a date", "write YYYY-MM-DD"))

    def test_a_split_that_is_not_given(self):
        fault = self.refused("chat", "qwen", [talk(("user", "x"), ("assistant", "y"))], local=False, split=None,
                             chat_template=cases.CHATML)
        self.assertEqual((fault.where, fault.what, fault.hint),
                         ("dataset.split", "this data set needs a split", "set dataset.split: train"))

    def test_a_template_that_drops_calls(self):
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

    def test_a_mapped_column_that_no_row_has(self):
        self.prepare("columns", "bytes", [{"q": "how", "a": "so"}] * 3,
                     column_mapping={"context": "passge", "question": "q", "answer": "a"})
        self.assertIn("3 rows have no column 'passge', which column_mapping names as the context: they go without",
                      self.warnings())


if __name__ == "__main__":
    unittest.main()

"""Tests that malicious or broken data, templates and tokenizers are refused with a message in bounded time."""

import json
import os
import resource
import time
import unittest
from unittest import mock

import cases
from prepared import Prepared, squad, talk

TALK = talk(("user", "who"), ("assistant", "it's"))


class Templates(Prepared):
    def said(self, template, row=TALK, seconds=20):
        """Returns the error of a template with a time limit in seconds."""
        import limits
        begin = time.monotonic()
        with mock.patch.object(limits, "SECONDS", seconds), mock.patch.object(limits, "MEMORY", 64 << 20):
            fault = self.refused("chat", "bytes_plain", [row], chat_template=template)
        self.assertLess(time.monotonic() - begin, 30)
        self.assertTrue(fault.where.endswith("rows.jsonl:1"), fault.where)
        return fault.what

    def test_stops_an_endless_template(self):
        loop = "{% for a in range(99999) %}" * 3 + "{{ a }}" + "{% endfor %}" * 3
        self.assertEqual(self.said(loop.replace("{{ a }}", ""), seconds=0.3),
                         "the chat template does not end: it was stopped after 0.3 s")
        self.assertIn("the chat template does not end", self.said("{{ lipsum(n=99999999) }}", seconds=0.3))

    def test_stops_a_template_that_is_slow_on_every_row(self):
        import limits
        slow = "{% for a in range(90000) %}{% endfor %}{{ messages[0].content }}"
        with mock.patch.object(limits, "BEGIN", 0.2), mock.patch.object(limits, "MEAN", 0.0005), \
                mock.patch.object(limits, "Spent", type("Spent", (), {"seconds": 0.0, "texts": 0})):
            fault = self.refused("chat", "bytes_plain", [TALK] * 2000, chat_template=slow)
        self.assertRegex(fault.what, r"^the chat template is too slow: it took \d s for \d+ texts$")
        self.assertRegex(fault.where, r"rows.jsonl:\d+$")

    def test_limits_memory(self):
        grow = "{% set n = namespace(x='0123456789') %}{% for i in range(60) %}{% set n.x = n.x ~ n.x %}{% endfor %}{{ n.x }}"
        self.assertEqual(self.said(grow), "the chat template needs more than 64 MiB")
        self.assertEqual(self.said("{{ '%0900000000d' | format(1) }}"), "the chat template needs more than 64 MiB")

    def test_limits_products_and_powers(self):
        for text in ("{{ 9 ** 99999 }}", "{{ 'x' * 999999999 }}", "{% set n = namespace(x=9) %}{% for i in range(99) %}"
                     "{% set n.x = n.x * n.x %}{% endfor %}"):
            self.assertIn("OverflowError: ", self.said(text))

    def test_refuses_endless_recursion_and_deep_nesting(self):
        self.assertIn("calls itself without end", self.said("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}"))
        self.assertIn("nested too deeply", self.said("{{ " + "(" * 20000 + "1" + ")" * 20000 + " }}"))

    def test_refuses_to_read_files(self):
        for text in ("{% include '/etc/passwd' %}", "{% import '/etc/passwd' as x %}{{ x }}", "{% extends '/etc/passwd' %}"):
            self.assertIn("no loader", self.said(text))

    def test_refuses_to_leave_the_sandbox(self):
        for text in ("{{ ''.__class__.__mro__[1].__subclasses__() }}", "{{ cycler.__init__.__globals__.os.system('id') }}",
                     "{{ self.__init__.__globals__ }}", "{{ raise_exception.__globals__.os }}",
                     "{{ ('{0.__class__.__mro__}').format('') }}"):
            self.assertIn("SecurityError", self.said(text), text)
        self.assertIn("SecurityError", self.said("{{ messages.append(1) }}"))

    def test_reports_errors_of_the_template(self):
        self.assertIn("TemplateSyntaxError", self.said("{% for m in messages %}"))
        self.assertIn("UndefinedError", self.said("{{ nothing.there }}"))
        self.assertIn("TemplateError: only one", self.said("{{ raise_exception('only one') }}"))

    def test_refuses_files_that_are_too_large(self):
        os.truncate(self.write("large.jinja", []), 1 << 30)
        for path in (self.path("large.jinja"), "/dev/zero"):
            fault = self.refused("chat", "bytes_plain", [TALK], chat_template=path)
            self.assertEqual([fault.what, fault.where], ["is no file of at most 4 MiB", path])


class Rows(Prepared):
    def said(self, text, name="rows.jsonl", **changes):
        """Returns the error of a file with these bytes, and its place."""
        with open(self.path(name), "wb") as stream:
            stream.write(text)
        fault = self.refused("squad", "bytes", [], local=False, files=[self.path(name)], **changes)
        return fault.what, fault.where[len(self.path("")):]

    GOOD = json.dumps(squad()).encode()

    def test_refuses_invalid_lines(self):
        for line, what in ((b'{"a": }', "is not JSON: Expecting value, column 7"), (b"\xff\xfe", "is not UTF-8: byte 0xff at 0"),
                           (b'{"a": "\xc3("}', "is not UTF-8: byte 0xc3 at 7 of the line"), (b"[1]", "is list, not an object"),
                           (b"[" * 10000, "is nested too deeply"), (b'{"a":' * 10000 + b"1" + b"}" * 10000, "is nested too"),
                           (b'{"a": ' + b"9" * 50000 + b"}", "is not JSON: a number of 50000 digits"),
                           (b'{"a": "', "is not JSON: Unterminated string"), (b"\0", "is not JSON: Expecting value")):
            said, where = self.said(self.GOOD + b"\n\n" + line + b"\n")
            self.assertTrue(said.startswith(what), said)
            self.assertEqual(where, "rows.jsonl:3")

    def test_refuses_invalid_arrays(self):
        good = self.GOOD
        for text, what, line in ((b"[" + good + b",\n" + good + b"\n;]", "is not JSON: ';' after a row", 3),
                                 (b"[" + good + b",\n", "is not JSON: Expecting value", 2),
                                 (b"[" + good + b"\n", "ends inside its array", 2), (b"[\n\n{]", "is not JSON: Expecting", 3),
                                 (b"[\n" + b"[" * 10000, "is nested too deeply", 2), (good + b"\n\xff", "is not UTF-8", 2),
                                 (b"[1]", "is int, not an object", 1)):
            said, where = self.said(text, "rows.json")
            self.assertTrue(said.startswith(what), said)
            self.assertEqual(where, f"rows.json:{line}")

    def test_refuses_a_line_of_a_gigabyte(self):
        path, begin = self.write("rows.jsonl", [self.GOOD.decode()]), time.monotonic()
        os.truncate(path, 1 << 30)
        for name in ("rows.jsonl", "rows.json"):
            os.rename(path, self.path(name))
            path = self.path(name)
            fault = self.refused("squad", "bytes", [], local=False, files=[path])
            if name == "rows.jsonl":
                self.assertEqual([fault.what, fault.where], ["a row of more than 16 MiB", path + ":2"])
        self.assertLess(time.monotonic() - begin, 60)
        self.assertLess(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, 600 << 10)

    def test_refuses_a_text_of_many_megabytes(self):
        import text_tokenizer
        rows = [squad(), squad(context="x " * (2 << 20)), squad()]
        said = self.said(b"\n".join(json.dumps(row).encode() for row in rows))
        self.assertEqual(said, ("a text of 4.0 million characters; the most is 2", "rows.jsonl:2"))
        with mock.patch.object(text_tokenizer, "LONGEST", 1000):
            fault = self.refused("chat", "bytes_plain", [TALK, TALK, talk(("user", "x" * 2000), ("assistant", "it's"))],
                                 chat_template=cases.CHATML)
        self.assertRegex(fault.where, r"rows.jsonl:3$")
        self.assertLess(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, 600 << 10)

    def test_refuses_a_value_of_many_megabytes(self):
        import json_rows
        with mock.patch.object(json_rows, "LONGEST", 3 << 20):
            said, where = self.said(b'[\n{"a": "' + b"x" * (8 << 20) + b'"}]', "rows.json")
        self.assertEqual([said, where], ["a row of more than 3 MiB", "rows.json:2"])

    def test_reads_values_across_chunks(self):
        import json_rows
        from bad_rows import BadRows
        given = [squad(f"x{i}" * 3, context="Zürich " * (i % 7)) for i in range(40)]
        for text in (json.dumps(given, ensure_ascii=False), "\n\n".join(json.dumps(row) for row in given),
                     json.dumps(given, indent=2)):
            with open(self.path("rows.json"), "w", encoding="utf-8") as stream:
                stream.write("\ufeff" + text)
            for chunk in (1, 7, 100):
                with mock.patch.object(json_rows, "CHUNK", chunk):
                    self.assertEqual([row for _, row in json_rows.values(self.path("rows.json"), BadRows())], given)

    def test_skips_a_byte_order_mark(self):
        with open(self.path("rows.jsonl"), "wb") as stream:
            stream.write(b"\xef\xbb\xbf" + self.GOOD + b"\r\n\r\n" + self.GOOD)
        self.prepare("squad", "bytes", [], local=False, files=[self.path("rows.jsonl")])
        self.assertEqual(len(self.samples), 2)

    def test_refuses_missing_columns_and_invalid_characters(self):
        said, where = self.said(self.GOOD + b"\n" + b'{"context": "c", "question": "q"}')
        self.assertEqual([said, where], ["the row has no 'answers'", "rows.jsonl:2"])
        said, where = self.said(self.GOOD + b"\n" + json.dumps(squad("\ud800")).encode())
        self.assertEqual([said.split(",")[0], where], ["has half of a surrogate pair (\\ud800 to \\udfff)", "rows.jsonl:2"])

    def test_names_the_row_of_an_invalid_text(self):
        half = "has half of a surrogate pair (\\ud800 to \\udfff)"
        good = talk(("user", "who"), ("assistant", "it's"), ("user", "why"), ("assistant", "so"))
        bad = talk(("user", "who"), ("assistant", "\ud800"), ("user", "why"), ("assistant", "so"), id="no")
        chat = {"chat_template": cases.CHATML}
        for row in (1, 5, 20):
            given = [good] * (row - 1) + [bad] + [good] * (20 - row)
            fault = self.refused("chat", "bytes", given, **chat)
            self.assertEqual([fault.what.split(",")[0], fault.where], [half, self.path(f"rows.jsonl:{row}")])
            for more in ({}, {"truncate_history": True, "seq_length": 4}):
                fault = self.refused("agent", "bytes", [talk(("user", "x")), *given], filter_no_assistant=True, **chat, **more)
                self.assertEqual(fault.what.split(",")[0], f"Failed to format agent SFT example (id='no'): {half}")
                self.assertEqual(fault.where, self.path(f"rows.jsonl:{row + 1}"))

    def test_refuses_a_missing_column_of_hellaswag(self):
        good = {"ctx": "a", "endings": ["b"], "label": "0"}
        fault = self.refused("hellaswag", "bytes", [good, good, {"endings": ["b"], "label": "0"}], local=False)
        self.assertEqual([fault.what, fault.where], ["the row has no 'ctx'", self.path("rows.jsonl:3")])

    def test_lists_the_columns_of_a_row_without_mapped_columns(self):
        fault = self.refused("columns", "bytes", [{"left": "x", "right": "y"}])
        self.assertEqual(fault.what, "has none of the columns ask, ctx, say of column_mapping; its columns: left, right")

    def test_skips_malformed_lines_with_skip_invalid_samples(self):
        path = self.write("rows.jsonl", [json.dumps(TALK), "{", "\x00", json.dumps(TALK)])
        self.prepare("chat", "bytes", [], files=[path], chat_template=cases.CHATML, skip_invalid_samples=True)
        self.assertEqual(len(self.samples), 2)
        self.assertIn(f"Skipped 2 malformed JSONL line(s) from {path} (skip_invalid_samples=True)", self.warnings())

    def test_refuses_missing_files_and_unknown_formats(self):
        for name, what in (("no.jsonl", "File not found: "), ("x.csv", "a data file of the kind .csv"), ("", "is not a file")):
            if name.endswith("csv"):
                self.write(name, [])
            fault = self.refused("squad", "bytes", [], local=False, files=[self.path(name)])
            self.assertTrue(fault.what.startswith(what), fault.what)
        for name in ("x.csv", "x.jsonl.gz"):  # the error must not ask for a split
            fault = self.refused("chat", "bytes", [], local=False, files=[self.write(name, [])], chat_template=cases.CHATML)
            self.assertEqual([fault.what, fault.where], ["a data file of the kind " + name[name.rindex("."):], self.path(name)])
        self.assertEqual(self.refused("squad", "bytes", [], local=False, files=[self.write("e.jsonl", [])]).what,
                         "the split train has no rows")


class Tokenizers(Prepared):
    def said(self, name, size=None, text=None):
        job = self.job("squad", "bytes", [squad()], local=False)
        with open(os.path.join(job["tokenizer"], name), "w", encoding="utf-8") as stream:
            stream.write(text or "")
        if size:
            os.truncate(stream.name, size)
        from faults import Fault
        with self.assertRaises(Fault) as caught:
            self.run_job(job)
        return caught.exception.what

    def test_refuses_invalid_files(self):
        for name in ("tokenizer.json", "tokenizer_config.json"):
            self.assertEqual(self.said(name, size=1 << 30), "is larger than 256 MiB")
        self.setUp()
        self.assertIn("is not a tokenizer that tokenizers", self.said("tokenizer.json", text="{}"))
        self.setUp()
        self.assertIn("is not JSON", self.said("tokenizer_config.json", text="[" * 99999))
        self.setUp()
        self.assertEqual(self.said("tokenizer_config.json", text="[]"), "is not a JSON object")

    def test_refuses_a_directory_without_tokenizer(self):
        job = self.job("squad", "bytes", [squad()], local=False)
        os.remove(os.path.join(job["tokenizer"], "tokenizer.json"))
        from faults import Fault
        with self.assertRaisesRegex(Fault, "has no tokenizer.json"):
            self.run_job(job)


if __name__ == "__main__":
    unittest.main()

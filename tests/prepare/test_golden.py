"""Compares heddle's samples with those of AutoModel's classes, which make_golden.py recorded."""

import json
import os
import tempfile
import unittest

import cases
import harness

try:
    import pyarrow
except ImportError:
    pyarrow = None


class Golden(unittest.TestCase):
    def test_every_case(self):
        with open(os.path.join(harness.HERE, "golden", "samples.json"), encoding="utf-8") as stream:
            golden = json.load(stream)
        self.assertEqual(sorted(golden), sorted(["date", *map(cases.title, cases.CASES)]))
        with tempfile.TemporaryDirectory() as folder:
            for case in cases.CASES:
                with self.subTest(cases.title(case)):
                    ours = harness.heddle(case, harness.KEPT, folder, golden["date"], parquet=pyarrow is not None)
                    theirs = golden[cases.title(case)]
                    if isinstance(theirs, str):
                        self.assertIsNone(harness.different(ours, theirs))
                    else:
                        self.assertEqual(harness.kept(harness.shown(ours, case)), theirs)


if __name__ == "__main__":
    unittest.main()

#!/usr/bin/env python3
"""Tests run.py in a tree with one script as its test suite: verdicts, restored files, refusals."""
import contextlib
import io
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import mutations  # noqa: E402
import run  # noqa: E402
from mutation import Mutation  # noqa: E402

# Prints GoogleTest's output. A file with "broken" does not build.
SUITE = """#!/bin/sh
echo "[ RUN      ] Sum.OfTwo"
value=$((1 + 1))
pause=0
sleep $pause
[ "$value" = 2 ] && exit 0
echo "[  FAILED  ] Sum.OfTwo (0 ms)"
exit 1
"""
NINJA = """rule check
  command = ! grep -q broken $in && cp $in $out && chmod +x $out
build tests/heddle_toy_tests: check ../suite.sh
"""


def mutation(name, before, after):
    return Mutation(name, "suite.sh", before, after, "a sum", "toy Sum*", ("tests/heddle_toy_tests",))


@unittest.skipUnless(shutil.which("ninja"), "ninja is not installed")
class Runner(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.tree = pathlib.Path(self.folder.name)
        (self.tree / "suite.sh").write_text(SUITE)
        (self.tree / "build/tests").mkdir(parents=True)
        (self.tree / "build/build.ninja").write_text(NINJA)
        (self.tree / ".gitignore").write_text("build\n")
        self.git("init", "-q")
        self.git("add", ".")
        self.git("-c", "user.name=n", "-c", "user.email=e", "commit", "-qm", "one")

    def git(self, *words):
        subprocess.run(["git", "-C", self.tree, *words], check=True)

    def verdict(self, before, after, seconds=20):
        one = mutation("one", before, after)
        run.build_suites(self.tree, [one])
        found = run.verdict(self.tree, one, seconds)
        self.assertEqual((self.tree / "suite.sh").read_text(), SUITE)
        self.assertEqual((self.tree / "build/tests/heddle_toy_tests").read_text(), SUITE)
        return found

    def test_catch_names_the_failed_test(self):
        self.assertEqual(self.verdict("1 + 1", "1 + 2"), ("caught", "Sum.OfTwo"))

    def test_mutation_survives_if_the_suite_passes(self):
        self.assertEqual(self.verdict("1 + 1", "2 + 0"), ("survived", "1 tests of 'Sum*'"))

    def test_timeout_is_a_catch(self):
        self.assertEqual(self.verdict("pause=0", "pause=60", seconds=1), ("caught", "Sum.OfTwo (time limit)"))

    def test_crash_is_a_catch(self):
        self.assertEqual(self.verdict("sleep $pause", "kill -9 $$"), ("caught", "Sum.OfTwo (status -9)"))

    def test_reports_a_mutation_that_does_not_build(self):
        self.assertEqual(self.verdict("exit 0", "exit 0  # broken")[0], "did not build")

    def test_verdict_is_unsure_if_the_test_fails_without_the_mutation(self):
        (self.tree / "suite.sh").write_text(SUITE.replace("pause=0", "value=3"))
        one = mutation("one", "1 + 1", "2")
        run.build_suites(self.tree, [one])
        self.assertEqual(run.verdict(self.tree, one, 20), ("unsure", "Sum.OfTwo fails without the mutation"))

    def main(self, *words, listed=None):
        before, arguments = mutations.ALL, sys.argv
        mutations.ALL = listed or [mutation("kept", "1 + 1", "2 + 0"), mutation("found", "1 + 1", "3")]
        sys.argv = ["run.py", "--tree", str(self.tree), *words]
        out, errors = io.StringIO(), io.StringIO()
        try:
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
                try:
                    status = run.main()
                except SystemExit as end:
                    status = end.code
        finally:
            mutations.ALL, sys.argv = before, arguments
        return status, out.getvalue() + errors.getvalue()

    def test_stops_at_a_survivor_with_status_1(self):
        status, text = self.main()
        self.assertEqual(status, 1)
        self.assertIn("| kept | a sum | survived |", text)
        self.assertNotIn("found", text)

    def test_keep_going_runs_all(self):
        status, text = self.main("--keep-going")
        self.assertEqual(status, 1)
        self.assertIn("1 caught, 1 survived", text)

    def test_only_selects_mutations(self):
        self.assertEqual(self.main("--only", "found")[0], 0)
        status, text = self.main("--only", "other")
        self.assertEqual(status, 2)
        self.assertIn("unknown mutation 'other'; available mutations: kept, found", text)

    def test_refuses_a_tree_with_uncommitted_changes(self):
        (self.tree / "suite.sh").write_text(SUITE + "\n")
        status, text = self.main()
        self.assertEqual(status, 2)
        self.assertIn("has uncommitted changes", text)

    def test_refuses_a_tree_that_is_not_configured(self):
        os.remove(self.tree / "build/build.ninja")
        status, text = self.main()
        self.assertEqual(status, 2)
        self.assertIn("is not configured", text)


if __name__ == "__main__":
    unittest.main()

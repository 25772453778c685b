"""Tests that scripts/format formats changed files by default, and every file with --all."""
import pathlib
import shutil
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
UGLY = "// a\nint  x  =1;\n"
TIDY = "// a\nint x = 1;\n"


class Format(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        for name in ("scripts/format", "tests/rules/check_format.py", "tests/rules/tree.py", ".clang-format"):
            (self.root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, self.root / name)
        (self.root / "core").mkdir()
        for name in ("committed", "edited"):
            (self.root / f"core/{name}.cpp").write_text(UGLY)
        self.git("init", "-q")
        self.git("add", ".")
        self.git("-c", "user.name=a", "-c", "user.email=a@example.org", "commit", "-qm", "a")
        (self.root / "core/edited.cpp").write_text(UGLY + "\n\n\n// b\n")
        (self.root / "core/new.cpp").write_text(UGLY)

    def git(self, *arguments):
        subprocess.run(["git", *arguments], cwd=self.root, check=True)

    def format(self, *arguments):
        return subprocess.run([self.root / "scripts/format", *arguments], capture_output=True, text=True, cwd="/")

    def text(self, name):
        return (self.root / f"core/{name}.cpp").read_text()

    def test_changed_and_new_files_are_formatted(self):
        self.assertEqual(self.format().stdout, "core/edited.cpp\ncore/new.cpp\nformat: formatted 2 of 2 files\n")
        self.assertEqual(self.text("new"), TIDY)
        self.assertEqual(self.text("committed"), UGLY)
        self.assertEqual(self.format().stdout, "format: formatted 0 of 2 files\n")

    def test_all_formats_every_file(self):
        self.assertIn("format: formatted 3 of 3 files", self.format("--all").stdout)
        self.assertEqual(self.text("committed"), TIDY)

    def test_an_unknown_argument_is_refused(self):
        result = self.format("core")
        self.assertEqual((result.returncode, result.stderr), (2, "format: unknown argument 'core'; the only option is --all.\n"))


if __name__ == "__main__":
    unittest.main()

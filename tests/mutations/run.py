#!/usr/bin/env python3
"""Runs the mutations in a built tree, and checks that a test fails for each.

run.py --tree DIR [--only ID ...] [--keep-going] [--json OUT]

DIR is a separate clone or worktree, configured in DIR/build, without uncommitted changes. For each mutation the script
changes the file, builds its targets, runs its suite until the first failure and restores the file. The failed test must
pass again without the mutation, otherwise the result is `unsure`. Status 1: a mutation survived. Status 2: no verdict."""
import argparse
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import mutations  # noqa: E402

SECONDS = 600  # time limit of a suite; detects mutations that make ranks hang
RESULTS = ("caught", "survived", "did not build", "unsure")


def fail(text):
    print(f"tests/mutations/run.py: {text}", file=sys.stderr)
    sys.exit(2)


def check_tree(tree):
    changed = subprocess.run(["git", "-C", tree, "status", "--porcelain"], capture_output=True, text=True)
    if changed.returncode != 0:
        fail(f"{tree} is not a git tree. Create a separate worktree (git worktree add DIR) and pass its path.")
    if changed.stdout.strip():
        fail(f"{tree} has uncommitted changes, which a mutation could destroy. Commit them, or pass another tree.")
    if not (tree / "build/build.ninja").is_file():
        fail(f"{tree}/build is not configured. Run cmake --preset release in {tree}.")


def build(tree, targets):
    done = subprocess.run(["ninja", "-C", tree / "build", *targets], capture_output=True, text=True)
    return done.returncode == 0, done.stdout + done.stderr


class Outcome:
    def __init__(self, status, output):
        run = re.findall(r"^\[ RUN      \] (\S+)", output, re.MULTILINE)
        failed = re.findall(r"^\[  FAILED  \] ([^\s,]+)", output, re.MULTILINE)
        self.ran, self.passes = len(run), status == 0
        self.test = failed[0] if failed else run[-1] if run and not self.passes else ""
        self.how = "" if failed or self.passes else " (time limit)" if status is None else f" (status {status})"


def run_suite(tree, name, filter_, seconds):
    """Runs a suite. After the time limit, kills the tests and all processes that they started."""
    command = [tree / "build/tests" / name, f"--gtest_filter={filter_}", "--gtest_fail_fast"]
    started = subprocess.Popen(command, cwd=tree / "build", stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                               text=True, errors="replace", start_new_session=True,
                               env={**os.environ, "CUDA_VISIBLE_DEVICES": ""})
    try:
        output, _ = started.communicate(timeout=seconds)
        return Outcome(started.returncode, output)
    except subprocess.TimeoutExpired:
        os.killpg(started.pid, signal.SIGKILL)
        return Outcome(None, started.communicate()[0])
    except BaseException:  # includes KeyboardInterrupt; the caller restores the file
        os.killpg(started.pid, signal.SIGKILL)
        raise


class Changed:
    """Context manager that applies a mutation to its file, and restores the file on exit, also after an interrupt."""

    def __init__(self, tree, mutation):
        self.file, self.mutation = tree / mutation.file, mutation

    def __enter__(self):
        self.text = self.file.read_text(encoding="utf-8")
        if self.text.count(self.mutation.before) != 1:
            fail(f"{self.mutation.id}: the text to replace does not occur exactly once in {self.file}. Run check.py.")
        self.file.write_text(self.text.replace(self.mutation.before, self.mutation.after), encoding="utf-8")

    def __exit__(self, *_):
        self.file.write_text(self.text, encoding="utf-8")


def verdict(tree, one, seconds):
    name, filter_ = mutations.suite(one)
    with Changed(tree, one):
        built, text = build(tree, one.targets)
        got = run_suite(tree, name, filter_, seconds) if built else None
    again, _ = build(tree, one.targets)
    if got is None:
        return "did not build", text.strip().splitlines()[-1] if text.strip() else ""
    if got.ran == 0 or not again:
        return "unsure", f"no test of '{filter_}' ran" if again else "the restored file does not build"
    if got.passes:
        return "survived", f"{got.ran} tests of '{filter_}'"
    if not got.test or not run_suite(tree, name, got.test, seconds).passes:
        return "unsure", f"{got.test or filter_} fails without the mutation"
    return "caught", got.test + got.how


def build_suites(tree, listed):
    """Builds the suites once. Later builds of a mutation's targets do not change the executables."""
    targets = {f"tests/{mutations.suite(one)[0]}" for one in listed} | {name for one in listed for name in one.targets}
    built, text = build(tree, sorted(targets))
    if not built:
        fail(f"{tree} does not build without a mutation:\n{text[-3000:]}")


def status_of(results):
    found = {one["result"] for one in results}
    return 1 if "survived" in found else 0 if found == {"caught"} else 2


def table(results):
    lines = ["| mutation | breaks | result | by | s |", "|---|---|---|---|--:|"]
    for one in results:
        lines.append("| " + " | ".join([one["id"], one["breaks"], one["result"], one["by"].replace("|", "/"),
                                        str(one["seconds"])]) + " |")
    counts = {word: sum(one["result"] == word for one in results) for word in RESULTS}
    return "\n".join([*lines, "", ", ".join(f"{count} {word}" for word, count in counts.items() if count)])


def arguments():
    parser = argparse.ArgumentParser(description="Runs the mutations of the engine.")
    parser.add_argument("--tree", required=True, type=pathlib.Path, help="a separate clone or worktree that is built")
    parser.add_argument("--only", action="append", default=[], metavar="ID", help="run this mutation; may be repeated")
    parser.add_argument("--keep-going", action="store_true", help="continue after a mutation that survived")
    parser.add_argument("--json", type=pathlib.Path, help="file for the results, written after each mutation")
    parser.add_argument("--seconds", type=int, default=SECONDS, help="time limit of a suite in seconds")
    return parser.parse_args()


def chosen(only):
    known = {one.id: one for one in mutations.ALL}
    for name in only:
        if name not in known:
            fail(f"unknown mutation '{name}'; available mutations: {', '.join(known)}")
    return [known[name] for name in only] or mutations.ALL


def main():
    given = arguments()
    tree = given.tree.resolve()
    listed = chosen(given.only)
    check_tree(tree)
    build_suites(tree, listed)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # exits through __exit__, which restores the file
    results = []
    for one in listed:
        begin = time.monotonic()
        result, by = verdict(tree, one, given.seconds)
        results.append({"id": one.id, "file": one.file, "breaks": one.breaks, "result": result, "by": by,
                        "seconds": round(time.monotonic() - begin)})
        print(f"{one.id}: {result}{' by ' if result == 'caught' else ': '}{by}", flush=True)
        if given.json:
            given.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
        if result != "caught" and not given.keep_going:
            break
    print("\n" + table(results))
    return status_of(results)


if __name__ == "__main__":
    sys.exit(main())

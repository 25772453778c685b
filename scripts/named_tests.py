#!/usr/bin/env python3
"""Builds and runs the tests that contain a name; called by scripts/test.

named_tests.py --preset PRESET [--list] [--all] NAME... [-- ARGUMENT...]

A NAME is part of Suite.Case, of a file's path below tests/, of a title in a `.test` file, or of the name of
a test in ctest. A NAME that matches none of them selects cases with a parameter that begins with it. ARGUMENTs that
begin with --gtest_ go to the test programs, all others to ctest. --list prints the commands and runs nothing. A folder
runs without the cases of HEDDLE_WITH_ALL (tests/main/with_all.h), unless --all is given."""
import argparse
import collections
import difflib
import json
import os
import pathlib
import re
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
CASE = re.compile(r"^[ \t]*(TEST|TEST_F|TEST_P|TYPED_TEST)\(\s*(\w+)\s*,\s*(\w+)\s*\)", re.M)
INSTANCE = re.compile(r"^[ \t]*INSTANTIATE_TEST_SUITE_P\(\s*(\w*)\s*,\s*(\w+)", re.M)
WITH_ALL = re.compile(r'^HEDDLE_WITH_ALL\(((?:\s*"[^"]*")+)\)', re.M)
TITLE = re.compile(r"^=== (.+)", re.M)  # of records in a `.test` file, which a parametrized case reads


def fail(text):
    print(f"test: {text}", file=sys.stderr)
    sys.exit(2)


class Index:
    """Test programs with their sources, and the tests of ctest, from the tests/index.txt that tests/CMakeLists.txt writes."""

    def __init__(self, text):
        self.environment = {}  # environment variables by program
        self.sources = {}  # paths of sources by program
        self.needs = {}  # targets by ctest test, for tests that run no test program
        self.seen = set()  # .cpp files below tests/ when CMake ran
        for line in text.splitlines():
            kind, name, *rest = line.split(" ", 2)
            rest = rest[0] if rest else ""
            if kind == "program":
                self.environment[name] = dict(each.split("=", 1) for each in rest.split(";"))
                self.sources[name] = []
            elif kind == "source":
                self.sources[name].append(pathlib.Path(rest))
            elif kind == "test":
                self.needs[name] = [target for target in rest.split(";") if target]
            elif kind == "seen":
                self.seen.add(pathlib.Path(name))


def records_beside(path):
    """Returns [(pattern of GoogleTest's instances, file name and title)] of the records that `X_test.cpp` reads: X/*.test."""
    found = []
    for file in sorted((path.parent / path.stem.removesuffix("_test")).glob("*.test")):
        for title in TITLE.findall(file.read_text()):
            found.append((re.sub(r"[^0-9A-Za-z]", "_", f"{file.stem}_{title}") + "*", f"{file.parent.name}/{file.name}: {title}"))
    return found


def cases_of(sources, tests):
    """Returns [(suite, pattern of GoogleTest, file below `tests`)] of every case in the sources of one program. The title of
    a record follows its file."""
    cases, instances = [], {}
    for path in sources:
        if not path.is_relative_to(tests):
            continue
        text, file = path.read_text(), str(path.relative_to(tests))
        for macro, suite, case in CASE.findall(text):
            cases.append((macro, suite, case, file))
        for prefix, suite in INSTANCE.findall(text):
            instances.setdefault(suite, []).append(prefix)
    found = []
    for macro, suite, case, file in cases:
        if macro == "TEST_P":
            for prefix in instances.get(suite, []):
                name = f"{prefix}/{suite}" if prefix else suite
                found.append((name, f"{name}.{case}/*", file))
                for record, place in records_beside(tests / file):
                    found.append((name, f"{name}.{case}/{record}", str(pathlib.PurePath(file).parent / place)))
        elif macro == "TYPED_TEST":
            found.append((f"{suite}/*", f"{suite}/*.{case}", file))
        else:
            found.append((suite, f"{suite}.{case}", file))
    return found


def parameters_of(name, sources, tests):
    """Returns [(suite, pattern of GoogleTest, file below `tests`)] of parameterized suites whose file has a string that begins
    with the name, because parameters of cases are often strings in the file."""
    found = []
    for path in sources:
        text = path.read_text() if name.isidentifier() and path.is_relative_to(tests) else ""
        if f'"{name}' in text:
            for prefix, suite in INSTANCE.findall(text):
                suite = f"{prefix}/{suite}" if prefix else suite
                found.append((suite, f"{suite}.*/{name}*", str(path.relative_to(tests))))
    return found


def shorten(chosen, every):
    """Replaces the patterns of a suite by `Suite.*` if all its cases are selected."""
    count, total = (collections.Counter(case[0] for case in cases) for cases in (chosen, every))
    patterns = []
    for suite in count:
        if count[suite] == total[suite]:
            patterns.append(f"{suite}.*")
        else:
            patterns += [pattern for other, pattern, _ in chosen if other == suite]
    return patterns


def path_form(name):
    """Returns the name without a leading ./ or tests/ and a trailing /, for comparison with test files."""
    return name.removeprefix("./").removeprefix("tests/").rstrip("/")


def nearest(name, known):
    """Returns at most three known names that are similar to the name. Names that differ only in case come first."""
    by_lower = {each.lower(): each for each in sorted(known)}
    lower = path_form(name).lower()
    inside = sorted((each for each in by_lower if lower in each), key=len)
    alike = difflib.get_close_matches(lower, by_lower, n=3, cutoff=0.5)
    return [by_lower[each] for each in dict.fromkeys([*inside, *alike])][:3]


def select(names, index, tests):
    """Returns ({program: [pattern]}, [test of ctest]) that the names select. Raises LookupError for a name without match."""
    cases = {program: cases_of(sources, tests) for program, sources in index.sources.items()}
    chosen = {program: set() for program in cases}
    ctest = set()
    for name in names:
        short, hit = path_form(name), False
        for program, found in cases.items():
            matching = {case for case in found if name in case[1] or short in case[2]}
            chosen[program] |= matching
            hit = hit or bool(matching)
        of_ctest = {test for test in index.needs if name in test}
        ctest |= of_ctest
        if not hit and not of_ctest:
            for program, sources in index.sources.items():
                parameters = parameters_of(name, sources, tests)
                cases[program] += parameters
                chosen[program] |= set(parameters)
                hit = hit or bool(parameters)
        if not hit and not of_ctest:
            known = set(index.needs)
            for suite, pattern, file in (case for found in cases.values() for case in found):
                known |= {suite, pattern.removesuffix("/*").split(".")[-1], file, str(pathlib.PurePath(file).parent)}
            raise LookupError(f"no test contains '{name}'", nearest(name, known))
    programs = {program: shorten([case for case in found if case in chosen[program]], found)
                for program, found in cases.items() if chosen[program]}
    return programs, sorted(ctest)


def skip_slow(programs, names, index, tests):
    """Excludes the cases of HEDDLE_WITH_ALL from the patterns of each program, if every name is a folder below `tests`."""
    folders = [tests / path_form(name) for name in names]
    if not all(folder.is_dir() for folder in folders):
        return programs
    skipping = {}
    for program, patterns in programs.items():
        inside = [path for path in index.sources[program] if any(path.is_relative_to(folder) for folder in folders)]
        calls = [call for path in inside for call in WITH_ALL.findall(path.read_text())]
        slow = ":".join("".join(re.findall(r'"([^"]*)"', call)) for call in calls)
        skipping[program] = [*patterns[:-1], f"{patterns[-1]}-{slow}"] if slow else patterns
    return skipping


def targets_of(programs, ctest, index):
    """Returns the targets to build before the selected tests run."""
    return list(dict.fromkeys([*programs, *(target for test in ctest for target in index.needs[test])]))


class Preset:
    """Build folder of a preset of CMakePresets.json, and the environment of its tests."""

    def __init__(self, name):
        presets = json.loads((ROOT / "CMakePresets.json").read_text())
        folders = {each["name"]: each["binaryDir"] for each in presets["configurePresets"]}
        environments = {each["name"]: each.get("environment", {}) for each in presets["testPresets"]}
        if name not in environments:
            fail(f"HEDDLE_PRESET is '{name}', but the presets of tests are {', '.join(environments)}.")
        self.name = name
        self.build = pathlib.Path(folders[name].replace("${sourceDir}", str(ROOT)))
        self.environment = environments[name]

    def is_ready(self):
        """Returns whether CMake has configured this folder with tests, and LibTorch and the Python packages still exist."""
        cache, index = self.build / "CMakeCache.txt", self.build / "tests/index.txt"
        if not (cache.is_file() and index.is_file() and (self.build / "build.ninja").is_file()):
            return False
        store = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "heddle"
        text = cache.read_text()
        torch = re.search(r"^HEDDLE_TORCH:PATH=(.+)", text, re.M)
        torch = pathlib.Path(torch[1]) if torch else store / "torch-2.11.0/torch"
        return ("\nHEDDLE_TESTS:BOOL=ON" in text and (torch / "lib/libtorch_cpu.so").is_file()
                and (store / "python-packages-1/tokenizers").is_dir())

    def index(self):
        """Configures the build if needed, and reads the index."""
        if not self.is_ready():
            run(["bash", ROOT / "scripts/setup"])
            run(["cmake", "--preset", self.name, "-Wno-dev"])
        index = Index((self.build / "tests/index.txt").read_text())
        if index.seen != set((ROOT / "tests").rglob("*.cpp")):  # a file was added or removed
            run(["cmake", self.build, "-Wno-dev"], stdout=subprocess.DEVNULL)
            index = Index((self.build / "tests/index.txt").read_text())
        return index


def run(command, **how):
    status = subprocess.run([str(part) for part in command], cwd=ROOT, **how).returncode
    if status != 0:
        sys.exit(status)


def run_program(program, patterns, preset, index, arguments):
    """Runs cases of a test program. Returns (number of cases, whether all passed)."""
    report = preset.build / f"tests/{program}.json"
    report.unlink(missing_ok=True)
    command = [preset.build / "tests" / program, f"--gtest_filter={':'.join(patterns)}", "--gtest_brief=1",
               f"--gtest_output=json:{report}", *arguments]
    environment = {**os.environ, **preset.environment, **index.environment[program]}
    status = subprocess.run(command, cwd=preset.build / "tests", env=environment).returncode
    count = json.loads(report.read_text())["tests"] if report.is_file() else 0
    if status < 0:
        print(f"test: {program} was killed by signal {-status}")
    elif count == 0:
        print(f"test: {program} ran no case")
    return count, status == 0 and count > 0


def run_ctest(tests, preset, arguments):
    pattern = f"^({'|'.join(map(re.escape, tests))})$"
    command = ["ctest", "--preset", preset.name, "-R", pattern, *arguments]
    return subprocess.run(command, cwd=ROOT).returncode == 0


def print_commands(programs, ctest, preset, index):
    build = os.path.relpath(preset.build)
    for program, patterns in programs.items():
        words = " ".join(f"{key}={value}" for key, value in {**preset.environment, **index.environment[program]}.items())
        print(f"{words} {build}/tests/{program} --gtest_filter='{':'.join(patterns)}'")
    if ctest:
        print(f"ctest --preset {preset.name} -R '^({'|'.join(ctest)})$'")


def build_and_run(programs, ctest, preset, index, arguments):
    for_programs = [each for each in arguments if each.startswith("--gtest_")]
    for_ctest = [each for each in arguments if not each.startswith("--gtest_")]
    if for_ctest and not ctest:
        fail(f"'{for_ctest[0]}' is an argument for ctest, but only GoogleTest cases are selected. Use options that begin with "
             "--gtest_.")
    if for_programs and not programs:
        fail(f"'{for_programs[0]}' is an option of GoogleTest, but only ctest tests are selected. Use options of ctest.")
    targets = targets_of(programs, ctest, index)
    if targets:
        print(f"== Build ({preset.name}): {' '.join(targets)}", flush=True)
        run(["cmake", "--build", preset.build, "--target", *targets])
    begin, cases, failed = time.monotonic(), 0, []
    for program, patterns in programs.items():
        print(f"== {program}", flush=True)
        count, passed = run_program(program, patterns, preset, index, for_programs)
        cases += count
        failed += [] if passed else [program]
    if ctest and not run_ctest(ctest, preset, for_ctest):
        failed.append("ctest")
    counts = [f"{cases} case{'s' * (cases != 1)}"] if programs else []
    counts += [f"{len(ctest)} test{'s' * (len(ctest) != 1)} of ctest"] if ctest else []
    print(f"== {'FAILED: ' + ', '.join(failed) + '; ' if failed else ''}{' and '.join(counts)} in {time.monotonic() - begin:.1f} s")
    return 1 if failed else 0


def main():
    words = sys.argv[1:]
    arguments = words[words.index("--") + 1:] if "--" in words else []
    parser = argparse.ArgumentParser()
    parser.add_argument("--preset", default="release")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("names", nargs="+")
    given = parser.parse_args(words[:len(words) - len(arguments) - 1] if "--" in words else words)
    preset = Preset(given.preset)
    index = preset.index()
    try:
        programs, ctest = select(given.names, index, ROOT / "tests")
    except LookupError as error:
        text, names = error.args
        fail(text + (f". The nearest names are {', '.join(names)}." if names else
                     ". A name is part of a suite, a case, a path below tests/ or a test of ctest."))
    if not given.all:
        programs = skip_slow(programs, given.names, index, ROOT / "tests")
    if given.list:
        print_commands(programs, ctest, preset, index)
        return 0
    return build_and_run(programs, ctest, preset, index, arguments)


if __name__ == "__main__":
    sys.exit(main())

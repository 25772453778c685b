#!/usr/bin/env python3
"""Estimates the compiler's CPU time of a fresh build: compile_time.py [--sample N] BUILD[:TARGET,...] ...

For each build directory (configured, with Ninja) a sample of the compile commands of its targets (default: all) runs
without a compiler cache, alternating between the builds. The sum is extrapolated: mean seconds times commands. The
largest tenth of the sources is sampled separately, which lowers the variance of the mean. All commands that precompile
headers run. The build directories must contain the precompiled headers already."""
import argparse
import os
import random
import re
import shlex
import subprocess
import tempfile


def commands_of(build, targets):
    out = subprocess.run(["ninja", "-C", build, "-t", "commands", *targets], check=True, capture_output=True, text=True)
    return sorted({line for line in out.stdout.splitlines() if re.search(r" -c \S+\.(cpp|cxx|cc)$", line)})


def source_bytes(command, build):
    """Returns the size of the source, or of the sources that a unity source includes."""
    path = os.path.join(build, command.split()[-1])
    text = open(path, errors="replace").read()
    parts = re.findall(r'^#include "(/[^"]+)"', text, re.M) if "/Unity/" in path else []
    return sum(os.path.getsize(part) for part in parts) or len(text)


def seconds_of(command, build):
    with tempfile.TemporaryDirectory() as folder:
        words = shlex.split(command)
        words[words.index("-o") + 1] = os.path.join(folder, "out.o")
        child = subprocess.Popen(words, cwd=build, env={**os.environ, "CCACHE_DISABLE": "1"})
        _, status, usage = os.wait4(child.pid, 0)
        if status != 0:
            raise SystemExit(f"command failed: {command}")
        return usage.ru_utime + usage.ru_stime


class Build:
    def __init__(self, argument, sample):
        self.build, _, targets = argument.partition(":")
        self.all = commands_of(self.build, [target for target in targets.split(",") if target])
        self.headers = [command for command in self.all if "/cmake_pch.hxx.cxx" in command]
        large_first = sorted((command for command in self.all if command not in self.headers), key=lambda command: -source_bytes(command, self.build))
        tenth = len(large_first) // 10
        self.large, rest = large_first[:tenth], large_first[tenth:]
        self.rest_count = len(rest)
        few = max(1, sample * tenth // max(1, len(large_first)))
        self.sampled_large = random.sample(self.large, min(few, tenth))
        self.sampled_rest = random.sample(rest, min(sample - len(self.sampled_large), len(rest)))
        self.queue = [(True, c) for c in self.sampled_large] + [(False, c) for c in self.sampled_rest]
        self.queue += [(None, command) for command in self.headers]
        self.times = {True: [], False: [], None: []}

    def step(self):
        if self.queue:
            large, command = self.queue.pop()
            self.times[large].append(seconds_of(command, self.build))

    def total(self):
        mean = {kind: sum(times) / len(times) if times else 0 for kind, times in self.times.items()}
        return mean[True] * len(self.large) + mean[False] * self.rest_count + sum(self.times[None])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sample", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("builds", nargs="+")
    arguments = parser.parse_args()
    random.seed(arguments.seed)
    builds = [Build(text, arguments.sample) for text in arguments.builds]
    while any(build.queue for build in builds):
        for build in builds:
            build.step()
    for build in builds:
        print(f"{build.build}: {len(build.all)} commands, {build.total():.0f} s of CPU time, "
              f"{build.total() / builds[0].total():.2f} of the first")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Compares training steps of two builds: old_against_new.py OLD_TREE NEW_TREE, each with a release build in build/.

The model is a tiny Llama, so that host overhead dominates. For 1 and 2 ranks and three strategies, the builds alternate
in 7 rounds of 60 steps each. Prints medians and the ratio.

With --instructions after the trees: counts the instructions of a step on one rank with valgrind. They do not depend on
other load of the machine."""
import os
import json
import pathlib
import re
import socket
import statistics
import subprocess
import sys

SECTIONS = {
    "ddp": "strategy: ddp",
    "fsdp2": "strategy: fsdp2, mp_policy: {param_dtype: float32, reduce_dtype: float32}",
    "megatron_fsdp": "strategy: megatron_fsdp",
}


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def command(tree, section):
    return [f"{tree}/build/bench_steps", f"{tree}/tests/golden/llama", f"distributed: {{{section}}}", "2", "16"]


def environment(tree, rank, count, port):
    place = {"WORLD_SIZE": count, "LOCAL_WORLD_SIZE": count, "RANK": rank, "LOCAL_RANK": rank,
             "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "OMP_NUM_THREADS": 1,
             "HEDDLE_PLUGIN_PATH": f"{tree}/build/plugins"}
    return os.environ | {key: str(value) for key, value in place.items()}


class Ranks:
    """The ranks of one build, waiting for commands (bench/steps.cpp)."""

    def __init__(self, tree, section, count):
        port = free_port()
        self.ranks = [subprocess.Popen(command(tree, section), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                       env=environment(tree, rank, count, port)) for rank in range(count)]

    def say(self, line):
        for rank in self.ranks:
            rank.stdin.write(line + "\n")
            rank.stdin.flush()

    def milliseconds(self, steps):
        self.say(f"run {steps}")
        return json.loads(self.ranks[0].stdout.readline())["seconds"] / steps * 1e3

    def quit(self):
        self.say("quit")
        for rank in self.ranks:
            rank.wait()


def instructions(tree, section, steps):
    """Returns the instructions of a process with one rank that takes `steps` steps."""
    run = subprocess.run(["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null",
                          *command(tree, section)], input=f"run {steps}\nquit\n", text=True, check=True,
                         capture_output=True, env=environment(tree, 0, 1, free_port()))
    return int(re.search(r"Collected : (\d+)", run.stderr)[1])


def compare_instructions(trees):
    print("| strategy | old, million | new, million | new / old |\n|---|--:|--:|--:|", flush=True)
    for name, section in SECTIONS.items():
        few, many = ([instructions(tree, section, steps) for tree in trees] for steps in (10, 40))
        before, after = ((last - first) / 30e6 for first, last in zip(few, many))
        print(f"| {name} | {before:.3f} | {after:.3f} | {after / before:.3f} |", flush=True)


def compare_times(trees):
    print("| ranks | strategy | old ms | new ms | new / old |\n|--:|---|--:|--:|--:|")
    for count in (1, 2):
        for name, section in SECTIONS.items():
            sides = [Ranks(tree, section, count) for tree in trees]
            for side in sides:
                side.milliseconds(20)
            times = [[], []]
            for _ in range(7):
                for index, side in enumerate(sides):
                    times[index].append(side.milliseconds(60))
            for side in sides:
                side.quit()
            before, after = (statistics.median(each) for each in times)
            print(f"| {count} | {name} | {before:.3f} | {after:.3f} | {after / before:.2f} |", flush=True)


def main():
    trees = [pathlib.Path(tree).resolve() for tree in sys.argv[1:3]]
    compare = compare_instructions if sys.argv[3:] == ["--instructions"] else compare_times
    compare(trees)


if __name__ == "__main__":
    main()

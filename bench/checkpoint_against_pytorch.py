"""Times saving and loading of a state with heddle, PyTorch's distributed checkpoint (DCP) and plain files, alternating.

  PYTHON bench/checkpoint_against_pytorch.py [--build build] [--mebibytes 2048] [--rounds 10] [--directory .]

PYTHON needs torch (heddle itself does not). Each rank is a process with one thread. While one contender runs, the
processes of the other wait. All three write the same number of bytes from the same number of processes and sync them.
heddle also writes checksums, publishes by rename and records the place of every box. Loading fills allocated memory,
once from the page cache, and once after the files were evicted from it and a pause, because disks serve short bursts
faster. Six rounds have every order of the contenders.

Then heddle saves in the background: the time for which the run is blocked, compared with a plain copy of the same
number of bytes. Prints tables in Markdown: least and median seconds, and medians of the ratios of each round.
"""
import argparse
import itertools
import json
import os
import shutil
import statistics
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from ranks_on_command import HERE, Side  # noqa: E402


def evict_from_page_cache(directory):
    """Evicts the files of a directory from the page cache. They must be synced."""
    for folder, _, files in os.walk(directory):
        for name in files:
            file = os.open(os.path.join(folder, name), os.O_RDONLY)
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(file)


def evict_and_pause(directory):
    """Evicts the files, then waits until no contender profits from the faster first burst of the disk."""
    evict_from_page_cache(directory)
    time.sleep(3)


def settle():
    os.sync()


class Bench:
    def __init__(self, options):
        self.ours = Side("heddle", [os.path.join(options.build, "bench_checkpoint"), str(options.mebibytes)],
                         options.ranks)
        self.theirs = Side("PyTorch", [sys.executable, os.path.join(HERE, "peers", "pytorch_checkpoint.py"),
                                       str(options.mebibytes)], options.ranks)
        self.seconds = {}

    def turn(self, what, order, places, before=lambda place: settle()):
        words = {"heddle": (self.ours, "save"), "PyTorch": (self.theirs, "save"), "plain": (self.ours, "write")}
        if what != "save":
            words = {"heddle": (self.ours, "load"), "PyTorch": (self.theirs, "load"), "plain": (self.ours, "read")}
        for who in order:
            side, word = words[who]
            before(places[who])
            self.seconds.setdefault((what, who), []).append(side.ask(f"{word} {places[who]}")["seconds"])

    def round(self, number, folder):
        order = list(itertools.permutations(("heddle", "PyTorch", "plain")))[number % 6]
        places = {one: os.path.join(folder, one) for one in order}
        self.turn("save", order, places)
        self.turn("load, cached", order, places, before=lambda place: None)
        self.turn("load, from the disk", order, places, before=evict_and_pause)
        for place in places.values():
            shutil.rmtree(place)

    def print(self):
        print("| | heddle, least s | median | plain, least s | median | PyTorch, least s | median | speed against"
              " plain | against PyTorch |\n|---|--:|--:|--:|--:|--:|--:|--:|--:|")
        for what in ("save", "load, cached", "load, from the disk"):
            times = {who: self.seconds[(what, who)] for who in ("heddle", "plain", "PyTorch")}
            cells = [f"{min(t):.2f} | {statistics.median(t):.2f}" for t in times.values()]
            ratios = [statistics.median(b / a for a, b in zip(times["heddle"], times[who])) for who in
                      ("plain", "PyTorch")]
            print(f"| {what} | {' | '.join(cells)} | {ratios[0]:.2f} | {ratios[1]:.2f} |", flush=True)


def in_background(ours, rounds, folder):
    answers = []
    for number in range(rounds):
        place = os.path.join(folder, "background")
        settle()
        answers.append(ours.ask(f"async {place}"))
        shutil.rmtree(place)
    middle = {key: statistics.median(one[key] for one in answers) for key in answers[0]}
    ratio = statistics.median(one["pause"] / one["copy"] for one in answers)
    print("\n| in the background | pause, s | bare copy, s | pause / copy | saving, s | a step's time meanwhile |\n"
          "|---|--:|--:|--:|--:|--:|\n"
          f"| median of {rounds} | {middle['pause']:.3f} | {middle['copy']:.3f} | {ratio:.2f} |"
          f" {middle['saving']:.2f} | {middle['slower']:.2f} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=os.path.join(HERE, "..", "build"))
    parser.add_argument("--mebibytes", type=int, default=2048)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--directory", help="directory of the files (default: the system's temporary directory)")
    options = parser.parse_args()
    bench = Bench(options)
    with tempfile.TemporaryDirectory(dir=options.directory) as folder:
        for number in range(options.rounds + 1):  # the first round allocates memory and is not counted
            bench.round(number, folder)
            if number == 0:
                bench.seconds.clear()
        bench.print()
        in_background(bench.ours, options.rounds, folder)
    for side in (bench.ours, bench.theirs):
        side.end()


if __name__ == "__main__":
    main()

"""Times `heddle generate` of two builds, alternating: 1,600 tokens from a model of the quickstart's shape.

    bench/program/generate.py HEDDLE OTHER_HEDDLE [ROUNDS]

The weights are those after one step; the time per token does not depend on them. Prints wall and CPU seconds of the
whole command (CPU time is user + system, which other load of the machine disturbs less). "tokens alone" is the CPU time
minus that of a command that generates one token.
"""

import pathlib
import resource
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOKENS = 1600


def run(*words, place=None):
    """Returns the wall seconds and the CPU seconds of a command."""
    begin, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([str(word) for word in words], check=True, cwd=place, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.perf_counter() - begin, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def generate(heddle, model, tokens):
    return run(heddle, "generate", model, "--prompt", "And God said", "--max-tokens", tokens, "--seed", 1)


def main():
    contenders = [pathlib.Path(word).resolve() for word in sys.argv[1:3]]
    rounds = int(sys.argv[3]) if len(sys.argv) > 3 else 5
    with tempfile.TemporaryDirectory() as folder:
        place = pathlib.Path(folder)
        (place / "text.txt").write_text("In the beginning God created the heaven and the earth.\n" * 200)
        run(contenders[0], "data", "text.txt", "--out", "text.bin", place=place)
        run(contenders[0], "train", ROOT / "examples" / "quickstart.yaml", "--step_scheduler.max_steps", 1, "--lr_scheduler",
            "none", "--validation_dataset", "none", "--dataset.file_pattern", "text.bin", "--checkpoint.checkpoint_dir", "run", place=place)
        times = {heddle: [] for heddle in contenders}
        starts = {heddle: [] for heddle in contenders}
        for _ in range(rounds):
            for heddle in contenders:
                starts[heddle].append(generate(heddle, place / "run", 1))
                times[heddle].append(generate(heddle, place / "run", TOKENS))
    clock, processor, alone = [], [], []
    for name, heddle in zip(("this build", "the other"), contenders):
        clock.append(min(time[0] for time in times[heddle]))
        processor.append(min(time[1] for time in times[heddle]))
        alone.append(processor[-1] - min(start[1] for start in starts[heddle]))
        print(f"{name:12} least: wall {clock[-1]:7.2f} s, CPU {processor[-1]:6.2f} s, tokens alone {alone[-1]:6.2f} s")
    print("speedup:" + "".join(f" {name} {pair[1] / pair[0]:.1f}" for name, pair in
                               {"wall": clock, "CPU": processor, "tokens alone": alone}.items()))


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Compares LoRA with training of all parameters: lora_against_full.py [BUILD] [ROUNDS]. BUILD is a release build.

The model is a Llama with 8 layers of hidden size 512 in float32, sequence length 512, on one rank with one thread and
AdamW. Contenders are training of all parameters, adapters of rank 8 on every projection, and the same adapters on a
4-bit base. Each round runs all of them. Prints medians: the CPU time of a step (STEPS steps minus a run of one step,
which does not depend on other load), the wall time of a step, the peak of allocated memory, and ratios to full training.
"""
import json
import os
import pathlib
import resource
import statistics
import subprocess
import sys
import tempfile

STEPS = 6
RECIPE = """
seed: 1
model:
  config: {model_type: llama, vocab_size: 32000, hidden_size: 512, intermediate_size: 1408, num_hidden_layers: 8,
           num_attention_heads: 8, num_key_value_heads: 8, max_position_embeddings: 512}
  dtype: float32
distributed: {strategy: single}
dataset: {_target_: MockIterableDataset, seq_len: 512, num_samples: 1000}
step_scheduler: {global_batch_size: 1, local_batch_size: 1, max_steps: STEPS}
optimizer: {lr: 1.0e-4}
checkpoint: {enabled: false, checkpoint_dir: runs}
"""
KINDS = {"all parameters": "", "LoRA": "peft: {dim: 8}\n",
         "LoRA, base in 4 bits": "peft: {dim: 8}\nquantization: {load_in_4bit: true, bnb_4bit_compute_dtype: float32}\n"}


def run(build, section, steps):
    """Returns the CPU seconds of the run, the wall seconds of each step, and the peak memory in GiB."""
    with tempfile.TemporaryDirectory() as folder:
        place = pathlib.Path(folder)
        (place / "run.yaml").write_text(RECIPE.replace("STEPS", str(steps)) + section)
        environment = os.environ | {"HEDDLE_PLUGIN_PATH": f"{build}/plugins", "OMP_NUM_THREADS": "1"}
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([f"{build}/heddle", "train", "run.yaml", "--metrics", "metrics.jsonl"], cwd=place, check=True,
                       env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        lines = [json.loads(line) for line in (place / "metrics.jsonl").read_text().splitlines()]
    processor = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return processor, [line["step_time"] for line in lines[1:]], max(line["mem"] for line in lines)


def main():
    build = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "build").resolve()
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 5
    processor, clock, memory = ({kind: [] for kind in KINDS} for _ in range(3))
    for _ in range(rounds):
        for kind, section in KINDS.items():
            one, _, _ = run(build, section, 1)
            all_steps, times, peak = run(build, section, STEPS)
            processor[kind].append((all_steps - one) / (STEPS - 1))
            clock[kind] += times
            memory[kind].append(peak)
    print("| trained | CPU ms | wall ms | peak GiB | CPU / full | wall / full | memory / full |")
    print("|---|--:|--:|--:|--:|--:|--:|")
    full = [statistics.median(of["all parameters"]) for of in (processor, clock, memory)]
    for kind in KINDS:
        mine = [statistics.median(of[kind]) for of in (processor, clock, memory)]
        ratios = " | ".join(f"{own / whole:.2f}" for own, whole in zip(mine, full))
        print(f"| {kind} | {1e3 * mine[0]:.0f} | {1e3 * mine[1]:.0f} | {mine[2]:.3f} | {ratios} |")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""LoRA against training of all parameters: lora_against_full.py [BUILD] [ROUNDS], BUILD with a release build's heddle.

A Llama of 8 layers of width 512 in float32, sequence 512, one rank, AdamW; adapters of rank 8 on every projection, and
the same on a base in 4 bits. Each round runs all of them in turn, STEPS steps each. Prints the median of the steps'
times and the peak of the memory that the program allocated, and the ratios to full training."""
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

STEPS = 6  # the first is not counted
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


def run(build, section):
    with tempfile.TemporaryDirectory() as folder:
        place = pathlib.Path(folder)
        (place / "run.yaml").write_text(RECIPE.replace("STEPS", str(STEPS)) + section)
        environment = os.environ | {"HEDDLE_PLUGIN_PATH": f"{build}/plugins"}
        subprocess.run([f"{build}/heddle", "train", "run.yaml", "--metrics", "metrics.jsonl"], cwd=place, check=True,
                       env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        lines = [json.loads(line) for line in (place / "metrics.jsonl").read_text().splitlines()]
    return [line["step_time"] for line in lines[1:]], max(line["mem"] for line in lines)


def main():
    build = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "build").resolve()
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 5
    times, memory = {kind: [] for kind in KINDS}, {kind: [] for kind in KINDS}
    for _ in range(rounds):
        for kind, section in KINDS.items():
            seconds, peak = run(build, section)
            times[kind] += seconds
            memory[kind].append(peak)
    print("| what trains | ms a step | peak GiB | time / full | memory / full |\n|---|--:|--:|--:|--:|")
    full_time, full_memory = (statistics.median(of["all parameters"]) for of in (times, memory))
    for kind in KINDS:
        time, peak = statistics.median(times[kind]), statistics.median(memory[kind])
        print(f"| {kind} | {1e3 * time:.0f} | {peak:.2f} | {time / full_time:.2f} | {peak / full_memory:.2f} |")


if __name__ == "__main__":
    main()

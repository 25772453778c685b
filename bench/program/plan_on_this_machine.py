#!/usr/bin/env python3
"""Compares predictions of `heddle plan` with measured training steps, on the ranks of this machine.

  bench/program/plan_on_this_machine.py [--build build] [--machine FILE] [--rounds 3] [--only LAYOUT ...]

Without --machine, `heddle plan --measure` measures this machine first. Each round trains every layout once. The time of
a layout is the median of its rounds, and the time of a round is the median of its steps after the first four. Layouts
that differ by more than 10 % must have the predicted order. Needs an idle machine. Prints Markdown."""
import argparse
import itertools
import json
import pathlib
import statistics
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
DENSE = """
model:
  _target_: from_config
  config: {model_type: llama, vocab_size: 512, hidden_size: 256, intermediate_size: 768, num_hidden_layers: 8,
           num_attention_heads: 8, num_key_value_heads: 4, max_position_embeddings: 256}
dataset: {_target_: MockIterableDataset, seq_len: 128, num_samples: 100000, vocab_size: 512}
step_scheduler: {global_batch_size: 16, local_batch_size: 8, max_steps: 12}
optimizer: {_target_: torch.optim.AdamW, lr: 1.0e-4}
checkpoint: {enabled: false}
"""
EXPERTS = DENSE.replace("model_type: llama,", "model_type: mixtral, num_local_experts: 4, num_experts_per_tok: 2,").replace(
    "intermediate_size: 768", "intermediate_size: 384")
FP32 = "mp_policy: {param_dtype: float32, reduce_dtype: float32}"
FSDP2, DDP, MEGATRON = f"strategy: fsdp2, {FP32}", "strategy: ddp", "strategy: megatron"
# name: (recipe, `distributed`, values of --fix)
LAYOUTS = {
    "ddp, batch 8": (DENSE, DDP, {"local_batch_size": 8}),
    "ddp, batch 1": (DENSE, DDP, {"local_batch_size": 1}),
    "ddp, batch 8, recomputation": (DENSE, DDP, {"local_batch_size": 8, "activation_checkpointing": "full"}),
    "fsdp2, batch 8": (DENSE, FSDP2, {"local_batch_size": 8}),
    "fsdp2, batch 1": (DENSE, FSDP2, {"local_batch_size": 1}),
    "fsdp2, batch 1, no reshard": (DENSE, FSDP2, {"local_batch_size": 1, "reshard_after_forward": "false"}),
    "fsdp2, batch 2, recomputation": (DENSE, FSDP2, {"local_batch_size": 2, "activation_checkpointing": "full"}),
    "tp 2, batch 16": (DENSE, FSDP2, {"tp_size": 2, "local_batch_size": 16}),
    "tp 2, batch 2": (DENSE, FSDP2, {"tp_size": 2, "local_batch_size": 2}),
    "pp 2, batch 1": (DENSE, FSDP2, {"pp_size": 2, "local_batch_size": 1}),
    "pp 2, batch 4": (DENSE, FSDP2, {"pp_size": 2, "local_batch_size": 4}),
    "pp 2, batch 8": (DENSE, FSDP2, {"pp_size": 2, "local_batch_size": 8}),
    "experts, batch 8": (EXPERTS, FSDP2, {"local_batch_size": 8}),
    "experts, ep 2, batch 8": (EXPERTS, FSDP2, {"ep_size": 2, "local_batch_size": 8}),
}
PLAIN = {"dp_replicate_size": 1, "tp_size": 1, "cp_size": 1, "pp_size": 1, "ep_size": 1, "virtual_stages": 1,
         "activation_checkpointing": "none", "reshard_after_forward": "true"}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=ROOT / "build", type=pathlib.Path)
    parser.add_argument("--machine", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--only", nargs="*", choices=list(LAYOUTS))
    given = parser.parse_args()
    heddle, ranks = str(given.build.resolve() / "heddle"), str(given.ranks)
    names = given.only or list(LAYOUTS)

    def run(*words):
        done = subprocess.run([heddle, *map(str, words)], capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"heddle {' '.join(map(str, words))}:\n{done.stdout}{done.stderr}")
        return done.stdout

    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)
        machine = given.machine
        if machine is None:
            machine = scratch / "machine.yaml"
            run("plan", "--measure", machine, "--world-size", ranks)
            print(machine.read_text())
        predicted, best = {}, {}
        for name in names:
            recipe, distributed, fixed = LAYOUTS[name]
            file, best[name] = scratch / "run.yaml", scratch / f"{len(best)}.yaml"
            file.write_text(recipe + f"distributed: {{{distributed}}}\n")
            fixes = [word for key, value in {**PLAIN, **fixed}.items() for word in ("--fix", f"{key}={value}")]
            found = run("plan", file, "--world-size", ranks, "--machine", machine, "--json", "--write", best[name], *fixes)
            predicted[name] = json.loads(found.splitlines()[0])["step_seconds"]
        measured = {name: [] for name in names}
        for _, name in itertools.product(range(given.rounds), names):
            metrics = scratch / "steps.jsonl"
            metrics.unlink(missing_ok=True)
            run("train", best[name], "--nproc-per-node", ranks, "--metrics", metrics)
            steps = [json.loads(line)["step_time"] for line in metrics.read_text().splitlines()]
            measured[name].append(statistics.median(steps[4:]))
    seconds = {name: statistics.median(times) for name, times in measured.items()}
    print("| layout | predicted ms | measured ms | predicted / measured |\n|---|--:|--:|--:|")
    for name in sorted(names, key=seconds.get):
        print(f"| {name} | {1e3 * predicted[name]:.1f} | {1e3 * seconds[name]:.1f} | {predicted[name] / seconds[name]:.2f} |")
    pairs = [(a, b) for a, b in itertools.combinations(names, 2) if LAYOUTS[a][0] == LAYOUTS[b][0]
             and max(seconds[a], seconds[b]) > 1.1 * min(seconds[a], seconds[b])]
    wrong = [(a, b) for a, b in pairs if (predicted[a] < predicted[b]) != (seconds[a] < seconds[b])]
    print(f"\nOrder predicted for {len(pairs) - len(wrong)} of {len(pairs)} pairs that differ by more than 10 %.")
    for a, b in wrong:
        print(f"  wrong: {a} ({1e3 * seconds[a]:.1f} ms) and {b} ({1e3 * seconds[b]:.1f} ms)")
    dense = [name for name in names if LAYOUTS[name][0] == DENSE]
    chosen = min(dense, key=predicted.get)
    print(f"Chosen layout of the dense model: {chosen}, {seconds[chosen] / min(seconds[each] for each in dense) - 1:.1%} slower "
          "than the fastest.")


if __name__ == "__main__":
    main()

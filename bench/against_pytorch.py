"""Steps of heddle against PyTorch's FSDP2 and DDP on the same Hugging Face Llama, taking turns in one run.

  PYTHON bench/against_pytorch.py [--build build] [--rounds 12] [--only narrow|wide] [--ranks 1 2]

PYTHON has torch and transformers (heddle itself needs neither). Both sides read one model directory and the same
tokens, take the same steps with fused AdamW and clipping, and must come to the same loss and gradient norm. Each
rank is a process with one thread; while one side runs, the other one's processes wait. Prints a table in Markdown.
"""
import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
FP32 = "mp_policy: {param_dtype: float32, reduce_dtype: float32}"
# name: layers, width, sequence, batch of a rank, steps in a turn
SHAPES = {"narrow": (24, 64, 4, 8, 20), "wide": (8, 512, 256, 2, 2)}
PAIRS = [("fsdp2", f"distributed: {{strategy: fsdp2, {FP32}}}"), ("ddp", "distributed: {strategy: ddp}")]


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Side:
    """The ranks of one contender, which step when they are told to."""

    def __init__(self, label, command, ranks):
        self.label, self.milliseconds, self.answer = label, [], None
        port = free_port()
        self.ranks = []
        for rank in range(ranks):
            place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": ranks, "LOCAL_WORLD_SIZE": ranks,
                     "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "OMP_NUM_THREADS": 1}
            environment = {**os.environ, **{key: str(value) for key, value in place.items()},
                           "TRANSFORMERS_VERBOSITY": "error", "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
            self.ranks.append(subprocess.Popen(command, env=environment, stdin=subprocess.PIPE,
                                               stdout=subprocess.PIPE if rank == 0 else subprocess.DEVNULL,
                                               stderr=subprocess.DEVNULL if "python" in command[0] else None,
                                               text=True))

    def tell(self, line):
        for rank in self.ranks:
            rank.stdin.write(line + "\n")
            rank.stdin.flush()

    def step(self, count):
        self.tell(f"run {count}")
        line = self.ranks[0].stdout.readline()
        if not line:
            sys.exit(f"{self.label}: a rank ended; run its command by hand to see why")
        self.answer = json.loads(line)
        return 1000 * self.answer["seconds"] / count

    def end(self):
        self.tell("quit")
        for rank in self.ranks:
            rank.wait(timeout=60)


def make_model(directory, layers, width, sequence):
    import torch
    import transformers
    from transformers import LlamaConfig, LlamaForCausalLM

    transformers.utils.logging.disable_progress_bar()
    torch.manual_seed(1)
    config = LlamaConfig(vocab_size=256, hidden_size=width, intermediate_size=2 * width, num_hidden_layers=layers,
                         num_attention_heads=4, num_key_value_heads=4, max_position_embeddings=max(64, sequence),
                         tie_word_embeddings=False)
    LlamaForCausalLM(config).save_pretrained(directory)


def check_equal(ours, theirs):
    for key, tolerance in (("loss", 2e-4), ("norm", 2e-3)):
        one, other = ours.answer[key], theirs.answer[key]
        if abs(one - other) > tolerance * abs(other):
            sys.exit(f"{ours.label} and {theirs.label} disagree: {key} {one} against {other}")


def compare(directory, shape, ranks, peer, section, options):
    layers, width, sequence, batch, turn = SHAPES[shape]
    steps = [str(batch), str(sequence)]
    theirs = Side(f"PyTorch {peer}",
                  [sys.executable, os.path.join(HERE, "peers", "pytorch_steps.py"), directory, peer, *steps], ranks)
    ours = Side(f"heddle {peer}", [os.path.join(options.build, "bench_steps"), directory, f"{{{section}}}", *steps],
                ranks)
    for side in (theirs, ours):
        side.step(turn)
    check_equal(ours, theirs)
    for _ in range(options.rounds):
        for side in (theirs, ours):
            side.milliseconds.append(side.step(turn))
    for side in (theirs, ours):
        side.end()
    least = [min(side.milliseconds) for side in (theirs, ours)]
    median = [statistics.median(side.milliseconds) for side in (theirs, ours)]
    print(f"| {layers} x {width}, sequence {sequence}, batch {batch} | {ranks} | {peer} | {least[0]:.2f} |"
          f" {least[1]:.2f} | {least[0] / least[1]:.2f} | {median[0] / median[1]:.2f} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=os.path.join(HERE, "..", "build"))
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--only", choices=sorted(SHAPES))
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--peers", nargs="+", default=["fsdp2", "ddp"])
    options = parser.parse_args()
    print("| layers x width | ranks | strategy | PyTorch, least ms | heddle, least ms | times, least | times, median |")
    print("|---|--:|---|--:|--:|--:|--:|")
    for shape in [options.only] if options.only else SHAPES:
        layers, width, sequence, _, _ = SHAPES[shape]
        with tempfile.TemporaryDirectory() as directory:
            make_model(directory, layers, width, sequence)
            for ranks in options.ranks:
                for peer, section in PAIRS:
                    if peer in options.peers:
                        compare(directory, shape, ranks, peer, section, options)


main()

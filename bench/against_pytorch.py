"""Steps of heddle against PyTorch's FSDP2 and DDP on the same Hugging Face Llama, taking turns in one run.

  PYTHON bench/against_pytorch.py [--build build] [--rounds 12] [--only narrow|wide] [--ranks 1 2]

PYTHON has torch and transformers (heddle itself needs neither). Both sides read one model directory and the same
tokens, take the same steps with fused AdamW and clipping, and must come to the same loss and gradient norm. Each
rank is a process with one thread; while one side runs, the other one's processes wait. Prints a table in Markdown.
"""
import argparse
import os
import statistics
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from ranks_on_command import HERE, Side  # noqa: E402

FP32 = "mp_policy: {param_dtype: float32, reduce_dtype: float32}"
# name: layers, width, sequence, batch of a rank, steps in a turn
SHAPES = {"narrow": (24, 64, 4, 8, 20), "wide": (8, 512, 256, 2, 2)}
PAIRS = [("fsdp2", f"distributed: {{strategy: fsdp2, {FP32}}}"), ("ddp", "distributed: {strategy: ddp}")]


class Contender(Side):
    """A side that takes steps, timed."""

    def __init__(self, label, command, ranks):
        super().__init__(label, command, ranks)
        self.milliseconds, self.answer = [], None

    def step(self, count):
        self.answer = self.ask(f"run {count}")
        return 1000 * self.answer["seconds"] / count


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
    theirs = Contender(f"PyTorch {peer}",
                       [sys.executable, os.path.join(HERE, "peers", "pytorch_steps.py"), directory, peer, *steps], ranks)
    ours = Contender(f"heddle {peer}",
                     [os.path.join(options.build, "bench_steps"), directory, f"{{{section}}}", *steps], ranks)
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

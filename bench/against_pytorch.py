"""Compares training steps of heddle with PyTorch's FSDP2 and DDP on one Hugging Face model, alternating in one run.

  PYTHON bench/against_pytorch.py [--build build] [--rounds 12] [--only narrow|wide|experts] [--ranks 1 2]

`narrow` and `wide` are Llamas. `experts` is a Qwen3-MoE with 32 experts, top-4. On one rank it is compared with
transformers. On two ranks, heddle's expert parallelism is compared with heddle's fsdp2.

PYTHON needs torch and transformers (heddle itself needs neither). Both contenders read one model directory and the
same tokens, take the same steps with fused AdamW and gradient clipping, and must reach the same loss and gradient
norm. Each rank is a process with one thread. While one contender runs, the processes of the other wait. Prints a
table in Markdown.
"""
import argparse
import os
import statistics
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from ranks_on_command import HERE, Side  # noqa: E402

FP32 = "mp_policy: {param_dtype: float32, reduce_dtype: float32}"
# name: layers, width, sequence length, batch size per rank, steps per turn
SHAPES = {"narrow": (24, 64, 4, 8, 20), "wide": (8, 512, 256, 2, 2), "experts": (8, 256, 512, 1, 2)}
PAIRS = [("fsdp2", f"distributed: {{strategy: fsdp2, {FP32}}}"), ("ddp", "distributed: {strategy: ddp}")]


class Contender(Side):
    """A contender whose training steps are timed."""

    def __init__(self, label, command, ranks):
        super().__init__(label, command, ranks)
        self.milliseconds, self.answer = [], None

    def step(self, count):
        self.answer = self.ask(f"run {count}")
        return 1000 * self.answer["seconds"] / count


def make_mixture(directory, layers, width, sequence):
    """Writes a small model with the proportions of Qwen3-30B-A3B. Its auxiliary loss is off, because transformers adds it
    only to a loss that transformers computes itself."""
    import torch
    import transformers
    from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM

    transformers.utils.logging.disable_progress_bar()
    torch.manual_seed(1)
    config = Qwen3MoeConfig(vocab_size=256, hidden_size=width, intermediate_size=2 * width, num_hidden_layers=layers,
                            num_attention_heads=4, num_key_value_heads=2, head_dim=width // 4, num_experts=32,
                            num_experts_per_tok=4, moe_intermediate_size=width * 3 // 8, norm_topk_prob=True,
                            max_position_embeddings=sequence, router_aux_loss_coef=0.0, tie_word_embeddings=False)
    Qwen3MoeForCausalLM(config).save_pretrained(directory)


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
            sys.exit(f"{ours.label} and {theirs.label} differ: {key} is {one} and {other}")


def ours_of(directory, label, section, steps, ranks, options):
    return Contender(f"heddle {label}", [os.path.join(options.build, "bench_steps"), directory, f"{{{section}}}", *steps],
                     ranks)


def theirs_of(directory, peer, steps, ranks):
    return Contender(f"PyTorch {peer}",
                     [sys.executable, os.path.join(HERE, "peers", "pytorch_steps.py"), directory, peer, *steps], ranks)


def compare(shape, ranks, label, theirs, ours, options):
    layers, width, sequence, batch, turn = SHAPES[shape]
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
    print(f"| {layers} x {width}, sequence {sequence}, batch {batch} | {ranks} | {label} | {least[0]:.2f} |"
          f" {least[1]:.2f} | {least[0] / least[1]:.2f} | {median[0] / median[1]:.2f} |", flush=True)


def compare_llamas(directory, shape, options):
    steps = [str(SHAPES[shape][3]), str(SHAPES[shape][2])]
    for ranks in options.ranks:
        for peer, section in PAIRS:
            if peer in options.peers:
                compare(shape, ranks, peer, theirs_of(directory, peer, steps, ranks),
                        ours_of(directory, peer, section, steps, ranks, options), options)


def compare_mixtures(directory, shape, options):
    steps = [str(SHAPES[shape][3]), str(SHAPES[shape][2])]
    if 1 in options.ranks:
        compare(shape, 1, "transformers / ddp", theirs_of(directory, "ddp", steps, 1),
                ours_of(directory, "ddp", PAIRS[1][1], steps, 1, options), options)
    if 2 in options.ranks:
        experts = f"distributed: {{strategy: fsdp2, ep_size: 2, {FP32}}}"
        compare(shape, 2, "fsdp2 / fsdp2 with ep 2", ours_of(directory, "fsdp2", PAIRS[0][1], steps, 2, options),
                ours_of(directory, "fsdp2 with ep 2", experts, steps, 2, options), options)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=os.path.join(HERE, "..", "build"))
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--only", choices=sorted(SHAPES))
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--peers", nargs="+", default=["fsdp2", "ddp"])
    options = parser.parse_args()
    print("| layers x width | ranks | strategy | PyTorch (or first), least ms | heddle, least ms | speedup, least |"
          " speedup, median |")
    print("|---|--:|---|--:|--:|--:|--:|")
    for shape in [options.only] if options.only else SHAPES:
        layers, width, sequence, _, _ = SHAPES[shape]
        with tempfile.TemporaryDirectory() as directory:
            if shape == "experts":
                make_mixture(directory, layers, width, sequence)
                compare_mixtures(directory, shape, options)
            else:
                make_model(directory, layers, width, sequence)
                compare_llamas(directory, shape, options)


main()

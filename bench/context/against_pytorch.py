"""Times training steps of a Llama with context parallelism over two ranks: heddle compared with one rank of heddle, and
with PyTorch's context parallelism (torch.distributed.tensor.experimental), alternating in one run. Measures wall time,
and the CPU time of rank 0, which other programs disturb less and which excludes the time that the rank waits.

  PYTHON bench/context/against_pytorch.py [--build build] [--rounds 8] [--sequence 8192] [--ours-only]

PYTHON needs torch and transformers. Every rank is a process with one thread, pinned to its own core. While one contender
runs, the others wait. All contenders take the same steps with fused AdamW and gradient clipping from one model
directory, and must reach the same loss and gradient norm. The program first prints the result of PyTorch's unmodified
context_parallel on the CPU. The measured peer is PyTorch's ring with the CPU's flash attention operators
(bench/peers/pytorch_context.py).
"""
import argparse
import os
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from ranks_on_command import HERE, Side  # noqa: E402

FP32 = "mp_policy: {param_dtype: float32, reduce_dtype: float32}"


class Contender(Side):
    def __init__(self, label, command, ranks):
        super().__init__(label, command, ranks)
        for core, rank in enumerate(self.ranks):
            os.sched_setaffinity(rank.pid, {sorted(os.sched_getaffinity(0))[core]})
        self.seconds, self.processor, self.answer = [], [], None

    def step(self):
        self.answer = self.ask("run 1")
        if "error" not in self.answer:
            self.seconds.append(self.answer["seconds"])
            self.processor.append(self.answer["processor"])
        return self.answer


def make_model(directory, options):
    import torch
    import transformers
    from transformers import LlamaConfig, LlamaForCausalLM

    transformers.utils.logging.disable_progress_bar()
    torch.manual_seed(1)
    config = LlamaConfig(vocab_size=2048, hidden_size=256, intermediate_size=768, num_hidden_layers=options.layers,
                         num_attention_heads=8, num_key_value_heads=4, max_position_embeddings=options.sequence,
                         tie_word_embeddings=False)
    LlamaForCausalLM(config).save_pretrained(directory)


def heddle(directory, options, method):
    section = f"distributed: {{strategy: fsdp2, {FP32}" + (f", cp_size: 2, context: {{method: {method}}}" if method else "") + "}"
    command = [os.path.join(options.build, "bench_steps"), directory, "{" + section + "}", "1", str(options.sequence)]
    return Contender(f"heddle, `{method}`" if method else "heddle, one rank", command, 2 if method else 1)


def pytorch(directory, options, kind, ranks):
    peer = os.path.join(HERE, "peers", "pytorch_context.py")
    label = "PyTorch, one rank" if ranks == 1 else "PyTorch, ring with the CPU's operators"
    return Contender(label, [sys.executable, peer, directory, str(options.sequence), kind], ranks)


def check_equal(one, other):
    for key, tolerance in (("loss", 2e-5), ("norm", 2e-3)):
        if abs(one.answer[key] - other.answer[key]) > tolerance * abs(other.answer[key]):
            sys.exit(f"{one.label} and {other.label} differ: {key} is {one.answer[key]} and {other.answer[key]}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=os.path.join(HERE, "..", "build"))
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--ours-only", action="store_true", help="measure heddle only, without PyTorch")
    parser.add_argument("--sequence", type=int, default=8192)
    parser.add_argument("--methods", nargs="+", default=["allgather", "ring", "ulysses"])
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        make_model(directory, options)
        theirs = []
        if not options.ours_only:
            given = pytorch(directory, options, "as_given", 2)
            print("PyTorch's unmodified context_parallel:", given.step().get("error", "runs"), flush=True)
            given.kill()
            theirs = [pytorch(directory, options, "own_operator", ranks) for ranks in (2, 1)]
        ours = [heddle(directory, options, method) for method in [None, *options.methods]]
        for _ in range(options.rounds + 1):
            for side in ours + theirs:
                side.step()
        for side in ours + theirs:
            check_equal(side, ours[0])
            side.seconds.pop(0), side.processor.pop(0)  # the first step warms up
            side.end()
    base = (theirs or ours)[0]
    print(f"| contender | least ms | CPU time, ms per rank | speedup over {base.label} | by CPU time |\n"
          "|---|--:|--:|--:|--:|")
    for side in ours + theirs:
        row = [1e3 * min(side.seconds), 1e3 * min(side.processor)]
        ratios = [min(base.seconds) / min(side.seconds), min(base.processor) / min(side.processor)]
        print(f"| {side.label} | {row[0]:.0f} | {row[1]:.0f} | {ratios[0]:.2f} | {ratios[1]:.2f} |")



main()

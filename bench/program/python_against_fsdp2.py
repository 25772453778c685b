"""Compares training steps of `import heddle` with PyTorch's FSDP2 and DDP, alternating in one process group.

  PYTHONPATH=build/python PYTHON bench/program/python_against_fsdp2.py [--ranks 2] [--rounds 10] [--only narrow|wide] [--memory]

PYTHON needs torch 2.11.0 and transformers. Each rank is a process with one thread. It holds one Llama with the same
values under each of four frameworks and takes a few steps of each in turn: forward, backward, clipping and fused AdamW
in float32. Losses and norms of a pair must agree. Prints a table in Markdown: the median milliseconds of a step, the
median of the ratios of each round, and with --memory the peak memory of a rank, measured in a separate process.
"""
import argparse
import os
import resource
import socket
import statistics
import subprocess
import sys
import time

# name: layers, width, sequence length, batch size per rank, steps per turn
SHAPES = {"narrow": (24, 64, 4, 8, 5), "wide": (8, 512, 256, 2, 1)}
PAIRS = (("heddle fsdp2", "FSDP2", {"narrow": 0.4, "wide": 0.7}), ("heddle ddp", "DDP", {"narrow": 1.1, "wide": 1.0}))
FP32 = {"param_dtype": "float32", "reduce_dtype": "float32"}
VOCABULARY = 256


def make_model(layers, width, sequence):
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(1)
    return LlamaForCausalLM(LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=width, intermediate_size=2 * width, num_hidden_layers=layers, num_attention_heads=4,
        num_key_value_heads=4, max_position_embeddings=max(64, sequence), tie_word_embeddings=False, use_cache=False))


class Contender:
    """A model with its optimizer under one framework."""

    def __init__(self, label, shape):
        import torch

        layers, width, self.sequence, self.batch, _ = shape
        model = make_model(layers, width, self.sequence)
        self.label, self.clip = label, torch.nn.utils.clip_grad_norm_
        if label.startswith("heddle"):
            import heddle

            fields = {"strategy": label.split()[1]}
            if fields["strategy"] == "fsdp2":
                fields["mp_policy"] = FP32
            model = heddle.fully_shard(model, **fields)
            self.clip = lambda parameters, most: heddle.clip_grad_norm_(model, most)
        elif label == "FSDP2":
            from torch.distributed.fsdp import fully_shard

            for layer in model.model.layers:
                fully_shard(layer)
            fully_shard(model.model.embed_tokens)
            fully_shard(model.lm_head)
            fully_shard(model)
        elif label == "DDP":
            model = torch.nn.parallel.DistributedDataParallel(model)
        self.model = model
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
        self.generator = torch.Generator().manual_seed(int(os.environ["RANK"]))

    def step(self):
        import torch

        tokens = torch.randint(0, VOCABULARY, (self.batch, self.sequence), generator=self.generator)
        loss = self.model(input_ids=tokens, labels=tokens).loss
        loss.backward()
        norm = self.clip(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.item(), float(norm.full_tensor() if hasattr(norm, "full_tensor") else norm)


def agree(one, other, shape):
    if abs(one[0] - other[0]) > 2e-4 * abs(other[0]) or abs(one[1] - other[1]) > 2e-3 * abs(other[1]):
        sys.exit(f"{shape}: loss and norm differ: {one} and {other}")


def rank_main(options):
    import torch

    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{os.environ['TORCH_PORT']}",
                                         rank=int(os.environ["RANK"]), world_size=int(os.environ["WORLD_SIZE"]))
    import heddle

    heddle.init()
    for name in options.only or SHAPES:
        turns(name, options.rounds)
    torch.distributed.destroy_process_group()


def turns(name, rounds):
    import torch

    shape = SHAPES[name]
    contenders = {label: Contender(label, shape) for pair in PAIRS for label in pair[:2]}
    milliseconds = {label: [] for label in contenders}
    for turn in range(rounds + 2):  # the first two rounds warm up
        answers = {}
        for label, contender in contenders.items():
            torch.distributed.barrier()
            begin = time.perf_counter()
            for _ in range(shape[4]):
                answers[label] = contender.step()
            torch.distributed.barrier()
            if turn >= 2:
                milliseconds[label].append(1000 * (time.perf_counter() - begin) / shape[4])
        for ours, theirs, _ in PAIRS:
            agree(answers[ours], answers[theirs], name)
    if torch.distributed.get_rank() != 0:
        return
    for ours, theirs, bars in PAIRS:
        quotient = statistics.median(a / b for a, b in zip(milliseconds[ours], milliseconds[theirs]))
        print(f"| {name} | {ours} | {statistics.median(milliseconds[ours]):.1f} | {theirs} | "
              f"{statistics.median(milliseconds[theirs]):.1f} | {quotient:.2f} | {bars[name]} |", flush=True)


def memory_main(options):
    """Prints the peak memory of one rank under one framework, in MiB above the memory before the model."""
    import torch

    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{os.environ['TORCH_PORT']}",
                                         rank=int(os.environ["RANK"]), world_size=int(os.environ["WORLD_SIZE"]))
    import heddle
    import transformers  # noqa: F401

    heddle.init()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    contender = Contender(options.memory_of, SHAPES[options.only[0]])
    for _ in range(3):
        contender.step()
    if torch.distributed.get_rank() == 0:
        print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return str(one.getsockname()[1])


def start(ranks, arguments, output=None):
    ports = dict(MASTER_ADDR="127.0.0.1", MASTER_PORT=free_port(), TORCH_PORT=free_port())
    children = [subprocess.Popen([sys.executable, os.path.abspath(__file__), "--rank", *arguments], stdout=output, text=True,
                                 env=dict(os.environ, RANK=str(rank), WORLD_SIZE=str(ranks), LOCAL_RANK=str(rank),
                                          LOCAL_WORLD_SIZE=str(ranks), OMP_NUM_THREADS="1", CUDA_VISIBLE_DEVICES="",
                                          HF_HUB_OFFLINE="1", **ports)) for rank in range(ranks)]
    outputs = [child.communicate()[0] for child in children]
    if any(child.returncode for child in children):
        sys.exit("a rank failed")
    return outputs[0]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--only", action="append", choices=SHAPES)
    parser.add_argument("--memory", action="store_true")
    parser.add_argument("--rank", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--memory-of", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rank:
        return memory_main(options) if options.memory_of else rank_main(options)
    only = [part for name in options.only or () for part in ("--only", name)]
    print("| shape | | ms per step | | ms per step | ratio | limit |\n|---|---|---|---|---|---|---|", flush=True)
    start(options.ranks, ["--rounds", str(options.rounds), *only])
    if options.memory:
        for name in options.only or SHAPES:
            held = {label: float(start(options.ranks, ["--only", name, "--memory-of", label], subprocess.PIPE))
                    for label in ("heddle fsdp2", "FSDP2")}
            print(f"memory, {name}: heddle {held['heddle fsdp2']:.0f} MiB, FSDP2 {held['FSDP2']:.0f} MiB, "
                  f"{held['heddle fsdp2'] / held['FSDP2']:.2f}")


if __name__ == "__main__":
    main()

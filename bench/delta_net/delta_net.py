"""Compares the CPU time of heddle's gated delta rule with transformers' PyTorch code, forward and backward.

    python3 bench/delta_net/delta_net.py [--bench build/bench_delta_net] [--rounds 5] [--threads 1]

Needs torch 2.11, transformers 5 and a build. transformers runs `torch_chunk_gated_delta_rule` with gates and norms of
queries and keys, as its layer does if no package with kernels is installed. tests/golden compares the values of both.
"""

import argparse
import statistics
import subprocess
import time

import torch
import torch.nn.functional as F
from transformers.models.qwen3_next import modeling_qwen3_next as peer

RULE = getattr(peer.torch_chunk_gated_delta_rule, "__wrapped__", peer.torch_chunk_gated_delta_rule)
SHAPES = ((512, 2, 4, 128), (2048, 2, 4, 128), (2048, 4, 4, 64))  # sequence length, key heads, value heads, head size


def theirs(sequence, key_heads, value_heads, width):
    def leaf(*sizes):
        return torch.randn(sizes, requires_grad=True)

    q, k = leaf(1, sequence, key_heads, width), leaf(1, sequence, key_heads, width)
    v, a, b = leaf(1, sequence, value_heads, width), leaf(1, sequence, value_heads), leaf(1, sequence, value_heads)
    rate, bias, d_out = leaf(value_heads), leaf(value_heads), torch.randn(1, sequence, value_heads, width)
    for _ in range(2):  # the first pass warms up
        start = time.process_time()
        decay = -rate.float().exp() * F.softplus(a.float() + bias)
        out, _ = RULE(q, k, v, g=decay, beta=b.sigmoid(), use_qk_l2norm_in_kernel=True)
        middle = time.process_time()
        out.backward(d_out)
        end = time.process_time()
    return (middle - start) * 1e3, (end - middle) * 1e3


def ours(bench, shape, threads):
    done = subprocess.run([bench, *map(str, shape), str(threads)], capture_output=True, text=True, check=True)
    return tuple(map(float, done.stdout.split()))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bench", default="build/bench_delta_net")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    print("| tokens | key, value heads | head size | heddle forward, backward ms | transformers | forward | both |\n"
          "|--:|--:|--:|--:|--:|--:|--:|")
    for shape in SHAPES:
        mine, peers = [], []
        for _ in range(given.rounds):
            mine.append(ours(given.bench, shape, given.threads))
            peers.append(theirs(*shape))
        a, b = ([statistics.median(column) for column in zip(*rows)] for rows in (mine, peers))
        print(f"| {shape[0]} | {shape[1]}, {shape[2]} | {shape[3]} | {a[0]:.1f}, {a[1]:.1f} | {b[0]:.1f}, {b[1]:.1f} | "
              f"{b[0] / a[0]:.2f} | {sum(b) / sum(a):.2f} |", flush=True)


if __name__ == "__main__":
    main()

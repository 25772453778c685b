"""PyTorch peer of bench/against_pytorch.py: training steps of a Hugging Face model under FSDP2 or DDP, on command.

Each rank reads lines from its standard input: "run N" takes N optimizer steps, "quit" exits. Rank 0 answers with
one JSON line: seconds of the N steps, and the loss and gradient norm of the last step.
"""
import json
import os
import sys
import time

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from transformers import AutoModelForCausalLM


def load(directory, strategy):
    model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32, attn_implementation="sdpa")
    model.config.use_cache = False
    if strategy == "ddp":
        return DistributedDataParallel(model)
    for layer in model.model.layers:
        fully_shard(layer)
    for vocabulary in (model.model.embed_tokens, model.lm_head):
        fully_shard(vocabulary)
    fully_shard(model, reshard_after_forward=False)
    return model


def batch_of(rank, batch, sequence, vocabulary):
    """Returns the tokens that bench_steps generates by a formula of the row and the column."""
    rows = torch.arange(rank * batch, (rank + 1) * batch)[:, None]
    columns = torch.arange(sequence + 1)[None, :]
    tokens = (rows * 7919 + columns * 104729 + rows * columns * 31) % vocabulary
    return tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()


def main():
    directory, strategy, batch, sequence = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    model = load(directory, strategy)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.01, fused=True)
    vocabulary = json.load(open(os.path.join(directory, "config.json")))["vocab_size"]
    tokens, labels = batch_of(rank, batch, sequence, vocabulary)

    def step():
        # Labels are already shifted; Hugging Face's loss would shift them again.
        logits = model(input_ids=tokens).logits
        loss = torch.nn.functional.cross_entropy(logits.view(-1, vocabulary), labels.view(-1))
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss, norm

    for line in sys.stdin:
        words = line.split()
        if words[0] == "quit":
            break
        dist.barrier()
        start = time.perf_counter()
        for _ in range(int(words[1])):
            loss, norm = step()
        dist.barrier()
        seconds = time.perf_counter() - start
        loss = loss.detach().clone()
        dist.all_reduce(loss)
        norm = norm.full_tensor() if hasattr(norm, "full_tensor") else norm
        if rank == 0:
            answer = {"seconds": seconds, "loss": loss.item() / ranks, "norm": norm.item()}
            print(json.dumps(answer), flush=True)
    dist.destroy_process_group()


main()

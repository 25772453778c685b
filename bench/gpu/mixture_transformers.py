"""Trains the mixture-of-experts model of scripts/gpu_trial with transformers on one GPU, for comparison.

Prints one line of JSON: tokens per second (median step after the warm-up) and peak memory of tensors in GiB.
Model, batch, optimizer and clipping are equal to those of scripts/gpu_trial: bf16 parameters, fused AdamW, norm 1.0.
Experts use LibTorch's grouped matrix product, attention uses scaled_dot_product_attention.
"""
import argparse
import json
import statistics
import time

import torch
from transformers import AutoConfig, AutoModelForCausalLM


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("config", help="config.json")
    parser.add_argument("--length", type=int, default=2048)
    parser.add_argument("--microbatches", type=int, default=4)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--warm-up", type=int, default=5)
    a = parser.parse_args()
    torch.manual_seed(1)
    config = AutoConfig.for_model(**json.load(open(a.config)))
    with torch.device("cuda"):
        model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16, attn_implementation="sdpa",
                                                 experts_implementation="grouped_mm").train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.1, fused=True)
    times = []
    for _ in range(a.steps):
        host = [torch.randint(0, 256, (1, a.length + 1)) for _ in range(a.microbatches)]
        begin = time.perf_counter()
        for rows in host:
            rows = rows.to("cuda", non_blocking=True)
            logits = model(rows[:, :-1], use_cache=False).logits
            loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1).float(), rows[:, 1:].flatten())
            (loss / a.microbatches).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=True)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        torch.cuda.synchronize()
        times.append(time.perf_counter() - begin)
    print(json.dumps({
        "parameters": sum(p.numel() for p in model.parameters()),
        "tps": a.length * a.microbatches / statistics.median(times[a.warm_up:]),
        "mem": torch.cuda.max_memory_allocated() / 2**30,
        "device": torch.cuda.get_device_name(),
    }))


main()

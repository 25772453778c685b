"""Trains the Llama of scripts/gpu_trial with PyTorch in one process on one GPU, for comparison.

Prints one line of JSON: tokens per second (median step after the warm-up) and peak memory of tensors in GiB.
Model, batch, optimizer and clipping are equal to those of scripts/gpu_trial: bf16 parameters, fused AdamW, norm 1.0.
--fsdp2 shards each layer with fully_shard over one rank; --compile compiles each layer and the loss.
"""
import argparse
import json
import os
import statistics
import time

import torch
from torch import nn
from torch.nn import functional as F


class Attention(nn.Module):
    def __init__(self, width, heads, kv_heads):
        super().__init__()
        self.heads, self.kv_heads, self.size = heads, kv_heads, width // heads
        self.q = nn.Linear(width, heads * self.size, bias=False)
        self.k = nn.Linear(width, kv_heads * self.size, bias=False)
        self.v = nn.Linear(width, kv_heads * self.size, bias=False)
        self.o = nn.Linear(heads * self.size, width, bias=False)

    def forward(self, x, cos, sin):
        batch, length, _ = x.shape
        q = self.q(x).view(batch, length, self.heads, self.size).transpose(1, 2)
        k = self.k(x).view(batch, length, self.kv_heads, self.size).transpose(1, 2)
        v = self.v(x).view(batch, length, self.kv_heads, self.size).transpose(1, 2)
        turn = lambda t: torch.cat((-t[..., self.size // 2:], t[..., : self.size // 2]), -1)
        q, k = q * cos + turn(q) * sin, k * cos + turn(k) * sin
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=self.heads != self.kv_heads)
        return self.o(out.transpose(1, 2).reshape(batch, length, -1))


class Layer(nn.Module):
    def __init__(self, width, inner, heads, kv_heads):
        super().__init__()
        self.first, self.second = nn.RMSNorm(width, eps=1e-5), nn.RMSNorm(width, eps=1e-5)
        self.attention = Attention(width, heads, kv_heads)
        self.gate = nn.Linear(width, inner, bias=False)
        self.up = nn.Linear(width, inner, bias=False)
        self.down = nn.Linear(inner, width, bias=False)

    def forward(self, x, cos, sin):
        x = x + self.attention(self.first(x), cos, sin)
        normal = self.second(x)
        return x + self.down(F.silu(self.gate(normal)) * self.up(normal))


class Llama(nn.Module):
    def __init__(self, a):
        super().__init__()
        self.embedding = nn.Embedding(a.vocabulary, a.width)
        self.layers = nn.ModuleList(Layer(a.width, a.inner, a.heads, a.kv_heads) for _ in range(a.layers))
        self.norm = nn.RMSNorm(a.width, eps=1e-5)
        self.size, self.theta = a.width // a.heads, 500000.0

    def forward(self, tokens, labels):
        steps = torch.arange(0, self.size, 2, device=tokens.device, dtype=torch.float32) / self.size
        angles = torch.arange(tokens.shape[1], device=tokens.device)[:, None] / self.theta**steps
        angles = torch.cat((angles, angles), -1)
        x = self.embedding(tokens)
        cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        for layer in self.layers:
            x = layer(x, cos, sin)
        return self.loss(self.norm(x), labels)

    def loss(self, x, labels):
        logits = F.linear(x, self.embedding.weight)
        return F.cross_entropy(logits.flatten(0, 1).float(), labels.flatten())


def shard(model):
    from torch.distributed.fsdp import fully_shard
    for name, value in dict(MASTER_ADDR="127.0.0.1", MASTER_PORT="29517", RANK="0", WORLD_SIZE="1").items():
        os.environ.setdefault(name, value)
    torch.distributed.init_process_group("nccl", device_id=torch.device("cuda", 0))
    for layer in model.layers:
        fully_shard(layer)
    fully_shard(model)


def compile_parts(model):
    for layer in model.layers:
        layer.compile()
    model.loss = torch.compile(model.loss)


def main():
    parser = argparse.ArgumentParser()
    for name, value in dict(vocabulary=128256, width=2048, inner=8192, layers=16, heads=32, kv_heads=8, length=2048,
                            local_batch=1, microbatches=4, steps=20, warm_up=5).items():
        parser.add_argument("--" + name.replace("_", "-"), type=int, default=value)
    parser.add_argument("--fsdp2", action="store_true")
    parser.add_argument("--compile", action="store_true")
    a = parser.parse_args()
    torch.manual_seed(1)
    with torch.device("cuda"):
        model = Llama(a).to(torch.bfloat16)
    if a.compile:
        compile_parts(model)
    if a.fsdp2:
        shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.1, fused=True)
    shape, times = (a.local_batch, a.length + 1), []
    for _ in range(a.steps):
        host = [torch.randint(0, 256, shape) for _ in range(a.microbatches)]
        begin = time.perf_counter()
        for rows in host:
            rows = rows.to("cuda", non_blocking=True)
            (model(rows[:, :-1], rows[:, 1:]) / a.microbatches).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=True)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        torch.cuda.synchronize()
        times.append(time.perf_counter() - begin)
    tokens = a.local_batch * a.length * a.microbatches
    print(json.dumps({
        "parameters": sum(p.numel() for p in model.parameters()),
        "tps": tokens / statistics.median(times[a.warm_up:]),
        "mem": torch.cuda.max_memory_allocated() / 2**30,
        "device": torch.cuda.get_device_name(),
    }))
    if a.fsdp2:
        torch.distributed.destroy_process_group()


main()

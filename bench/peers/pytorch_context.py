"""PyTorch peer of bench/context/against_pytorch.py: training steps of a Hugging Face Llama with context parallelism.

  pytorch_context.py MODEL_DIRECTORY SEQUENCE as_given|own_operator

`as_given` runs `context_parallel` as PyTorch documents it. `own_operator` keeps PyTorch's ring, load balancing and buffer
sharding, and calls the CPU's flash attention operators where the ring expects a CUDA operator. Commands and answers are
equal to those of pytorch_steps.py. The answer to a failed command contains the error.
"""
import contextlib
import json
import os
import sys
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.experimental import context_parallel
from torch.distributed.tensor.experimental._context_parallel import _attention as ring
from torch.distributed.tensor.experimental._context_parallel._load_balancer import _HeadTailLoadBalancer
from transformers import LlamaForCausalLM
from transformers.models.llama import modeling_llama

aten = torch.ops.aten


class RingOnCpu(torch.autograd.Function):
    """PyTorch's ring attention templates around the CPU's flash attention operators."""

    @staticmethod
    def forward(ctx, query, key, value, scale):
        ctx.scale = scale
        ctx.group = dist.group.WORLD
        operator = aten._scaled_dot_product_flash_attention_for_cpu.default
        out, sums = ring._templated_ring_attention(ctx.group, 2, operator, query, key, value, is_causal=True, scale=scale)
        ctx.save_for_backward(query, key, value, out, sums)
        return out

    @staticmethod
    def backward(ctx, gradient):
        query, key, value, out, sums = ctx.saved_tensors
        gradients = ring._templated_ring_attention_backward(
            ctx.group, 2, aten._scaled_dot_product_flash_attention_for_cpu_backward.default, gradient, "grad_out", query,
            key, value, out, sums, is_causal=True, dropout_p=0.0, scale=ctx.scale)
        return *gradients[:3], None


def attend(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False):
    assert attn_mask is None and is_causal
    if enable_gqa:
        times = query.size(1) // key.size(1)
        key, value = key.repeat_interleave(times, 1), value.repeat_interleave(times, 1)
    return RingOnCpu.apply(query, key, value, scale)


def tokens_of(sequence, vocabulary):
    """Returns the tokens that bench_steps generates for one row."""
    words = (torch.arange(sequence + 1) * 104729)[None, :] % vocabulary
    return [words[:, :-1].contiguous(), words[:, 1:].contiguous(), torch.arange(sequence)[None, :]]


@contextlib.contextmanager
def parts(mesh, buffers, kind):
    """Context manager that replaces the buffers by this rank's shards."""
    dims = [1] * len(buffers)
    if mesh.size() == 1:
        yield buffers
    elif kind == "as_given":
        with context_parallel(mesh, buffers=buffers, buffer_seq_dims=dims):
            yield buffers
    else:
        balance = _HeadTailLoadBalancer(buffers[0].size(1), mesh.size(), "cpu")
        yield ring._context_parallel_shard(mesh, buffers, dims, balance)


def main():
    directory, sequence, kind = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    mesh = init_device_mesh("cpu", (ranks,), mesh_dim_names=("cp",))
    if ranks > 1 and kind == "own_operator":
        F.scaled_dot_product_attention = attend
    modeling_llama.create_causal_mask = lambda *_, **__: None  # positions of a shard are not consecutive
    model = LlamaForCausalLM.from_pretrained(directory, dtype=torch.float32, attn_implementation="sdpa")
    model.config.use_cache = False
    for layer in model.model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh, reshard_after_forward=False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.01, fused=True)
    vocabulary = json.load(open(os.path.join(directory, "config.json")))["vocab_size"]

    def step():
        with parts(mesh, tokens_of(sequence, vocabulary), kind) as (tokens, labels, positions):
            logits = model(input_ids=tokens, position_ids=positions).logits
            loss = F.cross_entropy(logits.view(-1, vocabulary), labels.view(-1))
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
        start, before = time.perf_counter(), time.process_time()
        try:
            for _ in range(int(words[1])):
                loss, norm = step()
        except (NotImplementedError, RuntimeError) as error:
            if rank == 0:
                print(json.dumps({"error": f"{type(error).__name__}: {error}"}), flush=True)
            continue
        dist.barrier()
        seconds, work = time.perf_counter() - start, time.process_time() - before
        loss = loss.detach().clone()
        dist.all_reduce(loss)
        if rank == 0:
            print(json.dumps({"seconds": seconds, "processor": work, "loss": loss.item() / ranks, "norm": norm.full_tensor().item()}), flush=True)
    dist.destroy_process_group()


main()

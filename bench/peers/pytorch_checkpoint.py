"""PyTorch peer of bench/checkpoint_against_pytorch.py: a rank that saves and loads a state with DCP, on command.

  pytorch_checkpoint.py MEBIBYTES

The state equals that of bench_checkpoint: fp32 tensors of a Llama and two moments, as DTensors with rows sharded over
the ranks. Each rank reads lines from its standard input: "save DIR", "load DIR", "quit". Rank 0 answers each line with
one JSON line.
"""
import json
import sys
import time

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard

WIDTH, INNER, VOCABULARY = 1024, 2816, 32000


def shapes(mebibytes):
    left = (mebibytes << 20) // 12
    names = [("model.embed_tokens.weight", (VOCABULARY, WIDTH)), ("lm_head.weight", (VOCABULARY, WIDTH))]
    left -= 2 * VOCABULARY * WIDTH
    layer = 0
    while left > 0:
        name = f"model.layers.{layer}"
        names.append((f"{name}.input_layernorm.weight", (WIDTH,)))
        names += [(f"{name}.self_attn.{which}_proj.weight", (WIDTH, WIDTH)) for which in "qkvo"]
        names += [(f"{name}.mlp.gate_proj.weight", (INNER, WIDTH)), (f"{name}.mlp.up_proj.weight", (INNER, WIDTH)),
                  (f"{name}.mlp.down_proj.weight", (WIDTH, INNER))]
        left -= WIDTH + 4 * WIDTH * WIDTH + 3 * WIDTH * INNER
        layer += 1
    return names


def state_of(mebibytes, mesh):
    state = {}
    for name, shape in shapes(mebibytes):
        for kind in ("", "exp_avg.", "exp_avg_sq."):
            rows = shape[0] // mesh.size()
            local = torch.rand((rows, *shape[1:]))
            state[kind + name] = DTensor.from_local(local, mesh, [Shard(0)], run_check=False)
    return state


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    state = state_of(int(sys.argv[1]), mesh)
    for line in sys.stdin:
        word, _, place = line.strip().partition(" ")
        if word == "quit":
            break
        dist.barrier()
        start = time.perf_counter()
        if word == "save":
            dcp.save(state, storage_writer=dcp.FileSystemWriter(place, sync_files=True))
        else:
            dcp.load(state, storage_reader=dcp.FileSystemReader(place))
        dist.barrier()
        if dist.get_rank() == 0:
            print(json.dumps({"seconds": time.perf_counter() - start}), flush=True)
    dist.destroy_process_group()


main()

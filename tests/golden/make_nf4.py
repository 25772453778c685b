"""Makes nf4/nf4.safetensors: weights, and what bitsandbytes makes of them in 4 bits.

Run by hand when a case is added (needs torch 2.11 and bitsandbytes 0.50; no test runs it):

    python3 tests/golden/make_nf4.py

Of each case: CASE.weight, CASE.codes (two a byte), CASE.plain (unpacked with scales in float32) and CASE.double
(unpacked with double quantisation), both in the weight's dtype. Codes and plain values are what bitsandbytes returns.
Scales in 8 bits are computed here, by the formula of its kernels for GPUs and of its default kernel: the nearest value
of the code, and the mean of the scales as the offset (in float64, rounded once, because a sum in float32 depends on the
processor). Its library for CPUs finds codes by a table and takes the second nearest value where two are about equally
far; the script checks that few differ.
"""

import pathlib

import bitsandbytes.functional as bnb
import torch
from safetensors.torch import save_file

HERE = pathlib.Path(__file__).parent

# Shape, dtype, and what multiplies some of the numbers.
CASES = {"odd": ((37, 51), torch.float32, 1), "groups": ((70, 250), torch.float32, 30),
         "halves": ((40, 64), torch.bfloat16, 1), "zeros": ((3, 64), torch.float32, 0)}


def weight_of(shape, dtype, factor):
    weight = torch.randn(shape) * 0.05
    weight[1:2] *= factor
    weight[:, 3] *= factor
    return weight.to(dtype)


def doubled(scales):
    """The scales after they were in 8 bits."""
    offset = scales.double().mean().float()
    code = bnb.create_dynamic_map()
    bounds = (code[:-1] + code[1:]) / 2
    out = []
    for group in (scales - offset).split(256):
        most = group.abs().max()
        parts = group * (1 / most) if len(group) == 256 else group / most
        out.append(code[torch.bucketize(parts.clamp(-1, 1), bounds)] * most)
    return torch.cat(out) + offset


def main():
    torch.manual_seed(7)
    tensors = {}
    for name, (shape, dtype, factor) in CASES.items():
        weight = weight_of(shape, dtype, factor)
        codes, plain = bnb.quantize_4bit(weight, quant_type="nf4")
        tensors |= {f"{name}.weight": weight, f"{name}.codes": codes.flatten(),
                    f"{name}.plain": bnb.dequantize_4bit(codes, plain)}
        _, nested = bnb.quantize_4bit(weight, quant_type="nf4", compress_statistics=True)
        plain.absmax = doubled(plain.absmax)
        mine, theirs = bnb.dequantize_4bit(codes, plain), bnb.dequantize_4bit(codes, nested)
        assert (mine != theirs).double().mean() < 0.02, name
        print(name, "differ in", int((mine != theirs).sum()), "of", mine.numel())
        tensors[f"{name}.double"] = mine
    (HERE / "nf4").mkdir(exist_ok=True)
    save_file({key: value.contiguous() for key, value in tensors.items()}, HERE / "nf4" / "nf4.safetensors")


if __name__ == "__main__":
    main()

"""Makes nf4/nf4.safetensors: weights, and their 4-bit quantization by bitsandbytes.

Run by hand when a case is added (needs torch 2.11 and bitsandbytes 0.50; no test runs it):

    python3 tests/golden/make_nf4.py

Each case has CASE.weight, CASE.codes (two per byte), CASE.plain (dequantized with float32 scales) and CASE.double
(dequantized with double quantization), both in the weight's dtype. Codes and plain values come from bitsandbytes. The 8-bit
scales are computed here, by the formula of its GPU kernels and of its default kernel: the nearest code value, with the mean
of the scales as the offset (in float64, rounded once, because a float32 sum depends on the processor). bitsandbytes' CPU
library finds codes by a table and takes the second nearest value when two values are about equally far. The script checks
that few codes differ.
"""

import pathlib

import bitsandbytes.functional as bnb
import torch
from safetensors.torch import save_file

HERE = pathlib.Path(__file__).parent

# Shape, dtype, and a factor for some of the elements.
CASES = {"odd": ((37, 51), torch.float32, 1), "groups": ((70, 250), torch.float32, 30),
         "halves": ((40, 64), torch.bfloat16, 1), "zeros": ((3, 64), torch.float32, 0)}


def weight_of(shape, dtype, factor):
    weight = torch.randn(shape) * 0.05
    weight[1:2] *= factor
    weight[:, 3] *= factor
    return weight.to(dtype)


def doubled(scales):
    """Returns the scales after quantization to 8 bits."""
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

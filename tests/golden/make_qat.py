"""Makes qat/: values of torchao's fake quantizers, and twelve steps of two models that train with them.

Run by hand (needs torch 2.11, transformers 5 and torchao 0.18; no test runs it):

    python3 tests/golden/make_qat.py

numbers.safetensors holds cases CASE.x, CASE.g, CASE.y and CASE.dx: the input, the gradient of the output, the output and the
gradient of the input. Case names state the quantizer, the dtypes of the input and of the scales, and the group size.
inputs_int8/ and weights_int4/ are models trained with AdamW in fp32 as in make_golden.py. golden.json holds the tokens, the
losses, the gradient norms and the step after which fake quantization begins. The matrices of inputs_int8 are small, because
a value at the border of two integers may round either way, and the difference grows with each step. torchao's functions
that enable and disable fake quantization act on one layer. NeMo AutoModel calls them with the whole model, which has no
effect; this script calls them for each layer.
"""

import json
import pathlib
import shutil

import torch
from safetensors.torch import save_file
from torchao.quantization.qat import Int4WeightOnlyQATQuantizer, Int8DynActInt4WeightQATQuantizer
from torchao.quantization.qat.fake_quantizer import IntxFakeQuantizer
from torchao.quantization.qat.linear import (FakeQuantizedLinear, _get_4w_weight_config, _get_8da4w_activation_config,
                                             _get_8da4w_weight_config, enable_linear_fake_quant)

from make_golden import BATCH, SEQUENCE, STEPS, loss_sum, make_model

HERE = pathlib.Path(__file__).parent
WIDE = dict(model_type="llama", vocab_size=61, hidden_size=32, intermediate_size=96, num_hidden_layers=2,
            num_attention_heads=4, num_key_value_heads=2, head_dim=8, attention_bias=False, tie_word_embeddings=True)
ODD = dict(model_type="llama", vocab_size=67, hidden_size=18, intermediate_size=15, num_hidden_layers=2,
           num_attention_heads=3, num_key_value_heads=1, head_dim=8, attention_bias=True, mlp_bias=True,
           tie_word_embeddings=False)
SHORT = {torch.float32: "f32", torch.bfloat16: "bf16"}


def hard_rows(rows, columns, dtype):
    """Returns rows with both signs, zeros, tiny and large values."""
    x = torch.randn(rows, columns)
    x[0].abs_()
    x[1].abs_().neg_()
    x[2].zero_()
    x[3] *= 1e-9
    x[4] *= 300
    x[5] = 0.25
    return x.to(dtype)


def numbers():
    out = {}

    def add(name, quantizer, x):
        x = x.clone().requires_grad_(True)
        y = IntxFakeQuantizer(quantizer)(x)
        g = torch.randn_like(x)
        y.backward(g)
        out.update({f"{name}.x": x.detach(), f"{name}.g": g, f"{name}.y": y.detach(), f"{name}.dx": x.grad})

    for dtype, name in SHORT.items():
        add(f"tokens_{name}", _get_8da4w_activation_config(torch.float32), hard_rows(9, 30, dtype))
        for scales in (torch.float32, torch.bfloat16):
            add(f"symmetric_{name}_{SHORT[scales]}_10", _get_8da4w_weight_config(10, scales), hard_rows(9, 30, dtype))
        add(f"ranged_{name}_bf16_32", _get_4w_weight_config(32, torch.bfloat16), hard_rows(9, 64, dtype))
    return out


def switch(model, on):
    for module in model.modules():
        if isinstance(module, FakeQuantizedLinear):
            enable_linear_fake_quant(module, on)


def train(model, data, after):
    """Trains like train() of make_golden.py, with fake quantization from the step `after` on."""
    parameters = list(model.parameters())
    optimizer = torch.optim.AdamW(parameters, lr=1e-3, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1, foreach=False)
    losses, norms = [], []
    for step, tokens in enumerate(data):
        switch(model, step >= after)
        optimizer.zero_grad(set_to_none=True)
        loss = loss_sum(model, tokens)[0] / (BATCH * SEQUENCE)
        loss.backward()
        norms.append(float(torch.stack([p.grad.double().pow(2).sum() for p in parameters]).sum().sqrt()))
        torch.nn.utils.clip_grad_norm_(parameters, 1.0, foreach=False)
        optimizer.step()
        losses.append(float(loss))
    return losses, norms


def write(name, fields, factor, quantizer, after):
    model = make_model(fields, 7)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 2:
                parameter.mul_(factor)
    folder = HERE / "qat" / name
    model.save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    data = torch.randint(fields["vocab_size"], (STEPS, BATCH, SEQUENCE + 1))
    model = quantizer.prepare(model)
    losses, norms = train(model, data, after)
    changed = sum(isinstance(module, FakeQuantizedLinear) for module in model.modules())
    (folder / "golden.json").write_text(json.dumps({
        "batch": BATCH, "sequence": SEQUENCE, "tokens": data.flatten().tolist(), "loss": losses, "grad_norm": norms,
        "after": after, "layers": changed}))
    print(name, changed, losses, norms)


def main():
    torch.set_num_threads(1)
    torch.manual_seed(11)
    shutil.rmtree(HERE / "qat", ignore_errors=True)
    (HERE / "qat").mkdir()
    save_file({key: value.contiguous() for key, value in numbers().items()}, HERE / "qat" / "numbers.safetensors")
    inputs = Int8DynActInt4WeightQATQuantizer(groupsize=6, scales_precision=torch.bfloat16)
    write("inputs_int8", ODD, 0.2, inputs, 2)
    weights = Int4WeightOnlyQATQuantizer(groupsize=32, inner_k_tiles=2, precision=torch.float32)
    write("weights_int4", WIDE, 1, weights, 0)


if __name__ == "__main__":
    main()

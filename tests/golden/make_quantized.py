"""Makes the golden files of quantized/: tiny models with fp8 (block-wise) or mxfp4 weights, and their dequantized values.

Run by hand when a case is added (needs torch 2.11, transformers 5 and safetensors; no test runs it):

    python3 tests/golden/make_quantized.py

Each case is a folder with config.json (with quantization_config) and model.safetensors in the published format, and
plain.safetensors: the same model dequantized in float64 and rounded once to float32. Unquantized tensors are bfloat16 in
both files. The script fails unless transformers' functions return the same values.
"""

import json
import pathlib

import torch
from safetensors.torch import load_file, save_file
from transformers.integrations.finegrained_fp8 import Fp8Dequantize
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

HERE = pathlib.Path(__file__).parent
E2M1 = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]
E2M1 = torch.tensor(E2M1 + [-value for value in E2M1], dtype=torch.float64)
KEPT = ("norm.weight", "lm_head.weight", "embed_tokens.weight", "mlp.gate.weight")

GPT_OSS = dict(hidden_size=64, intermediate_size=32, num_hidden_layers=2, num_local_experts=4, num_experts_per_tok=2,
               layer_types=["sliding_attention", "full_attention"])


def to_fp8(weight, rows, columns, scale_dtype):
    """Returns the values and scales of blocks. A dimension's last block may be smaller. A block's maximum maps to 448."""
    height, width = weight.shape
    scales = torch.empty(-(-height // rows), -(-width // columns))
    wide = torch.empty(height, width, dtype=torch.float64)
    for i in range(scales.shape[0]):
        for j in range(scales.shape[1]):
            box = (slice(i * rows, (i + 1) * rows), slice(j * columns, (j + 1) * columns))
            scales[i, j] = weight[box].abs().max() / 448
    scales = scales.to(scale_dtype)
    for i in range(height):
        for j in range(width):
            wide[i, j] = scales[i // rows, j // columns].double()
    values = (weight.double() / wide).float().clamp(-448, 448).to(torch.float8_e4m3fn)
    return values, scales, (values.double() * wide).float()


def fp8_case(name, rows, columns):
    config = json.loads((HERE / name / "config.json").read_text())
    config["dtype"] = "bfloat16"
    config["quantization_config"] = {"activation_scheme": "dynamic", "fmt": "e4m3", "quant_method": "fp8",
                                     "weight_block_size": [rows, columns]}
    theirs = Fp8Dequantize(None)
    published, plain = {}, {}
    for file in sorted((HERE / name).glob("model*.safetensors")):
        for key, weight in load_file(file).items():
            if weight.dim() != 2 or key.endswith(KEPT):
                published[key] = plain[key] = weight if key.endswith("bias") and "correction" in key else weight.bfloat16()
                continue
            scale_dtype = torch.bfloat16 if "o_proj" in key else torch.float32
            values, scales, plain[key] = to_fp8(weight, rows, columns, scale_dtype)
            published[key], published[key + "_scale_inv"] = values, scales
            # transformers supports only whole blocks.
            tall, wide = scales.shape[0] * rows, scales.shape[1] * columns
            filled = torch.zeros(tall, wide).to(torch.float8_e4m3fn)
            filled[:values.shape[0], :values.shape[1]] = values
            other = theirs._dequantize_one(filled, scales.float(), torch.float32)
            assert torch.equal(other[:values.shape[0], :values.shape[1]], plain[key]), key
    write(name + "_fp8", config, published, plain)


def mxfp4_case():
    config = json.loads((HERE / "gpt_oss" / "config.json").read_text()) | GPT_OSS | {"dtype": "bfloat16"}
    config["quantization_config"] = {"modules_to_not_convert": ["model.layers.*.self_attn", "model.layers.*.mlp.router",
                                                                "model.embed_tokens", "lm_head"], "quant_method": "mxfp4"}
    from transformers import AutoConfig, AutoModelForCausalLM
    torch.manual_seed(7)
    keys = {key: value for key, value in config.items() if key not in ("quantization_config", "dtype")}
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(**keys), dtype=torch.float32)
    published, plain = {}, {}
    for key, weight in model.state_dict().items():
        if not key.endswith(("experts.gate_up_proj", "experts.down_proj")):
            published[key] = plain[key] = torch.empty_like(weight).normal_(0, 0.3).bfloat16()
            continue
        experts, inside, outside = weight.shape
        blocks = torch.randint(0, 256, (experts, outside, inside // 32, 16), dtype=torch.uint8)
        scales = torch.randint(120, 127, (experts, outside, inside // 32), dtype=torch.uint8)
        scales.view(-1)[0], scales.view(-1)[1] = 0, 3  # subnormal in bfloat16
        nibbles = torch.stack([blocks & 15, blocks >> 4], -1).flatten(-2).long()
        wide = E2M1[nibbles] * torch.exp2(scales.double() - 127).unsqueeze(-1)
        plain[key] = wide.flatten(-2).transpose(1, 2).contiguous().float()
        assert torch.equal(convert_moe_packed_tensors(blocks, scales, dtype=torch.float32), plain[key]), key
        assert torch.equal(convert_moe_packed_tensors(blocks, scales), plain[key].bfloat16()), key
        published[key + "_blocks"], published[key + "_scales"] = blocks, scales
    write("gpt_oss_mxfp4", config, published, plain)


def write(name, config, published, plain):
    folder = HERE / "quantized" / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    save_file({key: value.contiguous() for key, value in published.items()}, folder / "model.safetensors")
    save_file({key: value.contiguous() for key, value in plain.items()}, folder / "plain.safetensors")
    print(name, sum(file.stat().st_size for file in folder.iterdir()), "bytes")


if __name__ == "__main__":
    fp8_case("llama", 9, 10)
    fp8_case("llama_odd", 16, 24)
    fp8_case("deepseek_v3", 8, 7)
    mxfp4_case()

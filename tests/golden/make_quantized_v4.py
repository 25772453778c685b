"""Makes quantized/deepseek_v4_fp8/: a tiny DeepSeek-V4 with the keys, names and number formats of the published files.

Run by hand (needs torch 2.11, transformers 5.24 and safetensors; no test runs it):

    python3 tests/golden/make_quantized_v4.py

Layers are E4M3 with E8M0 block scales. Experts are fp4, two values per byte, with E8M0 scales per 32 columns. The scales of
M.weight are stored as M.scale. The folder has the format of make_quantized.py. The script fails unless transformers reads
the same values.
"""

import re

import torch
from transformers import AutoConfig, AutoModelForCausalLM, FineGrainedFP8Config

from make_quantized import E2M1, HERE, to_fp8, write

# The published config: the last ratio belongs to a multi-token prediction head, which is skipped.
CONFIG = dict(architectures=["DeepseekV4ForCausalLM"], model_type="deepseek_v4", dtype="bfloat16", vocab_size=61,
              hidden_size=32, moe_intermediate_size=32, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=1,
              head_dim=16, qk_rope_head_dim=8, q_lora_rank=24, o_groups=2, o_lora_rank=8, sliding_window=3, index_n_heads=8,
              index_head_dim=8, index_topk=1, compress_ratios=[0, 4, 128, 0], num_hash_layers=1, n_routed_experts=4,
              n_shared_experts=1, num_experts_per_tok=2, norm_topk_prob=True, scoring_func="sqrtsoftplus",
              topk_method="noaux_tc", routed_scaling_factor=1.5, swiglu_limit=10.0, hidden_act="silu", hc_mult=2,
              hc_sinkhorn_iters=4, hc_eps=1e-6, num_nextn_predict_layers=1, rms_norm_eps=1e-6, attention_bias=False,
              attention_dropout=0.0, max_position_embeddings=256, rope_theta=10000.0, compress_rope_theta=160000.0,
              rope_scaling={"type": "yarn", "factor": 4, "original_max_position_embeddings": 64, "beta_fast": 32,
                            "beta_slow": 1},
              bos_token_id=0, eos_token_id=1, tie_word_embeddings=False, initializer_range=0.3, expert_dtype="fp4",
              quantization_config={"activation_scheme": "dynamic", "fmt": "e4m3", "quant_method": "fp8", "scale_fmt": "ue8m0",
                                   "weight_block_size": [8, 8]})
# From transformers' module names.
NAMES = [("model.hc_head.hc_", "hc_head_"), ("model.embed_tokens.", "embed."), ("lm_head.", "head."), ("model.", ""),
         (".input_layernorm.", ".attn_norm."), (".post_attention_layernorm.", ".ffn_norm."), (".attn_hc.", ".hc_attn_"),
         (".ffn_hc.", ".hc_ffn_"), (".self_attn.", ".attn."), (".mlp.", ".ffn."),
         (".compressor.indexer.scorer.", ".indexer."), (".compressor.indexer.q_b_proj.", ".indexer.wq_b."),
         (".compressor.indexer.", ".indexer.compressor."), (".compressor.kv_norm.", ".compressor.norm."),
         (".position_bias", ".ape"), (".sinks", ".attn_sink"), (".q_a_proj.", ".wq_a."), (".q_b_proj.", ".wq_b."),
         (".q_a_norm.", ".q_norm."), (".o_a_proj.", ".wo_a."), (".o_b_proj.", ".wo_b."), ("attn.kv_proj.", "attn.wkv."),
         (".compressor.kv_proj.", ".compressor.wkv."), (".compressor.gate_proj.", ".compressor.wgate."),
         (".shared_experts.gate_proj.", ".shared_experts.w1."), (".shared_experts.up_proj.", ".shared_experts.w3."),
         (".shared_experts.down_proj.", ".shared_experts.w2."), (".e_score_correction_bias", ".bias")]
IN_FP8 = re.compile(r"\.(attn|attn\.indexer|ffn\.shared_experts)\.w(q_a|q_b|kv|o_a|o_b|1|2|3)\.weight$|^mtp\.")
IN_FP4 = re.compile(r"\.experts\.\d+\.w[123]\.weight$")
IN_FP32 = re.compile(r"(^|\.)hc_|\.ape$|\.attn_sink$|\.gate\.bias$")


def as_published(model):
    out = {}
    for name, tensor in model.state_dict().items():
        for theirs, published in NAMES:
            name = name.replace(theirs, published)
        if ".experts." not in name:
            out[name] = tensor
            continue
        layer = name[: name.index(".experts.")] + ".experts"
        for number, expert in enumerate(tensor):
            parts = {"w2": expert} if name.endswith("down_proj") else dict(zip(("w1", "w3"), expert.chunk(2)))
            out |= {f"{layer}.{number}.{part}.weight": weight for part, weight in parts.items()}
    return out


def to_fp4(weight):
    rows, columns = weight.shape
    values = torch.randint(-128, 128, (rows, columns // 2), dtype=torch.int8)
    scales = torch.randint(120, 127, (rows, columns // 32), dtype=torch.uint8)
    scales.view(-1)[0], scales.view(-1)[1] = 0, 3  # subnormal in bfloat16
    nibbles = torch.stack([values & 15, values >> 4 & 15], -1).flatten(1).long()
    wide = E2M1[nibbles].view(rows, -1, 32) * torch.exp2(scales.double() - 127).unsqueeze(-1)
    return values, scales.view(torch.float8_e8m0fnu), wide.flatten(1).float()


def blocks_of_powers(weight):
    """Returns a power-of-two scale per block, at least as large as the block's maximum requires."""
    values, scales, _ = to_fp8(weight, 8, 8, torch.float32)
    scales = torch.exp2(torch.ceil(torch.log2(scales)))
    wide = scales.double().repeat_interleave(8, 0).repeat_interleave(8, 1)
    values = (weight.double() / wide).float().to(torch.float8_e4m3fn)
    return values, scales.to(torch.float8_e8m0fnu), (values.double() * wide).float()


def main():
    torch.manual_seed(7)
    keys = {key: value for key, value in CONFIG.items() if key not in ("quantization_config", "dtype", "expert_dtype")}
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(**keys), dtype=torch.float32)
    with torch.no_grad():
        for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
            if name.endswith("tid2eid"):
                tensor.copy_(torch.rand(tensor.shape[0], CONFIG["n_routed_experts"]).argsort(1)[:, : tensor.shape[1]])
            elif name.endswith(("sinks", "position_bias", "base", "norm.weight", "correction_bias")):
                tensor.add_(0.1 * torch.randn_like(tensor))
    published, plain = {}, {}
    for name, weight in {**as_published(model), "mtp.0.e_proj.weight": torch.randn(32, 64)}.items():
        if IN_FP8.search(name) or IN_FP4.search(name):
            make = blocks_of_powers if IN_FP8.search(name) else to_fp4
            published[name], published[name.removesuffix("weight") + "scale"], plain[name] = make(weight)
        else:
            dtype = torch.int32 if name.endswith("tid2eid") else torch.float32 if IN_FP32.search(name) else torch.bfloat16
            published[name] = plain[name] = weight.to(dtype)
    write("deepseek_v4_fp8", CONFIG, published, plain)

    read = AutoModelForCausalLM.from_pretrained(HERE / "quantized/deepseek_v4_fp8", dtype=torch.float32,
                                                quantization_config=FineGrainedFP8Config(dequantize=True))
    theirs = as_published(read)
    assert theirs.keys() | {"mtp.0.e_proj.weight"} == plain.keys(), theirs.keys() ^ plain.keys()
    for name, tensor in theirs.items():
        assert torch.equal(tensor.float(), plain[name].float()), name


if __name__ == "__main__":
    main()

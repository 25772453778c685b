"""Makes kimi_k3/, kimi_k3_plain/ and quantized/kimi_k3_mxfp4/: tiny Kimi K3 text models, and the results of NeMo AutoModel.

transformers has no Kimi K3. AutoModel's layers are plain PyTorch except for the kernels of flash-linear-attention. This
script replaces those kernels by their definitions: a causal convolution with silu, a norm followed by a sigmoid gate, and
the delta rule token by token.

Run by hand (needs torch 2.11, transformers 5 and a checkout of NeMo AutoModel at 36044ad3; no test runs it):

    AUTOMODEL=path/to/Automodel python3 tests/golden/make_kimi_k3.py

The folders have the format of make_golden.py and make_quantized.py. Keys and tensors have the published names.
kimi_k3_plain/ also has the keys of the whole multimodal model, and a tensor of another part of that model.
"""

import importlib.machinery
import json
import os
import pathlib
import re
import shutil
import sys
import types

import torch
from safetensors.torch import load_file, save_file

from make_golden import BATCH, STEPS, train
from make_quantized import E2M1, write

HERE = pathlib.Path(__file__).parent
SEQUENCE = 70
FP32 = ("A_log", "dt_bias", "e_score_correction_bias")

COMMON = dict(vocab_size=61, hidden_size=28, intermediate_size=38, num_attention_heads=2, kv_lora_rank=9, qk_nope_head_dim=7,
              qk_rope_head_dim=5, v_head_dim=6, num_experts=6, num_experts_per_token=2, moe_intermediate_size=18,
              routed_expert_hidden_size=13, max_position_embeddings=256, rms_norm_eps=1e-2, initializer_range=0.3,
              hidden_act="situ", tie_word_embeddings=False, kda_use_fused_gate=False, dtype="float32")
DELTA = dict(head_dim=11, num_heads=3, short_conv_kernel_size=3)
CONFIGS = {
    # Blocks of two layers, the last of one layer; every feature beyond Kimi Linear, with limits that are reached.
    "kimi_k3": dict(**COMMON, num_hidden_layers=5, q_lora_rank=10, num_shared_experts=2, num_expert_group=3, topk_group=2,
                    routed_scaling_factor=1.7, attn_res_block_size=2, activation_situ_beta=0.8,
                    activation_situ_linear_beta=1.3, pad_token_id=3,
                    linear_attn_config=dict(**DELTA, kda_layers=[1, 2, 4], full_attn_layers=[3, 5], use_full_rank_gate=True,
                                            gate_lower_bound=-0.7)),
    # Other values of these keys.
    "kimi_k3_plain": dict(**COMMON, num_hidden_layers=4, q_lora_rank=None, num_shared_experts=None, moe_layer_freq=2,
                          moe_renormalize=False, moe_router_activation_func="softmax", latent_moe_use_norm=False,
                          mla_use_output_gate=False, attn_res_block_size=None, activation_situ_beta=None,
                          activation_situ_linear_beta=None, pad_token_id=None,
                          linear_attn_config=dict(**DELTA, kda_layers=[1, 3], full_attn_layers=[2, 4])),
}


class ShortConvolution(torch.nn.Module):
    def __init__(self, hidden_size, kernel_size, activation, dtype):
        super().__init__()
        assert activation == "silu"
        self.weight = torch.nn.Parameter(torch.empty(hidden_size, 1, kernel_size, dtype=dtype))

    def forward(self, x, **_):
        padded = torch.nn.functional.pad(x.transpose(1, 2), (self.weight.shape[2] - 1, 0))
        y = torch.nn.functional.conv1d(padded, self.weight, groups=x.shape[2])
        return torch.nn.functional.silu(y.transpose(1, 2)), None


class FusedRMSNormGated(torch.nn.Module):
    def __init__(self, hidden_size, eps, activation, dtype):
        super().__init__()
        assert activation == "sigmoid"
        self.eps = eps
        self.weight = torch.nn.Parameter(torch.ones(hidden_size, dtype=dtype))

    def forward(self, x, gate):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight * gate.sigmoid()


def chunk_kda(q, k, v, g, beta, **_):
    """Computes the delta rule. Tensors are [batch, tokens, heads, width]. The state is [batch, heads, key, value]."""
    unit = lambda x: x * torch.rsqrt(x.pow(2).sum(-1, keepdim=True) + 1e-6)
    q, k = unit(q) * q.shape[-1] ** -0.5, unit(k)
    state, out = q.new_zeros(*q.shape[0:1], *q.shape[2:], v.shape[-1]), []
    for t in range(q.shape[1]):
        state = state * g[:, t].exp().unsqueeze(-1)
        error = (v[:, t] - (k[:, t].unsqueeze(-1) * state).sum(-2)) * beta[:, t].unsqueeze(-1)
        state = state + k[:, t].unsqueeze(-1) * error.unsqueeze(-2)
        out.append((q[:, t].unsqueeze(-1) * state).sum(-2))
    return torch.stack(out, 1), None


def with_definitions():
    """Installs the definitions above in place of the kernels that AutoModel imports."""
    modules = {"fla": {}, "fla.ops": {}, "fla.modules": dict(ShortConvolution=ShortConvolution, FusedRMSNormGated=FusedRMSNormGated),
               "fla.ops.kda": dict(chunk_kda=chunk_kda, fused_recurrent_kda=chunk_kda),
               "fla.ops.kda.gate": dict(fused_kda_gate=lambda g, a_log, dt_bias: None)}
    for name, members in modules.items():
        module = types.ModuleType(name)
        module.__spec__ = importlib.machinery.ModuleSpec(name, None, is_package=True)
        vars(module).update(members, __path__=[])
        sys.modules[name] = module
    sys.path.insert(0, os.environ["AUTOMODEL"])


class Output:
    def __init__(self, logits):
        self.logits = logits


class Model(torch.nn.Module):
    """AutoModel's KimiK3ForCausalLM in fp32, with files in the published names."""

    def __init__(self, keys):
        super().__init__()
        with_definitions()
        from nemo_automodel.components.models.common import BackendConfig
        from nemo_automodel.components.models.kimi_k3.config import KimiK3TextConfig
        from nemo_automodel.components.models.kimi_k3.model import KimiK3ForCausalLM

        keys = dict(keys.get("text_config", keys))
        self.config = KimiK3TextConfig(**{key: keys[key] for key in keys if key not in ("model_type", "architectures")})
        self.config.torch_dtype = torch.float32
        backend = BackendConfig(attn="eager", linear="torch", rms_norm="torch_fp32", experts="torch", dispatcher="torch",
                                rope_fusion=False, enable_hf_state_dict_adapter=True)
        self.own = KimiK3ForCausalLM(self.config, backend=backend)

    def forward(self, tokens, use_cache=False):
        out = self.own(tokens)
        return Output(out if torch.is_tensor(out) else out.logits)

    def files(self):
        return {name: value.clone().contiguous() for name, value in self.own.state_dict_adapter.to_hf(self.own.state_dict()).items()}

    def load(self, file):
        values = {name: value for name, value in load_file(file).items() if not name.startswith("vision_tower")}
        assert values.keys() == self.files().keys(), values.keys() ^ self.files().keys()
        self.own.load_state_dict(self.own.state_dict_adapter.from_hf(values))


def make_model(keys, seed):
    torch.manual_seed(seed)
    model = Model(keys)
    with torch.no_grad():
        for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
            # Normalizing small heads amplifies rounding errors, so the taps and rms_norm_eps are larger.
            std = 0.1 if tensor.dim() == 1 else 0.9 if tensor.dim() == 3 and "conv1d" in name else 0.2
            tensor.copy_(torch.randn_like(tensor) * std)
            if name.endswith("norm.weight"):
                tensor.add_(1)
            if name.endswith("A_log"):
                tensor.copy_(torch.log(0.01 + 0.3 * torch.rand_like(tensor)))
    return model.train()


def mxfp4_case():
    """Packs experts in mxfp4 as compressed-tensors does. AutoModel's function must return the same values."""
    keys = {**CONFIGS["kimi_k3"], "num_hidden_layers": 3, "routed_expert_hidden_size": 64, "moe_intermediate_size": 32,
            "dtype": "bfloat16", "linear_attn_config": {**CONFIGS["kimi_k3"]["linear_attn_config"], "kda_layers": [1, 2],
                                                        "full_attn_layers": [3]}}
    model = make_model(keys, 5100)
    from nemo_automodel.components.models.kimi_k3.state_dict_adapter import dequantize_mxfp4

    published, plain = {}, {}
    for key, weight in model.files().items():
        if not re.search(r"experts\.\d+\.w[123]\.weight$", key):
            published[key] = plain[key] = weight if key.endswith(FP32) else weight.bfloat16()
            continue
        out, inside = weight.shape
        packed = torch.randint(0, 256, (out, inside // 2), dtype=torch.uint8)
        scales = torch.randint(120, 127, (out, inside // 32), dtype=torch.uint8)
        nibbles = torch.stack([packed & 15, packed >> 4], -1).flatten(1).long()
        wide = E2M1[nibbles].view(out, inside // 32, 32) * torch.exp2(scales.double() - 127).unsqueeze(-1)
        plain[key] = wide.flatten(1).float()
        assert torch.equal(dequantize_mxfp4(packed, scales, torch.float32), plain[key]), key
        published[key + "_packed"], published[key + "_scale"] = packed, scales
    quantization = {"quant_method": "compressed-tensors", "format": "mxfp4-pack-quantized"}
    text = {"architectures": ["KimiK3ForCausalLM"], "model_type": "kimi_linear", **keys, "quantization_config": quantization}
    write("kimi_k3_mxfp4", {"architectures": ["KimiK3ForConditionalGeneration"], "model_type": "kimi_k3", "text_config": text},
          published, plain)


def main():
    torch.set_num_threads(1)
    for number, (name, keys) in enumerate(CONFIGS.items()):
        if sys.argv[1:] and name not in sys.argv[1:]:
            continue
        folder = HERE / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        model = make_model(keys, 5000 + number)
        config = {"architectures": ["KimiK3ForCausalLM"], "model_type": "kimi_linear", **keys}
        files = model.files()
        if name == "kimi_k3_plain":
            config = {"architectures": ["KimiK3ForConditionalGeneration"], "model_type": "kimi_k3", "text_config": config}
            files["vision_tower.patch_embed.proj.weight"] = torch.zeros(2, 3)
        (folder / "config.json").write_text(json.dumps(config, indent=1))
        save_file(files, folder / "model.safetensors", metadata={"format": "pt"})
        data = torch.randint(keys["vocab_size"], (STEPS, BATCH, SEQUENCE + 1))
        losses, _, norms, _ = train(model, data)
        golden = {"batch": BATCH, "sequence": SEQUENCE, "tokens": data.flatten().tolist(), "loss": losses, "grad_norm": norms}
        (folder / "golden.json").write_text(json.dumps(golden))
        print(name, losses[0], losses[-1], norms[0])
    if not sys.argv[1:] or "mxfp4" in sys.argv[1:]:
        mxfp4_case()


if __name__ == "__main__":
    main()

"""Makes the golden files of step3p5. transformers has its layers (the text of Step-3.7), but no model with a head.

Run by hand (needs torch 2.11 and transformers 5; no test runs it):

    python3 tests/golden/make_step.py

The folder has the format of make_golden.py. Keys and tensors have the published names.
"""

import json
import re
import shutil

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from transformers import Step3p7TextConfig
from transformers.models.step3p7.modeling_step3p7 import Step3p7TextModel

from make_golden import BATCH, HERE, SEQUENCE, STEPS, train

LLAMA3_ROPE = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
               "original_max_position_embeddings": 16}
FULL, SLIDING = "full_attention", "sliding_attention"
# Heads, windows and RoPE that differ by layer, gate limits that are reached, config entries beyond the last layer.
CONFIG = dict(model_type="step3p5", architectures=["Step3p5ForCausalLM"], vocab_size=61, hidden_size=28,
              intermediate_size=38, num_hidden_layers=4, num_attention_heads=4, num_attention_groups=2, head_dim=12,
              max_position_embeddings=256, pad_token_id=1, rms_norm_eps=1e-5, tie_word_embeddings=False,
              layer_types=[FULL, SLIDING, SLIDING, FULL, SLIDING], sliding_window=5,
              attention_other_setting={"attention_type": SLIDING, "num_attention_heads": 6, "num_attention_groups": 2,
                                       "head_dim": 12},
              rope_theta=[5000.0, 100.0, 100.0, 5000.0, 100.0], partial_rotary_factors=[0.5, 1.0, 1.0, 0.5, 1.0],
              rope_scaling=LLAMA3_ROPE, yarn_only_types=[FULL], use_head_wise_attn_gate=True, use_qk_norm=True,
              moe_layers_enum="1,2,3", moe_num_experts=6, moe_top_k=2, moe_intermediate_size=18, share_expert_dim=14,
              moe_router_activation="sigmoid", moe_router_scaling_factor=1.7, norm_expert_weight=True,
              use_moe_router_bias=True, need_fp32_gate=True, swiglu_limits=[0.0, 0.0, 0.4, None, 0.0],
              swiglu_limits_shared=[0.5, 0.0, 0.3, None, 0.0], num_nextn_predict_layers=1, dtype="float32")


class Output:
    def __init__(self, logits):
        self.logits = logits


class Model(torch.nn.Module):
    """Step-3.7's text model with a head. named() maps published names to the tensors of files."""

    def __init__(self, keys):
        super().__init__()
        keys = {key: value for key, value in keys.items() if key not in ("model_type", "architectures")}
        config = Step3p7TextConfig(**keys)
        config._attn_implementation = "eager"
        self.model = Step3p7TextModel(config).float()
        self.lm_head = torch.nn.Linear(config.hidden_size, config.vocab_size, bias=False)

    def forward(self, tokens, use_cache=False):
        return Output(self.lm_head(self.model(tokens, use_cache=use_cache).last_hidden_state))

    def named(self):
        """Returns [(published name, tensor of the module, rows or None), ...]."""
        out = []
        for name, tensor in [*self.named_parameters(), *self.named_buffers()]:
            sparse = name.replace(".mlp.", ".moe.") if re.search(r"\.mlp\.(experts|gate)\b", name) else name
            if name.endswith("inv_freq"):
                continue
            if name.endswith("experts.gate_up_proj"):
                width = tensor.shape[1] // 2
                out.append((sparse.replace("experts.gate_up_proj", "gate_proj.weight"), tensor, slice(0, width)))
                out.append((sparse.replace("experts.gate_up_proj", "up_proj.weight"), tensor, slice(width, None)))
                continue
            sparse = sparse.replace(".moe.experts.down_proj", ".moe.down_proj.weight").replace("gate.e_score_correction_bias", "router_bias")
            out.append((sparse.replace(".mlp.shared_experts.", ".share_expert."), tensor, None))
        return out

    def save(self, file):
        save_file({name: (tensor if rows is None else tensor[:, rows]).detach().clone().contiguous()
                   for name, tensor, rows in self.named()}, file, metadata={"format": "pt"})

    def load(self, file):
        with safe_open(file, "pt") as values, torch.no_grad():
            names = set(values.keys())
            for name, tensor, rows in self.named():
                (tensor if rows is None else tensor[:, rows]).copy_(values.get_tensor(name))
                names.discard(name)
        assert not names, f"unknown tensors: {names}"


def main():
    torch.set_num_threads(1)
    folder = HERE / "step3p5"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    torch.manual_seed(3001)
    model = Model(CONFIG)
    with torch.no_grad():
        for _, tensor, _ in model.named():
            tensor.copy_(0.1 * torch.randn_like(tensor) if tensor.dim() == 1 else 0.25 * torch.randn_like(tensor))
    model.save(folder / "model.safetensors")
    data = torch.randint(CONFIG["vocab_size"], (STEPS, BATCH, SEQUENCE + 1))
    model.config = model.model.config
    losses, _, norms, _ = train(model.train(), data)
    (folder / "config.json").write_text(json.dumps(CONFIG, indent=1))
    (folder / "golden.json").write_text(json.dumps({"batch": BATCH, "sequence": SEQUENCE, "tokens": data.flatten().tolist(),
                                                    "loss": losses, "grad_norm": norms}))
    print(losses[0], losses[-1], norms[0])


if __name__ == "__main__":
    main()

"""Makes bailing_moe/: a tiny Ling 2.0 model, its files, and the results of a plain PyTorch implementation.

transformers has no bailing_moe. The model follows the published definition of BailingMoeV2: grouped-query attention with one
projection for q, k and v, a norm per head, RoPE on half of each head, dense layers first, then shared experts and a sigmoid
router whose correction bias selects experts in groups but does not affect the routing weights.

Run by hand (needs torch 2.11; no test runs it):

    python3 tests/golden/make_bailing.py

The folder has the format of make_golden.py.
"""

import json
import math
import pathlib
import shutil

import torch
from safetensors.torch import save_file
from torch.nn.functional import embedding, linear, silu, softmax

from make_golden import BATCH, SEQUENCE, STEPS, train

HERE = pathlib.Path(__file__).parent
CONFIG = dict(architectures=["BailingMoeV2ForCausalLM"], model_type="bailing_moe", vocab_size=61, hidden_size=30,
              intermediate_size=44, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2, head_dim=12,
              hidden_act="silu", use_qkv_bias=True, use_bias=True, use_qk_norm=True, rms_norm_eps=1e-6, rope_theta=600000.0,
              rope_scaling=None, partial_rotary_factor=0.5, max_position_embeddings=256, initializer_range=0.3,
              tie_word_embeddings=False, pad_token_id=None, num_experts=6, num_experts_per_tok=3, num_shared_experts=2,
              moe_intermediate_size=18, n_group=3, topk_group=2, routed_scaling_factor=2.5, first_k_dense_replace=1,
              score_function="sigmoid", norm_topk_prob=True, moe_router_enable_expert_bias=True, router_dtype="fp32",
              dtype="float32")


def shapes(c):
    heads, kv, dim, hidden = c["num_attention_heads"], c["num_key_value_heads"], c["head_dim"], c["hidden_size"]
    out = {"model.word_embeddings.weight": (c["vocab_size"], hidden), "model.norm.weight": (hidden,),
           "lm_head.weight": (c["vocab_size"], hidden)}

    def mlp(name, width):
        out.update({f"{name}.gate_proj.weight": (width, hidden), f"{name}.up_proj.weight": (width, hidden),
                    f"{name}.down_proj.weight": (hidden, width)})

    for layer in range(c["num_hidden_layers"]):
        at = f"model.layers.{layer}"
        out.update({f"{at}.input_layernorm.weight": (hidden,), f"{at}.post_attention_layernorm.weight": (hidden,),
                    f"{at}.attention.query_key_value.weight": ((heads + 2 * kv) * dim, hidden),
                    f"{at}.attention.query_key_value.bias": ((heads + 2 * kv) * dim,),
                    f"{at}.attention.dense.weight": (hidden, heads * dim), f"{at}.attention.dense.bias": (hidden,),
                    f"{at}.attention.query_layernorm.weight": (dim,), f"{at}.attention.key_layernorm.weight": (dim,)})
        if layer < c["first_k_dense_replace"]:
            mlp(f"{at}.mlp", c["intermediate_size"])
            continue
        out[f"{at}.mlp.gate.weight"] = (c["num_experts"], hidden)
        mlp(f"{at}.mlp.shared_experts", c["moe_intermediate_size"] * c["num_shared_experts"])
        for expert in range(c["num_experts"]):
            mlp(f"{at}.mlp.experts.{expert}", c["moe_intermediate_size"])
    return out


class Bailing:
    """The model as a function of named tensors."""

    def __init__(self, c, seed):
        self.c = c
        torch.manual_seed(seed)
        self.p = {}
        for name, shape in shapes(c).items():
            value = torch.randn(shape) * (0.3 if len(shape) > 1 else 0.1)
            if "norm" in name:
                value += 1
            self.p[name] = value.requires_grad_(True)
        sparse = range(c["first_k_dense_replace"], c["num_hidden_layers"])
        self.bias = {f"model.layers.{layer}.mlp.gate.expert_bias": 0.1 * torch.randn(c["num_experts"]) for layer in sparse}

    def parameters(self):
        return list(self.p.values())

    def named_parameters(self):
        return list(self.p.items())

    def norm(self, x, name):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.c["rms_norm_eps"]) * self.p[name]

    def rotated(self, x):
        """Applies RoPE to half of each head of x, [batch, heads, tokens, head_dim]."""
        dim = int(self.c["head_dim"] * self.c["partial_rotary_factor"])
        turns = torch.arange(x.shape[2]).float()[:, None] / self.c["rope_theta"] ** (torch.arange(0, dim, 2).float() / dim)
        cos, sin = turns.cos(), turns.sin()
        low, high, rest = x.split([dim // 2, dim // 2, x.shape[-1] - dim], -1)
        return torch.cat([low * cos - high * sin, high * cos + low * sin, rest], -1)

    def attention(self, x, at):
        c, p = self.c, self.p
        heads, kv, dim = c["num_attention_heads"], c["num_key_value_heads"], c["head_dim"]
        all_heads = linear(x, p[f"{at}.query_key_value.weight"], p[f"{at}.query_key_value.bias"])
        q, k, v = all_heads.view(*x.shape[:2], heads + 2 * kv, dim).transpose(1, 2).split([heads, kv, kv], 1)
        q = self.rotated(self.norm(q, f"{at}.query_layernorm.weight"))
        k = self.rotated(self.norm(k, f"{at}.key_layernorm.weight")).repeat_interleave(heads // kv, 1)
        scores = q @ k.transpose(2, 3) / math.sqrt(dim)
        future = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
        y = softmax(scores.masked_fill(future, float("-inf")), -1) @ v.repeat_interleave(heads // kv, 1)
        return linear(y.transpose(1, 2).flatten(2), p[f"{at}.dense.weight"], p[f"{at}.dense.bias"])

    def mlp(self, x, at):
        gate, up, down = (self.p[f"{at}.{name}_proj.weight"] for name in ("gate", "up", "down"))
        return linear(silu(linear(x, gate)) * linear(x, up), down)

    def weights(self, x, at):
        """Returns the routing weights [tokens, experts], 0 for unselected experts."""
        c = self.c
        scores = linear(x, self.p[f"{at}.gate.weight"]).sigmoid()
        choosing = (scores + self.bias[f"{at}.gate.expert_bias"]).detach()
        grouped = choosing.view(len(x), c["n_group"], -1)
        best = grouped.topk(2, -1).values.sum(-1).topk(c["topk_group"], -1).indices
        closed = torch.ones(len(x), c["n_group"], dtype=torch.bool).scatter(1, best, False)
        chosen = grouped.masked_fill(closed[..., None], float("-inf")).flatten(1).topk(c["num_experts_per_tok"], -1).indices
        kept = torch.zeros_like(scores).scatter(1, chosen, 1.0) * scores
        return kept / (kept.sum(-1, keepdim=True) + 1e-20) * c["routed_scaling_factor"]

    def feed_forward(self, x, layer):
        at = f"model.layers.{layer}.mlp"
        if layer < self.c["first_k_dense_replace"]:
            return self.mlp(x, at)
        rows = x.flatten(0, 1)
        y, weights = self.mlp(rows, f"{at}.shared_experts"), self.weights(rows, at)
        for expert in range(self.c["num_experts"]):
            y = y + weights[:, expert, None] * self.mlp(rows, f"{at}.experts.{expert}")
        return y.view_as(x)

    def __call__(self, tokens, use_cache):
        x = embedding(tokens, self.p["model.word_embeddings.weight"])
        for layer in range(self.c["num_hidden_layers"]):
            at = f"model.layers.{layer}"
            x = x + self.attention(self.norm(x, f"{at}.input_layernorm.weight"), f"{at}.attention")
            x = x + self.feed_forward(self.norm(x, f"{at}.post_attention_layernorm.weight"), layer)
        self.logits = linear(self.norm(x, "model.norm.weight"), self.p["lm_head.weight"])
        return self


def main():
    torch.set_num_threads(1)
    folder = HERE / "bailing_moe"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    model = Bailing(CONFIG, 3000)
    (folder / "config.json").write_text(json.dumps(CONFIG, indent=2))
    tensors = {**{name: value.detach().clone() for name, value in model.p.items()}, **model.bias}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    data = torch.randint(CONFIG["vocab_size"], (STEPS, BATCH, SEQUENCE + 1))
    losses, _, norms, _ = train(model, data)
    golden = {"batch": BATCH, "sequence": SEQUENCE, "tokens": data.flatten().tolist(), "loss": losses, "grad_norm": norms}
    (folder / "golden.json").write_text(json.dumps(golden))
    print(losses[0], losses[-1], norms[0])


if __name__ == "__main__":
    main()

"""Makes baichuan/: a tiny Baichuan 2 model, its files, and the results of a plain PyTorch implementation.

transformers has no Baichuan. The model follows the published definition of Baichuan2-7B: one projection W_pack for q, k and
v without grouped heads, Llama's RoPE, RMS norms, a gated MLP, and a head with row-normalized weights.

Run by hand (needs torch 2.11; no test runs it):

    python3 tests/golden/make_baichuan.py

The folder has the format of make_golden.py.
"""

import json
import pathlib
import shutil

import torch
from safetensors.torch import save_file
from torch.nn.functional import linear, normalize, scaled_dot_product_attention, silu

from make_golden import BATCH, SEQUENCE, STEPS, train

HERE = pathlib.Path(__file__).parent
CONFIG = dict(architectures=["BaichuanForCausalLM"], model_type="baichuan", vocab_size=61, hidden_size=24,
              intermediate_size=38, num_hidden_layers=2, num_attention_heads=4, hidden_act="silu", rms_norm_eps=1e-6,
              max_position_embeddings=256, model_max_length=256, initializer_range=0.3, tie_word_embeddings=False,
              pad_token_id=0, z_loss_weight=0, dtype="float32")


def shapes():
    hidden, inner = CONFIG["hidden_size"], CONFIG["intermediate_size"]
    out = {"model.embed_tokens.weight": (CONFIG["vocab_size"], hidden), "model.norm.weight": (hidden,),
           "lm_head.weight": (CONFIG["vocab_size"], hidden)}
    for layer in range(CONFIG["num_hidden_layers"]):
        at = f"model.layers.{layer}"
        out |= {f"{at}.self_attn.W_pack.weight": (3 * hidden, hidden), f"{at}.self_attn.o_proj.weight": (hidden, hidden),
                f"{at}.mlp.gate_proj.weight": (inner, hidden), f"{at}.mlp.up_proj.weight": (inner, hidden),
                f"{at}.mlp.down_proj.weight": (hidden, inner), f"{at}.input_layernorm.weight": (hidden,),
                f"{at}.post_attention_layernorm.weight": (hidden,)}
    return out


def rms(x, weight):
    return weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + CONFIG["rms_norm_eps"]))


def turned(x):
    """Rotates the pairs (i, i + dim / 2) of x, [rows, heads, sequence, dim]."""
    half = x.shape[-1] // 2
    frequencies = 1 / 10000.0 ** (torch.arange(half).float() / half)
    angles = torch.arange(x.shape[2]).float()[:, None] * frequencies
    first, second = x[..., :half], x[..., half:]
    return torch.cat([first * angles.cos() - second * angles.sin(), second * angles.cos() + first * angles.sin()], -1)


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.names = list(shapes())
        values = [torch.ones(shape) if len(shape) == 1 else CONFIG["initializer_range"] * torch.randn(shape)
                  for shape in shapes().values()]
        self.values = torch.nn.ParameterList([v + 0.1 * torch.randn(v.shape) if v.dim() == 1 else v for v in values])

    def named(self):
        return dict(zip(self.names, self.values))

    def attention(self, x, at, weights):
        rows, length, hidden = x.shape
        heads = CONFIG["num_attention_heads"]
        q, k, v = (part.view(rows, length, heads, -1).transpose(1, 2)
                   for part in linear(x, weights[f"{at}.W_pack.weight"]).split(hidden, -1))
        y = scaled_dot_product_attention(turned(q), turned(k), v, is_causal=True)
        return linear(y.transpose(1, 2).reshape(rows, length, hidden), weights[f"{at}.o_proj.weight"])

    def forward(self, tokens, use_cache=False):
        w = self.named()
        x = torch.nn.functional.embedding(tokens, w["model.embed_tokens.weight"], CONFIG["pad_token_id"])
        for layer in range(CONFIG["num_hidden_layers"]):
            at = f"model.layers.{layer}"
            x = x + self.attention(rms(x, w[f"{at}.input_layernorm.weight"]), f"{at}.self_attn", w)
            y = rms(x, w[f"{at}.post_attention_layernorm.weight"])
            gate, up = linear(y, w[f"{at}.mlp.gate_proj.weight"]), linear(y, w[f"{at}.mlp.up_proj.weight"])
            x = x + linear(silu(gate) * up, w[f"{at}.mlp.down_proj.weight"])
        logits = linear(rms(x, w["model.norm.weight"]), normalize(w["lm_head.weight"]))
        return type("Output", (), {"logits": logits})


def main():
    torch.set_num_threads(1)
    torch.manual_seed(77)
    model = Model()
    folder = HERE / "baichuan"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG, indent=2) + "\n")
    save_file({name: p.detach().clone() for name, p in model.named().items()}, folder / "model.safetensors",
              metadata={"format": "pt"})
    data = torch.randint(CONFIG["vocab_size"], (STEPS, BATCH, SEQUENCE + 1))
    losses, _, norms, _ = train(model, data)
    golden = {"batch": BATCH, "sequence": SEQUENCE, "tokens": data.flatten().tolist(), "loss": losses, "grad_norm": norms}
    (folder / "golden.json").write_text(json.dumps(golden))
    print(losses[0], losses[-1], norms[0])


if __name__ == "__main__":
    main()

"""Makes nemotron_nas/: a tiny DeciLM (nemotron-nas), its files, and the results of transformers' Llama with changed layers.

transformers has no nemotron-nas. block_configs gives each layer its number of key heads or no attention, and an MLP of
width 2 / 3 * ffn_mult * hidden_size, rounded up to a multiple of 256, or no MLP. A layer without attention or MLP also lacks
the block's norm and residual.

Run by hand (needs torch 2.11 and transformers 5; no test runs it):

    python3 tests/golden/make_nas.py

The folder has the format of make_golden.py.
"""

import copy
import json
import pathlib
import shutil

import torch
from safetensors.torch import save_file
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.models.llama.modeling_llama import LlamaAttention, LlamaMLP

from make_golden import BATCH, LLAMA3_ROPE, SEQUENCE, STEPS, train

HERE = pathlib.Path(__file__).parent
HEADS, HIDDEN = 4, 24


def block(group, ffn_mult):
    return {"attention": {"n_heads_in_group": group, "no_op": group is None, "num_sink_tokens": None, "replace_with_linear": False,
                          "sparsify": None, "unshifted_sink": False, "use_prefill_window_in_sink_attention": False,
                          "window_length": None},
            "ffn": {"ffn_mult": ffn_mult, "no_op": ffn_mult is None, "replace_with_linear": False, "sparsify": None}}


BLOCKS = [block(2, 0.5), block(None, 16.5), block(1, None), block(2, 16.0)]
COMMON = dict(vocab_size=61, hidden_size=HIDDEN, num_hidden_layers=len(BLOCKS), num_attention_heads=HEADS, rms_norm_eps=1e-5,
              max_position_embeddings=256, initializer_range=0.3, tie_word_embeddings=False)


def width(ffn_mult):
    exact = int(2 * ffn_mult * HIDDEN / 3)
    return exact if exact % 256 == 0 else exact + 256 - exact % 256


class Nothing(torch.nn.Module):
    def __init__(self, outputs):
        super().__init__()
        self.outputs = outputs

    def forward(self, hidden_states, **_):
        return (torch.zeros_like(hidden_states), None) if self.outputs == 2 else torch.zeros_like(hidden_states)


def make_model():
    torch.manual_seed(4000)
    config = LlamaConfig(**COMMON, intermediate_size=8, num_key_value_heads=HEADS, rope_parameters=LLAMA3_ROPE)
    model = LlamaForCausalLM(config)
    for number, (layer, one) in enumerate(zip(model.model.layers, BLOCKS)):
        own = copy.deepcopy(config)
        if one["attention"]["no_op"]:
            layer.self_attn, layer.input_layernorm = Nothing(2), torch.nn.Identity()
        else:
            own.num_key_value_heads = HEADS // one["attention"]["n_heads_in_group"]
            layer.self_attn = LlamaAttention(own, number)
        if one["ffn"]["no_op"]:
            layer.mlp, layer.post_attention_layernorm = Nothing(1), torch.nn.Identity()
        else:
            own.intermediate_size = width(one["ffn"]["ffn_mult"])
            layer.mlp = LlamaMLP(own)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(torch.randn_like(parameter) * (0.3 if parameter.dim() > 1 else 0.1))
            if parameter.dim() == 1:
                parameter.add_(1)
    return model.train()


def main():
    torch.set_num_threads(1)
    folder = HERE / "nemotron_nas"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    config = {"architectures": ["DeciLMForCausalLM"], "model_type": "nemotron-nas", **COMMON, "attention_bias": False,
              "mlp_bias": False, "attention_dropout": 0.0, "hidden_act": "silu", "intermediate_size": None,
              "num_key_value_heads": None, "rope_theta": LLAMA3_ROPE["rope_theta"], "block_configs": BLOCKS, "dtype": "float32",
              "rope_scaling": {key: value for key, value in LLAMA3_ROPE.items() if key != "rope_theta"}}
    (folder / "config.json").write_text(json.dumps(config, indent=2))
    model = make_model()
    save_file({name: value.detach().clone() for name, value in model.named_parameters()}, folder / "model.safetensors",
              metadata={"format": "pt"})
    data = torch.randint(COMMON["vocab_size"], (STEPS, BATCH, SEQUENCE + 1))
    losses, _, norms, _ = train(model, data)
    golden = {"batch": BATCH, "sequence": SEQUENCE, "tokens": data.flatten().tolist(), "loss": losses, "grad_norm": norms}
    (folder / "golden.json").write_text(json.dumps(golden))
    print(losses[0], losses[-1], norms[0])


if __name__ == "__main__":
    main()

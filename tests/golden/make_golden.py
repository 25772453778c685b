"""Makes the golden files of this folder: tiny Hugging Face models, token data, and what transformers computes.

Run by hand when a case is added (needs torch 2.11 and transformers 5; no test runs it):

    python3 tests/golden/make_golden.py

Each case is a folder with config.json, the weights as safetensors, and golden.json: the tokens (12 steps, each
`batch` rows of `sequence` + 1), and per step the loss (sum of token losses / labels) and the gradient norm before
clipping, of AdamW in fp32 (lr 1e-3, betas 0.9 0.95, eps 1e-8, decay 0.1 on every parameter, clip 1.0).
gradients.safetensors and final.safetensors (one case) hold step 0's gradients and the parameters at the end.
"""

import json
import math
import pathlib
import shutil

import torch
from safetensors.torch import save_file
from transformers import AutoConfig, AutoModelForCausalLM

HERE = pathlib.Path(__file__).parent
STEPS, BATCH, SEQUENCE = 12, 2, 17

LLAMA3_ROPE = {"rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0,
               "high_freq_factor": 4.0, "original_max_position_embeddings": 64}

CASES = {
    # Grouped heads; the case whose gradients and final parameters are kept.
    "llama": dict(model_type="llama", vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
                  num_attention_heads=4, num_key_value_heads=2),
    # Sizes that divide by nothing, biases everywhere, llama3 scaling, sharded weights.
    "llama_odd": dict(model_type="llama", vocab_size=131, hidden_size=42, intermediate_size=57, num_hidden_layers=3,
                      num_attention_heads=3, num_key_value_heads=1, head_dim=24, attention_bias=True, mlp_bias=True,
                      rope_parameters=LLAMA3_ROPE),
    "llama_tied": dict(model_type="llama", vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
                       num_attention_heads=4, num_key_value_heads=4, tie_word_embeddings=True, pad_token_id=5,
                       rope_parameters={"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0}),
    "qwen2": dict(model_type="qwen2", vocab_size=67, hidden_size=32, intermediate_size=44, num_hidden_layers=2,
                  num_attention_heads=4, num_key_value_heads=2),
    "qwen2_tied": dict(model_type="qwen2", vocab_size=64, hidden_size=36, intermediate_size=50, num_hidden_layers=2,
                       num_attention_heads=6, num_key_value_heads=3, tie_word_embeddings=True,
                       rope_parameters={"rope_type": "default", "rope_theta": 1000000.0}),
    "qwen3": dict(model_type="qwen3", vocab_size=131, hidden_size=40, intermediate_size=56, num_hidden_layers=2,
                  num_attention_heads=3, num_key_value_heads=1, head_dim=24),
    "qwen3_tied": dict(model_type="qwen3", vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
                       num_attention_heads=4, num_key_value_heads=2, head_dim=16, attention_bias=True,
                       tie_word_embeddings=True),
}
KEEP_TENSORS = "llama"
SHARDED = "llama_odd"


def loss_sum(model, tokens):
    logits = model(tokens[:, :-1], use_cache=False).logits.float()
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten(), reduction="sum")


def make_model(fields, seed):
    torch.manual_seed(seed)
    fields = dict(fields)
    config = AutoConfig.for_model(fields.pop("model_type"), **fields, initializer_range=0.3, max_position_embeddings=256)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    with torch.no_grad():  # norms and biases start at 1 and 0: make them tell
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.add_(0.1 * torch.randn_like(parameter))
    return model.train()


def train(model, data):
    parameters = list(model.parameters())
    optimizer = torch.optim.AdamW(parameters, lr=1e-3, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1, foreach=False)
    losses, norms, first_gradients = [], [], {}
    for tokens in data:
        optimizer.zero_grad(set_to_none=True)
        loss = loss_sum(model, tokens) / (BATCH * SEQUENCE)
        loss.backward()
        if not first_gradients:
            first_gradients = {name: p.grad.clone() for name, p in model.named_parameters()}
        norms.append(math.sqrt(sum(float(p.grad.double().pow(2).sum()) for p in parameters)))
        torch.nn.utils.clip_grad_norm_(parameters, 1.0, foreach=False)
        optimizer.step()
        losses.append(float(loss))
    return losses, norms, first_gradients


def main():
    torch.set_num_threads(1)
    for number, (name, fields) in enumerate(CASES.items()):
        folder = HERE / name
        shutil.rmtree(folder, ignore_errors=True)
        model = make_model(fields, 1000 + number)
        model.save_pretrained(folder, **({"max_shard_size": "40KB"} if name == SHARDED else {}))
        data = torch.randint(fields["vocab_size"], (STEPS, BATCH, SEQUENCE + 1))
        losses, norms, gradients = train(model, data)
        (folder / "golden.json").write_text(json.dumps(
            {"batch": BATCH, "sequence": SEQUENCE, "tokens": data.flatten().tolist(), "loss": losses, "grad_norm": norms}))
        if name == KEEP_TENSORS:
            save_file(gradients, folder / "gradients.safetensors")
            save_file({n: p.detach().clone() for n, p in model.named_parameters()}, folder / "final.safetensors")
        for extra in ("generation_config.json",):
            (folder / extra).unlink(missing_ok=True)
        print(name, losses[0], losses[-1], norms[0])


if __name__ == "__main__":
    main()

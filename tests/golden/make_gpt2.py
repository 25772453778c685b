"""Makes the golden files of examples/model: tiny GPT-2 models, a token file, and the results of transformers.

Run by hand (needs torch 2.11 and transformers 5; no test runs it):

    python3 tests/golden/make_gpt2.py

gpt2 has a tied head. gpt2_untied has an untied head and several weight files. Each folder has config.json, the weights,
tokens.bin (a token file; sample i has SEQUENCE + 1 tokens from i * SEQUENCE on) and golden.json: per step the loss (sum of
token losses / labels) and the gradient norm before clipping, for AdamW in fp32 as in make_golden.py.
"""

import json
import math
import pathlib
import shutil
import struct

import torch
from transformers import AutoConfig, AutoModelForCausalLM

HERE = pathlib.Path(__file__).parent
STEPS, BATCH, SEQUENCE, VOCABULARY = 12, 4, 17, 67
SIZES = dict(vocab_size=VOCABULARY, n_positions=64, n_embd=36, n_layer=3, n_head=3, resid_pdrop=0.0, embd_pdrop=0.0,
             attn_pdrop=0.0, initializer_range=0.3, bos_token_id=None, eos_token_id=None)
CASES = {"gpt2": dict(), "gpt2_untied": dict(tie_word_embeddings=False, n_inner=100, layer_norm_epsilon=1e-4)}


def make_model(fields, seed):
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model("gpt2", **SIZES, **fields), dtype=torch.float32)
    with torch.no_grad():  # norms and biases start at 1 and 0, where some errors would not show
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.add_(0.1 * torch.randn_like(parameter))
    return model.train()


def train(model, tokens):
    parameters = list(model.parameters())
    optimizer = torch.optim.AdamW(parameters, lr=1e-3, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1, foreach=False)
    losses, norms = [], []
    for step in range(STEPS):
        samples = [(step * BATCH + row) * SEQUENCE for row in range(BATCH)]
        rows = torch.stack([tokens[at:at + SEQUENCE + 1] for at in samples])
        optimizer.zero_grad(set_to_none=True)
        logits = model(rows[:, :-1], use_cache=False).logits.float()
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten(), reduction="sum")
        loss = loss / (BATCH * SEQUENCE)
        loss.backward()
        norms.append(math.sqrt(sum(float(p.grad.double().pow(2).sum()) for p in parameters)))
        torch.nn.utils.clip_grad_norm_(parameters, 1.0, foreach=False)
        optimizer.step()
        losses.append(float(loss))
    return losses, norms


def main():
    torch.set_num_threads(1)
    for number, (name, fields) in enumerate(CASES.items()):
        folder = HERE / name
        shutil.rmtree(folder, ignore_errors=True)
        model = make_model(fields, 2000 + number)
        model.save_pretrained(folder, **({"max_shard_size": "60KB"} if fields else {}))
        (folder / "generation_config.json").unlink(missing_ok=True)
        tokens = torch.randint(VOCABULARY, (STEPS * BATCH * SEQUENCE + 1,))
        header = struct.pack("<256i", 20240520, 1, len(tokens), *([0] * 253))
        (folder / "tokens.bin").write_bytes(header + struct.pack(f"<{len(tokens)}H", *tokens.tolist()))
        losses, norms = train(model, tokens)
        (folder / "golden.json").write_text(
            json.dumps({"batch": BATCH, "sequence": SEQUENCE, "loss": losses, "grad_norm": norms}))
        print(name, losses[0], losses[-1], norms[0])


if __name__ == "__main__":
    main()

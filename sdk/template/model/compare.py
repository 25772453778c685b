"""Compares the family hello_type with transformers: losses, gradient norms and the export of a small random model.

    python3 compare.py [--heddle heddle] [--plugins build/plugins]

Needs torch and transformers. The small model has the keys of config.json and the sizes below. Both sides train it for a few
steps. Losses must agree to 2e-5, gradient norms to 2e-4. Then transformers loads heddle's export and computes the same loss.
"""
import argparse
import json
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile

import torch
from transformers import AutoConfig, AutoModelForCausalLM

HERE = pathlib.Path(__file__).resolve().parent
MODEL_TYPE = "hello_type"  # model_type of this family
REFERENCE = "granite"  # model_type in transformers that computes the same
ROWS, LENGTH, STEPS = 4, 16, 3
SIZES = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
         "max_position_embeddings": 256, "initializer_range": 0.3}
TOKENS = ("pad_token_id", "bos_token_id", "eos_token_id")  # beyond the small vocabulary


def small_keys():
    """Returns the keys of config.json with small sizes. Lists with an entry per layer are shortened."""
    keys = json.loads((HERE / "config.json").read_text())
    layers, heads = keys["num_hidden_layers"], keys["num_attention_heads"]
    for key, value in keys.items():
        if isinstance(value, list) and len(value) == layers:
            keys[key] = value[:SIZES["num_hidden_layers"]]
    if keys.get("num_key_value_heads"):
        keys["num_key_value_heads"] = 4 if keys["num_key_value_heads"] == heads else 2
    if keys.get("head_dim"):
        keys["head_dim"] = 8
    for key in ("model_type", "architectures", "transformers_version", "dtype", "torch_dtype"):
        keys.pop(key, None)
    return {**keys, **SIZES, **{key: None for key in TOKENS if key in keys}}


def set_type(folder, model_type):
    file = folder / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "model_type": model_type}))


def make_model(folder):
    """Saves a random model as a model of this family. Norms and biases are not 1 and 0, where errors would not show."""
    torch.manual_seed(1)
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(REFERENCE, **small_keys())).float()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() == 1:
                parameter.add_(0.1 * torch.randn_like(parameter))
    model.save_pretrained(folder)
    set_type(folder, MODEL_TYPE)
    return model.train()


def loss_of(model, rows):
    logits = model(rows[:, :-1], use_cache=False).logits
    return torch.nn.functional.cross_entropy(logits.float().flatten(0, 1), rows[:, 1:].flatten())


def train_reference(model, rows):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = loss_of(model, rows)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        yield {"loss": loss.item(), "grad_norm": norm.item()}


def train_heddle(heddle, plugins, place, tokens):
    header = struct.pack("<256i", 20240520, 1, len(tokens), *([0] * 253))  # the format of `heddle data`
    (place / "tokens.bin").write_bytes(header + struct.pack(f"<{len(tokens)}H", *tokens))
    recipe = {
        "plugins": [str(plugins)], "model": {"pretrained_model_name_or_path": str(place / "model")},
        "dataset": {"file_pattern": str(place / "tokens.bin"), "seq_len": LENGTH},
        "step_scheduler": {"global_batch_size": ROWS, "local_batch_size": ROWS, "max_steps": STEPS, "num_epochs": STEPS},
        "optimizer": {"lr": 1e-3, "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.1},
        "distributed": {"strategy": "single"}, "checkpoint": {"checkpoint_dir": str(place / "run")},
    }
    (place / "run.yaml").write_text(json.dumps(recipe))
    done = subprocess.run([heddle, "train", place / "run.yaml"], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(done.stderr)
    return [json.loads(line) for line in (place / "run/training.jsonl").read_text().splitlines()]


def check(what, ours, theirs, tolerance):
    equal = abs(ours - theirs) <= tolerance * abs(theirs)
    print(f"{'equal  ' if equal else 'DIFFERS'} {what}: {ours:.7g}, transformers: {theirs:.7g}")
    return equal


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--heddle", default="heddle")
    parser.add_argument("--plugins", type=pathlib.Path, default=HERE / "build/plugins")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        place = pathlib.Path(folder)
        model = make_model(place / "model")
        tokens = torch.randint(SIZES["vocab_size"], (ROWS * LENGTH + 1,))
        rows = torch.stack([tokens[i * LENGTH:(i + 1) * LENGTH + 1] for i in range(ROWS)])
        ours = train_heddle(options.heddle, options.plugins.resolve(), place, tokens.tolist())
        good = [len(ours) == STEPS]
        for step, (here, there) in enumerate(zip(ours, train_reference(model, rows)), 1):
            good.append(check(f"loss of step {step}", here["loss"], there["loss"], 2e-5))
            good.append(check(f"gradient norm of step {step}", here["grad_norm"], there["grad_norm"], 2e-4))
        shutil.copytree(place / "run/LATEST/model/consolidated", place / "export")
        set_type(place / "export", REFERENCE)
        exported = AutoModelForCausalLM.from_pretrained(place / "export", dtype=torch.float32)
        with torch.no_grad():
            good.append(check("loss of the export", loss_of(exported, rows).item(), loss_of(model, rows).item(), 2e-5))
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())

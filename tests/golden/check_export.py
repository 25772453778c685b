"""Checks that transformers reads heddle's exports: every tensor, and the loss of a held-out batch.

Run by hand (needs torch 2.11, transformers 5 and a build; no test runs it):

    python3 tests/golden/check_export.py --heddle build/heddle

The models are llama, llama with a tied head, qwen2 and qwen3, in fp32 and bf16, saved by transformers in several files.
Each trains two steps on two ranks under fsdp2, tensor parallelism, a pipeline and ZeRO-3. Then the script checks that

- transformers loads model/consolidated without a warning,
- its tensors equal those of the sharded checkpoint bit for bit (rounded once if the dtype differs),
- file names and dtypes are those of the original model,
- its loss agrees to 2e-5 with the run's validation loss (fp32), and with heddle's loss on the exported directory.

bf16 models are also trained in fp32 and exported as bf16. heddle refuses a tied head in a pipeline, so that case is skipped.
"""

import argparse
import json
import pathlib
import struct
import subprocess
import tempfile
import warnings

import torch
from safetensors import safe_open
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.utils import logging

VOCABULARY, SEQUENCE = 131, 17
SIZES = dict(vocab_size=VOCABULARY, hidden_size=40, intermediate_size=56, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, max_position_embeddings=64)
MODELS = {
    "llama": dict(model_type="llama"),
    "llama_tied": dict(model_type="llama", tie_word_embeddings=True),
    "qwen2": dict(model_type="qwen2"),
    "qwen3": dict(model_type="qwen3", head_dim=16),
}
FP32 = {"param_dtype": "float32", "reduce_dtype": "float32"}
TOPOLOGIES = {
    "fsdp2": {"strategy": "fsdp2", "mp_policy": FP32},
    "tp": {"strategy": "fsdp2", "tp_size": 2, "mp_policy": FP32},
    "pp": {"strategy": "ddp", "pp_size": 2, "pipeline": {"pp_schedule": "1f1b", "pp_microbatch_size": 1}},
    "zero3": {"strategy": "megatron_fsdp", "zero_dp_strategy": 3},
}
TOLERANCE = 2e-5


def make_model(folder, fields, dtype):
    torch.manual_seed(7)
    fields = {**SIZES, **fields}
    config = AutoConfig.for_model(fields.pop("model_type"), **fields, initializer_range=0.2)
    AutoModelForCausalLM.from_config(config, dtype=torch.float32).to(dtype).save_pretrained(folder, max_shard_size="40KB")


def write_tokens(file, tokens):
    header = struct.pack("<256i", 20240520, 1, len(tokens), *([0] * 253))
    file.write_bytes(header + struct.pack(f"<{len(tokens)}H", *tokens))


def train(heddle, folder, run, model, distributed, steps, rate, ranks, dtype=None):
    """Trains a model, and returns the validation loss at the end."""
    config = {
        "seed": 3,
        "step_scheduler": {"global_batch_size": 4, "local_batch_size": 2, "max_steps": steps, "val_every_steps": steps},
        "model": {"pretrained_model_name_or_path": str(model), **({"dtype": dtype} if dtype else {})},
        "dataset": {"file_pattern": str(folder / "train.bin"), "seq_len": SEQUENCE},
        "validation_dataset": {"file_pattern": str(folder / "held_out.bin"), "seq_len": SEQUENCE},
        "optimizer": {"lr": rate, "weight_decay": 0.0},
        "distributed": distributed,
        "checkpoint": {"checkpoint_dir": str(run)},
    }
    file = folder / f"{run.name}.yaml"
    file.write_text(json.dumps(config))
    done = subprocess.run([heddle, "train", str(file), "--nproc-per-node", str(ranks)], capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{run.name}: {done.stderr}")
    return json.loads((run / "validation.jsonl").read_text().splitlines()[-1])["loss"]


def saved_tensors(model):
    """Assembles the tensors of a sharded model from their boxes."""
    tensors = {}
    for name, entry in json.loads((model / "manifest.json").read_text())["tensors"].items():
        for box in entry["boxes"]:
            with safe_open(model / box["file"], "pt") as file:
                part = file.get_tensor(box["key"])
            whole = tensors.setdefault(name, torch.empty(entry["shape"], dtype=part.dtype))
            whole[tuple(slice(o, o + s) for o, s in zip(box["offset"], box["size"]))] = part
    return tensors


def stored(folder):
    """Returns {name: (file, dtype)} of the tensors in a model directory."""
    out = {}
    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, "pt") as file:
            out.update({name: (path.name, file.get_slice(name).get_dtype()) for name in file.keys()})
    return out


def loss_of(model, tokens):
    rows = torch.tensor(tokens[: len(tokens) // SEQUENCE * SEQUENCE + 1])
    samples = (len(rows) - 1) // SEQUENCE
    inputs = rows[: samples * SEQUENCE].view(samples, SEQUENCE)
    labels = rows[1 : samples * SEQUENCE + 1].view(samples, SEQUENCE)
    with torch.no_grad():
        logits = model(inputs, use_cache=False).logits.float()
    return float(torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten()))


def check(heddle, folder, original, name, dtype, distributed, held_out, run_dtype=None):
    run = folder / name
    loss = train(heddle, folder, run, original, distributed, steps=2, rate=1e-2, ranks=2, dtype=run_dtype)
    exported = run / "LATEST" / "model" / "consolidated"
    assert stored(exported) == stored(original), "files and dtypes differ from the original model"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model, report = AutoModelForCausalLM.from_pretrained(exported, dtype=dtype, output_loading_info=True)
    assert not any(report.values()), report
    state, saved = model.state_dict(), saved_tensors(run / "LATEST" / "model")
    for key, values in saved.items():
        assert torch.equal(state[key], values.to(state[key].dtype)), key
    before = {key: value for key, value in AutoModelForCausalLM.from_pretrained(original).state_dict().items()}
    assert any(not torch.equal(before[key], state[key]) for key in saved), "training changed no tensor"
    theirs = loss_of(model.float().eval(), held_out)
    ours = train(heddle, folder, folder / f"{name}_again", exported, {"strategy": "single"}, steps=1, rate=0.0, ranks=1,
                 dtype="float32")
    worst = abs(ours - theirs) / theirs
    if dtype == torch.float32:
        worst = max(worst, abs(loss - theirs) / theirs)
    assert worst <= TOLERANCE, f"loss {theirs} in transformers, {ours} in heddle, {loss} at the end of the run"
    print(f"{name:28} {len(saved)} tensors equal, loss {theirs:.6f}, heddle's differs by {worst:.1e}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--heddle", default="build/heddle")
    parser.add_argument("--only", default="", help="run the cases whose name contains this text")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    logging.disable_progress_bar()
    with tempfile.TemporaryDirectory() as place:
        folder = pathlib.Path(place)
        draw = torch.Generator().manual_seed(1)
        tokens = torch.randint(VOCABULARY, (2000,), generator=draw).tolist()
        write_tokens(folder / "train.bin", tokens[:1700])
        held_out = tokens[1700:]
        write_tokens(folder / "held_out.bin", held_out)
        for model, fields in MODELS.items():
            for word, dtype in {"fp32": torch.float32, "bf16": torch.bfloat16}.items():
                original = folder / f"{model}_{word}_original"
                make_model(original, fields, dtype)
                for topology, distributed in TOPOLOGIES.items():
                    name = f"{model}_{word}_{topology}"
                    if arguments.only in name and not (topology == "pp" and fields.get("tie_word_embeddings")):
                        check(arguments.heddle, folder, original, name, dtype, distributed, held_out)
                name = f"{model}_{word}_run_in_fp32"
                if word == "bf16" and arguments.only in name:
                    check(arguments.heddle, folder, original, name, dtype, TOPOLOGIES["fsdp2"], held_out, "float32")


if __name__ == "__main__":
    main()

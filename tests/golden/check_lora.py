"""Trains adapters with heddle and with PEFT on transformers, for three kinds of AutoModel's recipes.

Run by hand (needs torch 2.11, transformers 5.12, peft 0.21 and a build; no test runs it):

    python3 tests/golden/check_lora.py --heddle build/heddle --examples AUTOMODEL/examples [--only KIND]

The section peft is copied from the recipe. The model, the data, sizes and steps are small. A heddle step with learning rate
0 writes the initial adapter for both. After five steps of AdamW, losses agree to 2e-5 and gradient norms to 2e-4 on one rank
and on two (fsdp2), and the adapters are close. Both adapters, merged by `heddle convert`, give the logits of PEFT's model.
"""

import argparse
import json
import pathlib
import subprocess
import tempfile

import torch
import yaml
from peft import PeftModel
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from check_export import write_tokens

HERE = pathlib.Path(__file__).parent
ALL = {"match_all_linear": True, "dim": 6, "alpha": 9}
KINDS = {  # a golden model, and a recipe or a custom section
    "proj": ("llama", "llm_finetune/qwen/qwen3_0p6b_hellaswag_peft.yaml"),
    "all_linear": ("qwen2", "llm_finetune/agent/qwen2_5_3b_function_calling_lora.yaml"),
    "experts": ("qwen3_moe_window", "llm_finetune/qwen/qwen3_moe_30b_lora.yaml"),
    # Families whose files join layers: one adapter of PEFT corresponds to several layers of heddle.
    "joined": ("phi3", "llm_finetune/phi/phi_3_mini_it_squad_peft.yaml"),
    "joined_all": ("phi3", ALL),
    "joined_dora": ("phi3", {**ALL, "use_dora": True}),
    "turned": ("gpt2", {"target_modules": ["*.c_attn", "*.c_proj", "*.c_fc"], "dim": 6, "alpha": 9}),
    "turned_dora": ("gpt2", {"target_modules": "*.c_attn", "dim": 6, "alpha": 9, "use_dora": True}),
    "gate_up": ("glm4", {"target_modules": "*_proj", "dim": 6, "alpha": 9}),
    "renamed": ("starcoder2_untied", ALL),
    "in_turn": ("qwen3_next", {"target_modules": ["*.in_proj_qkvz", "*.in_proj_ba", "*.q_proj"], "dim": 6}),
    "mamba": ("nemotron_h", {"exclude_modules": ["*.out_proj", "*lm_head"], "dim": 6}),
}
SAMPLES, SEQUENCE, STEPS = 4, 16, 5
FP32 = {"strategy": "fsdp2", "mp_policy": {"param_dtype": "float32", "reduce_dtype": "float32"}}


def is_mixture(model):
    return "moe" in model.name or model.name == "qwen3_next"


def train(heddle, folder, name, model, peft, distributed=None, ranks=1, rate=1e-3, steps=STEPS):
    config = {
        "seed": 3,
        "step_scheduler": {"global_batch_size": SAMPLES, "local_batch_size": SAMPLES // ranks, "max_steps": steps,
                           "num_epochs": steps},
        "model": {"pretrained_model_name_or_path": str(model), "config": {"output_router_logits": False}}
        if is_mixture(model) else {"pretrained_model_name_or_path": str(model)},
        "peft": peft, "dataset": {"file_pattern": str(folder / "train.bin"), "seq_len": SEQUENCE},
        "optimizer": {"lr": rate, "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.0},
        "distributed": distributed or {"strategy": "single"}, "checkpoint": {"checkpoint_dir": str(folder / name)},
    }
    (folder / f"{name}.yaml").write_text(json.dumps(config))
    done = subprocess.run([heddle, "train", folder / f"{name}.yaml", "--nproc-per-node", str(ranks)], capture_output=True,
                          text=True)
    if done.returncode != 0:
        raise RuntimeError(done.stderr.strip())
    return [json.loads(line) for line in (folder / name / "training.jsonl").read_text().splitlines()]


def loop_of(base):
    return {"experts_implementation": "eager"} if is_mixture(base) else {}


def adapter_of(folder, name):
    return (folder / name / "LATEST" / "model").resolve()


def reference(folder, base, first, rows):
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32, **loop_of(base))
    model = PeftModel.from_pretrained(model, first, is_trainable=True).train()
    parameters = [one for one in model.parameters() if one.requires_grad]
    optimizer = torch.optim.AdamW(parameters, lr=1e-3, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.0)
    lines = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        logits = model(input_ids=rows[:, :-1], use_cache=False).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        lines.append({"loss": loss.item(), "grad_norm": norm.item()})
    model.save_pretrained(folder / "peft", save_embedding_layers=False)
    return lines


def logits_of(model, rows):
    with torch.no_grad():
        return model.eval()(input_ids=rows[:, :-1], use_cache=False).logits


def check_merged(heddle, base, adapter, folder, rows):
    """Compares base plus adapter as `heddle convert` writes it with PEFT's merged weights."""
    done = subprocess.run([heddle, "convert", adapter, folder], capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(done.stderr.strip())
    ours = logits_of(AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, **loop_of(base)), rows)
    theirs = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32, **loop_of(base))
    theirs = logits_of(PeftModel.from_pretrained(theirs, adapter), rows)
    return ((ours - theirs).abs().max() / theirs.abs().max()).item()


def check(heddle, examples, kind):
    model, recipe = KINDS[kind]
    peft = yaml.safe_load((examples / recipe).read_text())["peft"] if isinstance(recipe, str) else recipe
    with tempfile.TemporaryDirectory() as place:
        folder, base = pathlib.Path(place), HERE / model
        vocabulary = json.loads((base / "config.json").read_text())["vocab_size"]
        tokens = torch.randint(vocabulary, (SAMPLES * SEQUENCE + 1,), generator=torch.Generator().manual_seed(5))
        write_tokens(folder / "train.bin", tokens.tolist())
        rows = torch.stack([tokens[i * SEQUENCE:(i + 1) * SEQUENCE + 1] for i in range(SAMPLES)])
        train(heddle, folder, "first", base, peft, rate=0.0, steps=1)
        wanted = reference(folder, base, adapter_of(folder, "first"), rows)
        for name, (distributed, ranks) in {"single": (None, 1), "fsdp2": (FP32, 2)}.items():
            lines = train(heddle, folder, name, base, peft, distributed, ranks)
            worst = [max(abs(a[key] - b[key]) / b[key] for a, b in zip(lines, wanted)) for key in ("loss", "grad_norm")]
            ours = load_file(adapter_of(folder, name) / "adapter_model.safetensors")
            theirs = load_file(folder / "peft" / "adapter_model.safetensors")
            assert ours.keys() == theirs.keys(), f"tensor names differ: {sorted(ours.keys() ^ theirs.keys())[:6]}"
            apart = max((ours[key] - theirs[key]).abs().max().item() for key in ours)
            good = len(lines) == STEPS and worst[0] <= 2e-5 and worst[1] <= 2e-4 and apart <= 1e-4
            print(f"{'equal  ' if good else 'DIFFERS'} {kind:10} {name:7} {len(ours)} tensors, loss by {worst[0]:.1e}, norm "
                  f"by {worst[1]:.1e}, adapters by {apart:.1e}", flush=True)
        for name, adapter in {"heddle's": adapter_of(folder, "single"), "PEFT's": folder / "peft"}.items():
            apart = check_merged(heddle, base, adapter, folder / f"merged {name}", rows)
            print(f"{'equal  ' if apart <= 1e-5 else 'DIFFERS'} {kind:10} {name} adapter merged: logits by {apart:.1e}",
                  flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--heddle", default="build/heddle")
    parser.add_argument("--examples", required=True, type=pathlib.Path, help="the directory examples of an AutoModel clone")
    parser.add_argument("--only", default="", help=f"run the kinds whose name contains this text: {', '.join(KINDS)}")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    for kind in KINDS:
        if arguments.only in kind:
            try:
                check(str(pathlib.Path(arguments.heddle).resolve()), arguments.examples, kind)
            except (RuntimeError, AssertionError, KeyError) as error:
                print(f"FAILED  {kind}: {str(error)[:600]}", flush=True)


if __name__ == "__main__":
    main()

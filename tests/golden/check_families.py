"""Trains every dense family with heddle and with transformers on several topologies, and checks the exports.

Run by hand (needs torch 2.11, transformers 5 and a build; no test runs it):

    python3 tests/golden/check_families.py --heddle build/heddle [--only NAME]

The models are those of make_golden.py, and of make_baichuan.py, make_nas.py and make_kimi_k3.py, whose references are their
own models. make_kimi_k3.py needs AUTOMODEL. After five steps of AdamW on four samples, losses agree to 2e-5 and gradient
norms to 2e-4 on one rank, fsdp2 2, tp 2, tp 2 with sequence parallelism, pp 2 (untied heads), cp 2, and combinations with
activation checkpointing and gradient accumulation. Then transformers loads the export with the original keys, computes the
same loss, and continues a prompt greedily like `heddle generate`.
"""

import argparse
import json
import pathlib
import shutil
import subprocess
import tempfile

import torch
from safetensors import safe_open
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, Mistral4ForCausalLM, MuseGlimmerForConditionalGeneration
from transformers.utils import logging

from check_export import write_tokens
from make_baichuan import Model as Baichuan
from make_kimi_k3 import Model as KimiK3
from make_nas import make_model as make_nas
from make_step import Model as Step

HERE = pathlib.Path(__file__).parent
FAMILIES = ("mistral", "ministral3", "gemma3_text", "gemma3_untied", "granite", "olmo", "apertus", "nanochat", "olmo2", "starcoder2", "starcoder2_untied",
            "phi", "glm", "glm4", "seed_oss", "cohere2", "ernie4_5", "gpt2_exact", "gpt2_inner", "baichuan", "qwen3_next", "qwen3_5", "qwen3_5_tied",
            "qwen3_5_moe", "nemotron_h", "nemotron_h_moe", "nemotron_h_latent", "hy_v3", "ernie4_5_moe", "mimo_v2_flash", "laguna",
            "laguna_elements", "mistral4", "step3p5", "falcon_h1", "falcon_h1_norm", "kimi_linear", "nemotron_nas", "gemma4_text",
            "gemma4_untied", "gemma4_moe", "gemma4_shared", "muse_glimmer", "kimi_k3", "kimi_k3_plain", "deepseek_v4")
SAMPLES, SEQUENCE, STEPS = 4, 16, 5
FP32 = {"strategy": "fsdp2", "mp_policy": {"param_dtype": "float32", "reduce_dtype": "float32"}}
PIPELINE = {"pp_size": 2, "pipeline": {"pp_schedule": "1f1b", "pp_microbatch_size": 1}}
RECOMPUTE = {"activation_checkpointing": True}
TOPOLOGIES = {  # distributed, ranks, local batch
    "single": ({"strategy": "single"}, 1, 4),
    "fsdp2": (FP32, 2, 2),
    "tp": ({**FP32, "tp_size": 2}, 2, 4),
    "sequence": ({**FP32, "tp_size": 2, "sequence_parallel": True}, 2, 2),
    "pp": ({"strategy": "ddp", **PIPELINE}, 2, 4),
    "cp": ({**FP32, "cp_size": 2}, 2, 4),
    "ep": ({**FP32, "ep_size": 2}, 2, 2),
    "fsdp2_tp": ({**FP32, "tp_size": 2, **RECOMPUTE}, 4, 1),
    "fsdp2_tp_pp": ({**FP32, "tp_size": 2, **PIPELINE, **RECOMPUTE}, 8, 2),
}


def run(heddle, *words):
    done = subprocess.run([heddle, *map(str, words)], capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(done.stderr.strip())
    return done.stdout


def train(heddle, folder, name, model, distributed, ranks, local):
    config = {
        "seed": 3,
        "step_scheduler": {"global_batch_size": SAMPLES, "local_batch_size": local, "max_steps": STEPS, "num_epochs": STEPS},
        "model": {"pretrained_model_name_or_path": str(model)},
        "dataset": {"file_pattern": str(folder / "train.bin"), "seq_len": SEQUENCE},
        "optimizer": {"lr": 1e-3, "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.1},
        "distributed": distributed, "checkpoint": {"checkpoint_dir": str(folder / name)}, "mfu": {"peak_tflops": 0.1},
    }
    (folder / f"{name}.yaml").write_text(json.dumps(config))
    run(heddle, "train", folder / f"{name}.yaml", "--nproc-per-node", ranks)
    return [json.loads(line) for line in (folder / name / "training.jsonl").read_text().splitlines()]


def reference(folder):
    """Returns the model, and a function from tokens to logits."""
    if folder.name == "step3p5":
        model = Step(json.loads((folder / "config.json").read_text()))
        model.load(folder / "model.safetensors")
        return model.train(), lambda tokens: model(tokens).logits
    if folder.name.startswith("kimi_k3"):
        model = KimiK3(json.loads((folder / "config.json").read_text()))
        model.load(folder / "model.safetensors")
        return model.train(), lambda tokens: model(tokens).logits
    if folder.name == "nemotron_nas":
        model = make_nas()
        model.load_state_dict(load_file(folder / "model.safetensors"))
        return model, lambda tokens: model(tokens, use_cache=False).logits
    if folder.name != "baichuan":
        config = json.loads((folder / "config.json").read_text())
        mixture = {key for key in ("num_experts_per_tok", "num_experts_per_token", "moe_k", "top_k_experts") if config.get(key)}
        loop = {"experts_implementation": "eager"} if mixture else {}  # the grouped product needs multiples of 16 bytes
        auto = {"mistral4": Mistral4ForCausalLM, "muse_glimmer": MuseGlimmerForConditionalGeneration}.get(folder.name, AutoModelForCausalLM)
        model = auto.from_pretrained(folder, dtype=torch.float32, **loop).train()
        return model, lambda tokens: model(tokens, use_cache=False).logits
    model = Baichuan()
    with safe_open(folder / "model.safetensors", "pt") as file, torch.no_grad():
        for name, parameter in model.named().items():
            parameter.copy_(file.get_tensor(name))
    return model, lambda tokens: model(tokens).logits


def train_reference(folder, rows):
    model, logits = reference(folder)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)
    lines = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(logits(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten())
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        lines.append({"loss": loss.item(), "grad_norm": norm.item()})
    with torch.no_grad():
        return lines, torch.nn.functional.cross_entropy(logits(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten()).item()


def keys(folder):
    out = set()
    for file in folder.glob("*.safetensors"):
        with safe_open(file, "pt") as one:
            out |= set(one.keys())
    return out


def check_export(heddle, folder, original, rows, final):
    exported = (folder / "single" / "LATEST" / "model" / "consolidated").resolve()
    of_text = {key for key in keys(original) if not key.startswith(("model.vision_", "vision_tower."))}
    assert keys(exported) == of_text, f"the export has different keys: {keys(exported) ^ of_text}"
    prompt = rows[0, :5].tolist()
    ours = run(heddle, "generate", exported, "--tokens", ",".join(map(str, prompt)), "--max-new-tokens", 8, "--temperature", 0)
    named = folder / original.name
    named.symlink_to(exported)
    _, logits = reference(named)
    with torch.no_grad():
        loss = torch.nn.functional.cross_entropy(logits(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten()).item()
        tokens = list(prompt)
        ends = json.loads((original / "config.json").read_text()).get("eos_token_id")
        ends = ends if isinstance(ends, list) else [ends]
        while len(tokens) < len(prompt) + 8 and tokens[-1] not in ends:
            tokens.append(int(logits(torch.tensor([tokens]))[0, -1].argmax()))
    assert abs(loss - final) <= 2e-5 * final, (loss, final)
    assert [int(word) for word in ours.strip().split(",")] == tokens, (ours, tokens)


def without_auxiliary_loss(original, folder):
    """Copies a mixture without its auxiliary loss, whose value depends on how samples are split into microbatches."""
    config = json.loads((original / "config.json").read_text())
    if not config.get("output_router_logits"):
        return original
    copy = folder / "models" / original.name
    shutil.copytree(original, copy)
    (copy / "config.json").write_text(json.dumps({**config, "output_router_logits": False}))
    return copy


def check(heddle, original, topologies):
    with tempfile.TemporaryDirectory() as place:
        folder = pathlib.Path(place)
        original = without_auxiliary_loss(original, folder)
        config = json.loads((original / "config.json").read_text())
        vocabulary = {**config, **config.get("text_config", {})}["vocab_size"]
        tied = config.get("tie_word_embeddings", False)
        experts = any("expert" in key and config[key] for key in config)
        tokens = torch.randint(vocabulary, (SAMPLES * SEQUENCE + 1,), generator=torch.Generator().manual_seed(5))
        write_tokens(folder / "train.bin", tokens.tolist())
        rows = torch.stack([tokens[i * SEQUENCE:(i + 1) * SEQUENCE + 1] for i in range(SAMPLES)])
        wanted, final = train_reference(original, rows)
        for name, (distributed, ranks, local) in TOPOLOGIES.items():
            if (tied and "pp_size" in distributed) or (topologies and name not in topologies) or (
                    "ep_size" in distributed and not experts):
                continue
            try:
                lines = train(heddle, folder, name, original, distributed, ranks, local)
            except RuntimeError as error:
                print(f"REFUSED {original.name:18} {name:12} {str(error)[:300]}", flush=True)
                continue
            worst = [max(abs(a[key] - b[key]) / b[key] for a, b in zip(lines, wanted)) for key in ("loss", "grad_norm")]
            good = len(lines) == STEPS and worst[0] <= 2e-5 and worst[1] <= 2e-4 and lines[-1]["mfu"] > 0
            print(f"{'equal  ' if good else 'DIFFERS'} {original.name:18} {name:12} loss by {worst[0]:.1e}, norm by {worst[1]:.1e}",
                  flush=True)
        check_export(heddle, folder, original, rows, final)
        print(f"equal   {original.name:18} export and greedy tokens", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--heddle", default="build/heddle")
    parser.add_argument("--only", default="", help="run one golden case, or the families whose name contains this text")
    parser.add_argument("--topologies", nargs="*", default=[],
                        help=f"run these topologies, including single: {', '.join(TOPOLOGIES)}")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    logging.disable_progress_bar()
    is_case = (HERE / arguments.only / "golden.json").exists()
    for name in [arguments.only] if is_case else [name for name in FAMILIES if arguments.only in name]:
        try:
            check(str(pathlib.Path(arguments.heddle).resolve()), HERE / name, arguments.topologies)
        except (RuntimeError, AssertionError) as error:
            print(f"FAILED  {name}: {error}", flush=True)


if __name__ == "__main__":
    main()

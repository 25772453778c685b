"""Makes peft/: the keys of PEFT's LoraConfig, and an adapter that uses most of them, merged by PEFT.

Run by hand (needs torch 2.11, transformers 5 and peft 0.21; no test runs it):

    python3 tests/golden/make_peft.py

keys.json holds PEFT's version and the default of each key. adapter/ is what PEFT saves for random A and B on llama_odd.
merged.safetensors holds some weights of the merged model, including layers without an adapter.
"""

import dataclasses
import json
import pathlib
import shutil

import peft
import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM

HERE = pathlib.Path(__file__).parent
CHANGED = {
    "r": 3, "lora_alpha": 6, "use_rslora": True, "init_lora_weights": False, "layers_to_transform": [0, 2],
    "layers_pattern": "layers", "target_modules": ["q_proj", "k_proj", "mlp.down_proj"],
    "exclude_modules": ["layers.0.self_attn.k_proj"],
    "rank_pattern": {"q_proj": 2, r"^model\.layers\.2\.mlp\.(up|down)_proj": 5, "down_proj": 4},
    "alpha_pattern": {r"layers\.[1-9]\..*": 5, "model.layers.0.mlp.down_proj": 2},
}
MERGED = [f"model.layers.{layer}.{name}.weight" for layer, name in (
    (0, "self_attn.q_proj"), (0, "self_attn.k_proj"), (0, "mlp.down_proj"), (1, "self_attn.q_proj"),
    (2, "self_attn.k_proj"), (2, "mlp.down_proj"))]


def default_of(field):
    value = field.default if field.default is not dataclasses.MISSING else field.default_factory()
    return value if isinstance(value, (bool, int, float, str, dict, type(None))) else str(value)


def main():
    torch.manual_seed(7)
    folder = HERE / "peft"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    (folder / "keys.json").write_text(json.dumps(
        {"version": peft.__version__, "keys": {f.name: default_of(f) for f in dataclasses.fields(LoraConfig)}},
        indent=1) + "\n")
    base = AutoModelForCausalLM.from_pretrained(HERE / "llama_odd", dtype=torch.float32)
    model = get_peft_model(base, LoraConfig(task_type="CAUSAL_LM", **CHANGED))
    model.peft_config["default"].base_model_name_or_path = "llama_odd"
    model.save_pretrained(folder / "adapter")
    (folder / "adapter" / "README.md").unlink()
    merged = model.merge_and_unload().state_dict()
    save_file({name: merged[name].contiguous() for name in MERGED}, folder / "merged.safetensors")


if __name__ == "__main__":
    main()

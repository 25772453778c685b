"""Makes joined/: five steps of LoRA adapters on phi3 computed by peft and transformers, and the adapter.

Run by hand (needs torch 2.11, transformers 5 and peft 0.21; no test runs it):

    python3 tests/golden/make_joined.py

Phi-3 has one layer qkv_proj and one gate_up_proj, so PEFT has one A for each. first.safetensors holds the initial A under
heddle's name of the first part (the initial B is 0). golden.json holds the tokens, and per step the loss and the gradient
norm of AdamW in fp32 (as in make_dora.py). adapter/ is what peft saves after the steps. merged.safetensors holds some
weights of the merged model.
"""

import json
import pathlib
import shutil

import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM

from make_dora import STEPS, train
from make_golden import BATCH, SEQUENCE

HERE = pathlib.Path(__file__).parent
MERGED = ["model.layers.0.self_attn.qkv_proj.weight", "model.layers.1.mlp.gate_up_proj.weight"]


def name_in_heddle(name):
    name = name.removeprefix("base_model.model.").replace(".default", "")
    return name.replace("qkv_proj", "q_proj").replace("gate_up_proj", "gate_proj")


def main():
    torch.set_num_threads(1)
    torch.manual_seed(6)
    folder = HERE / "joined"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    data = torch.tensor(json.loads((HERE / "phi3/golden.json").read_text())["tokens"])
    data = data.view(-1, BATCH, SEQUENCE + 1)[:STEPS]
    base = AutoModelForCausalLM.from_pretrained(HERE / "phi3", dtype=torch.float32, attn_implementation="eager")
    names = ["qkv_proj", "o_proj", "gate_up_proj", "down_proj"]
    model = get_peft_model(base, LoraConfig(r=3, lora_alpha=6, target_modules=names, task_type="CAUSAL_LM"))
    first = {name_in_heddle(name): p.detach().clone() for name, p in model.named_parameters() if "lora_A" in name}
    save_file(first, folder / "first.safetensors")
    losses, norms = train(model, data)
    (folder / "golden.json").write_text(json.dumps({
        "batch": BATCH, "sequence": SEQUENCE, "tokens": data.flatten().tolist(), "loss": losses, "grad_norm": norms}))
    model.peft_config["default"].base_model_name_or_path = "phi3"
    model.save_pretrained(folder / "adapter")
    (folder / "adapter/README.md").unlink(missing_ok=True)
    merged = dict(model.merge_and_unload().named_parameters())
    save_file({name: merged[name].detach().clone() for name in MERGED}, folder / "merged.safetensors")
    print(losses, norms)


if __name__ == "__main__":
    main()

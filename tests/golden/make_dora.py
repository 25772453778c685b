"""Makes dora/: five steps of DoRA adapters on llama_odd computed by peft and transformers, and the adapter.

Run by hand (needs torch 2.11, transformers 5 and peft 0.21; no test runs it):

    python3 tests/golden/make_dora.py

first.safetensors holds the initial A under heddle's names (the initial B is 0). golden.json holds the tokens, and per step
the loss and the gradient norm of AdamW in fp32 (lr 1e-2, otherwise as in make_golden.py). adapter/ is what peft saves after
the steps. merged.safetensors holds some weights of the merged model.
"""

import json
import math
import pathlib
import shutil

import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM

from make_golden import BATCH, SEQUENCE, loss_sum

HERE = pathlib.Path(__file__).parent
STEPS = 5
MERGED = ["model.layers.0.self_attn.q_proj.weight", "model.layers.2.mlp.down_proj.weight"]


def train(model, data):
    parameters = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(parameters, lr=1e-2, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1, foreach=False)
    losses, norms = [], []
    for tokens in data:
        optimizer.zero_grad(set_to_none=True)
        loss = loss_sum(model, tokens)[0] / (BATCH * SEQUENCE)
        loss.backward()
        norms.append(math.sqrt(sum(float(p.grad.double().pow(2).sum()) for p in parameters)))
        torch.nn.utils.clip_grad_norm_(parameters, 1.0, foreach=False)
        optimizer.step()
        losses.append(float(loss))
    return losses, norms


def main():
    torch.set_num_threads(1)
    torch.manual_seed(5)
    folder = HERE / "dora"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    data = torch.tensor(json.loads((HERE / "llama_odd/golden.json").read_text())["tokens"])
    data = data.view(-1, BATCH, SEQUENCE + 1)[:STEPS]
    base = AutoModelForCausalLM.from_pretrained(HERE / "llama_odd", dtype=torch.float32, attn_implementation="eager")
    names = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
    model = get_peft_model(base, LoraConfig(r=3, lora_alpha=6, target_modules=names, use_dora=True,
                                            task_type="CAUSAL_LM"))
    first = {name.removeprefix("base_model.model.").replace(".default", ""): p.detach().clone()
             for name, p in model.named_parameters() if "lora_A" in name}
    save_file(first, folder / "first.safetensors")
    losses, norms = train(model, data)
    (folder / "golden.json").write_text(json.dumps({
        "batch": BATCH, "sequence": SEQUENCE, "tokens": data.flatten().tolist(), "loss": losses, "grad_norm": norms}))
    model.peft_config["default"].base_model_name_or_path = "llama_odd"
    model.save_pretrained(folder / "adapter")
    (folder / "adapter/README.md").unlink(missing_ok=True)
    merged = dict(model.merge_and_unload().named_parameters())
    save_file({name: merged[name].detach().clone() for name in MERGED}, folder / "merged.safetensors")
    print(losses, norms)


if __name__ == "__main__":
    main()

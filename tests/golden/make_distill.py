"""Makes distill/golden.json: a student (llama) distilled from a teacher (llama_tied) with transformers' models.

Run by hand (needs torch 2.11 and transformers 5; no test runs it):

    python3 tests/golden/make_distill.py

Samples have 3 to 12 tokens, so microbatches have unequal label counts. Each sample is computed alone. A step has four
samples, in order. loss = (1 - ratio) CE + ratio T^2 KL(teacher || student) over tokens with a label, both divided by the
step's label count. AdamW in fp32 as in make_golden.py, without weight decay. Each case holds loss, ce_loss, kd_loss and the
gradient norm before clipping of 5 steps, and the three losses of 6 validation samples after the last step.
"""

import json
import pathlib
import random

import torch
from transformers import AutoModelForCausalLM

HERE = pathlib.Path(__file__).parent
STEPS, BATCH, VALIDATION = 5, 4, 6
CASES = {"half": (0.5, 1.0), "warm": (0.7, 2.5), "all": (1.0, 1.0), "none": (0.0, 1.0)}


def parts(student, teacher, samples, temperature):
    """Returns the sums of the cross entropy and of the divergence, and the number of labels."""
    ce, kd, labels = 0.0, 0.0, 0
    for sample in samples:
        row, label = torch.tensor([sample[:-1]]), torch.tensor(sample[1:])
        s = student(row).logits[0].float()
        with torch.no_grad():
            t = teacher(row).logits[0].float()
        ce = ce + torch.nn.functional.cross_entropy(s, label, reduction="sum")
        log_p = torch.log_softmax(t / temperature, -1)
        log_q = torch.log_softmax(s / temperature, -1)
        kd = kd + temperature**2 * (log_p.exp() * (log_p - log_q)).sum()
        labels += len(label)
    return ce, kd, labels


def trained(samples, ratio, temperature):
    load = lambda name: AutoModelForCausalLM.from_pretrained(HERE / name, dtype=torch.float32, attn_implementation="eager")
    student, teacher = load("llama"), load("llama_tied").eval()
    optimizer = torch.optim.AdamW(student.parameters(), lr=1e-3, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.0)
    found = {"ratio": ratio, "temperature": temperature, "loss": [], "ce_loss": [], "kd_loss": [], "grad_norm": []}
    for step in range(STEPS):
        ce, kd, labels = parts(student, teacher, samples[step * BATCH:(step + 1) * BATCH], temperature)
        loss = ((1 - ratio) * ce + ratio * kd) / labels
        optimizer.zero_grad()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(student.parameters(), 1.0)
        optimizer.step()
        for key, value in (("loss", loss), ("ce_loss", ce / labels), ("kd_loss", kd / labels), ("grad_norm", norm)):
            found[key].append(float(value))
    with torch.no_grad():
        ce, kd, labels = parts(student, teacher, samples[STEPS * BATCH:], temperature)
    found["validation"] = {"loss": float(((1 - ratio) * ce + ratio * kd) / labels), "ce_loss": float(ce / labels),
                           "kd_loss": float(kd / labels)}
    return found


def main():
    draw = random.Random(7)
    samples = [[draw.randrange(64) for _ in range(draw.randint(3, 12))] for _ in range(STEPS * BATCH + VALIDATION)]
    golden = {"samples": samples, "steps": STEPS, "batch": BATCH,
              "cases": {name: trained(samples, *case) for name, case in CASES.items()}}
    (HERE / "distill").mkdir(exist_ok=True)
    (HERE / "distill/golden.json").write_text(json.dumps(golden) + "\n")


if __name__ == "__main__":
    main()

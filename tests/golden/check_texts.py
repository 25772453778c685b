"""Trains on every text data set with heddle and with transformers on the same samples, and compares losses.

Run by hand (needs torch, transformers 5, tokenizers and jinja2):

    python3 tests/golden/check_texts.py build/heddle

Samples come from the .samples file that heddle prepares, in the order of torch.randperm. Rows are padded to the longest
sample of their batch. Losses must agree to 2e-5, gradient norms to 2e-4.
"""

import json
import os
import pathlib
import struct
import subprocess
import sys
import tempfile

import numpy
import torch
from transformers import AutoModelForCausalLM, LlamaConfig

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "prepare"))
import cases  # noqa: E402
import rows  # noqa: E402

SEED, STEPS, BATCH, MICRO = 11, 6, 6, 2
CHATML = ("{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content or '' }}<|im_end|>\n{% endfor %}"
          "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")
KINDS = {  # target, key of the texts, row format, template, further keys
    "squad": ("squad.make_squad_dataset", "dataset_name", "squad", None, ""),
    "squad_chat": ("squad.make_squad_dataset", "dataset_name", "squad", CHATML, ""),
    "hellaswag": ("hellaswag.HellaSwag", "path_or_dataset", "swag", None, ""),
    "chat": ("chat_dataset.ChatDataset", "path_or_dataset_id", "plain", CHATML, ""),
    "columns": ("column_mapped_text_instruction_dataset.ColumnMappedTextInstructionDataset", "path_or_dataset_id", "columns",
                None, ", column_mapping: {context: ctx, question: ask, answer: say}"),
    "agent": ("agent_chat.make_agent_chat_dataset", "path", "agent", CHATML, ""),
    "xlam": ("xlam.make_xlam_dataset", "dataset_name", "xlam", CHATML, ""),
}


def samples(file):
    """Returns the (inputs, labels) of a .samples file (docs/reference/data.md)."""
    data = pathlib.Path(file).read_bytes()
    count, _, _, width, flags = struct.unpack_from("<QQQII", data, 16)
    tokens, starts, run_starts, runs = (data[at:at + size] for at, size in struct.iter_unpack("<QQ", data[80:144]))
    tokens = numpy.frombuffer(tokens, "<u2" if width == 2 else "<u4").astype(numpy.int64)
    starts, run_starts = (numpy.frombuffer(part, "<u8").astype(int) for part in (starts, run_starts))
    runs = numpy.frombuffer(runs, "<u4").reshape(-1, 2)
    out = []
    for i in range(count):
        row = tokens[starts[i]:starts[i + 1]]
        trained = numpy.full(len(row), -100)
        for begin, end in runs[run_starts[i]:run_starts[i + 1]]:
            trained[begin:end] = row[begin:end]
        labels = numpy.append(trained[1:], -100)
        out.append((row, labels) if flags & 1 else (row[:-1], labels[:-1]))
    return out


def reference(model, data):
    """Returns the losses and gradient norms of AdamW in transformers."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1)
    order = torch.randperm(len(data), generator=torch.Generator().manual_seed(SEED)).tolist()
    losses, norms = [], []
    for step in range(STEPS):
        taken = [data[i] for i in order[step * BATCH:(step + 1) * BATCH]]
        labels_of_step = sum(int((labels != -100).sum()) for _, labels in taken)
        optimizer.zero_grad()
        loss = 0.0
        for first in range(0, BATCH, MICRO):
            group = taken[first:first + MICRO]
            longest = max(len(tokens) for tokens, _ in group)
            filled = [(numpy.pad(tokens, (0, longest - len(tokens))),
                       numpy.pad(labels, (0, longest - len(labels)), constant_values=-100)) for tokens, labels in group]
            tokens, labels = (torch.tensor(numpy.stack(part)) for part in zip(*filled))
            logits = model(tokens).logits.float()
            part = torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="sum") / labels_of_step
            part.backward()
            loss += part.item()
        norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0).item())
        optimizer.step()
        losses.append(loss)
    return losses, norms


def write_model(folder, template):
    os.makedirs(folder)
    tokenizer = (HERE.parent / "prepare" / "golden" / "bytes.json").read_text()
    (folder / "tokenizer.json").write_text(tokenizer)
    settings = dict(cases.FAST, pad_token="</s>")
    (folder / "tokenizer_config.json").write_text(json.dumps({**settings, "chat_template": template} if template else settings))
    vocabulary = max(json.loads(tokenizer)["model"]["vocab"].values()) + 64
    torch.manual_seed(3)
    model = AutoModelForCausalLM.from_config(LlamaConfig(
        vocab_size=vocabulary, hidden_size=48, intermediate_size=80, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=4096, tie_word_embeddings=False))
    model.save_pretrained(folder)
    return model


def compare(heddle, name, place):
    target, key, form, template, more = KINDS[name]
    model = write_model(place / "model", template)
    writer = rows.Writer(5)
    with open(place / "rows.jsonl", "w") as out:
        for i in range(STEPS * BATCH + 3):
            out.write(json.dumps(getattr(writer, form)(i)) + "\n")
    (place / "run.yaml").write_text(f"""seed: {SEED}
step_scheduler: {{global_batch_size: {BATCH}, local_batch_size: {MICRO}, max_steps: {STEPS}}}
model: {{_target_: x.from_pretrained, pretrained_model_name_or_path: {place}/model, torch_dtype: float32}}
dataset: {{_target_: x.{target}, {key}: {place}/rows.jsonl{more}}}
optimizer: {{_target_: torch.optim.AdamW, lr: 1e-3, betas: [0.9, 0.95], weight_decay: 0.1}}
distributed: {{strategy: fsdp2, mp_policy: {{param_dtype: float32, reduce_dtype: float32}}}}
checkpoint: {{checkpoint_dir: {place}/run, save_consolidated: false}}
""")
    subprocess.run([heddle, "train", place / "run.yaml", "--nproc-per-node", "3", "--step_scheduler.local_batch_size", "2"],
                   check=True, stdout=subprocess.DEVNULL)
    lines = [json.loads(line) for line in open(place / "run" / "training.jsonl")]
    losses, norms = reference(model, samples(next((place / "run" / "data").glob("*.samples"))))
    worst = [max(abs(line[key] - value) / value for line, value in zip(lines, values))
             for key, values in (("loss", losses), ("grad_norm", norms))]
    good = len(lines) == STEPS and worst[0] <= 2e-5 and worst[1] <= 2e-4
    print(f"{'equal ' if good else 'DIFFER'} {name}: loss {losses[0]:.4f} to {losses[-1]:.4f}, differs by {worst[0]:.1e}; "
          f"norm by {worst[1]:.1e}")
    return good


def main():
    heddle = os.path.abspath(sys.argv[1])
    good = True
    for name in sys.argv[2:] or KINDS:
        with tempfile.TemporaryDirectory() as folder:
            good &= compare(heddle, name, pathlib.Path(folder))
    sys.exit(0 if good else 1)


main()

"""Fine-tunes on the conversations of docs/fine-tuning.md, and checks that transformers generates the same answers as heddle.

Run by hand (needs torch 2.11, transformers 5, tokenizers, jinja2 and a build; no test runs it):

    python3 tests/golden/check_five_minutes.py --heddle build/heddle
"""

import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "text"))
import make_tokenizers  # noqa: E402

TEMPLATE = ("{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}"
            "{% if add_generation_prompt %}<|assistant|>{% endif %}")
TALKS = [("What trains models?", "heddle trains large models."), ("Which file?", "One YAML file."),
         ("How many ranks?", "As many as you like.")]


COMMANDS = ("heddle train chat.yaml --nproc-per-node 2",
            'heddle generate run --chat --prompt "How many ranks?" --temperature 0')


def recipe():
    """Returns the page's chat.yaml with enough steps to learn the answers."""
    page = (ROOT / "docs" / "fine-tuning.md").read_text()
    text = re.findall(r"```yaml\n(.*?)```", page, re.S)[0]
    text = text.replace("num_epochs: 2", "num_epochs: 4, val_every_steps: 20").replace("lr: 1.0e-5", "lr: 0.003")
    return text + 'validation_samples: {prompts: ["Which file?"], chat: true, max_new_tokens: 16}\n'


def write(place):
    text = (ROOT / "docs" / "fine-tuning.md").read_text()
    tokenizer, end = make_tokenizers.byte_level_bpe(text.split("\n") * 3)
    make_tokenizers.save(tokenizer, end, place / "model")
    settings = place / "model" / "tokenizer_config.json"
    settings.write_text(json.dumps({**json.loads(settings.read_text()), "chat_template": TEMPLATE}))
    torch.manual_seed(1)
    config = AutoConfig.for_model("llama", vocab_size=tokenizer.get_vocab_size(), hidden_size=64, intermediate_size=128,
                                  num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, bos_token_id=None,
                                  eos_token_id=tokenizer.token_to_id(end), pad_token_id=None, max_position_embeddings=256)
    AutoModelForCausalLM.from_config(config, dtype=torch.float32).save_pretrained(place / "model")
    with open(place / "chat.jsonl", "w") as out:
        for asked, said in TALKS * 20:
            row = {"messages": [{"role": "user", "content": asked}, {"role": "assistant", "content": said}]}
            out.write(json.dumps(row) + "\n")
    (place / "chat.yaml").write_text(recipe())


def answer(directory, message):
    tokenizer, model = AutoTokenizer.from_pretrained(directory), AutoModelForCausalLM.from_pretrained(directory)
    asked = tokenizer.apply_chat_template([{"role": "user", "content": message}], add_generation_prompt=True,
                                          return_tensors="pt", return_dict=True)
    out = model.generate(**asked, max_new_tokens=64, do_sample=False)
    return tokenizer.decode(out[0][asked["input_ids"].shape[1]:], skip_special_tokens=True)


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--heddle", type=pathlib.Path, default=ROOT / "build" / "heddle")
    heddle = arguments.parse_args().heddle.resolve()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    with tempfile.TemporaryDirectory() as made:
        place = pathlib.Path(made)
        write(place)
        environment = {**os.environ, "PATH": f"{heddle.parent}:{os.environ['PATH']}", "OMP_NUM_THREADS": "1",
                       "HEDDLE_PYTHON": sys.executable}
        for command in COMMANDS:
            done = subprocess.run(["bash", "-c", command], cwd=place, env=environment, capture_output=True, text=True)
            if done.returncode:
                sys.exit(f"{command}\n{done.stdout}{done.stderr}")
        samples = [json.loads(line) for line in (place / "run" / "samples.jsonl").read_text().splitlines()]
        exported = place / "run" / "LATEST" / "model" / "consolidated"
        theirs = answer(exported, "How many ranks?")
        assert done.stdout.strip() == theirs.strip(), f"heddle {done.stdout!r}, transformers {theirs!r}"
        theirs = answer(exported, "Which file?")
        assert theirs.strip() == samples[-1]["text"].strip(), f"heddle {samples[-1]}, transformers {theirs!r}"
        print(f"equal answers: {done.stdout.strip()!r}, {theirs!r}")


if __name__ == "__main__":
    main()

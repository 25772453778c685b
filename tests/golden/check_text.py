"""Runs the five commands of docs/getting-started.md, and checks that the last two print the same text.

Run by hand (needs torch 2.11, transformers 5, tokenizers and a build; no test runs it):

    python3 tests/golden/check_text.py --heddle build/heddle

The models are llama with each of four tokenizers (byte-level BPE, SentencePiece BPE, unigram, WordPiece), and qwen2 and
qwen3 with byte-level BPE (transformers loads no other tokenizer for these). heddle fine-tunes a randomly initialized model
that transformers saved. Then `heddle generate` and transformers continue the same prompt greedily, from a checkpoint and
from its export. Texts and token ids must be equal.
"""

import argparse
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
import make_tokenizers

SIZES = dict(hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
             max_position_embeddings=512, initializer_range=0.2)
MODELS = {"llama": {}, "qwen2": {}, "qwen3": dict(head_dim=16, tie_word_embeddings=True)}
PROMPT = "In the beginning"


def block(language):
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / "docs" / "getting-started.md").read_text(), re.S)[0]


def make_model(folder, model_type, tokenizer, end):
    make_tokenizers.save(tokenizer, end, folder)
    torch.manual_seed(7)
    config = AutoConfig.for_model(model_type, vocab_size=tokenizer.get_vocab_size(), bos_token_id=None,
                                  eos_token_id=tokenizer.token_to_id(end), pad_token_id=None, **SIZES, **MODELS[model_type])
    AutoModelForCausalLM.from_config(config, dtype=torch.float32).save_pretrained(folder)


def run(command, place, environment):
    done = subprocess.run(["bash", "-c", command], cwd=place, env=environment, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{command}\n{done.stdout}{done.stderr}")
    return done.stdout


def check(place, heddle, name):
    exported = place / "run" / "LATEST" / "model" / "consolidated"
    environment = {**os.environ, "PATH": f"{heddle.resolve().parent}:{os.environ['PATH']}", "OMP_NUM_THREADS": "1",
                   "HEDDLE_PYTHON": sys.executable}
    commands = block("bash").strip().split("\n")
    outputs = [run(command.replace("python3 -c", f"{sys.executable} -c"), place, environment) for command in commands]
    assert outputs[3] == outputs[4], f"{name}: heddle {outputs[3]!r}, transformers {outputs[4]!r}"

    tokenizer = AutoTokenizer.from_pretrained(exported)
    model = AutoModelForCausalLM.from_pretrained(exported, dtype=torch.float32)
    prompt = tokenizer(PROMPT, return_tensors="pt", return_token_type_ids=False)
    theirs = model.generate(**prompt, max_new_tokens=200, do_sample=False)[0].tolist()
    ids = ",".join(map(str, prompt["input_ids"][0].tolist()))
    ours = run(f"heddle generate run --tokens {ids} --max-new-tokens 200 --temperature 0", place, environment)
    assert [int(word) for word in ours.split(",")] == theirs, f"{name}: heddle {ours}, transformers {theirs}"
    print(f"{name:28} {len(theirs)} tokens equal, {outputs[3].strip()[:60]!a}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--heddle", default="build/heddle", type=pathlib.Path)
    parser.add_argument("--only", default="", help="run the cases whose name contains this text")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    logging.disable_progress_bar()
    text = make_tokenizers.mixed_text(60000)
    for model_type in MODELS:
        for kind, make in make_tokenizers.KINDS.items():
            if arguments.only not in f"{model_type}, {kind}" or (model_type != "llama" and kind != "byte_level_bpe"):
                continue
            with tempfile.TemporaryDirectory() as folder:
                place = pathlib.Path(folder)
                make_model(place / "model", model_type, *make(text.split("\n")))
                (place / "book.txt").write_text(text, encoding="utf-8", newline="")
                (place / "finetune.yaml").write_text(block("yaml"))
                check(place, arguments.heddle, f"{model_type}, {kind}")


if __name__ == "__main__":
    main()

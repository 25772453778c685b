"""Runs the first four of the five commands of docs/getting-started.md unchanged.

    check_commands.py HEDDLE

The script makes a model with random weights and a byte-level tokenizer. tests/golden/check_text.py also runs the fifth
command and compares with transformers.
"""

import json
import os
import pathlib
import random
import re
import struct
import subprocess
import sys
import tempfile

from tokenizers import Tokenizer

import make_tokenizers

ROOT = pathlib.Path(__file__).resolve().parents[2]
SIZES = {"model_type": "llama", "hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 2,
         "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 512}


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / "docs" / "getting-started.md").read_text(), re.S)


def write_model(folder, vocabulary):
    """Writes config.json and model.safetensors of a small Llama."""
    config = {**SIZES, "architectures": ["LlamaForCausalLM"], "vocab_size": vocabulary, "torch_dtype": "float32"}
    (folder / "config.json").write_text(json.dumps(config))
    width, inner, kv = SIZES["hidden_size"], SIZES["intermediate_size"], 12
    shapes = {"model.embed_tokens.weight": [vocabulary, width], "lm_head.weight": [vocabulary, width],
              "model.norm.weight": [width]}
    for layer in range(SIZES["num_hidden_layers"]):
        for name, shape in {"self_attn.q_proj": [width, width], "self_attn.k_proj": [kv, width],
                            "self_attn.v_proj": [kv, width], "self_attn.o_proj": [width, width],
                            "mlp.gate_proj": [inner, width], "mlp.up_proj": [inner, width],
                            "mlp.down_proj": [width, inner], "input_layernorm": [width],
                            "post_attention_layernorm": [width]}.items():
            shapes[f"model.layers.{layer}.{name}.weight"] = shape
    header, values, draw = {}, [], random.Random(3)
    for name, shape in shapes.items():
        begin = 4 * len(values)
        count = shape[0] * (shape[1] if len(shape) > 1 else 1)
        values += [1.0] * count if "norm" in name else [draw.gauss(0, 0.2) for _ in range(count)]
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [begin, 4 * len(values)]}
    words = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(words)) + words + struct.pack(f"<{len(values)}f", *values))


def run(command, place, environment):
    done = subprocess.run(["bash", "-c", command], cwd=place, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    print(f"$ {command}\n{done.stdout}", flush=True)
    return done.stdout


def check(place):
    text = make_tokenizers.mixed_text(60000)
    tokenizer, end = make_tokenizers.byte_level_bpe(text.split("\n"))
    (place / "model").mkdir()
    make_tokenizers.save(tokenizer, end, place / "model")
    write_model(place / "model", tokenizer.get_vocab_size())
    (place / "book.txt").write_text(text, encoding="utf-8", newline="")
    (place / "finetune.yaml").write_text(blocks("yaml")[0])
    environment = {**os.environ, "PATH": f"{pathlib.Path(sys.argv[1]).resolve().parent}:{os.environ['PATH']}"}
    commands = blocks("bash")[0].strip().split("\n")
    assert len(commands) == 5 and commands[4].startswith("python3 -c 'from transformers"), commands
    made, _, trained, generated = [run(command, place, environment) for command in commands[:4]]
    assert made.startswith("train.bin: ") and "1 document" in made
    assert "step" in trained
    exported = place / "run" / "LATEST" / "model" / "consolidated"
    for name in ("tokenizer.json", "tokenizer_config.json"):
        assert (exported / name).read_bytes() == (place / "model" / name).read_bytes(), name
    # The printed text must equal the decoded ids of a run without a tokenizer.
    fresh = Tokenizer.from_file(str(exported / "tokenizer.json"))
    fresh.no_truncation()
    prompt = ",".join(map(str, fresh.encode("In the beginning").ids))
    stop = json.dumps({"eos_token_id": fresh.token_to_id(end)})
    (exported / "generation_config.json").write_text(stop)
    ids = run(commands[3].replace('--prompt "In the beginning"', f"--tokens {prompt}").replace(" run ", f" {exported} "),
              place, environment)
    want = fresh.decode([int(number) for number in ids.split(",")], skip_special_tokens=True)
    assert generated == want + "\n", f"{generated!r} is not {want!r}"
    # The exported directory must give the same text as the run.
    again = run(commands[3].replace(" run ", f" {exported} "), place, environment)
    assert again == generated


def main():
    # The example must equal the recipe of the document.
    import_free = "".join(line.split("  #")[0].rstrip() + "\n" for line in (ROOT / "examples/finetune.yaml").read_text().splitlines()
                          if not line.startswith("#"))
    flat = lambda text: sorted(re.findall(r"\w+: [\w.e-]+", text))
    assert flat(import_free) == flat(blocks("yaml")[0]), "examples/finetune.yaml differs from docs/getting-started.md"
    with tempfile.TemporaryDirectory() as place:
        check(pathlib.Path(place))


if __name__ == "__main__":
    main()

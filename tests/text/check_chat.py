"""Runs the commands at the beginning of docs/fine-tuning.md unchanged, and checks the model's answer.

    check_chat.py HEDDLE
"""

import json
import os
import pathlib
import re
import sys
import tempfile

from tokenizers import Tokenizer

import make_tokenizers
from check_commands import ROOT, run, write_model

TEMPLATE = ("{% for m in messages %}<{{ m.role }}>{{ m.content }}</s>{% endfor %}"
            "{% if add_generation_prompt %}<assistant>{% endif %}")
TALKS = [("In the beginning", "God created"), ("and the earth", "was without form"), ("Let there be", "light")]


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / "docs" / "fine-tuning.md").read_text(), re.S)


def check(place):
    text = make_tokenizers.mixed_text(60000)
    tokenizer, end = make_tokenizers.byte_level_bpe(text.split("\n"))
    (place / "model").mkdir()
    make_tokenizers.save(tokenizer, end, place / "model")
    settings = json.loads((place / "model" / "tokenizer_config.json").read_text())
    (place / "model" / "tokenizer_config.json").write_text(json.dumps({**settings, "chat_template": TEMPLATE}))
    write_model(place / "model", tokenizer.get_vocab_size())
    with open(place / "chat.jsonl", "w") as out:
        for asked, said in TALKS * 8:
            row = {"messages": [{"role": "user", "content": asked}, {"role": "assistant", "content": said}]}
            out.write(json.dumps(row) + "\n")
    (place / "chat.yaml").write_text(blocks("yaml")[0])
    environment = {**os.environ, "PATH": f"{pathlib.Path(sys.argv[1]).resolve().parent}:{os.environ['PATH']}"}
    commands = blocks("bash")[0].strip().split("\n")
    assert len(commands) == 4 and commands[0].startswith("export HEDDLE_PYTHON="), commands
    prepared, shown, trained = [run(command, place, environment) for command in commands[1:]]
    assert " 24 samples, " in prepared, prepared
    assert "<user>In the beginning</s>[[<assistant>God created</s>]]" in shown, shown
    assert "step" in trained
    ask = "heddle generate run --chat --prompt 'Let there be' --temperature 0 --max-new-tokens 5"
    # The answer must be the decoded ids after the ids of template and prompt.
    answer = run(ask, place, environment)
    fresh = Tokenizer.from_file(str(place / "model" / "tokenizer.json"))
    fresh.no_truncation()
    fresh.no_padding()
    asked = fresh.encode("<user>Let there be</s><assistant>", add_special_tokens=False).ids
    ids = run(f"heddle generate run --tokens {','.join(map(str, asked))} --temperature 0 --max-new-tokens 5", place, environment)
    want = fresh.decode([int(number) for number in ids.split(",")][len(asked):], skip_special_tokens=True)
    assert answer.strip() == want.strip(), f"{answer!r} is not {want!r}"
    from_config(place, environment, end)


def from_config(place, environment, word):
    """Checks that a chat run with random weights exports the tokenizer, whose directory defines the end of answers."""
    (place / "fresh").mkdir()
    config = json.loads((place / "model" / "config.json").read_text())
    end = Tokenizer.from_file(str(place / "model" / "tokenizer.json")).token_to_id(word)
    settings = json.loads((place / "model" / "tokenizer_config.json").read_text())
    settings["chat_template"] = TEMPLATE.replace("</s>", word)  # a token of the vocabulary, so that answers end
    (place / "model" / "tokenizer_config.json").write_text(json.dumps(settings))
    (place / "fresh" / "config.json").write_text(json.dumps({**config, "eos_token_id": end}))
    recipe = blocks("yaml")[0].replace("model: {pretrained_model_name_or_path: model}",
                                       "model: {_target_: from_config, config: fresh, dtype: float32}")
    recipe = recipe.replace("lr: 1.0e-5", "lr: 1.0e-2").replace("num_epochs: 2", "num_epochs: 40")
    recipe = recipe.replace("chat.jsonl", "chat.jsonl\n  tokenizer: {pretrained_model_name_or_path: model}")
    (place / "fresh.yaml").write_text(recipe.replace("checkpoint_dir: run", "checkpoint_dir: fresh_run"))
    run("heddle train fresh.yaml", place, environment)
    exported = place / "fresh_run" / "LATEST" / "model" / "consolidated"
    assert json.loads((exported / "config.json").read_text())["eos_token_id"] == end
    ask = "heddle generate {} --chat --prompt 'Let there be' --temperature 0 --max-new-tokens 40"
    assert run(ask.format("fresh_run"), place, environment) == run(ask.format(exported), place, environment) == "light\n"
    # If the model's files name no end token, the end token of --tokenizer counts.
    bare = place / "bare"
    bare.mkdir()
    for file in exported.iterdir():
        if "token" not in file.name:
            (bare / file.name).write_bytes(file.read_bytes())
    (bare / "config.json").write_text(json.dumps({**json.loads((bare / "config.json").read_text()), "eos_token_id": None}))
    assert run(ask.format("bare") + " --tokenizer model", place, environment) == "light\n"


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        check(pathlib.Path(folder))

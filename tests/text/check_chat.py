"""Runs the commands at the beginning of docs/texts.md as they stand there, and asks the model for an answer.

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
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / "docs" / "texts.md").read_text(), re.S)


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
    assert len(commands) == 4 and commands[0].startswith("python3 -m pip install"), commands
    prepared, shown, trained = [run(command, place, environment) for command in commands[1:]]
    assert " 24 samples, " in prepared, prepared
    assert "<user>In the beginning</s>[[<assistant>God created</s>]]" in shown, shown
    assert "step" in trained
    ask = "heddle generate run --chat --prompt 'Let there be' --temperature 0 --max-new-tokens 5"
    # The answer alone, of the ids that the template and the tokenizer give.
    answer = run(ask, place, environment)
    fresh = Tokenizer.from_file(str(place / "model" / "tokenizer.json"))
    fresh.no_truncation()
    fresh.no_padding()
    asked = fresh.encode("<user>Let there be</s><assistant>", add_special_tokens=False).ids
    ids = run(f"heddle generate run --tokens {','.join(map(str, asked))} --temperature 0 --max-new-tokens 5", place, environment)
    want = fresh.decode([int(number) for number in ids.split(",")][len(asked):], skip_special_tokens=True)
    assert answer.strip() == want.strip(), f"{answer!r} is not {want!r}"


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        check(pathlib.Path(folder))

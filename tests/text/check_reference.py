"""Checks that docs/reference lists every key of the metrics and every file of a run, that the commands of all guides use
existing options, and that `heddle check` accepts the recipes of the guides.

    check_reference.py HEDDLE
"""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
RECIPE = """
model: {config: {model_type: llama, vocab_size: 256, hidden_size: 32, intermediate_size: 64, num_hidden_layers: 1,
                 num_attention_heads: 2, max_position_embeddings: 128}}
dataset: {file_pattern: train.bin, seq_len: 64}
validation_dataset: {file_pattern: train.bin, seq_len: 64, limit_dataset_samples: 16}
validation_dataset_more: {file_pattern: train.bin, seq_len: 64, limit_dataset_samples: 16}
step_scheduler: {global_batch_size: 8, local_batch_size: 4, max_steps: 2, val_every_steps: 1}
optimizer: {lr: 0.003}
distributed: {strategy: fsdp2, mp_policy: {param_dtype: float32}}
validation_samples: {prompts: ["In the"], max_new_tokens: 4}
tensorboard: {}
wandb: {}
mlflow: {}
checkpoint: {checkpoint_dir: run}
"""
BASE = {
    "model": "{config: {model_type: qwen3, vocab_size: 256, hidden_size: 64, intermediate_size: 192, num_hidden_layers: 4, "
             "num_attention_heads: 4, num_key_value_heads: 4, head_dim: 16}}",
    "dataset": "{_target_: MockIterableDataset, seq_len: 64, num_samples: 100000}",
    "step_scheduler": "{global_batch_size: 32, local_batch_size: 4, max_steps: 2}",
}


def cells(page, heading=None):
    """Returns the names in the first column of the tables of a page, or of one section."""
    text = (ROOT / "docs" / "reference" / page).read_text()
    if heading:
        text = text.split(f"## {heading}\n")[1].split("\n## ")[0]
    return [name for row in re.findall(r"^\| (`.*?) \|", text, re.M) for name in re.findall(r"`([^`]+)`", row)]


def pattern(name):
    """Converts a name of the page to a regular expression: N is a number, NAME any path."""
    parts = re.split(r"(NAME|\bN\b|_N(?=[_.]))", name)
    return "".join({"NAME": ".+", "N": r"\d+", "_N": r"_\d+"}.get(part, re.escape(part)) for part in parts)


def check_files(run):
    known = [pattern(name) for name in cells("files.md")]
    step = r"epoch_\d+_step_\d+"
    for path in sorted(run.rglob("*")):
        if path.is_symlink() or path.is_file():
            name = str(path.relative_to(run))
            inner = re.sub(rf"^{step}/", "", name)
            assert any(re.fullmatch(one, inner) for one in known), f"docs/reference/files.md lacks {name}"


def check_keys(run):
    for name, heading in (("training", "training.jsonl"), ("validation", "validation.jsonl"),
                          ("validation_more", "validation.jsonl"), ("samples", "samples.jsonl")):
        keys = set(json.loads((run / f"{name}.jsonl").read_text().splitlines()[0]))
        missing = keys - set(cells("metrics.md", heading))
        assert not missing, f"docs/reference/metrics.md lacks {sorted(missing)} of {name}.jsonl"


def options_of_commands():
    """Returns {command: options} from commands.md."""
    page = (ROOT / "docs" / "reference" / "commands.md").read_text()
    parts = re.split(r"^## heddle ", page, flags=re.M)[1:]
    return {part.split("\n")[0]: set(re.findall(r"^\| `.*?(--[\w-]+).*?` \|", part, re.M) + re.findall(r", (--[\w-]+)", part))
            for part in parts}


def commands_in(page):
    """Yields (line, command with its arguments) from the code blocks of a page, without comments."""
    blocks = re.split(r"^```", re.sub(r" \\\n *", " ", page), flags=re.M)
    for block in blocks[1::2]:
        for line in block.split("\n")[1:]:
            command = re.search(r"(?:^|[ /])heddle ((?:[a-z]+ )+.*)$", re.split(r"\s#", line)[0])
            if command and not line.startswith(("heddle 0", "error", "  ")):
                yield line, command.group(1)


def check_commands():
    known = options_of_commands()
    overrides = re.findall(r"^## `(\w+)`", (ROOT / "docs" / "reference" / "configuration.md").read_text(), re.M)
    for page in [ROOT / "README.md", *(page for page in sorted((ROOT / "docs").rglob("*.md")) if page.name != "errors.md")]:
        for line, command in commands_in(page.read_text()):
            words = command.split()
            name = " ".join(words[:2]) if " ".join(words[:2]) in known else words[0]
            assert name in known, f"{page.relative_to(ROOT)}: no command {name}: {line}"
            used = {option.split("=")[0] for option in words if option.startswith("--")}
            wrong = {option for option in used - known[name]
                     if "." not in option and option[2:] not in [*overrides, "peft", "version"]}
            assert not wrong, f"{page.relative_to(ROOT)}: heddle {name} has no {', '.join(sorted(wrong))}: {line}"


def check_recipes(heddle, place):
    """Checks the recipes of the guides, completed from BASE, on 1, 2, 4 or 8 ranks. Skips recipes of plugins to write."""
    names = []
    for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "docs" / "reference").glob("*.md")]:
        for number, text in enumerate(re.findall(r"```yaml\n(.*?)```", page.read_text(), re.S), 1):
            sections = set(re.findall(r"^(\w+):", text, re.M))
            names.append(f"{page.stem}_{number}.yaml")
            (place / names[-1]).write_text(text + "".join(f"{name}: {value}\n" for name, value in BASE.items()
                                                          if name not in sections))
    out = subprocess.run([heddle, "check", *names, "--world-size", "1,2,4,8", "--elsewhere", "--json"], cwd=place,
                         capture_output=True, text=True).stdout
    results = [json.loads(line) for line in out.splitlines()]
    accepted = {result["config"] for result in results if "error" not in result}
    for result in results:
        assert result["config"] in accepted, f"a recipe of a guide: {result}"
    assert len(names) >= 12 and accepted == set(names), sorted(set(names) - accepted)


def main():
    check_commands()
    heddle = pathlib.Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory() as folder:
        place = pathlib.Path(folder)
        check_recipes(heddle, place)
        (place / "book.txt").write_text("In the beginning God created the heaven and the earth.\n" * 100)
        (place / "run.yaml").write_text(RECIPE)
        for words in (["data", "book.txt", "--out", "train.bin"], ["train", "run.yaml", "--nproc-per-node", "2"]):
            subprocess.run([heddle, *words], cwd=place, env=os.environ, check=True, stdout=subprocess.DEVNULL)
        check_files(place / "run")
        check_keys(place / "run")


if __name__ == "__main__":
    main()

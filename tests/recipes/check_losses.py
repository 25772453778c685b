"""Trains ten of NeMo AutoModel's recipes with heddle and with transformers on the same samples, and compares losses.

Run by hand (needs torch 2.11, transformers 5, tokenizers, jinja2 and a build; no test runs it):

    python3 tests/recipes/check_losses.py EXAMPLES [--heddle build/heddle] [--only KIND]

EXAMPLES is the directory `examples` of a clone of NeMo AutoModel. Recipes are used unchanged: HEDDLE_PLACES maps names of
the hub to small models and synthetic rows. Sizes, paths and the number of ranks are overridden. Dtypes are overridden
because bfloat16 does not agree to 2e-5, and the backend because there is no GPU. transformers computes one sample at a
time, so only heddle pads, packs, and splits into microbatches and ranks. transformers uses the learning rates that heddle
logs. Losses agree to 2e-5 and gradient norms to 2e-4. A benchmark prints four digits of a loss and no norm. The output is
a Markdown table.
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
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.utils import logging

from recipe_kinds import KINDS, TEXTS, seed_of

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "prepare"))
sys.path.insert(0, str(HERE.parent / "golden"))
import cases  # noqa: E402
import harness  # noqa: E402
import rows  # noqa: E402
from check_export import write_tokens  # noqa: E402

FLOAT32 = {"distributed.mp_policy.param_dtype": "float32", "distributed.mp_policy.reduce_dtype": "float32"}
TRAINING_ROWS, VALIDATION_ROWS = 37, 9


class Refused(Exception):
    pass


def run(heddle, environment, *words):
    done = subprocess.run([heddle, *map(str, words)], capture_output=True, text=True, env=environment)
    if done.returncode != 0:
        raise Refused(done.stderr.strip())
    return done.stdout


def texts(kind, folder):
    """Creates a directory of rows with a training and a validation split."""
    place = folder / "texts"
    place.mkdir()
    for split, count, seed in (("train", TRAINING_ROWS, 5), ("validation", VALIDATION_ROWS, 6)):
        with open(place / f"{split}.jsonl", "w", encoding="utf-8") as out:
            for row in rows.rows(kind.rows, count, seed):
                out.write(json.dumps(kind.row(row)) + "\n")
    return place


def model_directory(kind, folder):
    """Creates a small model with random weights and a test tokenizer."""
    changes = {"template": kind.template} if kind.template else {}
    directory = pathlib.Path(harness.directory((kind.rows, "bytes", changes), folder))
    torch.manual_seed(7)
    vocabulary = max(json.loads((directory / "tokenizer.json").read_text())["model"]["vocab"].values()) + 16
    config = AutoConfig.for_model(kind.model, vocab_size=vocabulary, bos_token_id=None, eos_token_id=None,
                                  pad_token_id=None, initializer_range=0.1, **kind.sizes)
    AutoModelForCausalLM.from_config(config, dtype=torch.float32).save_pretrained(directory)
    return directory


def overridden(kind, folder, place):
    out = {"dist_env.backend": "gloo", "checkpoint.checkpoint_dir": folder / "run", **FLOAT32, **kind.overrides}
    if kind.model_key:
        out[kind.model_key] = "float32"
    if kind.local:
        out["dataset.path_or_dataset_id"] = place / "train.jsonl"
        out["validation_dataset.path_or_dataset_id"] = place / "validation.jsonl"
    if kind.tokens == "file":
        torch.manual_seed(3)
        write_tokens(folder / "train.bin", torch.randint(kind.vocabulary, (TRAINING_ROWS * kind.length + 1,)).tolist())
        out["dataset.file_pattern"] = folder / "train.bin"
    return [word for key, value in out.items() for word in (f"--{key}", value)]


def samples_of(kind, folder):
    """Returns the (training, validation) samples as pairs of inputs and labels, and the row order of the seed."""
    if kind.tokens:
        stream = kind.stream(folder)
        return [(row[:-1], row[1:]) for row in stream], []
    sets = {}
    for file in sorted((folder / "data").glob("*.samples")):
        read, head = harness.read(str(file))
        sets[len(read)] = [harness.as_labels(sample, head["flags"]) for sample in read]
    return sets[TRAINING_ROWS], sets.get(VALIDATION_ROWS, sets[TRAINING_ROWS])


def packs(kind, samples):
    """Packs the samples into rows by next fit, in the order of the data set."""
    if not kind.pack:
        return [[sample] for sample in samples]
    out, room = [], 0
    for sample in samples:
        length = len(sample[0])
        if length > kind.pack:
            continue
        if length > room:
            out.append([])
            room = kind.pack
        out[-1].append(sample)
        room -= length
    return out


def losses_of(model, samples):
    """Yields the summed loss of each sample that has labels."""
    for inputs, labels in samples:
        wanted = torch.tensor(labels)
        if not bool((wanted != -100).any()):
            continue
        logits = model(torch.tensor([inputs]), use_cache=False).logits[0]
        yield torch.nn.functional.cross_entropy(logits, wanted, ignore_index=-100, reduction="sum")


def labels_of(samples):
    return sum(label != -100 for _, labels in samples for label in labels)


class Reference:
    def __init__(self, kind, directory, sets):
        loop = {"experts_implementation": "eager"} if kind.model == "qwen3_moe" else {}
        self.model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32, attn_implementation="eager", **loop)
        self.model.eval()  # no dropout
        self.kind, self.rows = kind, packs(kind, sets[0])
        self.validation = sets[1][:len(sets[1]) - len(sets[1]) % kind.whole_validation]
        make = torch.optim.Adam if kind.adam else torch.optim.AdamW
        self.optimizer = make(self.model.parameters(), lr=1, **kind.optimizer)

    def step(self, number, line):
        kind, count = self.kind, len(self.rows)
        steps = -(-count // kind.batch)  # an epoch's last step may be smaller
        epoch, place = divmod(number, steps)
        order = range(count)
        if kind.shuffle:
            order = torch.randperm(count, generator=torch.Generator().manual_seed(kind.seed + epoch)).tolist()
        batch = [sample for row in order[place * kind.batch:(place + 1) * kind.batch] for sample in self.rows[row]]
        labels = labels_of(batch)
        self.optimizer.zero_grad()
        total = 0.0
        for loss in losses_of(self.model, batch):
            (loss if kind.benchmark else loss / labels).backward()
            total += loss.item()
        norm = None
        if not kind.benchmark:
            norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0).item()
        for group in self.optimizer.param_groups:
            group["lr"] = line["lr"]
        self.optimizer.step()
        return total / labels, norm, labels

    @torch.no_grad()
    def validate(self):
        return sum(loss.item() for loss in losses_of(self.model, self.validation)) / labels_of(self.validation)


def compare(kind, directory, folder, lines):
    """Returns the largest relative differences of losses, norms and validation losses."""
    reference = Reference(kind, directory, samples_of(kind, folder))
    checked = {line["step"]: line["loss"] for line in read_lines(folder / "run" / "validation.jsonl")}
    worst = {"loss": 0.0, "norm": 0.0, "validation": 0.0}
    for number, line in enumerate(lines):
        loss, norm, labels = reference.step(number, line)
        assert line["num_label_tokens"] == labels, f"step {number} has {line['num_label_tokens']} labels, expected {labels}"
        rounding = 5e-5 / loss if kind.benchmark else 0  # rounding of four printed digits
        worst["loss"] = max(worst["loss"], abs(line["loss"] - loss) / loss - rounding)
        if norm is not None:
            worst["norm"] = max(worst["norm"], abs(line["grad_norm"] - norm) / norm)
        if number in checked:
            worst["validation"] = max(worst["validation"], abs(checked.pop(number) / reference.validate() - 1))
    assert not checked, f"these validations were not compared: {checked}"
    return worst


def read_lines(file):
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def benchmark_lines(kind, printed):
    found = re.findall(r"num_label_tokens=(\d+) .* loss=([\d.]+)", printed)
    return [{"loss": float(loss), "num_label_tokens": int(labels), "lr": kind.rate} for labels, loss in found]


def first_weights(heddle, environment, kind, folder, recipe, words):
    """Returns randomly initialized weights: heddle's export after a step with learning rate 0."""
    still = ["--optimizer.lr", 0, "--optimizer.weight_decay", 0, "--step_scheduler.max_steps", 1,
             "--recipe", "TrainFinetuneRecipeForNextTokenPrediction", "--checkpoint.enabled", "true",
             "--checkpoint.checkpoint_dir", folder / "still", "--checkpoint.save_consolidated", "final"]
    run(heddle, environment, "train", recipe, *words, *still, "--nproc-per-node", kind.ranks)
    return folder / "still" / "LATEST" / "model" / "consolidated"


def check(heddle, examples, name, kind):
    recipe = examples / kind.recipe
    kind.seed = seed_of(recipe)
    with tempfile.TemporaryDirectory() as made:
        folder = pathlib.Path(made)
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "HEDDLE_PYTHON": sys.executable,
                       "HEDDLE_PLACES": str(folder / "places"), "HEDDLE_DATA": str(folder / "data")}
        place = texts(kind, folder) if kind.rows else None
        directory = model_directory(kind, folder) if kind.model_name else None
        names = [(kind.model_name, directory)] + [(name, place) for name in TEXTS if place]
        (folder / "places").write_text("".join(f"{name} {path}\n" for name, path in names if name and path))
        words = overridden(kind, folder, place)
        if kind.random:
            directory = first_weights(heddle, environment, kind, folder, recipe, words)
        printed = run(heddle, environment, "train", recipe, *words, "--nproc-per-node", kind.ranks)
        lines = benchmark_lines(kind, printed) if kind.benchmark else read_lines(folder / "run" / "training.jsonl")
        assert len(lines) == kind.steps, f"the run has {len(lines)} steps, expected {kind.steps}"
        worst = compare(kind, directory, folder, lines)
        bad = worst["loss"] > 2e-5 or worst["norm"] > 2e-4 or worst["validation"] > 2e-5
        said = ["-" if key == "norm" and kind.benchmark else f"{max(worst[key], 0):.1e}" for key in worst]
        if not (folder / "run" / "validation.jsonl").exists():
            said[2] = "-"
        print(f"| {name} | `{kind.recipe}` | {kind.ranks} | {len(lines)} | {' | '.join(said)} |{' DIFFERENT' if bad else ''}",
              flush=True)
        return bad


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("examples", type=pathlib.Path)
    arguments.add_argument("--heddle", type=pathlib.Path, default=HERE.parent.parent / "build" / "heddle")
    arguments.add_argument("--only", action="append")
    given = arguments.parse_args()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    print("| kind | recipe | ranks | steps | loss | norm | validation |\n|---|---|--:|--:|--:|--:|--:|", flush=True)
    wrong = 0
    for name, kind in KINDS.items():
        if given.only and name not in given.only:
            continue
        try:
            wrong += check(given.heddle.resolve(), given.examples, name, kind)
        except Refused as refused:
            wrong += 1
            print(f"| {name} | `{kind.recipe}` | | | | | | REFUSED\n{refused}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

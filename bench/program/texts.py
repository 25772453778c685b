"""Times text data sets: preparation, the start of a run on prepared samples, and packed against padded batches.

  PYTHON bench/program/texts.py [--heddle build/heddle] [--only prepare|start|packs] [--rounds 5] [--rows 16000]

PYTHON needs tokenizers, jinja2 and pyarrow; a run needs none of them. The rows are synthetic, with the lengths of squad.
Prints wall time and CPU time (user + system, of the program and its children), because other programs may run.
Contenders alternate, and the least time of the rounds counts. Each process has at most two threads.
"""

import argparse
import array
import json
import math
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
VOCABULARY = 32000


class Words:
    """Generator of synthetic words, a few of which are frequent, as in a language."""

    def __init__(self, count=40000):
        draw = random.Random(3)
        parts = [a + b for a in "bcdfghklmnprstvw" for b in ("a", "e", "i", "o", "u", "an", "er", "ion", "al", "is")]
        words = dict.fromkeys("".join(draw.choices(parts, k=draw.choice((1, 2, 2, 3, 3, 4)))) for _ in range(count))
        self.words = sorted(words, key=lambda word: len(word) + draw.random() * 8)  # frequent words are short
        self.sums, total = [], 0.0
        for rank in range(len(self.words)):
            total += 1 / (rank + 3)
            self.sums.append(total)
        self.draw = random.Random(4)

    def text(self, words):
        return " ".join(self.draw.choices(self.words, cum_weights=self.sums, k=max(1, words)))

    def row(self):
        """Returns a row with squad's lengths: contexts of 116 words on average, at most 650; questions of 10, answers of 3."""
        context = min(650, max(20, round(math.exp(self.draw.gauss(4.66, 0.42)))))
        question, answer = max(3, round(self.draw.gauss(10, 3))), 1 + int(self.draw.expovariate(0.5))
        return {"context": self.text(context), "question": self.text(question) + "?",
                "answers": {"text": [self.text(answer)], "answer_start": [0]}}


def make(folder, count):
    """Writes a model directory with a byte-level BPE tokenizer, and rows as Parquet. Returns the number of characters."""
    import pyarrow
    import pyarrow.parquet
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    words = Words()
    rows = [words.row() for _ in range(count)]
    (folder / "squad").mkdir()
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), folder / "squad" / "train-00000-of-00001.parquet")
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator((row["context"] for row in rows), trainers.BpeTrainer(
        vocab_size=VOCABULARY, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=["<|begin|>", "<|end|>"]))
    (folder / "model").mkdir()
    tokenizer.save(str(folder / "model" / "tokenizer.json"))
    (folder / "model" / "tokenizer_config.json").write_text(json.dumps(
        {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|end|>", "pad_token": "<|end|>"}))
    return sum(len(row["context"]) + len(row["question"]) + len(row["answers"]["text"][0]) for row in rows)


class Ran:
    """A command that ran: wall and CPU seconds, the highest peak memory of one of its processes in MiB, its output."""

    def __init__(self, command, environment):
        begin, before = time.monotonic(), os.times()
        with tempfile.TemporaryFile() as out:
            process = subprocess.Popen([str(word) for word in command], stdout=out, stderr=subprocess.STDOUT, env=environment)
            self.memory, peaks = 0.0, {}
            while process.poll() is None:
                for child in tree(process.pid):
                    peaks[child] = max(peaks.get(child, 0), peak_of(child))
                time.sleep(0.005)
            out.seek(0)
            self.out = out.read().decode()
        after = os.times()
        self.clock = time.monotonic() - begin
        self.processor = after.children_user + after.children_system - before.children_user - before.children_system
        self.memory = max(peaks.values(), default=0) / 1024
        if process.returncode:
            sys.exit(f"{command}\n{self.out}")


def tree(process):
    out = [process]
    for one in out:
        try:
            for task in os.listdir(f"/proc/{one}/task"):
                out += map(int, pathlib.Path(f"/proc/{one}/task/{task}/children").read_text().split())
        except OSError:
            pass
    return out


def peak_of(process):
    """Returns the peak memory of a process in KiB."""
    try:
        for line in pathlib.Path(f"/proc/{process}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1])
    except OSError:
        pass
    return 0


PROTOTYPE = '''
import array, os, sys
import pyarrow.parquet
from tokenizers import Tokenizer
rows = pyarrow.parquet.ParquetFile(sys.argv[1])
tokenizer = Tokenizer.from_file(sys.argv[2])
tokens, spans, firsts = array.array("H"), array.array("I"), array.array("Q", [0])
for batch in rows.iter_batches(1000):
    given = batch.to_pylist()
    prompts = [f"Context: {row['context']} Question: {row['question']} Answer: " for row in given]
    full = [prompt + row["answers"]["text"][0].strip() for prompt, row in zip(prompts, given)]
    for whole, prompt in zip(tokenizer.encode_batch_fast(full), tokenizer.encode_batch_fast(prompts, add_special_tokens=False)):
        tokens.extend(whole.ids)
        spans.extend((len(prompt.ids), len(whole.ids)))
        firsts.append(len(tokens))
with open(sys.argv[3], "wb") as out:
    for part in (tokens, firsts, spans):
        out.write(part.tobytes())
    out.flush()
    os.fsync(out.fileno())
print(len(tokens), "tokens")
'''


def configuration(folder, name, more):
    section = {"seed": 3, "step_scheduler": {"global_batch_size": 32, "local_batch_size": 32, "num_epochs": 1},
               "model": {"config": {"model_type": "llama", "vocab_size": VOCABULARY, "hidden_size": 128,
                                    "intermediate_size": 352, "num_hidden_layers": 4, "num_attention_heads": 4,
                                    "num_key_value_heads": 4, "max_position_embeddings": 2048}, "dtype": "float32"},
               "dataset": {"_target_": "make_squad_dataset", "dataset_name": str(folder / "squad"),
                           "tokenizer": {"pretrained_model_name_or_path": str(folder / "model")}},
               "optimizer": {"lr": 0.0, "weight_decay": 0.0}, "distributed": {"strategy": "single"},
               "checkpoint": {"enabled": False, "checkpoint_dir": str(folder / name)}, "mfu": {"peak_tflops": 0.1}}
    for key, value in more.items():
        section[key] = {**section.get(key, {}), **value}
    (folder / f"{name}.yaml").write_text(json.dumps(section))
    return folder / f"{name}.yaml"


def least(rans, key):
    return min(getattr(ran, key) for ran in rans)


def prepare(given, folder, environment):
    recipe = configuration(folder, "prepare", {})
    (folder / "prototype.py").write_text(PROTOTYPE)
    ours, theirs = [], []
    for number in range(given.rounds):
        out = folder / f"made{number}"
        ours.append(Ran([given.heddle, "prepare", recipe, "--out", out, "--jobs", 2], environment))
        theirs.append(Ran([sys.executable, folder / "prototype.py", folder / "squad" / "train-00000-of-00001.parquet",
                           folder / "model" / "tokenizer.json", folder / "prototype.bin"], environment))
    print(f"\n| preparation of {given.rows} rows, {given.megabytes:.1f} MB of text, 2 threads | wall, least | CPU, least | memory |")
    print("|---|--:|--:|--:|")
    for name, rans in (("`heddle prepare`", ours), ("a script with the tokenizers library", theirs)):
        print(f"| {name} | {least(rans, 'clock'):.2f} s | {least(rans, 'processor'):.2f} s | {least(rans, 'memory'):.0f} MiB |")


def start(given, folder, environment):
    """Times a run of one step on prepared samples, and a run of one step on a token file."""
    steps = {"step_scheduler": {"max_steps": 1, "global_batch_size": 2, "local_batch_size": 2}}
    text = configuration(folder, "start_texts", steps)
    Ran([given.heddle, "prepare", text], environment)
    tokens = array.array("H", (token % VOCABULARY for token in array.array("H", random.Random(1).randbytes(12_000_000))))
    with open(folder / "train.bin", "wb") as out:
        out.write(array.array("i", [20240520, 1, len(tokens), *[0] * 253]).tobytes() + tokens.tobytes())
    file = configuration(folder, "start_file", steps)
    words = json.loads(file.read_text())
    words["dataset"] = {"file_pattern": str(folder / "train.bin"), "seq_len": 256}
    file.write_text(json.dumps(words))
    sides = {"prepared samples": (text, []), "a token file": (file, [])}
    for _ in range(2 * given.rounds):
        for recipe, rans in sides.values():
            rans.append(Ran([given.heddle, "train", recipe], environment))
    print("\n| a run of one step on | wall, least | CPU, least |\n|---|--:|--:|")
    for name, (_, rans) in sides.items():
        print(f"| {name} | {least(rans, 'clock'):.3f} s | {least(rans, 'processor'):.3f} s |")


def lines_of(folder, name):
    return [json.loads(line) for line in (folder / name / "training.jsonl").read_text().splitlines()]


def mean_loss(lines):
    labels = sum(line["num_label_tokens"] for line in lines)
    return sum(line["loss"] * line["num_label_tokens"] for line in lines) / labels, labels


def packs(given, folder, environment):
    """Times an epoch of 640 samples, packed and padded. The learning rate is 0, so both train the same model on every sample."""
    limited = {"dataset": {"limit_dataset_samples": 640}}
    print("\n| an epoch of 640 samples | padding | loss | samples per CPU second | ratio |\n|---|--:|--:|--:|--:|")
    for rows in given.local_batches:
        first = {}
        for name, more in (("padded", {"step_scheduler": {"global_batch_size": rows, "local_batch_size": rows}}),
                           ("packed", {"step_scheduler": {"global_batch_size": 1, "local_batch_size": 1},
                                       "packed_sequence": {"packed_sequence_size": 2048}})):
            recipe = configuration(folder, f"{name}{rows}", {**limited, **more})
            once = configuration(folder, f"{name}{rows}_once", {**limited, **more, "step_scheduler": {
                **more["step_scheduler"], "max_steps": 1}})
            Ran([given.heddle, "prepare", recipe], environment)
            first[name] = recipe, once, [], []
        for _ in range(given.rounds):
            for name, (recipe, once, whole, begun) in first.items():
                for file, rans in ((recipe, whole), (once, begun)):
                    for old in (folder / file.stem).glob("training*.jsonl"):
                        old.unlink()
                    rans.append(Ran([given.heddle, "train", file], environment))
        figures = {}
        for name, (recipe, once, whole, begun) in first.items():
            lines, one = lines_of(folder, recipe.stem), lines_of(folder, once.stem)
            loss, labels = mean_loss(lines)
            seconds = (least(whole, "processor") - least(begun, "processor")) * len(lines) / (len(lines) - len(one))
            text = sum(line["num_tokens_per_step"] for line in lines)
            all_tokens = sum(line["num_tokens_per_step"] / (1 - line["padding"]) for line in lines)
            figures[name] = loss, 640 / seconds
            ratio = f"{figures['packed'][1] / figures['padded'][1]:.2f}" if name == "packed" else ""
            title = f"rows of {rows} samples, padded" if name == "padded" else "packs of 2048 tokens"
            print(f"| {title} | {1 - text / all_tokens:.1%} | {loss:.6f} | {640 / seconds:.1f} | {ratio} |", flush=True)
        if abs(figures["packed"][0] / figures["padded"][0] - 1) > 2e-5:
            sys.exit("the losses of packed and padded batches differ")


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--heddle", type=pathlib.Path, default=HERE.parent.parent / "build" / "heddle")
    arguments.add_argument("--only", choices=("prepare", "start", "packs"))
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--rows", type=int, default=16000)
    arguments.add_argument("--local-batches", type=int, nargs="+", default=[8, 32, 64])
    given = arguments.parse_args()
    given.heddle = given.heddle.resolve()
    with tempfile.TemporaryDirectory() as place:
        folder = pathlib.Path(place)
        given.megabytes = make(folder, given.rows) / 1e6
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "RAYON_NUM_THREADS": "2", "TOKENIZERS_PARALLELISM": "true",
                       "HEDDLE_PYTHON": sys.executable, "HEDDLE_DATA": str(folder / "data")}
        for part in (prepare, start, packs):
            if given.only in (None, part.__name__):
                part(given, folder, environment)


if __name__ == "__main__":
    main()

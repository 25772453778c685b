#!/usr/bin/env python3
"""Makes tests/golden/layouts/trees.jsonl: data set directories, and the rows that the library datasets reads from them.

    python3 -m pip install datasets==5.2.0 && python3 tests/golden/make_layouts.py

Each line is one directory tree: its files in order (file k holds one row, {"a": k}), symbolic links, README.md,
.huggingface.yaml, and for each requested configuration ("": none) the splits in order with their rows. null: datasets
refuses the configuration. The first line holds the version of datasets."""

import gzip
import json
import os
import random
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
TREES = 200
NO_ROWS = ("md", "png", "py", "toml", "bin", "pdf")


def write(path, k):
    import pyarrow
    import pyarrow.parquet
    os.makedirs(os.path.dirname(path), exist_ok=True)
    kinds, row = os.path.basename(path).split(".")[1:], json.dumps({"a": k}) + "\n"
    table = pyarrow.table({"a": [k]})
    if {"parquet", "geoparquet"} & set(kinds):
        pyarrow.parquet.write_table(table, path)
    elif "arrow" in kinds:
        with pyarrow.ipc.new_stream(path, table.schema) as out:
            out.write_table(table)
    else:
        text = f"a\n{k}\n" if "csv" in kinds else "text\n" if set(kinds) & set(NO_ROWS) else row
        with (gzip.open if kinds[-1:] == ["gz"] else open)(path, "wt") as out:
            out.write(text)


def materialise(tree, folder):
    for k, name in enumerate(tree["files"]):
        write(os.path.join(folder, name), k)
    for name, target in tree.get("links", {}).items():
        os.makedirs(os.path.dirname(os.path.join(folder, name)), exist_ok=True)
        os.symlink(target, os.path.join(folder, name))
    for key, name in (("readme", "README.md"), ("yaml", ".huggingface.yaml")):
        if key in tree:
            with open(os.path.join(folder, name), "w") as out:
                out.write(tree[key])


def rows(folder, name, cache):
    """Returns [[split, rows], ...] of a configuration, or None if datasets refuses, and the reason."""
    import datasets
    try:
        read = datasets.load_dataset(folder, name or None, cache_dir=cache)
        return [[split, [int(a) for a in of_split["a"]]] for split, of_split in read.items()], ""
    except Exception as error:
        return None, f"{type(error).__name__}: {error}".split("\n")[0][:150]


def front(*configs, **more):
    """Returns a README.md with these configurations. Its front matter is JSON, which is valid YAML."""
    lines = [f"{key}: {value}" for key, value in more.items()] + (["configs:"] if configs else [])
    lines += ["- " + json.dumps(config) for config in configs]
    return "---\n" + "\n".join(lines) + "\n---\n# a data set\n"


def config(name, files=None, **more):
    return {"config_name": name, **({} if files is None else {"data_files": files}), **more}


def split(name, path):
    return {"split": name, "path": path}


ONE = ["data/a.parquet", "data/x/b.parquet", "data/x/y/c.parquet"]
WRITTEN = [
    # splits from names of files and directories
    {"files": ["train.jsonl", "test.jsonl", "other.jsonl"]},
    {"files": ["b.jsonl", "a.jsonl", "dataset_info.json", "config.json"]},
    {"files": ["train/a.jsonl", "train/b.jsonl", "test/a.jsonl", "validation.jsonl"]},
    {"files": ["a-b/train.jsonl", "a/train.jsonl", "a.b/train.jsonl"]},
    {"files": ["training.json", "valid.json", "evaluation.json"]},
    {"files": ["train-train.jsonl", "train.jsonl"]},
    {"files": ["train/train-1/x.jsonl", "train/y.jsonl"]},
    {"files": ["train-test.jsonl", "a.jsonl"]},
    {"files": ["trainer.jsonl", "contest.jsonl"]},
    {"files": ["my train 1.jsonl", "my_test.jsonl", "2dev3.jsonl", "x+val.jsonl"]},
    {"files": ["TRAIN.jsonl", "Test.jsonl"]},
    {"files": ["train.JSONL", "other.jsonl"]},
    {"files": ["sub/deep/down/eval/x.parquet", "sub/deep/down/dev/x.parquet"]},
    {"files": [".train.jsonl", "a.jsonl", ".hidden/train.jsonl", "__pycache__/train.jsonl", "x/__test__/b.jsonl"]},
    {"files": ["__test.jsonl", "a.jsonl"]},
    # names written by push_to_hub
    {"files": ["data/train-00000-of-00002.parquet", "data/train-00001-of-00002.parquet",
               "data/random-00000-of-00001.parquet", "data/test-00000-of-00001.parquet", "test.parquet"]},
    {"files": ["data/train_sft-00000-of-00001.parquet", "data/test_gen-00000-of-00001-8f00.parquet"]},
    {"files": ["data/a-b-00000-of-00001.parquet"]},
    {"files": ["data/v1.train-00000-of-00001.parquet", "data/train-1-of-1.parquet"]},
    {"files": ["en/train-00000-of-00001.parquet", "de/train-00000-of-00001.parquet"]},
    {"files": ["data/train-00000-of-00001.jsonl", "data/notes.jsonl"]},
    # several file types
    {"files": ["a.jsonl", "b.jsonl", "c.parquet"]},
    {"files": ["a.jsonl", "c.parquet"]},
    {"files": ["a.json", "b.jsonl"]},
    {"files": ["a.arrow", "b.jsonl", "state.txt"]},
    {"files": ["train.jsonl", "test.parquet"]},
    {"files": ["a.csv", "b.csv", "c.jsonl"]},
    {"files": ["a.jsonl", "LICENSE.md"]},
    {"files": ["a.jsonl", "LICENSE.md", "CHANGES.md"]},
    {"files": ["a.jsonl.gz", "b.jsonl"]},
    {"files": ["a.jsonl", "b.png", "c.png"]},
    {"files": ["a.jsonl", "train.py", "b.bin"]},
    {"files": ["a.jsonl", "test.png"]},
    {"files": ["a.jsonl.bak", "b.v1.jsonl"]},
    {"files": ["metadata.jsonl", "x.csv"]},
    {"files": ["instruction.md", "a.jsonl"]},
    {"files": ["a.ndjson", "b.json"]},
    {"files": ["a.geoparquet", "b.parquet"]},
    {"files": ["notes.bin"]},
    {"files": []},
    {"files": ["dataset_dict.json", "train/data-00000-of-00001.arrow", "train/state.json", "train/dataset_info.json"]},
    # symbolic links
    {"files": ["blobs/x", "blobs/y"], "links": {"data/train.jsonl": "../blobs/x"}},
    {"files": ["real/train.jsonl", "a/train.jsonl"], "links": {"link": "real"}},
    {"files": ["real/a.jsonl", "b.jsonl"], "links": {"link": "real"},
     "readme": front(config("default", "link/*.jsonl"))},
    {"files": ["a.jsonl"], "links": {"b.jsonl": "nowhere.jsonl"}},
    # front matter without configurations, and invalid front matter
    {"files": ["train.jsonl"], "readme": "# text\n\n---\nconfigs: [x]\n---\n", "names": ["", "default", "x"]},
    {"files": ["train.jsonl"], "readme": "---\nlicense: mit\nlanguage:\n- no\n---\n", "names": ["", "default", "en"]},
    {"files": ["train.jsonl"], "readme": "---\nconfigs: [\n---\n"},
    {"files": ["train.jsonl"], "readme": "---\nconfigs: []\n---\n"},
    {"files": ["train.jsonl"], "readme": "---\nconfigs: x\n---\n"},
    {"files": ["train.jsonl"], "readme": "---\nconfigs:\n- data_files: train.jsonl\n---\n"},
    {"files": ["train.jsonl", "x.jsonl"], "readme": "\n\n---\nconfigs:\n- config_name: default\n  data_files: x.jsonl\n---\n"},
    {"files": ["train.jsonl", "x.jsonl"], "readme": "---\nconfigs:\n- config_name: default\n  data_files: x.jsonl\n---  "},
    {"files": ["train.jsonl", "x.jsonl"], "readme": "--- \nconfigs:\n- config_name: default\n  data_files: x.jsonl\n---\n"},
    {"files": ["train.jsonl", "x.jsonl"], "readme": "---\nconfigs:\n- config_name: default\n  data_files: x.jsonl\n"},
    {"files": ["x.jsonl", "train.jsonl"], "yaml": "configs:\n- config_name: default\n  data_files: x.jsonl\n"},
    {"files": ["x.jsonl", "y.jsonl"], "yaml": "configs:\n- config_name: default\n  data_files: x.jsonl\n",
     "readme": front(config("default", "y.jsonl"))},
    # dataset_info names the default configuration
    {"files": ["a.jsonl", "b.jsonl"], "readme": front(config("one", "a.jsonl"), config("two", "b.jsonl"), dataset_info="{config_name: two}")},
    {"files": ["a.jsonl", "b.jsonl"],
     "readme": front(config("one", "a.jsonl"), config("two", "b.jsonl"), dataset_info="[{config_name: one}, {config_name: two}]")},
    {"files": ["a.jsonl", "b.jsonl"], "readme": front(dataset_info="{config_name: plain}"), "names": ["", "default", "plain"]},
    {"files": ["a.jsonl", "b.jsonl"], "readme": front(dataset_info="{license: mit}"), "names": ["", "default"]},
    {"files": ["a.jsonl", "b.jsonl"], "readme": front(config("one", "a.jsonl", default=True), dataset_info="{config_name: two}")},
    {"files": ["train.jsonl", "test.jsonl"], "readme": front(dataset_info="{splits: [{name: train, num_examples: 1}]}")},
    {"files": ["train.jsonl", "test.jsonl"],
     "readme": front(dataset_info="{splits: [{name: train, num_examples: 1}, {name: test, num_examples: 1}]}")},
    {"files": ["train.jsonl"], "readme": front(dataset_info="{splits: [{name: train, num_examples: 1}, {name: b, num_examples: 1}]}")},
    {"files": ["train.jsonl"], "readme": front(config("one", "*"), dataset_info="[{config_name: one, splits: [{name: test, "
                                                "num_examples: 1}]}, {config_name: two}]")},
    # data_dir
    {"files": ["en/train.parquet", "de/train.parquet"], "readme": front(config("default", data_dir="en"))},
    {"files": ["en/train.parquet", "en/test.parquet", "de/train.parquet"],
     "readme": front(config("en", data_dir="en"), config("de", data_dir="de"))},
    {"files": ["en/x.parquet", "de/y.parquet"], "readme": front(config("en", data_dir="en", default=True),
                                                                config("de", "y.parquet", data_dir="de"))},
    {"files": ["en/x.parquet"], "readme": front(config("en", data_dir="en"), config("de", data_dir="de"))},
    {"files": ["en/data/train-00000-of-00001.parquet", "en/data/more.parquet"], "readme": front(config("en", data_dir="en/"))},
    {"files": ["en/a.jsonl", "en/b.csv", "c.jsonl", "d.jsonl"], "readme": front(config("default", data_dir="en"))},
    {"files": ["train/en/a.jsonl", "train/en/b.jsonl"], "readme": front(config("default", data_dir="train/en"))},
    {"files": ["a.jsonl", "b/c.jsonl"], "readme": front(config("default"))},
    {"files": ["a.jsonl", "b/c.jsonl"], "readme": front(config("default", data_dir="."))},
    {"files": ["a.jsonl", "b/c.jsonl"], "readme": front(config("default", data_dir=""))},
    # patterns
    {"files": ONE, "readme": front(config("default", [split("train", "data/**/*.parquet")]))},
    {"files": ONE, "readme": front(config("default", [split("train", "**/*.parquet")]))},
    {"files": ONE, "readme": front(config("default", [split("train", "data/*")]))},
    {"files": ONE, "readme": front(config("default", "data/**"))},
    {"files": ONE, "readme": front(config("default", "**"))},
    {"files": ONE, "readme": front(config("default", "data/**/"))},
    {"files": ONE, "readme": front(config("default", "data"))},
    {"files": ONE, "readme": front(config("default", "data/**.parquet"))},
    {"files": ONE, "readme": front(config("default", "./data/*.parquet"))},
    {"files": ONE, "readme": front(config("default", "data/../data/a.parquet"))},
    {"files": ONE, "readme": front(config("default", "data//a.parquet"))},
    {"files": ONE, "readme": front(config("default", ["data/x/*", "data/*"]))},
    {"files": ONE, "readme": front(config("default", ["data/a.parquet", "data/a*"]))},
    {"files": ONE, "readme": front(config("default", ["data/a.parquet", "data/no.parquet"]))},
    {"files": ONE, "readme": front(config("default", ["data/a.parquet", "data/no*.parquet"]))},
    {"files": ONE, "readme": front(config("default", [split("train", "data/no*.parquet")]))},
    {"files": ONE, "readme": front(config("default", [split("train", "data/*"), split("test", "data/no*")]))},
    {"files": ["a1.jsonl", "a2.jsonl", "a10.jsonl", "b1.jsonl", "a[1].jsonl"],
     "readme": front(config("one", "a?.jsonl"), config("set", "a[12].jsonl"), config("not", "[!a]1.jsonl"),
                     config("range", "a[0-1]*.jsonl"), config("literal", "a[[]1].jsonl"))},
    {"files": ["a.jsonl", "b.jsonl"], "readme": front(config("default", [split("train", "a.jsonl"), split("train", "b.jsonl")]))},
    {"files": ["a.jsonl", "b.jsonl"], "readme": front(config("default", [split("train", ["a.jsonl", "b.jsonl"])]))},
    {"files": ["a.jsonl", "b.jsonl"], "readme": front(config("default", [split("test", "b.jsonl"), split("train", "a.jsonl")]))},
    {"files": ["a.jsonl", "b.jsonl"], "readme": front(config("default", {"train": "a.jsonl"}))},
    {"files": ["a.jsonl", "b.jsonl"], "readme": front(config("default", ["a.jsonl", split("train", "b.jsonl")]))},
    {"files": ["a.jsonl", "b.jsonl"], "readme": front(config("default", [split("a-b", "b.jsonl")]))},
    {"files": ["a.jsonl", "b.jsonl"], "readme": front(config("default", [split("sft.v1", "b.jsonl")]))},
    {"files": ["a.jsonl", "b.jsonl"], "readme": front(config("default", [{"split": "train"}]))},
    {"files": ["a.jsonl", "b.jsonl"], "readme": front(config("default", [{"split": "train", "path": "a.jsonl", "x": 1}]))},
    {"files": [".hidden/a.jsonl", ".hidden/.b.jsonl", "c.jsonl", "__x/d.jsonl"],
     "readme": front(config("one", ".hidden/*.jsonl"), config("two", ".hidden/.*.jsonl"), config("three", "*/*.jsonl"),
                     config("four", "__x/*"), config("five", "__*/*"))},
    {"files": ["README.md.jsonl", "config.json", "a.json"],
     "readme": front(config("one", "config.json"), config("two", "*.json"))},
    # several configurations
    {"files": ["a.jsonl", "b.jsonl"], "readme": front(config("one", "a.jsonl"), config("two", "b.jsonl"))},
    {"files": ["a.jsonl", "b.jsonl"], "readme": front(config("one", "a.jsonl"), config("default", "b.jsonl"))},
    {"files": ["a.jsonl", "b.jsonl"], "readme": front(config("one", "a.jsonl"), config("two", "b.jsonl", default=True))},
    {"files": ["a.jsonl", "b.jsonl"], "readme": front(config("one", "a.jsonl", default=True), config("default", "b.jsonl"))},
    {"files": ["a.jsonl", "b.jsonl"], "readme": front(config("one", "a.jsonl", default=False), config("two", "b.jsonl"))},
    {"files": ["a.jsonl", "b.jsonl"], "readme": front(config("one", "a.jsonl"), config("one", "b.jsonl"))},
    {"files": ["a.jsonl"], "readme": front(config("one", "a.jsonl"))},
    {"files": ["a.jsonl", "b.parquet"], "readme": front(config("one", "a.jsonl"), config("two", "b.parquet"))},
    {"files": ["a.jsonl", "b.jsonl"], "readme": front(config("one", "a.jsonl"), config("two", "no.jsonl"))},
    {"files": ["a.jsonl", "b.jsonl"], "readme": front(config("two", "no.jsonl"), config("one", "a.jsonl"))},
    {"files": ["a.jsonl", "b.txt"], "readme": front(config("one", ["a.jsonl", "b.txt"]))},
    {"files": ["a.jsonl", "b.jsonl"], "readme": front(config("one", "a.jsonl", drop_labels=True, sep=";", version="1.0.0"))},
    {"files": ["a.jsonl", "train.py"], "readme": front(config("one", "*"))},
]

STEMS = ["train", "test", "valid", "val", "dev", "training", "eval", "evaluation", "testing", "validation", "a", "b", "part.1",
         "train-00000-of-00002", "train-00001-of-00002", "test-00000-of-00001", "train_sft-00000-of-00001", "x-00000-of-00001",
         "my_train", "trainer", "contest", "train-test", "2train", "TRAIN", "test 1", "val.2", "old-dev", ".train", "latest"]
FOLDERS = ["", "", "", "data", "data", "data", "train", "test", "dev", "en", "de", "en/data", "de/data", "plain_text", ".cache",
           "__pycache__", "old-train", "train_v2", "my test", "trains", "raw/train", "x.y", "data/train", "data/en", "eval-set"]
KINDS = ["parquet"] * 4 + ["jsonl"] * 4 + ["json", "arrow"]
STRAY = ["csv", "txt", "jsonl.gz", "md", "png", "py", "JSONL", "jsonl.bak"]
PATTERNS = ["*", "**", "data/*", "**/*.K", "*.K", "en/**", "train*", "**/train*", "*/*.K", "[a-d]*", "**/t*/**", "**/*train*"]


def pattern(dice, names, kind):
    """Draws a pattern that usually matches at least one of `names`."""
    folder, stem = os.path.split(dice.choice(names))
    parts = folder.split("/")
    return dice.choice([os.path.join(folder, stem), os.path.join(folder, "*." + kind), os.path.join(folder, "*"), "**/" + stem,
                        os.path.join(parts[0], "**"), "/".join(["*"] * len(parts) + ["*." + kind]) if folder else "*." + kind,
                        os.path.join(folder, stem[:2] + "*"), os.path.join(folder, "?" + stem[1:]),
                        dice.choice(PATTERNS).replace("K", kind)])


def drawn(dice):
    kind = dice.choice(KINDS)
    kinds = [kind] * 12 + ([dice.choice(STRAY)] if dice.random() < 0.3 else []) + [dice.choice(KINDS)] * (dice.random() < 0.2)
    few, stems, names = dice.sample(FOLDERS, 3), dice.sample(STEMS, 4), []
    for _ in range(dice.randint(2, 7)):
        name = os.path.join(dice.choice(few), dice.choice(stems) + "." + dice.choice(kinds))
        names += [name] * (name not in names)
    tree = {"files": names}
    if dice.random() < 0.6:
        configs, folders = [], sorted({name.split("/")[0] for name in names if "/" in name})
        for name in dice.sample(["default", "en", "de", "v1"], dice.choice([1, 1, 2, 3])):
            paths = [pattern(dice, names, kind) for _ in range(4)]
            files = dice.choice([paths[0], paths[:2], [split("train", paths[0])], [split("test", paths[1]), split("train", paths[0])],
                                 [split("x_1", paths[2:]), split("validation", paths[0])]])
            if folders and dice.random() < 0.35:
                configs.append(config(name, data_dir=dice.choice(folders)))
            else:
                configs.append(config(name, files, **({"data_dir": dice.choice(folders or ["en"])} if dice.random() < 0.03 else {})))
            if dice.random() < 0.12:
                configs[-1]["default"] = True
        tree["readme"] = front(*configs)
    return tree


def named(tree):
    """Returns the configurations to request."""
    if "names" in tree:
        return tree.pop("names")
    text = tree.get("yaml") or tree.get("readme", "")
    return ["", *dict.fromkeys(name for name in ("one", "two", "three", "four", "five", "set", "not", "range", "literal", "en",
                                                 "de", "v1", "default") if f'"{name}"' in text)][:7]


def main(path):
    os.environ.update(HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1")
    import datasets
    datasets.disable_progress_bars()
    datasets.logging.set_verbosity(datasets.logging.CRITICAL)
    dice, lines = random.Random(49), [{"datasets": datasets.__version__}]
    trees = [dict(tree) for tree in WRITTEN]
    while len(trees) < TREES:
        trees.append(drawn(dice))
    for number, tree in enumerate(trees):
        tree["want"] = {}
        for name in named(tree):
            with tempfile.TemporaryDirectory() as box:
                materialise(tree, os.path.join(box, "set"))
                os.makedirs(os.path.join(box, "set"), exist_ok=True)
                tree["want"][name], why = rows(os.path.join(box, "set"), name, os.path.join(box, "cache"))
                print(number, repr(name), tree["want"][name] or why, flush=True)
        lines.append(tree)
    with open(path, "w") as out:
        out.writelines(json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n" for line in lines)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else os.path.join(HERE, "layouts", "trees.jsonl"))

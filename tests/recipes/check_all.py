#!/usr/bin/env python3
"""Runs `heddle check --elsewhere` over NeMo AutoModel's recipes and compares the verdicts with automodel.tsv.

    tests/recipes/check_all.py EXAMPLES [--heddle build/heddle] [--table FILE] [--write]

EXAMPLES is the directory `examples` of a clone of NeMo AutoModel, whose recipes are not part of this tree. Default:
$HEDDLE_AUTOMODEL_EXAMPLES. Without either, nothing is checked and the status is 77, which ctest shows as skipped.

    HEDDLE_AUTOMODEL_EXAMPLES=~/Automodel/examples ctest --test-dir build -R recipes_automodel

A line of the table holds a file's path below EXAMPLES, and "accepted" or the missing features, separated by "; ".
`check --elsewhere` accepts models that are not on this disk, because it does not know their families. families.tsv lists
the families of such models. If `heddle plugins list` lacks the family, the family counts as a missing feature.

Status 1: a recipe that was accepted is refused, or a recipe needs a feature that its line does not name. A recipe that
needs fewer features than its line names is printed, and --write updates the table.
"""

import argparse
import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys

KINDS = ("llm_benchmark", "llm_finetune", "llm_kd", "llm_pretrain")
HERE = pathlib.Path(__file__).resolve().parent
ACCEPTED = "accepted"
SKIPPED = 77  # status that ctest shows as skipped


def scalars(recipe, section):
    """Returns the scalar keys of a top-level section without a YAML parser, from lines `  key: value`."""
    found, inside = {}, False
    for line in recipe.splitlines():
        if re.match(r"\S", line) and not line.startswith("#"):
            inside = line.startswith(section + ":")
        elif inside and (word := re.match(r"  (\w+):\s*([^#]*)", line)):
            found[word[1]] = word[2].strip()
    return found


def ranks(recipe):
    """Returns the smallest world size that the recipe's sizes allow."""
    sizes, steps = scalars(recipe, "distributed"), scalars(recipe, "step_scheduler")

    def size(of, key):
        return int(of[key]) if of.get(key, "").isdigit() and int(of[key]) > 0 else 1

    model = size(sizes, "tp_size") * size(sizes, "cp_size") * size(sizes, "pp_size")
    samples = size(steps, "global_batch_size") // size(steps, "local_batch_size")
    for data in range(size(sizes, "dp_size"), 4097):
        world = model * data
        fits_experts = world // size(sizes, "pp_size") % size(sizes, "ep_size") == 0
        fits_copies = data % size(sizes, "dp_replicate_size") == 0
        if fits_experts and fits_copies and (samples % data == 0 or samples < data):
            return world
    return model


def needs(errors):
    """Returns the missing features that a recipe's errors name, without duplicates."""
    found = []
    for line in errors.splitlines():
        error = re.match(r"error\[(\w+)\] \S*?\.ya?ml:\d+ (\S+): (.*)", line)
        if not error:
            if line.startswith("error["):
                found.append(line)
            continue
        code, key, text = error.groups()
        component = re.match(r"unknown component '[^']*?([\w-]+)'", text)
        family = re.match(r"model_type '([^']+)' is not built", text) or re.match(r"the family of models (\S+) is not built", text)
        optimizer = re.match(r"there is no optimizer '([^']+)'", text)
        if component and "dataset" in key:
            found.append("data set " + component[1])
        elif component:
            found.append(key + " " + component[1])
        elif family:
            found.append("family " + family[1])
        elif optimizer:
            found.append("optimizer " + optimizer[1])
        elif code == "not_built":
            found.append(key)
        else:
            found.append(key + ": " + text.split(";")[0])
    return list(dict.fromkeys(found))


def missing_families(heddle):
    """Returns {name: family} of the models in families.tsv whose family no plugin offers."""
    listed = subprocess.run([heddle, "plugins", "list"], capture_output=True, text=True, check=True).stdout
    built = set()
    for one, others in re.findall(r"model (\S+?)(?: \(([^)]*)\))?(?:,|$)", listed, re.M):
        built.update([one, *others.split(", ")])
    return {name: family for name, family in read(HERE / "families.tsv").items() if family not in built}


def family_of(recipe, missing):
    """Returns the missing family of the recipe's model, or ""."""
    names = re.findall(r"^\s+(?:pretrained_model_)?name_or_path:\s*[\"']?([^\s\"'#]+)", recipe, re.M)
    return next((missing[name] for name in names if name in missing), "")


def verdict(heddle, file, missing):
    recipe = file.read_text()
    environment = dict(os.environ, OMP_NUM_THREADS="1")
    environment.pop("HEDDLE_PLUGIN_PATH", None)
    words = [heddle, "check", str(file), "--elsewhere", "--world-size", str(ranks(recipe))]
    ran = subprocess.run(words, capture_output=True, text=True, env=environment)
    if ran.returncode == 0:
        family = family_of(recipe, missing)
        return "family " + family if family else ACCEPTED
    if ran.returncode != 2:
        return f"status {ran.returncode}"
    return "; ".join(needs(ran.stderr)) or "refused without an error"


def read(table):
    lines = [line.split("\t") for line in table.read_text().splitlines() if line and not line.startswith("#")]
    return {name: wanted for name, wanted in lines}


def write(table, verdicts):
    accepted = sum(one == ACCEPTED for one in verdicts.values())
    head = f"# {accepted} of {len(verdicts)} recipes are accepted. Written by check_all.py --write.\n"
    table.write_text(head + "".join(f"{name}\t{one}\n" for name, one in sorted(verdicts.items())))


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("examples", type=pathlib.Path, nargs="?", default=os.environ.get("HEDDLE_AUTOMODEL_EXAMPLES"))
    arguments.add_argument("--heddle", default=str(HERE.parent.parent / "build" / "heddle"))
    arguments.add_argument("--table", type=pathlib.Path, default=HERE / "automodel.tsv")
    arguments.add_argument("--write", action="store_true")
    given = arguments.parse_args()
    if not given.examples:
        print("skipped: set HEDDLE_AUTOMODEL_EXAMPLES to the directory `examples` of a clone of NeMo AutoModel")
        return SKIPPED
    files = sorted(f for kind in KINDS for f in (given.examples / kind).rglob("*") if f.suffix in (".yaml", ".yml"))
    if not files:
        sys.exit(f"{given.examples} contains no recipes. Pass the directory `examples` of a clone of NeMo AutoModel.")
    missing = missing_families(given.heddle)
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        found = dict(zip((str(f.relative_to(given.examples)) for f in files),
                         pool.map(lambda f: verdict(given.heddle, f, missing), files)))
    accepted = sum(one == ACCEPTED for one in found.values())
    print(f"{accepted} of {len(found)} recipes are accepted")
    if given.write:
        write(given.table, found)
        return 0
    worse = 0
    wanted = read(given.table)
    for name, one in found.items():
        before = wanted.get(name)
        if before is None:
            print(f"new     {name}: {one}")
        elif one != before:
            more = set() if one == ACCEPTED else set(one.split("; ")) - set(before.split("; "))
            worse += bool(more)
            print(f"{'worse ' if more else 'better'}  {name}: {one}; the table says: {before}")
    for name in wanted.keys() - found.keys():
        print(f"missing {name}")
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main())

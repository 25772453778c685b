"""Makes tests/prepare/golden with AutoModel's classes. Also compares further rows of every case with heddle's samples, and
the chat templates of AutoModel's examples, which are not in this tree.

    python make_golden.py AUTOMODEL [--rows 1000] [--only WORDS] [--keep]

AUTOMODEL is a checkout of NVIDIA-NeMo/Automodel. Needs torch, transformers 5.12.1, datasets and pyarrow. With --keep or
--only the script compares without changing golden/. Uses no network."""

import argparse
import datetime
import glob
import logging
import os
import sys
import tempfile
import types

import cases
import harness
import rows

HERE = os.path.dirname(os.path.abspath(__file__))


def packages(root):
    """Registers AutoModel's packages without running their __init__ files, which import all of AutoModel."""
    for name in ("nemo_automodel", "nemo_automodel._transformers", "nemo_automodel._transformers.tokenization",
                 "nemo_automodel.components", "nemo_automodel.components.datasets", "nemo_automodel.components.datasets.llm"):
        module = types.ModuleType(name)
        module.__path__ = [os.path.join(root, *name.split("."))]
        sys.modules[name] = module


def tokenizer(directory, arguments):
    arguments = dict(arguments)
    if arguments.pop("use_nemo", True):
        from nemo_automodel._transformers.tokenization.nemo_auto_tokenizer import NeMoAutoTokenizerWithBosEosEnforced as kind
    else:
        from transformers import AutoTokenizer as kind
    return kind.from_pretrained(directory, **arguments)


def data_set(kind, tokens, source, arguments):
    from nemo_automodel.components.datasets.llm import (agent_chat, chat_dataset, column_mapped_text_instruction_dataset,
                                                        hellaswag, mock, squad, xlam)
    if kind == "squad":
        return squad.make_squad_dataset(tokens, dataset_name=source, **arguments)
    if kind == "hellaswag":
        return hellaswag.HellaSwag(source, tokens, **arguments)
    if kind in ("chat", "hub_chat"):
        chat_dataset._is_hf_repo_id = lambda name: kind == "hub_chat"  # replaces a hub download by a directory
        return chat_dataset.ChatDataset(source, tokens, **arguments)
    if kind == "columns":
        return column_mapped_text_instruction_dataset.ColumnMappedTextInstructionDataset(source, tokenizer=tokens, **arguments)
    if kind == "hub_columns":  # uses a hub name, because AutoModel reads an existing path as a JSON file
        loaded = column_mapped_text_instruction_dataset
        loaded._str_is_hf_repo_id = lambda name: True
        return loaded.ColumnMappedTextInstructionDataset(source, tokenizer=tokens, **arguments)
    if kind == "agent":
        return agent_chat.make_agent_chat_dataset(tokens, path=source, **arguments)
    if kind == "xlam":
        return xlam.make_xlam_dataset(tokens, dataset_name=source, **arguments)
    return mock.build_unpacked_dataset(**arguments)


def asked(case, count, folder):
    """Returns AutoModel's rows of a case, (input_ids, labels) each, or its error."""
    kind, name, changes = case
    arguments = harness.arguments(case)
    if arguments.get("padding") == "max_length" and kind == "squad":
        arguments["padding"] = False  # heddle's file has no padding
    arguments.pop("pad_to_max_length", None)
    if kind == "hellaswag":
        arguments["pad_to_max_length"] = False
    tokens = None if name is None else tokenizer(harness.directory(case, folder), cases.TOKENIZERS[name][3])
    try:
        data = data_set(kind, tokens, harness.source(case, count, folder), arguments)
        return [(list(data[i]["input_ids"]), list(data[i]["labels"])) for i in range(len(data))]
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def compact(samples):
    """Returns [ids, runs of labels] per row. The ids end with the last label. Each label equals the id that it predicts."""
    if isinstance(samples, str):
        return samples
    out = []
    for ids, labels in samples:
        shift = 0 if labels == ids else 1
        whole = ids + [max(labels[-1], -1)] if shift else ids
        assert all(label in (-100, whole[i + shift]) for i, label in enumerate(labels))
        out.append([whole, harness.runs_of(labels)])
    return out


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("automodel")
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--only", default="")
    parser.add_argument("--keep", action="store_true")
    given = parser.parse_args()
    logging.disable(logging.WARNING)
    os.environ.update(HF_HUB_OFFLINE="1", HF_DATASETS_DISABLE_PROGRESS_BARS="1", TRANSFORMERS_VERBOSITY="error")
    packages(given.automodel)
    golden = os.path.join(HERE, "golden")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["HF_HOME"] = os.path.join(folder, "hf")
        if not given.keep and not given.only:
            import train_tokenizers
            train_tokenizers.write(golden)
        made, bad = {"date": datetime.date.today().isoformat()}, 0
        templates = glob.glob(os.path.join(given.automodel, "examples", "**", "*.jinja"), recursive=True)
        for case in cases.CASES + [("chat", "bytes", {"chat_template": path}) for path in sorted(templates)]:
            if given.only not in cases.title(case):
                continue
            theirs = asked(case, given.rows, folder)
            ours = harness.heddle(case, given.rows, folder, made["date"])
            different = harness.different(harness.shown(ours, case), compact(theirs))
            bad += bool(different)
            print(f"{cases.title(case)}: {len(theirs) if isinstance(theirs, list) else theirs[:150]}: {different or 'equal'}",
                  flush=True)
            if case in cases.CASES:
                made[cases.title(case)] = harness.kept(compact(asked(case, harness.KEPT, folder)))
        if not given.keep and not given.only:
            harness.save(os.path.join(golden, "samples.json"), made)
    print(f"{bad} cases differ")
    return bad > 0


if __name__ == "__main__":
    sys.exit(main())

"""Runs a case through the preparation script, and reads the .samples file that the script writes."""

import array
import hashlib
import json
import os
import struct
import sys
import unittest

import cases
import rows

try:
    import jinja2
    import tokenizers
except ImportError as missing:
    raise unittest.SkipTest(f"no package {missing.name}: pip install tokenizers jinja2 (and pyarrow for all tests)") from None

KEPT = 24  # rows per case in the tree
HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.join(ROOT, "lib", "data", "texts", "script"))


def arguments(case):
    kind, _, changes = case
    return {**cases.KINDS[kind][1], **{key: value for key, value in changes.items() if key != "template"}}


def directory(case, folder):
    """Returns the tokenizer directory of a case."""
    name, template = case[1], case[2].get("template")
    file, config, model_type, _ = cases.TOKENIZERS[name]
    made = os.path.join(folder, "tokenizers", name + ("_" + digest(template) if template else ""))
    if not os.path.isdir(made):
        os.makedirs(made)
        with open(os.path.join(HERE, "golden", file + ".json"), "rb") as stream, open(made + "/tokenizer.json", "wb") as out:
            out.write(stream.read())
        save(made + "/tokenizer_config.json", {**config, "chat_template": template} if template else config)
        save(made + "/config.json", {"model_type": model_type})
    return made


def source(case, count, folder, parquet=True):
    """Returns the value of AutoModel's path argument: a JSONL file, or a directory as downloaded from the hub."""
    _, _, name, local = cases.KINDS[case[0]]
    if name is None:
        return None
    made = os.path.join(folder, f"{name}_{count}")
    file = made + (".jsonl" if local else f"/data/train-00000-of-00001.{'parquet' if parquet else 'jsonl'}")
    if not os.path.exists(file):
        os.makedirs(os.path.dirname(file), exist_ok=True)
        if local or not parquet:
            with open(file, "w", encoding="utf-8") as stream:
                stream.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows.rows(name, count))
        else:
            import pyarrow
            import pyarrow.parquet
            pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows.rows(name, count)), file, row_group_size=130)
    return file if local else made


def job(case, count, folder, date, parquet=True):
    kind, name, _ = case
    script, _, _, local = cases.KINDS[kind]
    given = source(case, count, folder, parquet)
    file = given if local else given and f"{given}/data/train-00000-of-00001.{'parquet' if parquet else 'jsonl'}"
    made = {**arguments(case), **({"dataset_name": None, "path": given} if kind == "agent" else {})}
    return {"script": os.path.join(ROOT, script), "arguments": made,
            "tokenizer": directory(case, folder) if name else "", "model_type": cases.TOKENIZERS[name][2] if name else "",
            "tokenizer_arguments": dict(cases.TOKENIZERS[name][3]) if name else {}, "source": str(given),
            "files": {"" if local else "train": [file]}, "is_local": local,
            "out": os.path.join(folder, "out.samples.incomplete"), "vocabulary": 0, "jobs": 2, "date": date}


def heddle(case, count, folder, date, parquet=True):
    """Returns heddle's samples of a case, [ids, runs] each, or its error."""
    import preparation
    from faults import Fault
    work = job(case, count, folder, date, parquet)
    try:
        preparation.run(work, lambda message: None)
    except Fault as fault:
        return fault.what
    return read(work["out"])[0]


def read(path):
    """Returns the samples of a file, and the header's fields merged with the description."""
    with open(path, "rb") as stream:
        data = stream.read()
    head = struct.unpack_from("<8sII3QII4q10Q", data)
    wide, places = head[6], [head[i:i + 2] for i in range(12, 22, 2)]
    tokens, firsts, run_firsts, spans, words = (data[at:at + size] for at, size in places)
    assert all(at % 64 == 0 for at, _ in places)
    ids = [tokens[i:i + wide] for i in range(0, len(tokens), wide)]
    ids = [int.from_bytes(token, "little") for token in ids]
    firsts, run_firsts, spans = (array.array(code, part) for code, part in (("Q", firsts), ("Q", run_firsts), ("I", spans)))
    samples = [[ids[firsts[i]:firsts[i + 1]], [list(spans[2 * run:2 * run + 2]) for run in range(run_firsts[i], run_firsts[i + 1])]]
               for i in range(head[3])]
    return samples, {"samples": head[3], "tokens": head[4], "runs": head[5], "bytes": wide, "flags": head[7],
                     "ids": head[8:12], **json.loads(words)}


def runs_of(labels):
    """Returns the ranges [begin, end) of labels that are not -100."""
    out = []
    for i, label in enumerate(labels):
        if label != -100 and (not out or out[-1][1] != i):
            out.append([i, i])
        if label != -100:
            out[-1][1] = i + 1
    return out


def as_labels(sample, flags=0):
    """Converts a sample of the file to (input_ids, labels)."""
    ids, runs = sample
    mask = bytearray(len(ids))
    for begin, end in runs:
        mask[begin:end] = b"\1" * (end - begin)
    labels = [token if on else -100 for token, on in zip(ids, mask)]
    return (ids, labels) if flags & 4 else (ids, labels[1:] + [-100]) if flags & 1 else (ids[:-1], labels[1:])


def shown(samples, case):
    """Converts heddle's samples to make_golden.py's form of AutoModel's: [ids and the last label, runs of labels]."""
    flags = flags_of(case)
    if isinstance(samples, str):
        return samples
    out = []
    for sample in samples:
        ids, labels = as_labels(sample, flags)
        out.append([ids if flags & 4 else ids + [max(labels[-1], -1)], runs_of(labels)])
    return out


def digest(sample):
    return hashlib.sha256(json.dumps(sample).encode()).hexdigest()[:8]


def kept(samples):
    """Returns the content of a golden file: two whole samples, and a digest of each sample."""
    if isinstance(samples, str):
        return samples
    return {"first": samples[:2], "digests": " ".join(map(digest, samples))}


def different(ours, theirs):
    """Returns how samples differ, or None if all are equal. Errors are equal if heddle's contains AutoModel's sentence."""
    if isinstance(ours, str) or isinstance(theirs, str):
        same = isinstance(ours, str) and isinstance(theirs, str) and theirs.split(": ", 1)[-1][:90] in ours
        return None if same else f"AutoModel: {str(theirs)[:200]!r}, heddle: {str(ours)[:200]!r}"
    if len(ours) != len(theirs):
        return f"AutoModel has {len(theirs)} samples, heddle {len(ours)}"
    bad = sum(json.dumps(sample) != json.dumps(other) for sample, other in zip(ours, theirs))
    return f"{bad} of {len(ours)} samples differ" if bad else None


def flags_of(case):
    return {"hellaswag": 1, "sentences": 4}.get(case[0], 0)


def save(path, value):
    with open(path, "w", encoding="utf-8") as stream:
        json.dump(value, stream, ensure_ascii=False, separators=(",", ":"))

"""Runs a job: converts batches of rows with the format module and writes the file."""

import array
import importlib.util
import json
import os
import platform
import time

import samples_file
from faults import OF_A_ROW, Fault, of_module
from sources import Batch
from tools import Tools

PROBED = 64  # number of rows to convert in a check
SECONDS = 0.25  # time between progress messages
NONE = 0xFFFFFFFF  # marks a row without a sample


def module(path):
    """Loads the format module of a plugin."""
    name = "heddle_format_" + os.path.splitext(os.path.basename(path))[0]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or not os.path.isfile(path):
        raise Fault("is not a Python file", path, "build or install the plugin again")
    found = importlib.util.module_from_spec(spec)
    return attempt(path, lambda: spec.loader.exec_module(found) or found)


def attempt(path, function):
    """Calls function() of a format module. Reports exceptions that the module does not handle as its fault."""
    try:
        return function()
    except (Fault, MemoryError):
        raise
    except OSError as error:  # from data files, or from a file that the module opens
        raise of_module(error, path, "its plan()") or error from None
    except (Exception, SystemExit) as error:
        raise Fault(f"the format module fails: {type(error).__name__}: {error}", path, kind="plugin") from error


class Progress:
    def __init__(self, say, total):
        self.say, self.total, self.told, self.before = say, total, time.monotonic(), 0

    def inside(self, rows):
        """Counts `rows` of the batch since the last tell()."""
        self.tell(self.before + rows, False)

    def tell(self, rows, whole=True):
        if whole:
            self.before = rows
        if time.monotonic() - self.told >= SECONDS:
            self.told = time.monotonic()
            self.say({"rows": rows, "of": self.total})


class Replacing:
    """Replaces a sample without labels by the next one with labels, wrapping around at the end."""

    def __init__(self):
        self.first, self.waiting, self.count = None, 0, 0

    def through(self, samples):
        out = []
        for sample in samples:
            if not any(end > max(begin, 1) for begin, end in sample[1]):
                self.waiting += 1
                self.count += 1
                continue
            self.first = self.first or sample
            out += [sample] * (self.waiting + 1)
            self.waiting = 0
        return out

    def rest(self):
        if self.first is None:
            raise Fault("All samples in the dataset produced labels that are entirely -100. Check that the dataset and "
                        "tokenizer configuration produce valid training targets.")
        return [self.first] * self.waiting


def convert(tools, function, batch):
    """Returns the batch's samples, with None for each invalid row that is skipped."""
    out = []
    while len(out) < len(batch.rows):
        rest = Batch(batch.rows[len(out):], batch.places[len(out):])
        counts = dict(tools.notes), dict(tools.dropped)
        try:
            return out + whole(tools, function, rest)
        except Fault as fault:
            if fault.index is None or fault.of_all or fault.kind != "input" or fault.where != rest.places[fault.index]:
                raise
            tools.notes, tools.dropped = counts  # the rows before the invalid one are converted again
            before = Batch(rest.rows[:fault.index], rest.places[:fault.index])
            out += convert(tools, function, before)
            out.append(tools.drop(tools.bad.take(fault)))
            tools.bad.tell_in_time()
    return out


def whole(tools, function, batch):
    """Returns the batch's samples. A fault names its row."""
    script = tools.job["script"]
    try:
        samples = function(batch.rows)
    except Fault as fault:
        fault.where = fault.where or batch.places[min(fault.index or 0, len(batch.places) - 1)]
        raise of_module(fault.error, script, fault.where) or fault
    except MemoryError:
        raise
    except (Exception, SystemExit) as error:
        place = f"{batch.places[0]} or one of the {len(batch.rows) - 1} rows behind it"
        # Outside of tools.each(), only a missing column is the row's fault.
        lacks = isinstance(error, KeyError) and any(key not in row for key in error.args for row in batch.rows)
        fault = of_module(error, script, place, KeyError if lacks else ())
        if fault is None and not isinstance(error, OF_A_ROW):
            raise
        raise fault or Fault(f"{type(error).__name__}: {error}", place) from None
    if len(samples) != len(batch.rows):
        raise Fault(f"the format module made {len(samples)} samples of {len(batch.rows)} rows", script, kind="plugin")
    for sample, place in zip(samples, batch.places):
        wrong = sample is not None and samples_file.wrong(*sample)
        if wrong:
            raise Fault(f"the format module made a sample {wrong}, of {place}", script, kind="plugin")
    return samples


def in_order(tools, function, file, progress):
    """Converts the rows in file order."""
    replacing, read = Replacing() if tools.replaces else None, 0
    for batch in tools.batches():
        samples = [sample for sample in convert(tools, function, batch) if sample is not None]
        file.add(replacing.through(samples) if replacing else samples)
        read += len(batch.rows)
        progress.tell(read)
    if replacing and read:
        file.add(replacing.rest())
        if replacing.count:
            tools.flags |= samples_file.ROWS_DROPPED
            tools.facts["replaced"] = replacing.count
            tools.warn(f"{replacing.count} of {read} rows have no token that is trained on and are replaced by the next row "
                       "that has some, as in AutoModel; is seq_length too small?")
    return read


def mixed(tools, function, file, progress):
    """Converts shuffled rows in file order, and sets the order in which the file stores their samples."""
    stored = array.array(samples_file.integers(32), [NONE]) * (max(tools.order, default=-1) + 1)
    for row in tools.order:
        stored[row] = 0
    at = read = 0
    for batch in tools.batches():
        wanted = [i for i in range(len(batch.rows)) if at + i < len(stored) and stored[at + i] != NONE]
        batch.rows, batch.places = ([values[i] for i in wanted] for values in (batch.rows, batch.places))
        for i, sample in zip(wanted, convert(tools, function, batch) if wanted else []):
            stored[at + i] = NONE if sample is None else file.samples
            if sample is not None:
                file.add([sample])
        at += 1000
        read += len(wanted)
        progress.tell(read)
    file.order = (stored[row] for row in tools.order if stored[row] != NONE)
    return read


def counted(tools, file, read):
    """Returns the values for the description and for heddle."""
    import tokenizers
    split, seed = tools.asked if tools.parts else (None, None)
    if tools.local and (seed is not None or "[" in (split or "")):
        asked = (("split", "[" in (split or "")), ("shuffle_seed", seed is not None))
        what = " and ".join(word for word, there in asked if there)
        tools.warn(f"{what} of a local JSON file: not applied, as in AutoModel; all {read} rows are read. "
                   "dataset.apply_split: true applies it")
    for note, rows in tools.notes.items():
        tools.warn(f"{rows} rows {note}")
    for sentence in tools.bad.sentences():
        tools.warn(sentence)
    if file.empty:
        tools.warn(f"{file.empty} of {file.samples} samples have no token that is trained on")
    if tools.filled_to:
        tools.filled = -(-file.longest // tools.filled_to) * tools.filled_to
    dropped = sum(tools.dropped.values())
    libraries = {"python": platform.python_version(), "tokenizers": tokenizers.__version__}
    return {"samples": file.samples, "tokens": file.tokens, "labels": file.labels, "dropped": dropped}, {
        "rows": read, "dropped": tools.dropped, "longest": file.longest, "without_labels": file.empty,
        "filled": tools.filled, "libraries": libraries}


def run(job, say):
    """Prepares the samples of `job`; say(message) reports progress. Returns the counts."""
    tools = Tools(job, say)
    found = module(job["script"])
    function = attempt(job["script"], lambda: found.plan(job["arguments"], tools))
    if tools.generated is not None:
        ids = tools.generated_ids
    else:
        tokenizer = tools.tokenizer
        ids = [tokenizer.size(), *(-1 if token is None else token
                                   for token in (tokenizer.bos_id, tokenizer.eos_id, tokenizer.fill_id))]
    try:
        if job.get("probe"):
            return probed(job, tools, function)
        with samples_file.SamplesFile(job["out"], max(job.get("vocabulary", 0), ids[0]), tools.flags,
                                      spread=tools.order is not None) as file:
            return written(job, tools, function, file, ids)
    except Fault as fault:
        if "skip_invalid_samples" in job["arguments"] and not tools.bad.skip and tools.bad.faults:
            first = tools.bad.faults[0]
            first.hint = first.hint or "Correct the row, or set dataset.skip_invalid_samples: true to leave such rows out."
        tools.bad.tell(None if fault in tools.bad.faults else fault)


def check_rows(job, tools, read):
    if not read:
        raise Fault("has no rows" if tools.local else f"the split {job['arguments'].get('split')} has no rows",
                    job.get("source", "") or "dataset")


def probed(job, tools, function):
    """Converts only the first rows, without keeping them, so that their errors are reported before a run starts."""
    read = 0
    for batch in tools.batches():
        read = min(PROBED, len(batch.rows))
        convert(tools, function, Batch(batch.rows[:read], batch.places[:read]))
        break
    tools.bad.tell()
    check_rows(job, tools, read)
    return {"probed": read}


def written(job, tools, function, file, ids):
    progress = Progress(tools.say, tools.total())
    tools.told = progress.inside
    read = (mixed if tools.order is not None else in_order)(tools, function, file, progress)
    tools.bad.tell()
    source = job.get("source", "") or "dataset"
    check_rows(job, tools, read)
    if not file.samples:
        raise Fault(f"no row is left: {json.dumps(tools.dropped)}", source)
    counts, facts = counted(tools, file, read)
    file.flags |= tools.flags
    file.close(ids, {**job.get("description", {}), **counts, **facts, **tools.facts})
    return counts

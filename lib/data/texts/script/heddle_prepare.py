"""Prepares a .samples file from texts. heddle starts this script, sends one job, and reads messages until the job is done.

A plugin of kind dataset has a format module: a Python file next to its library, with one function:

    def plan(arguments, tools):
        tools.read(arguments["split"], columns=["question", "answer"])
        def samples(rows):
            return tools.prompt_and_answer([(row["question"], row["answer"]) for row in rows])
        return samples

`arguments` is the section of the recipe with its defaults. The function that plan() returns gets a list of at most 1,000
rows (dicts). It returns a sample for each row: (ids, runs), where runs are the [begin, end) of the ids that are trained on,
ascending and not adjacent. For a row to skip it returns tools.drop(reason). It is called in the order of the rows, with
exactly 1,000 rows except for the last call. Equal rows must always give equal samples.

    tools.read(split, limit, columns, first, exact, shuffle_seed, skip_invalid)   selects the rows: see tools.py
    tools.generate(batches, vocabulary, eos, pad)    replaces rows by generated inputs of the function
    tools.tokenizer.ids(texts, special)              lists of ids; special: with the tokens of the post-processor
    tools.prompt_and_answer(pairs, answer_only)      samples of (prompt, answer)
    tools.chat(template, ...).samples(conversations) samples of (messages, list of tools or None)
    tools.each(rows, function)                       [function(row)], where an error names the row
    tools.fill(seq_length), tools.filled             length to which rows are padded
    tools.replaces = True                            replaces rows without labels by the next row with labels
    tools.flags = 1, 4                               the last token is an input too; labels equal inputs
    tools.warn(text)

For an invalid row, the function of tools.each() raises a ValueError whose message addresses the author of the data. For an
invalid recipe, it raises tools.fault(message, key). A format module opens no files and no network connections, and imports
only Python's standard library.

Arguments: any string, and the number of a socket. A message is a line of JSON with "bytes": 0. The first message is the job:
script, arguments, tokenizer, tokenizer_arguments, model_type, source, files, is_local, out, vocabulary, jobs, date and
description (further keys of the file's description). Answers: rows and of; warning; at the end done or error.
"""

import json
import os
import signal
import socket
import sys


def serve(channel):
    def say(words):
        channel.write(json.dumps({**words, "bytes": 0}).encode() + b"\n")
        channel.flush()

    line = channel.readline()
    if not line:
        return
    job = json.loads(line)
    os.environ["RAYON_NUM_THREADS"] = str(max(1, job.get("jobs", 1)))
    from faults import Fault
    import preparation
    try:
        say({"done": preparation.run(job, say)})
    except BrokenPipeError:
        raise
    except Fault as fault:
        say({"error": fault.message()})
    except MemoryError:
        fault = Fault("this machine has too little memory", job.get("source", ""), "split or remove rows of megabytes")
        say({"error": fault.message()})
    except OSError as error:
        say({"error": Fault(error.strerror or str(error), str(error.filename or job["out"])).message()})


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # heddle exits and closes the socket
    os.environ["TOKENIZERS_PARALLELISM"] = "true"
    with socket.socket(fileno=int(sys.argv[2])) as connection:
        serve(connection.makefile("rwb"))

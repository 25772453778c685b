"""Prepares a .samples file from texts. heddle starts this script, sends one job, and reads messages until it is done.

A plugin of kind dataset has a format module, a Python file next to its library, with one function:

    def plan(arguments, tools):
        tools.read(arguments["split"], columns=["question", "answer"])
        def samples(rows):
            return tools.prompt_and_answer([(row["question"], row["answer"]) for row in rows])
        return samples

`arguments` is the section of the recipe with its defaults. The function that plan() returns gets a list of at most
1,000 rows, dicts, and returns as many samples: (ids, runs), where runs are the [begin, end) of the ids that are trained
on, in order and apart; or tools.drop(reason) for a row that is left out. It is called in the order of the rows, batches
of exactly 1,000 but for the last, and the same rows must always give the same samples.

    tools.read(split, limit, columns, first, exact, shuffle_seed, skip_invalid)   which rows: see tools.py
    tools.generate(batches, vocabulary, eos, pad)    instead of rows: lists of what the function gets
    tools.tokenizer.ids(texts, special)              lists of ids; special: with what the tokenizer puts round a text
    tools.prompt_and_answer(pairs, answer_only)      samples of (prompt, answer)
    tools.chat(template, ...).samples(conversations) samples of (messages, list of tools or None)
    tools.each(rows, function)                       [function(row)], where an error names the row
    tools.fill(seq_length), tools.filled             to which length rows count as filled
    tools.replaces = True                            rows without labels give way to the next with some
    tools.flags = 1, 4                               the last token is an input too; labels equal inputs
    tools.warn(text)

What is wrong with a row is a ValueError with a sentence for the person who wrote the data, raised in the function of
tools.each(); what is wrong with the recipe: raise tools.fault(sentence, key). A format module opens no file and no
network, and imports nothing but Python's own library.

Arguments: anything, and the number of a socket. A message is a line of JSON with "bytes": 0. First comes the job:
script, arguments, tokenizer, tokenizer_arguments, model_type, source, files, is_local, out, vocabulary, jobs, date and
description (what the file's description has besides). Answers: rows and of; warning; at the end done or error.
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

"""Makes a .samples file of a set of texts. heddle starts it, sends one job, and reads messages until it is done."""

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
    except Fault as fault:
        say({"error": fault.message()})


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # heddle ends, and with it the socket
    os.environ["TOKENIZERS_PARALLELISM"] = "true"
    with socket.socket(fileno=int(sys.argv[2])) as connection:
        serve(connection.makefile("rwb"))

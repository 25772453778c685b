"""The ranks of one contender, as processes that execute commands from their standard input."""
import json
import os
import socket
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Side:
    def __init__(self, label, command, ranks):
        self.label = label
        port = free_port()
        self.ranks = []
        for rank in range(ranks):
            place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": ranks, "LOCAL_WORLD_SIZE": ranks,
                     "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "OMP_NUM_THREADS": 1}
            environment = {**os.environ, **{key: str(value) for key, value in place.items()},
                           "TRANSFORMERS_VERBOSITY": "error", "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
            self.ranks.append(subprocess.Popen(command, env=environment, stdin=subprocess.PIPE,
                                               stdout=subprocess.PIPE if rank == 0 else subprocess.DEVNULL,
                                               stderr=subprocess.DEVNULL if "python" in command[0] else None,
                                               text=True))

    def send(self, line):
        for rank in self.ranks:
            rank.stdin.write(line + "\n")
            rank.stdin.flush()

    def ask(self, line):
        """Sends a command to every rank and returns the answer of rank 0."""
        self.send(line)
        answer = self.ranks[0].stdout.readline()
        if not answer:
            sys.exit(f"{self.label}: a rank exited without an answer. Run its command by hand to see the error.")
        return json.loads(answer)

    def end(self):
        self.send("quit")
        for rank in self.ranks:
            rank.wait(timeout=60)

    def kill(self):
        """Kills ranks that may wait for each other."""
        for rank in self.ranks:
            rank.kill()
            rank.wait()

"""Runs a test function on several ranks: processes with torchrun's environment variables."""
import importlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import traceback
import unittest

SECONDS = 600  # time limit of a run
SKIPPED = 77  # status of a test file whose tests were all skipped


def main_of_tests():
    """Runs the tests of a file like unittest.main(). Exits with the status SKIPPED if every test was skipped."""
    ran = unittest.main(exit=False).result
    if not ran.wasSuccessful():
        sys.exit(1)
    if ran.skipped and len(ran.skipped) >= ran.testsRun:
        print("skipped:", ran.skipped[0][1])
        sys.exit(SKIPPED)


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def start(function, ranks, arguments, place, **environment):
    """Starts the ranks. Each writes the function's result to PLACE/RANK.json."""
    port, module = free_port(), sys.modules[function.__module__]
    name = os.path.splitext(os.path.basename(module.__file__))[0]
    children = []
    for rank in range(ranks):
        variables = dict(os.environ, RANK=str(rank), WORLD_SIZE=str(ranks), LOCAL_RANK=str(rank), LOCAL_WORLD_SIZE=str(ranks),
                         MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), OMP_NUM_THREADS="1", CUDA_VISIBLE_DEVICES="",
                         TRANSFORMERS_VERBOSITY="error", HF_HUB_OFFLINE="1", **environment)
        command = [sys.executable, os.path.abspath(__file__), name, function.__qualname__, json.dumps(arguments),
                   os.path.join(place, f"{rank}.json")]
        children.append(subprocess.Popen(command, env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
    return children


def run(function, ranks=2, **arguments):
    """Returns the function's result on each rank. Raises AssertionError with the output of failed ranks."""
    with tempfile.TemporaryDirectory() as place:
        children = start(function, ranks, arguments, place)
        try:
            outputs = [child.communicate(timeout=SECONDS)[0] for child in children]
        except subprocess.TimeoutExpired:
            for child in children:
                child.kill()
            raise AssertionError("the ranks did not exit:\n" + "\n".join(child.communicate()[0] for child in children)) from None
        failed = [f"rank {rank} exited with status {child.returncode}:\n{output}"
                  for rank, (child, output) in enumerate(zip(children, outputs)) if child.returncode != 0]
        if failed:
            raise AssertionError("\n".join(failed))
        results = []
        for rank in range(ranks):
            with open(os.path.join(place, f"{rank}.json"), encoding="utf-8") as file:
                results.append(json.load(file))
        return results


def main():
    module, function, arguments, result = sys.argv[1:]
    import torch

    signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background of a shell inherits SIG_IGN
    torch.set_num_threads(1)
    body = getattr(importlib.import_module(module), function)
    answer = body(**json.loads(arguments))
    with open(result, "w", encoding="utf-8") as file:
        json.dump(answer, file)


if __name__ == "__main__":
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    try:
        main()
    except Exception:
        traceback.print_exc()
        sys.exit(1)

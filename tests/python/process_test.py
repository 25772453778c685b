"""Tests of processes: interpreter exit, Ctrl-C, ranks that die, forks, exceptions of Python and of ranks."""
import gc
import multiprocessing
import os
import signal
import sys
import tempfile
import threading
import time
import unittest

try:
    import torch
    import transformers
    MISSING = ""
except ImportError as error:
    MISSING = str(error)

import heddle
import ranks
from models import llama, tokens
from numbers_test import STRATEGIES

kept = []


def exits_with_objects_alive(strategy):
    """Leaves a model, a graph and a reference cycle alive at interpreter exit."""
    model = heddle.fully_shard(llama(), **STRATEGIES[strategy][1])
    batch = tokens(0, 0)
    output = model(input_ids=batch, labels=batch)
    cycle = {"model": model, "loss": output.loss}
    cycle["self"] = cycle
    kept.extend([model, output, cycle])
    return True


def deletes_before_backward(strategy):
    """Deletes the model before the backward of its graph."""
    model = heddle.fully_shard(llama(), **STRATEGIES[strategy][1])
    loss = model(input_ids=tokens(0, 0), labels=tokens(0, 0)).loss
    del model
    gc.collect()
    loss.backward()
    del loss
    gc.collect()
    return True


def waits(place, strategy):
    """Lets rank 0 wait in a forward for rank 1, which sleeps. Returns how long rank 0 waited after Ctrl-C."""
    world = heddle.init()
    model = heddle.fully_shard(llama(), **STRATEGIES[strategy][1])
    if world.rank == 1:
        open(os.path.join(place, "ready"), "w").close()
        for _ in range(300):
            if os.path.exists(os.path.join(place, "over")):
                return 0.0
            time.sleep(0.1)
    while not os.path.exists(os.path.join(place, "ready")):
        time.sleep(0.05)
    sent = []

    def interrupt():
        time.sleep(1.0)
        sent.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)
    threading.Thread(target=interrupt).start()
    try:
        model(input_ids=tokens(0, 0), labels=tokens(0, 0)).loss.backward()
        world.native.barrier("never")
    except KeyboardInterrupt:
        took = time.monotonic() - sent[0]
    open(os.path.join(place, "over"), "w").close()
    return took


def forked(queue):
    queue.get()


def survives(strategy):
    """Kills rank 1 while its forked worker survives. Returns how long rank 0 waits, and its error."""
    world = heddle.init()
    model = heddle.fully_shard(llama(), **STRATEGIES[strategy][1])
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    worker = context.Process(target=forked, args=(queue,), daemon=True)
    worker.start()
    world.native.barrier("forked")
    if world.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    began = time.monotonic()
    try:
        model(input_ids=tokens(0, 0), labels=tokens(0, 0)).loss.backward()
        world.native.barrier("never")
        said = "nothing was raised"
    except heddle.Error as error:
        said = error.code
    finally:
        worker.kill()
    with open(sys.argv[-1], "w") as file:
        file.write(f"{time.monotonic() - began} {said}")
    os._exit(0)


class Own(Exception):
    pass


def exceptions(strategy):
    """Raises exceptions in two forwards and in a backward, and returns their messages."""
    model = heddle.fully_shard(llama(), **STRATEGIES[strategy][1])
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    batch = tokens(0, heddle.init().rank)
    said = []

    def fail(module, args):
        raise Own("mine")
    handle = model.model.layers[1].mlp.register_forward_pre_hook(fail)
    for _ in range(2):
        try:
            model(input_ids=batch, labels=batch)
        except Own as error:
            said.append(str(error))
    handle.remove()
    loss = model(input_ids=batch, labels=batch).loss
    loss.register_hook(lambda gradient: fail(None, None))
    try:
        loss.backward()
    except Own as error:
        said.append(str(error))
    del loss, optimizer
    return said


def forks(strategy):
    """Uses the model in a forked child, and a data loader with forked workers. Returns the error of the child."""
    model = heddle.fully_shard(llama(), **STRATEGIES[strategy][1])
    loader = torch.utils.data.DataLoader([tokens(i, heddle.init().rank, rows=1)[0] for i in range(8)], batch_size=2, num_workers=2)
    for batch in loader:
        model(input_ids=batch, labels=batch).loss.backward()
    del batch
    read, write = os.pipe()
    if (child := os.fork()) == 0:
        try:
            model(input_ids=tokens(0, 0))
        except heddle.Error as error:
            os.write(write, error.message.encode())
        os._exit(0)
    os.waitpid(child, 0)
    return os.read(read, 1000).decode()


@unittest.skipIf(MISSING, MISSING)
class ProcessTest(unittest.TestCase):
    strategies = tuple(os.environ.get("HEDDLE_TEST_STRATEGIES", "ddp,fsdp2").split(","))

    def test_exits_with_status_0(self):
        for strategy in self.strategies:
            with self.subTest(strategy):
                self.assertTrue(all(ranks.run(exits_with_objects_alive, 2, strategy=strategy)))

    def test_graph_may_outlive_its_model(self):
        for strategy in self.strategies:
            with self.subTest(strategy):
                self.assertTrue(all(ranks.run(deletes_before_backward, 2, strategy=strategy)))

    def test_interrupt_ends_a_wait(self):
        for strategy in self.strategies:
            with self.subTest(strategy), tempfile.TemporaryDirectory() as place:
                children = ranks.start(waits, 2, {"place": place, "strategy": strategy}, place)
                children[0].communicate(timeout=ranks.SECONDS)
                children[1].communicate(timeout=ranks.SECONDS)
                with open(os.path.join(place, "0.json")) as file:
                    self.assertLess(float(file.read()), 2.0)

    def test_reports_a_killed_rank(self):
        for strategy in self.strategies:
            with self.subTest(strategy), tempfile.TemporaryDirectory() as place:
                children = ranks.start(survives, 2, {"strategy": strategy}, place)
                output = children[0].communicate(timeout=ranks.SECONDS)[0]
                children[1].kill()
                children[1].wait()
                self.assertTrue(os.path.exists(os.path.join(place, "0.json")), output)
                with open(os.path.join(place, "0.json")) as file:
                    seconds, code = file.read().split()
                self.assertEqual(code, "rank_lost")
                self.assertLess(float(seconds), 10)

    def test_python_exceptions_are_raised_unchanged(self):
        for strategy in self.strategies:
            with self.subTest(strategy):
                for said in ranks.run(exceptions, 2, strategy=strategy):
                    self.assertEqual(said, ["mine"] * 3)

    def test_forks(self):
        for strategy in self.strategies:
            with self.subTest(strategy):
                for said in ranks.run(forks, 2, strategy=strategy):
                    self.assertIn("a forked process cannot use the engine", said)


if __name__ == "__main__":
    ranks.main_of_tests()

"""Commits random misuses of the Python API, and checks that no process dies by a signal and no rank hangs.

HEDDLE_MISUSES=300 sets the number of misuses, HEDDLE_MISUSE_SEED=N the seed.
"""
import copy
import gc
import itertools
import multiprocessing
import os
import pickle
import random
import signal
import subprocess
import tempfile
import threading
import time
import unittest

try:
    import torch
    from torch import nn
    MISSING = ""
except ImportError as error:
    MISSING = str(error)

import heddle
import ranks
from numbers_test import STRATEGIES

COUNT = int(os.environ.get("HEDDLE_MISUSES", "48"))
SEED = int(os.environ.get("HEDDLE_MISUSE_SEED", "1"))
AT_ONCE = 12  # misuses per process
WIDTH = 16
TIMEOUT = 15.0  # seconds until a wait between ranks times out
kept = []

if not MISSING:
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.up, self.down = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)

        def forward(self, x):
            return x + self.down(torch.tanh(self.up(x)))

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.blocks, self.norm = nn.ModuleList(Block() for _ in range(3)), nn.LayerNorm(WIDTH)
            self.order = [0, 1, 2]

        def forward(self, x):
            for index in self.order:
                x = self.blocks[index](x)
            return self.norm(x)


class Case:
    """A sharded model, its optimizer and a random generator that is equal on every rank."""

    def __init__(self, strategy, chance):
        torch.manual_seed(chance.randrange(1000))
        self.chance, self.strategy = chance, strategy
        self.model = heddle.fully_shard(Net(), units=["blocks.*"], **STRATEGIES[strategy][1])
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-2)
        self.x = torch.randn(3, WIDTH)
        for _ in range(chance.randrange(3)):
            self.step()

    def step(self):
        self.model(self.x).pow(2).mean().backward()
        heddle.clip_grad_norm_(self.model, 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()

    @property
    def block(self):
        return self.model.blocks[self.chance.randrange(3)]

    @property
    def weight(self):
        block = self.block
        return self.chance.choice([block.up.weight, block.up.bias, block.down.weight, self.model.norm.weight])

    @property
    def shard(self):
        return self.chance.choice(list(self.model.parameters()))


class Own(Exception):
    pass


def fail(*given):
    raise Own("mine")


READS = {
    "sum": lambda w: w.sum(), "add": lambda w: w + 1, "mul_": lambda w: w.mul_(2), "numpy": lambda w: w.detach().numpy(),
    "list": lambda w: w.tolist(), "index": lambda w: w[0], "assign": lambda w: w.__setitem__(0, 1.0), "print": lambda w: f"{w}",
    "copy": lambda w: copy.copy(w), "deepcopy": lambda w: copy.deepcopy(w), "pickle": lambda w: pickle.dumps(w),
    "save": lambda w: torch.save(w, os.devnull), "cat": lambda w: torch.cat([w, w]), "stack": lambda w: torch.stack([w]),
    "norm": lambda w: torch._foreach_norm([w]), "vector": lambda w: nn.utils.parameters_to_vector([w]),
    "bool": lambda w: bool(w), "equal": lambda w: torch.equal(w, w), "view": lambda w: w.view(-1).sum(),
    "to": lambda w: w.to(torch.float64), "data": lambda w: w.data.fill_(0), "storage": lambda w: w.untyped_storage(),
    "resize": lambda w: w.resize_(3), "set": lambda w: w.set_(torch.ones(2)), "share": lambda w: w.share_memory_(),
    "memory": lambda w: memoryview(w), "iteration": lambda w: list(w), "clone": lambda w: w.clone(), "pin": lambda w: w.pin_memory(),
    "out": lambda w: torch.mul(1.0, 2.0, out=w), "linear": lambda w: nn.functional.linear(torch.ones(1, WIDTH), w),
    "init": lambda w: nn.init.normal_(w), "grad": lambda w: setattr(w, "grad", torch.ones(1)), "retain": lambda w: w.retain_grad(),
    "function": lambda w: torch.func.grad(lambda v: v.sum())(w), "backward": lambda w: w.backward(), "repr": repr,
    "compile": lambda w: torch.einsum("ij->i", w), "sparse": lambda w: w.to_sparse(), "dlpack": lambda w: w.__dlpack__(),
}


def read(case):
    READS[case.chance.choice(sorted(READS))](case.weight)


def order_of_calls(case):
    case.model.order = case.chance.sample([0, 1, 2, 0, 2], case.chance.randrange(1, 5))
    case.step()


def second_backward(case):
    loss = case.model(case.x).mean()
    loss.backward(retain_graph=case.chance.random() < 0.5)
    loss.backward()


def backward_of_an_old_graph(case):
    loss = case.model(case.x).mean()
    case.step()
    loss.backward()


def step_first(case):
    loss = case.model(case.x).mean()
    case.optimizer.step()
    loss.backward()
    case.optimizer.step()


def module_alone(case):
    module = case.chance.choice([case.block, case.block.up, case.model.norm])
    out = module(torch.ones(1, WIDTH))
    out.sum().backward()


def forward_within(case):
    case.block.up.register_forward_hook(lambda *given: case.model(case.x))
    case.step()


def unit_within_itself(case):
    block = case.block
    block.up.register_forward_pre_hook(lambda module, given: (block(given[0]),) if given[0].sum() < 1e9 else None)
    case.step()


def exception_in_a_forward(case):
    kind = case.chance.choice(["register_forward_hook", "register_forward_pre_hook", "register_full_backward_hook"])
    handle = getattr(case.chance.choice([case.block, case.block.down, case.model.norm]), kind)(fail)
    try:
        case.step()
    finally:
        handle.remove()


def exception_in_a_backward(case):
    loss = case.model(case.x).pow(2).mean()
    loss.register_hook(fail)
    try:
        loss.backward()
    finally:
        if case.chance.random() < 0.5:
            case.step()
        else:
            heddle.clip_grad_norm_(case.model, 1.0)


def call_within_a_backward(case):
    calls = [case.optimizer.step, lambda: heddle.clip_grad_norm_(case.model, 1.0), lambda: case.model(case.x),
             lambda: heddle.full_state_dict(case.model), lambda: case.model(case.x).sum().backward()]
    call = case.chance.choice(calls)
    out = case.model(case.x)
    out.register_hook(lambda gradient: call() and None)
    out.sum().backward()


def unsharded_misuse(case):
    with heddle.unsharded(case.model):
        what = case.chance.randrange(5)
        if what == 0:
            with heddle.unsharded(case.model):
                pass
        if what == 1:
            with torch.enable_grad():
                case.step()
        if what == 2:
            fail()
        if what == 3:
            case.optimizer.step()
        if what == 4:
            heddle.full_state_dict(case.model)


def no_sync_forever(case):
    case.model.no_sync().__enter__()
    case.step()


def files(case):
    with tempfile.TemporaryDirectory() as place:
        what = case.chance.randrange(5)
        if what == 0:
            heddle.save("/dev/null/none", case.model, case.optimizer)
        if what == 1:
            heddle.load(place, case.model, case.optimizer)
        if what == 2:
            heddle.load(os.path.join(place, "absent"), case.model)
        if what == 3:
            heddle.save(place, case.model)
        if what == 4:
            heddle.save_pretrained(case.model, place)


def changes_of_the_model(case):
    changes = [lambda: case.model.half(), lambda: case.model.to("meta"), lambda: case.model.requires_grad_(False),
               lambda: case.model.state_dict(), lambda: case.model.load_state_dict({}), lambda: copy.deepcopy(case.model),
               lambda: pickle.dumps(case.model), lambda: case.block.to(torch.float16), lambda: case.block.to_empty(device="cpu"),
               lambda: case.block.requires_grad_(False), lambda: setattr(case.block.up, "weight", nn.Parameter(torch.ones(2, 2))),
               lambda: delattr(case.block, "down"), lambda: case.model.blocks.append(Block()), lambda: case.model.share_memory(),
               lambda: nn.utils.prune.l1_unstructured(case.block.up, "weight", 0.5), lambda: torch.jit.script(case.model),
               lambda: case.model.apply(lambda module: [each.zero_() for each in module.parameters(recurse=False)]),
               lambda: nn.DataParallel(case.model)(case.x), lambda: torch.export.export(case.block, (case.x,))]
    case.chance.choice(changes)()
    case.step()


def changes_of_shards(case):
    shard = case.shard
    changes = [lambda: setattr(shard, "data", torch.ones(1)), lambda: setattr(shard, "grad", torch.ones_like(shard)),
               lambda: shard.data.zero_(), lambda: shard.requires_grad_(False), lambda: setattr(shard, "data", shard.data.clone()),
               lambda: copy.deepcopy(shard), lambda: shard.data.resize_(0), lambda: shard.untyped_storage().resize_(0)]
    case.chance.choice(changes[:-1] if case.strategy == "megatron" else changes[:-2])()
    case.step()


def another_engine(case):
    what = case.chance.randrange(5)
    if what == 0:
        heddle.init(timeout=1.0)
        heddle.fully_shard(case.model, strategy="ddp")
    if what == 1:
        heddle.fully_shard(case.chance.choice([case.block, case.model.blocks]), strategy="ddp")
    if what == 2:
        heddle.fully_shard(nn.Sequential(case.block, nn.Linear(2, 2)), strategy="ddp")
    if what == 3:
        other = Case(case.chance.choice(["ddp", "fsdp2", "megatron"]), case.chance)
        (other.model(case.x) + case.model(case.x)).mean().backward()
        other.optimizer.step()
        case.optimizer.step()
    if what == 4:
        heddle.fully_shard(Net(), strategy=case.chance.choice(["none", "", "FSDP2", 7]), tp_size=case.chance.choice([1, 2, "x"]))


def direct_calls(case):
    native = case.model._heddle.native
    calls = [lambda: native.before(99), lambda: native.before(2**40), lambda: native.after(1, case.x), native.end, native.abandon,
             lambda: native.before(1), lambda: native.precision(99), lambda: native.parameter("none"), lambda: native.norm(-1.0),
             native.release_whole, lambda: native.begin(True), lambda: native.load("", [(99, "", case.x)]),
             lambda: native.save("/dev/null/a", [(99, "a", case.x)], []), native.parameters_changed]
    for call in case.chance.sample(calls, 3):
        try:
            call()
        except (heddle.Error, RuntimeError, TypeError, IndexError, ValueError, KeyError):
            pass


def odd_results(case):
    loop = []
    loop.extend([loop] * 12)
    result = case.chance.choice([None, loop, {"a": loop}, iter([1]), "text", (None, {"x": [None]})])
    case.block.register_forward_hook(lambda module, given, out: result)
    case.step()


def threads(case):
    def work():
        try:
            case.step()
        except Exception:
            pass
    what = case.chance.randrange(3)
    if what == 0:  # runs the whole loop in another thread
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    if what == 1:  # calls the model from another thread during a forward
        def meanwhile(*given):
            thread = threading.Thread(target=work)
            thread.start()
            thread.join()
        handle = case.block.register_forward_hook(meanwhile)
        case.step()
        handle.remove()
    if what == 2:  # runs the backward in another thread
        loss = case.model(case.x).mean()
        thread = threading.Thread(target=loss.backward)
        thread.start()
        thread.join()
    case.step()


def child(case, way):
    try:
        case.step()
    except heddle.Error:
        pass
    if way:
        os._exit(0)
    raise SystemExit(0)


def forks(case):
    worker = multiprocessing.get_context("fork").Process(target=child, args=(case, case.chance.randrange(2)))
    worker.start()
    worker.join(30)
    hung = worker.is_alive()
    worker.kill()
    assert not hung and worker.exitcode == 0, f"a forked child: {worker.exitcode}"
    if case.chance.random() < 0.3:
        for batch in torch.utils.data.DataLoader([case.x[0]] * 4, batch_size=2, num_workers=1):
            case.model(batch).sum().backward()


def deletions(case):
    loss = case.model(case.x).pow(2).mean()
    optimizer = case.optimizer
    del case.model, case.optimizer
    gc.collect()
    if case.chance.random() < 0.5:
        loss.backward()
        optimizer.step()


def early_optimizer(case):
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=1.0)
    heddle.fully_shard(net, units=["blocks.*"], **STRATEGIES[case.strategy][1])
    net(case.x).sum().backward()
    optimizer.step()


def clipping(case):
    case.model(case.x).sum().backward()
    nn.utils.clip_grad_norm_(case.chance.sample(list(case.model.parameters()), 2), 1.0)


def inputs(case):
    case.model(case.chance.choice([None, torch.ones(2, 3), torch.ones(0, WIDTH), "x", torch.ones(3, WIDTH, dtype=torch.float64)]))


MISUSES = [read, read, read, order_of_calls, second_backward, backward_of_an_old_graph, step_first, module_alone, forward_within,
           unit_within_itself, exception_in_a_forward, exception_in_a_backward, call_within_a_backward, unsharded_misuse,
           no_sync_forever, files, changes_of_the_model, changes_of_shards, another_engine, direct_calls, odd_results, threads, forks,
           deletions, early_optimizer, clipping, inputs]


def misuse_on_all_ranks(seed, count):
    """Commits misuses on all ranks, one after another. Trains a new model after each misuse."""
    heddle.init(timeout=TIMEOUT)
    chance, said = random.Random(seed), []
    for index in range(count):
        misuse, strategy = chance.choice(MISUSES), chance.choice(["ddp", "fsdp2", "fsdp2", "megatron_fsdp", "megatron"])
        print(f"{seed}.{index}: {misuse.__name__} under {strategy}", flush=True)
        case = Case(strategy, random.Random(f"{seed} {index}"))
        try:
            misuse(case)
            said.append("nothing")
        except Exception as error:
            said.append(type(error).__name__)
        if chance.random() < 0.3:
            kept.append(case)
        Case(strategy, random.Random(index)).step()
    return said


def misuse_on_one_rank(seed):
    """Interrupts one rank, or lets it exit or misbehave, at a random moment. The other rank gets an error and exits."""
    world, chance = heddle.init(timeout=TIMEOUT), random.Random(seed)
    kind, who = chance.choice(["interrupt", "interrupt", "exit", "raise", "kill", "save", "skip"]), chance.randrange(2)
    strategy, moment = chance.choice(["ddp", "fsdp2", "megatron_fsdp", "megatron"]), 0.5 * chance.random()
    print(f"{seed}: rank {who}: {kind} under {strategy}", flush=True)
    case = Case(strategy, random.Random(seed))
    end = time.monotonic() + moment
    if world.rank == who and kind in ("interrupt", "kill"):
        number = signal.SIGINT if kind == "interrupt" else signal.SIGKILL
        timer = threading.Timer(moment, os.kill, (os.getpid(), number))
        timer.daemon = True
        timer.start()
    for _ in range(2000):  # longer than the moment
        case.step()
        if world.rank == who and time.monotonic() > end:
            if kind == "exit":
                raise SystemExit(3)
            if kind == "raise":
                fail()
            if kind == "save":
                heddle.full_state_dict(case.model)
            if kind == "skip":
                case.optimizer.step()
                with case.model.no_sync():
                    case.model(case.x).sum().backward()
                return kind


def accumulate(case):
    with case.model.no_sync():
        case.model(case.x).sum().backward()


def backward(case):
    case.model(case.x).sum().backward()


def step_of(make):
    """Returns a misuse: a step of the optimizer that `make` creates from the matrices of the model."""
    def misuse(case):
        backward(case)
        make([each for each in case.model.parameters() if each.dim() == 2]).step(lambda: case.model(case.x).sum())
    return misuse


def freeze(case):
    case.shard.requires_grad_(False)
    case.step()


def freeze_by_attribute(case):
    case.shard.requires_grad = False
    case.step()


def clip_without_reduction(case):
    accumulate(case)
    heddle.clip_grad_norm_(case.model, 1.0)


def clip_by_torch_without_reduction(case):
    accumulate(case)
    nn.utils.clip_grad_norm_(case.model.parameters(), 1.0)


def step_without_reduction(case):
    accumulate(case)
    case.optimizer.step()


def step_with_a_closure(case):
    def closure():
        accumulate(case)
        return 0.0
    case.optimizer.step(closure)


def zero_grad_of_the_model(case):
    accumulate(case)
    case.model.zero_grad()


def zero_grad_of_the_optimizer(case):
    accumulate(case)
    case.optimizer.zero_grad()


def clip_a_module(case):
    backward(case)
    nn.utils.clip_grad_norm_(case.model.blocks.parameters(), 1.0)


def clip_values_of_a_module(case):
    backward(case)
    nn.utils.clip_grad_value_(case.model.blocks.parameters(), 1.0)


def edit_data(case):
    with heddle.unsharded(case.model):
        case.model.blocks[0].up.weight.data.mul_(2)


def edit_twice(case):
    with heddle.unsharded(case.model):
        case.model.blocks[0].up.weight.mul_(2)
        for shard in case.model.parameters():
            shard.mul_(3)


def weight_of_a_unit(case):
    case.model.norm.register_forward_hook(lambda module, given, out: out @ case.model.blocks[0].down.weight)
    case.step()


def backward_of_shards(case):
    case.model(case.x).sum().backward(inputs=list(case.model.parameters()))


def checkpoint_the_model(case):
    torch.utils.checkpoint.checkpoint(case.model, case.x.requires_grad_(), use_reentrant=False).sum().backward()


def in_unsharded(call):
    def misuse(case):
        backward(case)
        with heddle.unsharded(case.model):
            call(case)
    return misuse


def forward_of(make):
    """Returns a misuse: a forward of indices through the model that `make` creates."""
    return lambda case: heddle.fully_shard(make(), **STRATEGIES[case.strategy][1])(torch.zeros(2, 1, dtype=torch.long))


SPLITTING = ("fsdp2", "megatron_fsdp")  # parameters are split over ranks
FREEING = (*SPLITTING, "megatron")  # modules compute with tensors other than the shards
ALL = (*FREEING, "ddp")
# misuse: strategies, the misuse, a part of the error
REFUSED = {
    "Adafactor": (SPLITTING, step_of(lambda given: torch.optim.Adafactor(given)), "Adafactor: this optimizer needs whole"),
    "subclass": (SPLITTING, step_of(lambda given: type("Own", (torch.optim.Adafactor,), {})(given)), "Own: this optimizer"),
    "Muon": (SPLITTING, step_of(lambda given: torch.optim.Muon(given)), "choose the strategy ddp, or an optimizer that"),
    "LBFGS": (SPLITTING, step_of(lambda given: torch.optim.LBFGS(given)), "LBFGS: this optimizer needs whole parameters"),
    "freeze": (FREEING, freeze, "requires_grad is False, but it was True in heddle.fully_shard"),
    "freeze by attribute": (FREEING, freeze_by_attribute, "freeze parameters before fully_shard"),
    "register_hook": (FREEING, lambda case: case.shard.register_hook(fail), "'register_hook' on this rank's shard would never"),
    "gradient hook": (FREEING, lambda case: case.shard.register_post_accumulate_grad_hook(fail), "would never run"),
    "clip in no_sync": (ALL, clip_without_reduction, "clip_grad_norm_: the last backward ran within model.no_sync()"),
    "torch's clip in no_sync": (ALL, clip_by_torch_without_reduction, "the last backward ran within model.no_sync()"),
    "step in no_sync": (ALL, step_without_reduction, "AdamW.step: the last backward ran within model.no_sync()"),
    "step of a closure in no_sync": (ALL, step_with_a_closure, "AdamW.step: the last backward ran within model.no_sync()"),
    "zero_grad of the model": (FREEING, zero_grad_of_the_model, "run a backward outside of no_sync() before zero_grad()"),
    "zero_grad of the optimizer": (FREEING, zero_grad_of_the_optimizer, "cannot be discarded under the strategy"),
    "clip a module": (FREEING, clip_a_module, "clip all parameters of the model together"),
    "clip values of a module": (FREEING, clip_values_of_a_module, "clip all parameters of the model together"),
    "edit data": (SPLITTING, edit_data, "edit the parameter itself, not its .data"),
    "edit twice": (SPLITTING, edit_twice, "the whole parameter and its shard have both changed"),
    "forward": (ALL, lambda case: case.model.forward(case.x), "call the model itself, model(...)"),
    "module": (ALL, lambda case: case.model.blocks[1](case.x), "blocks.1: this Block runs outside of a forward of the model"),
    "weight of a unit": (FREEING, weight_of_a_unit, "pass root=['blocks.0.down'] to heddle.fully_shard"),
    "backward in a forward": (("megatron",), lambda case: backward_in_a_forward(case), "choose the strategy ddp or single"),
    "DDP": (ALL, lambda case: nn.parallel.DistributedDataParallel(case.model), "this Net is under heddle.fully_shard, which"),
    "backward of shards": (FREEING, backward_of_shards, "a backward for this rank's shard alone"),
    "checkpoint of the model": (ALL, checkpoint_the_model, "checkpoint parts of the model, or pass use_reentrant=True"),
    "torch.func": (FREEING, lambda case: torch.func.grad(lambda x: case.model(x).sum())(case.x), "torch.func transforms this"),
    "save in unsharded": (FREEING, in_unsharded(lambda case: heddle.save("none", case.model)), "heddle.save: it is called within"),
    "step in unsharded": (FREEING, in_unsharded(lambda case: case.optimizer.step()), "AdamW.step: it is called within"),
    "weights changed by the forward": (SPLITTING, forward_of(lambda: nn.Sequential(nn.Embedding(8, WIDTH, max_norm=0.1))),
                                       "0.weight: the forward changes this parameter in place"),
    "complex parameters": (ALL, forward_of(lambda: nn.Linear(8, 8, dtype=torch.complex64)), "weight: this parameter is torch.complex64"),
    "lazy parameters": (ALL, forward_of(lambda: nn.LazyLinear(8)), "run a forward of the model before heddle.fully_shard"),
    "sparse gradients": (("ddp", "fsdp2"), forward_of(lambda: nn.Sequential(nn.Embedding(8, 8, sparse=True))), "with sparse=False"),
    "files for a model with values": (ALL, lambda case: heddle.fully_shard(Net(), from_pretrained_dir="none"), "has values on a device"),
    "torch.jit": (ALL, forward_of(lambda: torch.jit.script(nn.Sequential(nn.Linear(8, 8)))), "this module is compiled by torch.jit"),
    "pickle": (ALL, lambda case: pickle.dumps(case.model), "pickle: a model under heddle.fully_shard cannot be pickled"),
    "extra that is no JSON": (ALL, lambda case: heddle.save("none", case.model, extra={"x": torch.ones(2)}), "extra: it cannot be"),
    "save_pretrained": (ALL, lambda case: heddle.save_pretrained(case.model, "none"), "Net: this model is not one of transformers"),
    "norm of order 0": (ALL, lambda case: heddle.clip_grad_norm_(case.model, 1.0, 0.0), "norm_type: 0.0 is not above 0"),
    "clip of parameters": (ALL, lambda case: heddle.clip_grad_norm_(case.model.parameters(), 1.0), "model: a generator is no model"),
    "optimizer of a part": (FREEING, lambda case: torch.optim.SGD(case.model.blocks.parameters(), 0.1).step(), "by their names"),
    "second init": (ALL, lambda case: heddle.init(timeout=3.0), "heddle.init: the process has joined its ranks already"),
    "a single pattern": (ALL, lambda case: heddle.fully_shard(Net(), units="none.*"), "units: no module of Net is 'none.*'"),
    "root": (ALL, lambda case: heddle.fully_shard(Net(), root=["none"]), "root: no module of Net is 'none'"),
    "units of numbers": (ALL, lambda case: heddle.fully_shard(Net(), units=[3]), "units: 3 selects no modules"),
    "a number of units": (ALL, lambda case: heddle.fully_shard(Net(), units=3), "units: 3 selects no modules"),
    "config": (ALL, lambda case: heddle.fully_shard(Net(), config=3), "config: 3 is neither a path nor a mapping"),
    "no module": (ALL, lambda case: heddle.fully_shard("x"), "heddle.fully_shard: 'x' is not a module"),
    "a class": (ALL, lambda case: heddle.fully_shard(Net), "pass an instance of torch.nn.Module"),
}


def backward_in_a_forward(case):
    case.model.blocks[1].register_forward_hook(lambda module, given, out: torch.autograd.grad(out.sum(), given, retain_graph=True))
    case.x.requires_grad_()
    case.step()


def refused():
    """Returns the strategy, the name and the error of each misuse of REFUSED."""
    heddle.init(timeout=TIMEOUT)
    found = []
    for name, (strategies, misuse, _) in REFUSED.items():
        for strategy in strategies:
            case = Case(strategy, random.Random(3))
            try:
                misuse(case)
                found.append((strategy, name, "nothing"))
            except heddle.Error as error:
                found.append((strategy, name, str(error)))
            kept.append(case)
    return found


def differing_ranks(kind):
    """Returns the error of fully_shard, or of the next forward, if rank 1 differs from rank 0."""
    differs = heddle.init(timeout=TIMEOUT).rank == 1
    widths = (WIDTH, 32, 8, 24, 40)[:5 if differs and kind == "layers" else 4]
    net = nn.Sequential(*(nn.Linear(*pair) for pair in itertools.pairwise(widths)))
    if differs and kind == "frozen":
        net[1].requires_grad_(False)
    try:
        heddle.fully_shard(net, units=["0", "2"] if differs and kind == "units" else None,
                           gradients="sum" if differs and kind == "gradients" else "average")
        for step in range(2):
            if differs and kind == "evaluation" and step == 1:
                with torch.no_grad():
                    net(torch.ones(1, WIDTH))
            net(torch.ones(1, WIDTH)).sum().backward()
        return "nothing"
    except heddle.Error as error:
        return str(error)


@unittest.skipIf(MISSING, MISSING)
class RefusalTest(unittest.TestCase):
    def test_names_what_to_do(self):
        for found in ranks.run(refused, 2):
            for strategy, name, error in found:
                with self.subTest(f"{strategy}, {name}"):
                    self.assertIn(REFUSED[name][2], error)

    def test_ranks_that_differ(self):
        for kind, expected in {"layers": "only rank 1 has 3.bias", "frozen": "only rank 1 has 1.bias", "units": "only rank 0 has 1",
                               "gradients": "only rank 1 has sum", "evaluation": "run the same calls on every rank"}.items():
            with self.subTest(kind):
                for error in ranks.run(differing_ranks, 2, kind=kind):
                    self.assertIn(expected, error)


@unittest.skipIf(MISSING, MISSING)
class MisuseTest(unittest.TestCase):
    def end(self, function, place, **arguments):
        """Returns the statuses and outputs of the ranks, which must exit in time."""
        children = ranks.start(function, 2, arguments, place)
        try:
            outputs = [child.communicate(timeout=ranks.SECONDS)[0] for child in children]
        except subprocess.TimeoutExpired:
            for child in children:
                child.kill()
            self.fail("the ranks did not exit:\n" + "\n".join(child.communicate()[0] for child in children))
        return [child.returncode for child in children], "\n".join(outputs)

    def test_both_ranks(self):
        for seed in range(SEED, SEED + max(1, COUNT * 5 // 6 // AT_ONCE)):
            with self.subTest(seed=seed), tempfile.TemporaryDirectory() as place:
                statuses, output = self.end(misuse_on_all_ranks, place, seed=seed, count=AT_ONCE)
                self.assertEqual(statuses, [0, 0], output)

    def test_one_rank(self):
        for seed in range(SEED, SEED + COUNT // 12):
            with self.subTest(seed=seed), tempfile.TemporaryDirectory() as place:
                statuses, output = self.end(misuse_on_one_rank, place, seed=seed)
                self.assertEqual(output.count(f"{seed}: rank "), 2, output)  # both ranks have begun
                killed = [status for status in statuses if status < 0 and status != -signal.SIGINT]
                self.assertEqual(killed, [-signal.SIGKILL] if "kill under" in output else [], output)


if __name__ == "__main__":
    ranks.main_of_tests()

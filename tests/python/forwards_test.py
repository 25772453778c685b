"""Unusual forwards and training loops: gradients compared with plain PyTorch after each of three steps."""
import copy
import os
import unittest

try:
    import torch
    from torch import nn
    from torch.utils.checkpoint import checkpoint
    MISSING = ""
except ImportError as error:
    MISSING = str(error)

import heddle
import ranks
from numbers_test import STRATEGIES

WIDTH, STEPS = 16, 3

if not MISSING:
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.up, self.down = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)

        def forward(self, x):
            return x + self.down(torch.tanh(self.up(x)))

    class Outer(nn.Module):
        """A unit that contains another unit."""
        def __init__(self):
            super().__init__()
            self.inner, self.own = Block(), nn.Linear(WIDTH, WIDTH)

        def forward(self, x):
            return self.own(self.inner(torch.tanh(self.own(x))))

    class Viewing(Block):
        """Returns a view, as a linear layer does for inputs of 3 dims."""
        def forward(self, x):
            return super().forward(x).view_as(x)

    class Biased(Block):
        """Returns the bias that the first layer makes, a leaf, as T5 does with its position bias."""
        def forward(self, x, bias):
            bias = torch.ones_like(x).requires_grad_() if bias is None else bias
            return super().forward(x + bias), bias

    class Made:
        def __init__(self, value):
            self.value = value

    class Wrapping(Block):
        """Returns an object that is no container of PyTorch."""
        def forward(self, x):
            return Made(super().forward(x))

    class Recomputing(nn.Module):
        """Recomputes a part of itself in nested backwards. The part's gradients arrive several times."""
        def __init__(self):
            super().__init__()
            self.part, self.rest = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

        def forward(self, x, times, first):
            x = self.rest(first(x))
            for _ in range(times):
                x = checkpoint(self.part, x, use_reentrant=True)
            return x

    class Net(nn.Module):
        def __init__(self, run):
            super().__init__()
            self.blocks = nn.ModuleList(Block() for _ in range(4))
            self.outer, self.scale, self.norm = Outer(), nn.Parameter(torch.ones(())), nn.LayerNorm(WIDTH)
            self.viewing, self.wrapping, self.own = Viewing(), Wrapping(), nn.Linear(WIDTH, WIDTH)
            self.recomputing = Recomputing()
            self.biased = nn.ModuleList(Biased() for _ in range(2))
            self.run = run

        def forward(self, x, rank, step):
            return self.norm(self.run(self, x, rank, step)) * self.scale


def chain(net, x, order=(0, 1, 2, 3)):
    for index in order:
        x = net.blocks[index](x)
    return x


def skipped_on_one_rank(net, x, rank, step):
    x = net.blocks[0](x)
    if (rank + step) % 2 == 0:
        x = x + net.blocks[1](x)
    return net.blocks[3](net.blocks[2](x))


def detached(net, x, rank, step):
    y = net.blocks[0](x)
    return net.blocks[1](y.detach()) + net.blocks[2](y)


def checkpointed_pair(net, x, rank, step, reentrant=False):
    def pair(y):
        return net.blocks[1](net.blocks[0](y))
    return net.blocks[3](checkpoint(pair, net.blocks[2](x), use_reentrant=reentrant))


def autocast(net, x, rank, step):
    with torch.autocast("cpu", torch.bfloat16):
        x = net.blocks[0](x)
    return chain(net, x.float(), (1, 2))


def no_gradient_between(net, x, rank, step):
    with torch.no_grad():
        y = net.blocks[2](x)
    return net.blocks[1](net.blocks[0](x) + y)


def changed_in_place(net, x, rank, step):
    x = net.viewing(net.blocks[0](x))
    x += 1
    x *= 2
    return net.blocks[1](x)


def leaf_handed_on(net, x, rank, step, bias=None):
    for layer in net.biased:
        x, bias = checkpoint(layer, x, bias, use_reentrant=False)
    return x


FORWARDS = {
    "row": lambda net, x, rank, step: chain(net, x),
    "twice": lambda net, x, rank, step: chain(net, x, (0, 1, 1, 2, 0)),
    "skipped blocks": lambda net, x, rank, step: chain(net, x, (0, 3)),
    "skipped on one rank": skipped_on_one_rank,
    "nested": lambda net, x, rank, step: chain(net, net.outer(x), (0, 1)),
    "reversed": lambda net, x, rank, step: chain(net, x, (3, 2, 1, 0)),
    "detached": detached,
    "branches": lambda net, x, rank, step: net.blocks[0](x) + net.blocks[1](x) * net.blocks[2](x),
    "checkpointed pair": checkpointed_pair,
    "checkpointed pair, reentrant": lambda *given: checkpointed_pair(*given, reentrant=True),
    "autocast": autocast,
    "no gradient between": no_gradient_between,
    "output changed in place": changed_in_place,
    "last output changed in place": lambda net, x, rank, step: net.viewing(net.blocks[0](x)).mul_(2),
    "leaf handed on": leaf_handed_on,
    "leaf of the root handed on": lambda net, x, *rest: leaf_handed_on(net, x, *rest, torch.ones_like(x).requires_grad_()),
    "part of a unit recomputed": lambda net, x, rank, step: net.recomputing(net.blocks[0](x), 2, lambda y: y),
    "part of a unit also recomputed": lambda net, x, rank, step: net.recomputing(net.blocks[0](x), 1, net.recomputing.part),
    "root recomputed in part": lambda net, x, rank, step: net.blocks[0](checkpoint(net.own, net.own(x), use_reentrant=True)),
    "own object": lambda net, x, rank, step: net.blocks[1](net.wrapping(net.blocks[0](x)).value),
}
# Loops that reset gradients between forward and backward, or never.
KEPT = ("reset after the forward", "never reset")
LOOPS = (*KEPT, "two forwards and one backward", "three microbatches", "accumulated without no_sync", "a second backward", "evaluation between", "frozen unit",
         "frozen first", "values changed", "data replaced", "moving average", "hooks of the user", "parametrized", "gradient penalty", "two models", "loss of an inner tensor")


def units(path, module):
    return isinstance(module, (Block, Outer, Recomputing))


def prepare(net, name):
    if name == "frozen unit":
        net.blocks[1].requires_grad_(False)
    if name == "frozen first":
        net.blocks[0].requires_grad_(False)
    if name == "parametrized":
        torch.nn.utils.parametrizations.weight_norm(net.blocks[1].up)
    if name == "hooks of the user":
        net.blocks[1].register_forward_hook(lambda module, args, result: 2 * result)
        net.blocks[2].register_full_backward_hook(lambda module, given, got: tuple(0.5 * each for each in given))


def change_values(name, net, other):
    """Changes parameters outside of an optimizer, after a forward that may have gathered them."""
    if name in ("values changed", "data replaced"):
        net(torch.ones(1, WIDTH), 0, 0)
        with torch.no_grad():
            for parameter in net.parameters():
                parameter.mul_(0.9)
    if name == "data replaced":
        for parameter in net.parameters():
            parameter.data = parameter.data * 0.9
    if name == "moving average":
        for average, parameter in zip(other.parameters(), net.parameters()):
            average.data.mul_(0.5).add_(parameter.data)


def losses(name, net, x, rank, step, other=None):
    """Returns the losses whose backwards give the gradients of a step."""
    call = lambda value: net(value, rank, step)  # noqa: E731
    if name == "two forwards and one backward":
        return [call(x).pow(2).mean() + call(-x).abs().mean()]
    if name in ("three microbatches", "a second backward"):
        return [call(x * factor).pow(2).mean() for factor in (1.0, 0.5, 2.0)]
    if name == "accumulated without no_sync":
        return (call(x * factor).pow(2).mean() for factor in (1.0, 0.5, 2.0))
    if name == "evaluation between":
        with torch.no_grad():
            call(x)
        return [call(x).pow(2).mean()]
    if name == "gradient penalty":
        x = x.clone().requires_grad_()
        out = call(x).pow(2).mean()
        gradient, = torch.autograd.grad(out, x, create_graph=True)
        return [out + gradient.pow(2).sum()]
    if name in ("two models", "moving average"):
        return [(call(x) - other(x, rank, step)).pow(2).mean()]
    if name == "loss of an inner tensor":
        kept = []
        handle = net.blocks[1].register_forward_hook(lambda module, args, result: kept.append(result))
        call(x)
        handle.remove()
        return [kept[0].pow(2).mean()]
    return [call(x).pow(2).mean()]


def inputs(step, rank):
    return torch.randn(3, WIDTH, generator=torch.Generator().manual_seed(10 * step + rank))


def make(name):
    torch.manual_seed(5)
    net = Net(FORWARDS.get(name, FORWARDS["row"]))
    prepare(net, name)
    return net


def compare(strategies, names):
    """Returns the largest difference of a gradient from plain PyTorch's, or the error."""
    world, results = heddle.init(), []
    for strategy in strategies:
        for name in names:
            try:
                results.append((strategy, name, compare_one(name, STRATEGIES[strategy][1], world)))
            except heddle.Error as error:
                results.append((strategy, name, str(error)))
    return results


def compare_one(name, fields, world):
    from architectures_test import worst

    mine, plain = make(name), make(name)
    others = (make("row"), make("row")) if name in ("two models", "moving average") else (None, None)
    if name == "moving average":
        for net in others:
            net.requires_grad_(False)
    heddle.fully_shard(mine, units=units, **fields)
    if others[0] is not None:
        heddle.fully_shard(others[0], units=units, **fields)
    optimizers = [torch.optim.SGD(net.parameters(), lr=0.05) for net in (mine, plain)]
    found = 0.0
    for step in range(STEPS):
        if name == "reset after the forward":
            optimizers[1].zero_grad()
        for rank in range(world.size):
            for loss in losses(name, plain, inputs(step, rank), rank, step, others[1]):
                (loss / world.size).backward()
        parts = losses(name, mine, inputs(step, world.rank), world.rank, step, others[0])
        if name == "reset after the forward":
            optimizers[0].zero_grad()
        for index, loss in enumerate(parts):
            if index < 2 and name == "three microbatches":
                with mine.no_sync():
                    loss.backward()
            else:
                loss.backward()
        found = max(found, worst(mine, plain, world.size)[1])
        for optimizer in optimizers:
            optimizer.step()
            if name not in KEPT:
                optimizer.zero_grad()
        if others[0] is not None:
            for net in others:
                net.zero_grad()
        for net, other in zip((mine, plain), others):
            change_values(name, net, other)
    return found


def tree():
    """Returns a model with containers in lists, tables of two sizes, and attention outside of a list."""
    class Tree(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.places = nn.Embedding(64, WIDTH), nn.Embedding(8, WIDTH)
            self.attention = nn.MultiheadAttention(WIDTH, 2, batch_first=True)
            self.layers = nn.ModuleList([nn.ModuleList([Block(), Block()]), nn.ModuleDict({"a": Block()}),
                                         nn.ParameterList([torch.ones(WIDTH)]), Block()])

        def forward(self, tokens):
            x = self.words(tokens) + self.places.weight[:tokens.shape[1]]
            x = x + self.attention(x, x, x)[0]
            (first, second), named, scale, last = self.layers
            return last(named["a"](second(first(x))) * scale[0])
    torch.manual_seed(2)
    return Tree()


def odd_parts(strategies):
    """Returns differences of gradients of a model with a frozen table of large integers, a buffer that is not contiguous, an
    input of one element and a method `generate` of its own."""
    from architectures_test import worst

    class Odd(nn.Module):
        def __init__(self):
            super().__init__()
            self.blocks = nn.ModuleList(Block() for _ in range(2))
            self.time = nn.Linear(1, WIDTH)
            self.table = nn.Parameter(torch.arange(WIDTH) + (1 << 24) + 1, requires_grad=False)
            self.register_buffer("mixing", torch.eye(WIDTH)[:, ::2].t())

        def generate(self, x):
            return self.blocks[0](x)

        def forward(self, x):
            x = self.generate(x + self.time(torch.ones(1, 1))) + (self.table % 7)
            return self.blocks[1](x @ self.mixing.t() @ self.mixing)

    world, results = heddle.init(), {}
    for strategy in strategies:
        torch.manual_seed(4)
        mine = Odd()
        plain = copy.deepcopy(mine)
        heddle.fully_shard(mine, **STRATEGIES[strategy][1])
        for rank in range(world.size):
            (plain(inputs(0, rank)).pow(2).mean() / world.size).backward()
        mine(inputs(0, world.rank)).pow(2).mean().backward()
        results[strategy] = worst(mine, plain, world.size)
    return results


def gradients_of_tree(strategy):
    from architectures_test import worst

    world, mine, plain = heddle.init(), tree(), tree()
    heddle.fully_shard(mine, **STRATEGIES[strategy][1])
    batches = [torch.randint(0, 64, (2, 8), generator=torch.Generator().manual_seed(rank)) for rank in range(world.size)]
    for tokens in batches:
        (plain(tokens).pow(2).mean() / world.size).backward()
    mine(batches[world.rank]).pow(2).mean().backward()
    return [unit.name for unit in mine._heddle.units], worst(mine, plain, world.size)


@unittest.skipIf(MISSING, MISSING)
class DefaultUnitsTest(unittest.TestCase):
    def test_are_modules_with_a_forward_of_their_own(self):
        for strategy in ("fsdp2", "megatron_fsdp"):
            for names, (parameter, difference) in ranks.run(gradients_of_tree, 2, strategy=strategy):
                self.assertEqual(names, ["", "words", "attention", "layers.0.0", "layers.0.1", "layers.1.a", "layers.3"])
                self.assertLess(difference, 1e-5, parameter)


@unittest.skipIf(MISSING, MISSING)
class OddPartsTest(unittest.TestCase):
    def test_gradients(self):
        for result in ranks.run(odd_parts, 2, strategies=["ddp", "fsdp2", "megatron_fsdp", "megatron"]):
            for strategy, (parameter, difference) in result.items():
                with self.subTest(strategy):
                    self.assertLess(difference, 1e-5, parameter)


@unittest.skipIf(MISSING, MISSING)
class ForwardsTest(unittest.TestCase):
    # Refused: a backward that gathers the units again, a second backward after the gradients of the step were reduced, and
    # under ddp, as in PyTorch, parameters whose gradients arrive in parts.
    REFUSED = {("fsdp2", "gradient penalty"): "create_graph=True", ("megatron_fsdp", "gradient penalty"): "create_graph=True",
               ("megatron", "gradient penalty"): "create_graph=True",
               **{("ddp", name): "static_graph: true" for name in FORWARDS if "recomputed" in name},
               **{(strategy, "part of a unit also recomputed"): "parts of them with use_reentrant=False"
                  for strategy in ("fsdp2", "megatron_fsdp")},
               **{(strategy, "a second backward"): "no_sync()" for strategy in STRATEGIES if strategy != "single"}}

    def test_gradients(self):
        for size in (1, 2):
            strategies = [name for name in os.environ.get("HEDDLE_TEST_STRATEGIES", ",".join(STRATEGIES)).split(",")
                          if STRATEGIES[name][0] == size]
            if not strategies:
                continue
            for result in ranks.run(compare, size, strategies=strategies, names=[*FORWARDS, *LOOPS]):
                print(f"{size} ranks: largest difference {max(each for _, _, each in result if isinstance(each, float)):.1e}")
                for strategy, name, difference in result:
                    with self.subTest(f"{strategy}, {name}"):
                        if (strategy, name) in self.REFUSED:
                            self.assertIn(self.REFUSED[strategy, name], str(difference))
                        else:
                            self.assertIsInstance(difference, float, difference)
                            self.assertLess(difference, 1e-5)


if __name__ == "__main__":
    ranks.main_of_tests()

"""Measures how far the choices of a model (top-k, limits of gates, rounding) are from their borders.

A last bit flips a choice at its border, and losses and gradients jump with it. Which numbers have such a bit depends on
the processor: its products sum in another order. A golden case needs data whose choices all keep their distance:
make_golden.py draws data until they do, and

    python3 tests/golden/choices.py CASE...

measures cases that are there.
"""

import copy
import json
import math
import pathlib
import sys

import torch
from torch.utils._python_dispatch import TorchDispatchMode

ORDERS = 3  # other orders of the sums
LEAST = 9  # distance of a choice from its border, in deviations of its number between orders
TINY = 1e-20
aten = torch.ops.aten


class Recorder(TorchDispatchMode):
    """Records the numbers of choices. order: a seed that permutes the terms of each product's sums; None: as they are."""

    def __init__(self, order=None):
        super().__init__()
        self.order, self.permutations, self.choices = order, {}, []

    def permuted(self, a, b):
        depth = a.shape[-1]
        if depth not in self.permutations:
            generator = torch.Generator().manual_seed(self.order * 100003 + depth)
            self.permutations[depth] = torch.randperm(depth, generator=generator)
        return a.index_select(-1, self.permutations[depth]), b.index_select(-2, self.permutations[depth])

    def record(self, name, x, rest):
        if name == "topk" and x.shape[-1] > rest[0]:
            self.choices.append(aten.topk(x, rest[0] + 1, -1)[0][..., -2:].clone())
        elif name.startswith("clamp"):
            for border in rest:
                if isinstance(border, (int, float)) and math.isfinite(border):
                    self.choices.append(torch.stack([x, torch.full_like(x, border)], -1))
        elif name == "round":
            self.choices.append(torch.stack([x, x.floor() + 0.5], -1))

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name, args = function.overloadpacket.__name__, list(args)
        if self.order is not None and name in ("mm", "bmm"):
            args[:2] = self.permuted(*args[:2])
        elif self.order is not None and name in ("addmm", "baddbmm"):
            args[1:3] = self.permuted(*args[1:3])
        if args and isinstance(args[0], torch.Tensor) and args[0].is_floating_point():
            self.record(name, args[0], args[1:])
        return function(*args, **(kwargs or {}))


def recorded(model, data, train, order=None):
    with Recorder(order) as recorder:
        train(copy.deepcopy(model), data)
    return recorder.choices


def distance(model, data, train):
    """The least distance of a choice from its border, in deviations; infinity: the model does not choose."""
    want, least = recorded(model, data, train), math.inf
    for order in range(1, ORDERS + 1):
        if least < LEAST:
            break
        got = recorded(model, data, train, order)
        if [x.shape for x in got] != [x.shape for x in want]:
            return 0.0  # a choice flipped: an expert has another number of rows
        for a, b in zip(want, got):
            # Two experts without weight are the same choice; -inf is masked.
            real = torch.isfinite(a).all(-1) & torch.isfinite(b).all(-1) & (a.abs().amax(-1) > TINY)
            gap, deviation = (a[..., 0] - a[..., 1]).abs()[real], (a - b).abs().amax(-1)[real]
            if gap.numel():
                least = min(least, float((gap / (torch.maximum(deviation, deviation.mean()) + 1e-30)).min()))
    return least


def draw(make_data, model, train):
    """Data whose choices all keep their distance, from the first 1000 that make_data() gives."""
    for _ in range(1000):
        data = make_data()
        if distance(model, data, train) >= LEAST:
            return data
    raise RuntimeError("no data keep every choice from its border: let the model choose less often")


def main():
    from make_golden import load_case, train

    torch.set_num_threads(1)
    for name in sys.argv[1:]:
        model, data = load_case(pathlib.Path(__file__).parent / name)
        print(name, f"{distance(model, data, train):.1f}", flush=True)


if __name__ == "__main__":
    main()

"""Measures how far a model's discrete choices (top-k, clamps, rounding) are from their decision borders.

A difference in the last bit flips a choice at its border, and losses and gradients jump. Rounding depends on the processor,
because matrix products sum in different orders. So golden cases need data whose choices all keep a distance from their
borders. make_golden.py draws data until they do. To measure existing cases:

    python3 tests/golden/choices.py CASE...
"""

import copy
import json
import math
import pathlib
import sys

import torch
from torch.utils._python_dispatch import TorchDispatchMode

ORDERS = 3  # number of other summation orders
LEAST = 9  # minimum distance of a choice from its border, in deviations between summation orders
TINY = 1e-20
aten = torch.ops.aten


class Recorder(TorchDispatchMode):
    """Records the values that decide choices. order: seed that permutes the terms of a product's sums. None: unchanged."""

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
    """Returns the smallest distance of a choice from its border, in deviations. Infinity: the model makes no choice."""
    want, least = recorded(model, data, train), math.inf
    for order in range(1, ORDERS + 1):
        if least < LEAST:
            break
        got = recorded(model, data, train, order)
        if [x.shape for x in got] != [x.shape for x in want]:
            return 0.0  # a choice flipped: an expert got another number of rows
        for a, b in zip(want, got):
            # Ties between experts without weight do not matter. -inf means masked.
            real = torch.isfinite(a).all(-1) & torch.isfinite(b).all(-1) & (a.abs().amax(-1) > TINY)
            gap, deviation = (a[..., 0] - a[..., 1]).abs()[real], (a - b).abs().amax(-1)[real]
            if gap.numel():
                least = min(least, float((gap / (torch.maximum(deviation, deviation.mean()) + 1e-30)).min()))
    return least


def draw(make_data, model, train):
    """Returns the first data of make_data() whose choices all keep their distance, after at most 1000 draws."""
    for _ in range(1000):
        data = make_data()
        if distance(model, data, train) >= LEAST:
            return data
    raise RuntimeError("none of 1000 draws keeps every choice at a distance from its border. Reduce the model's choices.")


def main():
    from make_golden import load_case, train

    torch.set_num_threads(1)
    for name in sys.argv[1:]:
        model, data = load_case(pathlib.Path(__file__).parent / name)
        print(name, f"{distance(model, data, train):.1f}", flush=True)


if __name__ == "__main__":
    main()

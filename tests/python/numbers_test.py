"""Losses, norms and values under each strategy against plain PyTorch on all ranks' batches."""
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

FP32 = {"param_dtype": "float32", "reduce_dtype": "float32"}
STRATEGIES = {
    "single": (1, {"strategy": "single"}),
    "ddp": (2, {"strategy": "ddp"}),
    "fsdp2": (2, {"strategy": "fsdp2", "mp_policy": FP32}),
    "megatron_fsdp": (2, {"strategy": "megatron_fsdp"}),
    "megatron": (2, {"strategy": "megatron"}),
}
STEPS = 5


def reference(make, size, steps=STEPS, microbatches=1):
    """Losses and norms of AdamW steps of plain PyTorch, whose loss is the mean over ranks and microbatches."""
    model = make()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses, norms = [], []
    for step in range(steps):
        each = []
        for micro in range(microbatches):
            for rank in range(size):
                batch = tokens(step * microbatches + micro, rank)
                each.append(model(input_ids=batch, labels=batch).loss / (size * microbatches))
                each[-1].backward()
        losses.append(sum(loss.item() for loss in each))
        norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0).item())
        optimizer.step()
        optimizer.zero_grad()
    return losses, norms


def ours(make, fields, steps=STEPS, microbatches=1, **options):
    """The same under heddle: losses of this rank, norms of all."""
    import contextlib

    world = heddle.init()
    model = heddle.fully_shard(make(), **options, **fields)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses, norms = [], []
    for step in range(steps):
        total = 0.0
        for micro in range(microbatches):
            batch = tokens(step * microbatches + micro, world.rank)
            with model.no_sync() if micro + 1 < microbatches else contextlib.nullcontext():
                loss = model(input_ids=batch, labels=batch).loss / microbatches
                loss.backward()
            total += loss.item()
        losses.append(total)
        norms.append(heddle.clip_grad_norm_(model, 1.0).item())
        optimizer.step()
        optimizer.zero_grad()
    return losses, norms


def variant(name):
    if name == "tied":
        return lambda: llama(tied=True)
    if name in ("reentrant", "checkpointed"):
        def make():
            model = llama()
            model.gradient_checkpointing_enable({"use_reentrant": name == "reentrant"})
            model.enable_input_require_grads()
            return model
        return make
    return llama


CASES = {"plain": {}, "tied": {"name": "tied"}, "accumulated": {"microbatches": 3}, "checkpointed": {"name": "checkpointed"},
         "reentrant": {"name": "reentrant"}}


def steps_of(strategies):
    """Every case under each strategy, one after another in one world, and the same in plain PyTorch."""
    size, results = heddle.init().size, {}
    for case, options in CASES.items():
        make, microbatches = variant(options.get("name", "")), options.get("microbatches", 1)
        theirs = reference(make, size, microbatches=microbatches)
        for strategy in strategies:
            results[f"{strategy}, {case}"] = (ours(make, STRATEGIES[strategy][1], microbatches=microbatches), theirs)
    return results


@unittest.skipIf(MISSING, MISSING)
class StepsTest(unittest.TestCase):
    def compare(self, size):
        results = ranks.run(steps_of, size, strategies=[name for name, (ranks_, _) in STRATEGIES.items() if ranks_ == size])
        for case, (_, (losses, norms)) in results[0].items():
            with self.subTest(case):
                for step in range(STEPS):
                    mine = sum(result[case][0][0][step] for result in results) / size
                    self.assertAlmostEqual(mine, losses[step], delta=1e-6 * max(1, losses[step]))
                    for result in results:
                        self.assertAlmostEqual(result[case][0][1][step] / norms[step], 1, delta=1e-4)

    def test_one_rank(self):
        self.compare(1)

    def test_two_ranks(self):
        self.compare(2)


if __name__ == "__main__":
    unittest.main()

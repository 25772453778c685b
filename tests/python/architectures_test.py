"""One step of transformers' architectures: compares every gradient with plain PyTorch. One test passes images to one rank
only."""
import os
import unittest

try:
    import torch
    import transformers
    MISSING = ""
except ImportError as error:
    MISSING = str(error)

import heddle
import ranks
from models import ARCHITECTURES, batch, make
from numbers_test import STRATEGIES


def worst(model, reference, size):
    """Returns the largest difference of a gradient from plain PyTorch's mean, relative to the tensor's largest element."""
    expected = {name: parameter.grad for name, parameter in reference.named_parameters()}
    found = ("", 0.0)
    for shard in model._heddle.shards:
        whole = expected[shard.name]
        box = tuple(slice(begin, begin + length) for begin, length in zip(shard.offset, shard.tensor.shape))
        mine = shard.tensor.grad
        if whole is None or mine is None:
            if (whole is None or not whole.any()) and (mine is None or not mine.any()):
                continue
            return shard.name, float("inf")
        if mine.numel() == 0:
            continue
        difference = ((mine - whole[box]).abs().max() / max(whole.abs().max().item(), 1e-3)).item()
        found = max(found, (shard.name, difference), key=lambda each: each[1])
    return found


def steps_of(strategies, names, images_on_rank_0_only=False):
    return {strategy: one_step(strategy, names, images_on_rank_0_only) for strategy in strategies}


def one_step(strategy, names, images_on_rank_0_only):
    world, results = heddle.init(), {}
    for name in names:
        model, reference = make(name), make(name)
        if world.size == 1 or not images_on_rank_0_only:
            batches = [batch(name, 0, rank) for rank in range(world.size)]
        else:
            batches = [batch(name, 0, rank, images=rank == 0) for rank in range(world.size)]
        for one in batches:
            (reference(**one).loss / world.size).backward()
        heddle.fully_shard(model, **STRATEGIES[strategy][1])
        model(**batches[world.rank]).loss.backward()
        results[name] = worst(model, reference, world.size)
    return results


@unittest.skipIf(MISSING, MISSING)
class ArchitecturesTest(unittest.TestCase):
    strategies = os.environ.get("HEDDLE_TEST_STRATEGIES", "ddp,fsdp2,megatron_fsdp,megatron").split(",")

    def compare(self, **options):
        for result in ranks.run(steps_of, 2, strategies=self.strategies, **options):
            print({strategy: f"{max(each for _, each in names.values()):.1e}" for strategy, names in result.items()})
            for strategy, names in result.items():
                for name, (parameter, difference) in names.items():
                    with self.subTest(f"{strategy}, {name}: {parameter}"):
                        self.assertLess(difference, 1e-5)

    def test_each_gradient(self):
        self.compare(names=ARCHITECTURES)

    def test_images_on_one_rank_only(self):
        self.compare(names=["Gemma 3", "Qwen2-VL"], images_on_rank_0_only=True)


if __name__ == "__main__":
    ranks.main_of_tests()

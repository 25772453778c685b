"""Tests of checkpoints across strategies and ranks, exports, models on meta, whole and released parameters."""
import copy
import os
import tempfile
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
from numbers_test import FP32, STRATEGIES

SHARDED = ("fsdp2", "megatron_fsdp", "megatron")


def train(model, optimizer, steps, clip=True):
    losses = []
    for step in steps:
        batch = tokens(step, heddle.init().rank)
        loss = model(input_ids=batch, labels=batch).loss
        loss.backward()
        if clip:
            heddle.clip_grad_norm_(model, 1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def sharded_llama(strategy, **options):
    model = heddle.fully_shard(llama(**options), **STRATEGIES[strategy][1])
    return model, torch.optim.AdamW(model.parameters(), lr=1e-2)


def save_halfway(strategies, place):
    """Trains 2 steps, saves, and trains 2 more, with each strategy."""
    results = {}
    for strategy in strategies:
        model, optimizer = sharded_llama(strategy)
        train(model, optimizer, range(2))
        heddle.save(os.path.join(place, strategy), model, optimizer, extra={"step": 2})
        results[strategy] = train(model, optimizer, range(2, 4))
    return results


def resume_from(strategies, saved, place):
    """Loads each strategy's checkpoint, and trains 2 steps on the batches of 2 ranks."""
    results = {}
    world = heddle.init()
    for strategy in strategies:
        for name in saved:
            model, optimizer = sharded_llama(strategy)
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter.mul_(0.5)
            heddle.parameters_changed(model)
            assert heddle.load(os.path.join(place, name), model, optimizer) == {"step": 2}
            if world.size == 2:
                results[f"{name} to {strategy}"] = train(model, optimizer, range(2, 4))
                continue
            losses = []
            for step in range(2, 4):
                each = [model(input_ids=tokens(step, rank), labels=tokens(step, rank)).loss for rank in range(2)]
                (sum(each) / 2).backward()
                heddle.clip_grad_norm_(model, 1.0)
                optimizer.step()
                optimizer.zero_grad()
                losses.append(sum(loss.item() for loss in each) / 2)
            results[f"{name} to {strategy}"] = losses
    return results


def exported(strategies, place):
    """Returns the largest difference of logits between the model in `unsharded` and the output of save_pretrained."""
    results = {}
    for strategy in strategies:
        for tied in (False, True):
            model, optimizer = sharded_llama(strategy, tied=tied)
            train(model, optimizer, range(1))
            where = os.path.join(place, f"{strategy}{tied}")
            heddle.save_pretrained(model, where)
            with heddle.unsharded(model):
                mine = model(input_ids=tokens(9, 0)).logits
                with torch.no_grad():  # calls parts of the model by themselves
                    parts = model.lm_head(model.model(input_ids=tokens(9, 0)).last_hidden_state)
            theirs = type(llama()).from_pretrained(where)(input_ids=tokens(9, 0)).logits
            results[f"{strategy}, tied {tied}"] = max((each - theirs).abs().max().item() for each in (mine, parts))
    return results


def generated(strategy):
    """Generates tokens greedily on each rank, with different lengths, then trains a step."""
    world = heddle.init()
    model, optimizer = sharded_llama(strategy)
    plain = llama()
    prompt = tokens(3, world.rank, rows=1, length=4)
    with heddle.unsharded(model):
        mine = model.generate(prompt, max_new_tokens=3 + 4 * world.rank, do_sample=False)
    theirs = plain.generate(prompt, max_new_tokens=3 + 4 * world.rank, do_sample=False)
    return [mine.tolist() == theirs.tolist(), train(model, optimizer, range(1))]


def on_meta(strategies, place):
    import accelerate

    world, results = heddle.init(), {}
    if world.rank == 0:
        llama().save_pretrained(place)
    world.native.barrier("saved")
    size = os.path.getsize(os.path.join(place, "model.safetensors"))
    for strategy in strategies:
        with accelerate.init_empty_weights(include_buffers=False):
            model = llama()
        heddle.fully_shard(model, from_pretrained_dir=place, **STRATEGIES[strategy][1])
        read = model._heddle_weights.bytes_read
        results[strategy] = (read / size, train(model, torch.optim.AdamW(model.parameters(), lr=1e-2), range(2)),
                             train(*sharded_llama(strategy), range(2)))
    return results


def misuses(strategy):
    """Returns the error of each misuse of a released parameter."""
    model, _ = sharded_llama(strategy)
    weight = model.model.layers[1].mlp.up_proj.weight
    attempts = {
        "sum": lambda: weight.sum(), "print": lambda: str(weight + 0), "numpy": lambda: weight.detach().numpy(),
        "tolist": lambda: weight.tolist(), "item": lambda: weight[0, 0].item(), "data": lambda: weight.data,
        "state_dict": model.state_dict, "layer's state_dict": model.model.layers[1].state_dict,
        "deepcopy": lambda: copy.deepcopy(weight), "deepcopy of the model": lambda: copy.deepcopy(model),
        "half": model.half, "layer's half": model.model.layers[1].half, "matmul": lambda: torch.ones(4, 64) @ weight,
        "assignment": lambda: weight.data.copy_(torch.ones(64, 32)), "norm": lambda: torch.norm(weight),
        "functional": lambda: torch.nn.functional.linear(torch.ones(2, 32), weight), "out": lambda: torch.add(1, 1, out=weight),
        "equal": lambda: weight == weight, "iteration": lambda: list(weight), "float": lambda: float(weight),
        "layer": lambda: model.model.layers[1].mlp.up_proj(torch.ones(2, 32)), "save": lambda: torch.save(weight, os.devnull),
        "dlpack": lambda: torch.from_dlpack(weight), "data_ptr": lambda: weight.data_ptr(),
        "storage": lambda: weight.untyped_storage(), "fully_shard": lambda: heddle.fully_shard(model, strategy=strategy),
        "load_state_dict": lambda: model.load_state_dict(llama().state_dict()), "requires_grad_": lambda: (weight.requires_grad_(False), model(input_ids=tokens(0, 0))),
    }
    said = {}
    for name, attempt in attempts.items():
        try:
            attempt()
            said[name] = "nothing was raised"
        except heddle.Error as error:
            said[name] = error.code
        except Exception as error:
            said[name] = f"{type(error).__name__}: {error}"
    weight.requires_grad_(True)
    readable = [tuple(weight.shape) == (64, 32), weight.dtype == torch.float32, weight.device.type == "cpu", weight.requires_grad,
                "Released" in repr(weight), weight.grad is None, weight.numel() == 2048]
    return said, readable, train(*[model, torch.optim.AdamW(model.parameters(), lr=1e-2)], range(1))


def optimizers_and_clipping(strategy):
    """Returns the refusals of an optimizer of released parameters and of clipping a subset."""
    plain = llama()
    early = torch.optim.SGD(plain.parameters(), lr=1.0)
    heddle.fully_shard(plain, **STRATEGIES[strategy][1])
    batch = tokens(0, heddle.init().rank)
    plain(input_ids=batch, labels=batch).loss.backward()
    said = []
    for attempt in (early.step, lambda: torch.nn.utils.clip_grad_norm_(list(plain.parameters())[:3], 1.0)):
        try:
            attempt()
            said.append("nothing was raised")
        except heddle.Error as error:
            said.append(error.message)
    whole = heddle.clip_grad_norm_(plain, 1e9).item()
    return said, whole, torch.nn.utils.clip_grad_norm_(plain.parameters(), 1e9).item()


@unittest.skipIf(MISSING, MISSING)
class CheckpointTest(unittest.TestCase):
    def test_resumes_with_other_strategies_and_ranks(self):
        with tempfile.TemporaryDirectory() as place:
            saved = ["ddp", *SHARDED]
            first = ranks.run(save_halfway, 2, strategies=saved, place=place)
            expected = {name: [sum(each) / 2 for each in zip(*(result[name] for result in first))] for name in saved}
            two = ranks.run(resume_from, 2, strategies=["ddp", "fsdp2", "megatron"], saved=saved, place=place)
            one = ranks.run(resume_from, 1, strategies=["single", "fsdp2"], saved=saved, place=place)[0]
            means = {case: [sum(each) / 2 for each in zip(*(result[case] for result in two))] for case in two[0]}
            for case, losses in [*means.items(), *one.items()]:
                with self.subTest(case):
                    for mine, theirs in zip(losses, expected[case.split()[0]]):
                        self.assertAlmostEqual(mine, theirs, delta=1e-6 * theirs)

    def test_exports_have_the_same_logits(self):
        with tempfile.TemporaryDirectory() as place:
            for result in ranks.run(exported, 2, strategies=["ddp", *SHARDED], place=place):
                for case, difference in result.items():
                    with self.subTest(case):
                        self.assertLess(difference, 1e-6)

    def test_generates_unsharded(self):
        for result in ranks.run(generated, 2, strategy="fsdp2"):
            self.assertTrue(result[0])

    def test_model_on_meta_reads_half_of_the_bytes(self):
        with tempfile.TemporaryDirectory() as place:
            for result in ranks.run(on_meta, 2, strategies=["ddp", "fsdp2", "megatron_fsdp", "megatron"], place=place):
                for strategy, (part, ours, theirs) in result.items():
                    with self.subTest(strategy):
                        self.assertEqual(ours, theirs)
                        self.assertAlmostEqual(part, 0.5 if strategy in ("fsdp2", "megatron_fsdp") else 1.0, delta=0.1)


@unittest.skipIf(MISSING, MISSING)
class ReleasedTest(unittest.TestCase):
    def test_reading_values_raises(self):
        for strategy in ("fsdp2", "megatron_fsdp"):
            for said, readable, _ in ranks.run(misuses, 2, strategy=strategy):
                self.assertEqual({name: code for name, code in said.items() if code != "usage"}, {})
                self.assertTrue(all(readable), readable)

    def test_optimizers_and_norms_of_shards(self):
        for said, norm, torchs in ranks.run(optimizers_and_clipping, 2, strategy="fsdp2"):
            self.assertIn("the optimizer has a parameter", said[0])
            self.assertIn("3 of the", said[1])
            self.assertEqual(norm, torchs)


if __name__ == "__main__":
    ranks.main_of_tests()

"""Tests of checkpoints across strategies and ranks, exports, models on meta, whole and released parameters."""
import copy
import os
import pathlib
import tempfile
import unittest
import warnings

try:
    import torch
    import transformers
    MISSING = ""
except ImportError as error:
    MISSING = str(error)

import heddle
import ranks
from models import llama, make, tokens
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


def on_meta_with_other_names(strategies, place):
    """Returns differences of losses between models on meta and in memory: of tied models, whose files have one tensor, and of
    a mixture of experts, whose files have a tensor for each expert. Also returns the number of warnings."""
    import accelerate

    world, results = heddle.init(), {}
    for name in ("GPT-2", "Mixtral"):
        directory = os.path.join(place, name)
        if world.rank == 0:
            make(name).save_pretrained(directory)
        world.native.barrier(name)
        for strategy in strategies:
            model = heddle.fully_shard(make(name), **STRATEGIES[strategy][1])
            with accelerate.init_empty_weights(include_buffers=False):
                empty = make(name)
            with warnings.catch_warnings(record=True) as given:
                warnings.simplefilter("always")
                heddle.fully_shard(empty, from_pretrained_dir=directory, **STRATEGIES[strategy][1])
            said = sum("transformers converts them" in str(each.message) for each in given)
            both = [train(each, torch.optim.AdamW(each.parameters(), lr=1e-2), range(2)) for each in (model, empty)]
            results[f"{name}, {strategy}"] = (*both, said)
    return results


def scalars_restored(strategies, place):
    """Returns whether a model with scalars, which one rank may have, and with an empty parameter has the saved values after a
    load."""
    results = {}
    for strategy in strategies:
        def made():
            torch.manual_seed(1)
            model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.PReLU(), torch.nn.Linear(8, 1))
            model[1].weight = torch.nn.Parameter(torch.tensor(0.5))
            model.register_parameter("scale", torch.nn.Parameter(torch.tensor(2.0)))
            model.register_parameter("empty", torch.nn.Parameter(torch.zeros(0, 4)))
            heddle.fully_shard(model, **STRATEGIES[strategy][1])
            return model, torch.optim.AdamW(model.parameters(), lr=0.1)
        model, optimizer = made()
        model(torch.ones(2, 8)).sum().backward()
        optimizer.step()
        directory = os.path.join(place, strategy)
        heddle.save(directory, model, optimizer)
        other, its = made()
        heddle.load(directory, other, its)
        with heddle.unsharded(model), heddle.unsharded(other):
            results[strategy] = [torch.equal(*both) for both in zip(torch.nn.Module.parameters(model), torch.nn.Module.parameters(other))]
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


def branches(layers=3):
    """Returns a model of linear layers, of which the last is not used."""
    class Branches(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = torch.nn.ModuleList(torch.nn.Linear(8, 8) for _ in range(layers))
            self.used = layers - 1

        def forward(self, x):
            for layer in self.layers[:self.used]:
                x = layer(x)
            return x.square().mean()
    torch.manual_seed(1)
    return Branches()


def steps(model, optimizer, numbers):
    losses = []
    for number in numbers:
        loss = model(torch.randn(4, 8, generator=torch.Generator().manual_seed(10 * number + heddle.init().rank)))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def contents(optimizer):
    """Returns copies of the state and the options of an optimizer."""
    groups = [{key: value for key, value in group.items() if key != "params"} for group in optimizer.param_groups]
    parameters = [each for group in optimizer.param_groups for each in group["params"]]
    return copy.deepcopy([[dict(optimizer.state[each]) if each in optimizer.state else None for each in parameters], groups])


def saved_with_unused_parameters(strategies, place):
    """Saves between steps. Returns whether the optimizer was unchanged, whether a second run that loads the checkpoint has
    the same optimizer state, and the losses of both runs after that."""
    results = {}
    for strategy in strategies:
        where = os.path.join(place, strategy)
        fields = STRATEGIES[strategy][1]
        made = []
        for _ in range(2):
            model = heddle.fully_shard(branches(), **fields)
            optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, eps=1e-3)
            made.append((model, optimizer, torch.optim.lr_scheduler.StepLR(optimizer, 100)))
        (model, optimizer, _), (second, resumed, _) = made
        calls = []
        optimizer.register_step_post_hook(lambda *_: calls.append(1))
        steps(model, optimizer, range(3))
        before, count = contents(optimizer), len(calls)
        heddle.save(where, model, optimizer)
        unchanged = str(contents(optimizer)) == str(before) and len(calls) == count
        steps(second, resumed, range(5, 7))
        second.used = 3  # gives the unused layer a state that the checkpoint lacks
        steps(second, resumed, range(1))
        heddle.load(where, second, resumed)
        model.used = 3
        results[strategy] = [unchanged, str(contents(resumed)) == str(before), steps(model, optimizer, range(3, 5)),
                             steps(second, resumed, range(3, 5))]
    return results


def with_buffers():
    class Buffers(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = torch.nn.ModuleList([torch.nn.Linear(8, 8), torch.nn.BatchNorm1d(8)])
            self.register_buffer("mean", torch.zeros(3))
            self.register_buffer("scratch", torch.zeros(1), persistent=False)

        def forward(self, x):
            self.mean = self.mean * 0.5 + 1  # replaces the tensor
            self.scratch += 1
            for layer in self.layers:
                x = layer(x)
            return x.square().mean()
    torch.manual_seed(1)
    return Buffers()


def values_of_buffers(model):
    return {name: buffer.tolist() for name, buffer in model.named_buffers()}


def restored_buffers(strategies, place):
    """Returns the buffers that were saved and those that were loaded, then those after a load without values."""
    results = {}
    for strategy in strategies:
        where = os.path.join(place, strategy)
        fields = STRATEGIES[strategy][1]
        model = heddle.fully_shard(with_buffers(), **fields)
        steps(model, torch.optim.SGD(model.parameters(), lr=0.1), range(2))
        heddle.save(where, model)
        second = heddle.fully_shard(with_buffers(), **fields)
        heddle.load(where, second)
        loaded = values_of_buffers(second)
        heddle.init().native.barrier(f"loaded {strategy}")
        if heddle.init().rank == 0:
            pathlib.Path(where, "buffers.pt").unlink(missing_ok=True)
        heddle.init().native.barrier(f"removed {strategy}")
        third = heddle.fully_shard(with_buffers(), **fields)
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            heddle.load(where, third)
        results[strategy] = [values_of_buffers(model), loaded, values_of_buffers(third), [str(each.message) for each in told]]
    return results


def imported_buffers(place):
    """Imports a DCP checkpoint of a model with buffers, and returns the buffers before and after."""
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import get_state_dict

    model = with_buffers()
    optimizer = torch.optim.AdamW(model.parameters())
    steps(model, optimizer, range(2))
    names, optimizers = get_state_dict(model, optimizer)
    dcp.save({"model": names, "optim": optimizers}, checkpoint_id=os.path.join(place, "dcp"), no_dist=True)
    heddle.import_checkpoint(os.path.join(place, "dcp"), os.path.join(place, "imported"))
    second = heddle.fully_shard(with_buffers(), strategy="single")
    heddle.load(os.path.join(place, "imported"), second, torch.optim.AdamW(second.parameters()))
    return values_of_buffers(model), values_of_buffers(second)


def raised(call, *arguments):
    try:
        call(*arguments)
        return ["nothing was raised", ""]
    except heddle.Error as error:
        return [error.code, f"{error.where}: {error.message} ({error.hint})"]


def misfits(strategy, place):
    """Returns the error of each load of a checkpoint that does not fit, and whether model and optimizer are unchanged."""
    fields = STRATEGIES[strategy][1]

    def made(layers=3):
        return heddle.fully_shard(branches(layers), **fields)

    def adam(model, **options):
        return torch.optim.AdamW(model.parameters(), lr=1e-2, **options)

    def split(model, names):
        parameters = dict(model.named_parameters())
        own = [parameters.pop(name) for name in names]
        return torch.optim.AdamW([{"params": own}, {"params": parameters.values()}])
    model = made()
    optimizers = {"amsgrad": adam(model, amsgrad=True), "plain": adam(model), "split": split(model, ["layers.0.weight"]),
                  "sgd": torch.optim.SGD(model.parameters(), lr=0.1)}
    for name, optimizer in optimizers.items():
        steps(model, optimizer, range(1))
        heddle.save(os.path.join(place, name), model, optimizer)
    heddle.save(os.path.join(place, "model"), model)
    buffered = heddle.fully_shard(with_buffers(), **fields)
    heddle.save(os.path.join(place, "buffers"), buffered)
    shrunk = with_buffers()
    shrunk.register_buffer("mean", torch.zeros(2))
    target = made()
    cases = {
        "amsgrad to plain": ("amsgrad", target, adam(target)), "plain to amsgrad": ("plain", target, adam(target, amsgrad=True)),
        "groups": ("split", target, adam(target)), "parameters": ("split", target, split(target, ["layers.0.bias"])),
        "sgd to adam": ("sgd", target, adam(target)),
        "adam to sgd": ("plain", target, torch.optim.SGD(target.parameters(), lr=0.1)),
        "more layers": ("plain", made(4), None), "fewer layers": ("plain", made(2), None),
        "other optimizer": ("plain", target, adam(made())), "list": ("plain", target, [adam(target)]),
        "lacks buffers": ("buffers", target, None), "shape of a buffer": ("buffers", heddle.fully_shard(shrunk, **fields), None),
        "absent": ("absent", target, None),
    }
    told, changed = {}, []
    for name, (folder, loaded, optimizer) in cases.items():
        known = optimizer if isinstance(optimizer, torch.optim.Optimizer) else None
        before = [each.tolist() for each in loaded.parameters()], known and str(contents(known))
        told[name] = raised(heddle.load, os.path.join(place, folder), loaded, optimizer)
        if before != ([each.tolist() for each in loaded.parameters()], known and str(contents(known))):
            changed.append(name)
    for name in ("list", "other optimizer"):
        told[f"save of {name}"] = raised(heddle.save, os.path.join(place, "none"), *cases[name][1:])
    fused = adam(target, foreach=False)
    heddle.load(os.path.join(place, "model"), target)
    heddle.load(os.path.join(place, "plain"), target, fused)
    return told, changed, fused.param_groups[0]["foreach"], os.path.exists(os.path.join(place, "none"))


@unittest.skipIf(MISSING, MISSING)
class CheckpointTest(unittest.TestCase):
    def test_saving_changes_nothing_when_parameters_lack_state(self):
        with tempfile.TemporaryDirectory() as place:
            for result in ranks.run(saved_with_unused_parameters, 2, strategies=["ddp", *SHARDED], place=place):
                for strategy, (unchanged, equal, losses, resumed) in result.items():
                    with self.subTest(strategy):
                        self.assertTrue(unchanged)
                        self.assertTrue(equal)
                        self.assertEqual(losses, resumed)

    def test_restores_persistent_buffers_of_rank_0(self):
        for count, strategies in ((2, ["ddp", *SHARDED]), (1, ["single"])):
            with tempfile.TemporaryDirectory() as place:
                results = ranks.run(restored_buffers, count, strategies=strategies, place=place)
            for rank, result in enumerate(results):
                for strategy, (_, loaded, without, told) in result.items():
                    with self.subTest(strategy):
                        saved = results[0][strategy][0]
                        self.assertNotEqual(saved["layers.1.running_mean"], [0.0] * 8)
                        self.assertEqual(loaded, {**saved, "scratch": [0.0]})
                        self.assertEqual(without["mean"], [0.0] * 3)  # the checkpoint without buffers
                        self.assertEqual(len(told), 1 if rank == 0 else 0)
                        for message in told:
                            self.assertIn("lacks the buffers 'mean', 'layers.1.running_mean' and 2 more", message)

    def test_restores_buffers_of_imported_checkpoints(self):
        with tempfile.TemporaryDirectory() as place:
            saved, loaded = ranks.run(imported_buffers, 1, place=place)[0]
        self.assertEqual(loaded, {**saved, "scratch": [0.0]})

    def test_refuses_checkpoints_that_do_not_fit(self):
        expected = {
            "amsgrad to plain": "the checkpoint has the state 'max_exp_avg_sq' of 'layers.0.weight', which this AdamW",
            "plain to amsgrad": "this AdamW keeps the state 'max_exp_avg_sq' of 'layers.0.weight', but the checkpoint lacks it",
            "groups": "the checkpoint has 2 parameter groups, but the optimizer has 1",
            "parameters": "parameter group 0 of the optimizer has 'layers.0.bias'",
            "sgd to adam": "saved with the optimizer SGD, which had no state, but this optimizer is AdamW",
            "adam to sgd": "the checkpoint has the state 'exp_avg' of 'layers.0.weight', which this SGD does not keep",
            "more layers": "the checkpoint lacks the parameters 'layers.3.bias' and 'layers.3.weight' of the model",
            "fewer layers": "the checkpoint has the tensors 'layers.2.bias' and 'layers.2.weight', which the model lacks",
            "lacks buffers": "the checkpoint ", "shape of a buffer": "the buffer 'mean' has the shape [3]",
            "absent": "model/manifest.json: the file cannot be read",
        }
        for strategy in ("fsdp2", "megatron"):
            with tempfile.TemporaryDirectory() as place:
                for told, changed, foreach, exists in ranks.run(misfits, 2, strategy=strategy, place=place):
                    for name, message in expected.items():
                        with self.subTest(f"{strategy}, {name}"):
                            self.assertEqual(told[name][0], "input")
                            self.assertIn(message, told[name][1])
                    for name in ("list", "other optimizer", "save of list", "save of other optimizer"):
                        self.assertEqual(told[name][0], "usage")
                    self.assertIn("optimizer is a list", told["save of list"][1])
                    self.assertIn("AdamW, amsgrad=True", told["amsgrad to plain"][1])
                    self.assertEqual((changed, foreach, exists), ([], False, False))

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


    def test_model_on_meta_reads_files_with_other_names(self):
        with tempfile.TemporaryDirectory() as place:
            for result in ranks.run(on_meta_with_other_names, 2, strategies=["ddp", "fsdp2"], place=place):
                for case, (ours, theirs, warned) in result.items():
                    with self.subTest(case):
                        self.assertEqual(ours, theirs)
                        self.assertEqual(warned, 1 if "Mixtral" in case else 0)

    def test_restores_scalars_and_empty_parameters(self):
        with tempfile.TemporaryDirectory() as place:
            for result in ranks.run(scalars_restored, 2, strategies=["ddp", *SHARDED], place=place):
                self.assertTrue(all(all(equal) for equal in result.values()), result)


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


class DictRecipeTest(unittest.TestCase):
    def test_errors_and_results_name_no_temporary_file(self):
        model = {"model_type": "llama", "vocab_size": 256, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2,
                 "num_attention_heads": 2, "num_key_value_heads": 2, "max_position_embeddings": 32}
        good = {"model": {"config": model}, "dataset": {"file_pattern": "absent.bin", "seq_len": 32}}
        bad = {**good, "optimizer": {"lrr": 1}}
        for call in (lambda: heddle.check(bad), lambda: heddle.plan(bad, 2, device="H100"), lambda: heddle.train(bad)):
            with self.assertRaises(heddle.Error) as caught:
                call()
            self.assertIn("recipe optimizer.lrr", [error.where for error in caught.exception.all])
            self.assertNotIn("recipe.yaml", str(caught.exception) + repr(caught.exception))
        self.assertEqual(heddle.check(good, elsewhere=True)["config"], "recipe")


if __name__ == "__main__":
    ranks.main_of_tests()

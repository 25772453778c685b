"""Compares losses, norms and parameters under each strategy with plain PyTorch on the batches of all ranks."""
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
    """Returns losses and norms of AdamW in plain PyTorch, with the loss averaged over ranks and microbatches."""
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


def ours(make, fields, steps=STEPS, microbatches=1, compiled=False, **options):
    """Returns losses and norms of AdamW under heddle: losses of this rank, norms over all ranks."""
    import contextlib

    world = heddle.init()
    model = heddle.fully_shard(make(), **options, **fields)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    call = torch.compile(model, backend="aot_eager") if compiled else model
    losses, norms = [], []
    for step in range(steps):
        total = 0.0
        for micro in range(microbatches):
            batch = tokens(step * microbatches + micro, world.rank)
            with model.no_sync() if micro + 1 < microbatches else contextlib.nullcontext():
                loss = call(input_ids=batch, labels=batch).loss / microbatches
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
         "reentrant": {"name": "reentrant"}, "compiled": {"compiled": True}}


def steps_of(strategies):
    """Runs every case under each strategy in one process group, and in plain PyTorch."""
    size, results = heddle.init().size, {}
    for case, options in CASES.items():
        make, microbatches = variant(options.get("name", "")), options.get("microbatches", 1)
        theirs = reference(make, size, microbatches=microbatches)
        for strategy in strategies:
            mine = ours(make, STRATEGIES[strategy][1], microbatches=microbatches, compiled=options.get("compiled", False))
            results[f"{strategy}, {case}"] = (mine, theirs)
    return results


def perceptron():
    torch.manual_seed(5)
    return torch.nn.Sequential(*(torch.nn.Linear(24, 24) for _ in range(3)))


def bfloat16(place):
    """Returns losses and norms of 4 bfloat16 steps with PyTorch's FSDP2 and with heddle's fsdp2, of a model of tokens and
    of one whose inputs are float32."""
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    world = heddle.init()
    torch.distributed.init_process_group("gloo", init_method=f"file://{place}/group", rank=world.rank, world_size=world.size)
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)

    def theirs(model, layers):
        for layer in layers(model):
            fully_shard(layer, mp_policy=policy)
        return fully_shard(model, mp_policy=policy)

    def loss_of_text(model, step):
        batch = tokens(step, world.rank)
        return model(input_ids=batch, labels=batch).loss

    def loss_of_floats(model, step):
        x = torch.randn(7, 24, generator=torch.Generator().manual_seed(10 * step + world.rank))
        return (model(x).float() - x).square().mean()

    results = []
    for make, layers, loss_of in ((llama, lambda model: model.model.layers, loss_of_text), (perceptron, list, loss_of_floats)):
        pair = []
        for model in (theirs(make(), layers), heddle.fully_shard(make(), strategy="fsdp2")):
            optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
            steps = []
            for step in range(4):
                loss = loss_of(model, step)
                loss.backward()
                norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                steps.append((loss.item(), (norm.full_tensor() if hasattr(norm, "full_tensor") else norm).item()))
                optimizer.step()
                optimizer.zero_grad()
            pair.append(steps)
        results.append(pair)
    torch.distributed.destroy_process_group()
    return results


def whole_at_once(layers):
    """Returns the largest number of layers that fsdp2 holds gathered at a time, including prefetched layers."""
    model = heddle.fully_shard(llama(layers=layers), **STRATEGIES["fsdp2"][1])
    found = [0]

    def count(*given):
        whole = sum(layer.mlp.up_proj.weight._typed_storage()._size() > 0 for layer in model.model.layers)
        found[0] = max(found[0], whole)
    torch_function = torch._C.DisableTorchFunctionSubclass
    for layer in model.model.layers:
        def counted(*given):
            with torch_function():
                count()
        layer.mlp.register_forward_hook(counted)
        layer.mlp.register_full_backward_hook(counted)
    for step in range(2):
        batch = tokens(step, 0)
        model(input_ids=batch, labels=batch).loss.backward()
    return found[0]


def trained(fields, rank):
    """Returns a model under heddle after one backward, and the model in plain PyTorch with the same gradients."""
    size = heddle.init().size
    model, plain = heddle.fully_shard(llama(), **fields), llama()
    for each in range(size):
        batch = tokens(0, each)
        (plain(input_ids=batch, labels=batch).loss / size).backward()
    batch = tokens(0, rank)
    model(input_ids=batch, labels=batch).loss.backward()
    return model, plain


def difference(model, plain):
    """Returns the largest difference of a parameter."""
    whole = heddle.full_state_dict(model, rank0_only=False)
    return max((whole[name] - each).abs().max().item() for name, each in plain.state_dict().items())


def clipped_by_norm(strategies):
    """Returns norms and the parameters' difference after torch's get_total_norm and clip_grads_with_norm_."""
    utils, results, rank = torch.nn.utils, [], heddle.init().rank
    for strategy in strategies:
        models = trained(STRATEGIES[strategy][1], rank)
        norms = []
        for model in models:
            norms.append(utils.get_total_norm([each.grad for each in model.parameters()]))
            utils.clip_grads_with_norm_(model.parameters(), 0.01, norms[-1])
            torch.optim.SGD(model.parameters(), lr=1.0).step()
        results.append((strategy, *(each.item() for each in norms), difference(*models)))
    return results


def edited(strategies):
    """Returns the difference of parameters and of the loss after edits within heddle.unsharded."""
    results, rank = [], heddle.init().rank
    for strategy in strategies:
        model, plain = trained(STRATEGIES[strategy][1], rank)
        with heddle.unsharded(model), torch.no_grad():
            for each in (model, plain):
                each.model.layers[0].mlp.up_proj.weight.mul_(2)
                each.model.layers[1].input_layernorm.weight[3:] = 5
                each.model.norm.weight.add_(1)
        batch = tokens(3, rank)
        with torch.no_grad():
            losses = [each(input_ids=batch, labels=batch).loss.item() for each in (model, plain)]
        results.append((strategy, difference(model, plain), abs(losses[0] - losses[1])))
    return results


def overflowed(strategies):
    """Returns the scale, and whether a shard has changed, after an Inf in a gradient of one rank. The optimizer has the
    parameters of three models."""
    rank, results = heddle.init().rank, []
    for strategy in strategies:
        models = torch.nn.ModuleList(trained(STRATEGIES[strategy][1], rank)[0] for _ in range(3))
        model = models[1]
        scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
        optimizer = torch.optim.SGD([shard for each in models for shard in each.parameters()], lr=0.1)
        scaler.scale(torch.zeros(()))
        if rank == 1:
            next(each.grad for each in model.parameters() if each.grad is not None and each.numel()).view(-1)[0] = torch.inf
        before = [each.detach().clone() for each in model.parameters()]
        scaler.step(optimizer)
        scaler.update()
        changed = any(not torch.equal(*pair) for pair in zip(before, model.parameters()))
        results.append((strategy, scaler.get_scale(), changed))
    return results


def discarded():
    """Returns the parameters' difference if zero_grad() discards a microbatch of no_sync() under ddp."""
    model, plain = trained(STRATEGIES["ddp"][1], heddle.init().rank)
    torch.optim.SGD(model.parameters(), lr=0.1).zero_grad()
    plain.zero_grad()
    with model.no_sync():
        model(input_ids=tokens(5, 0), labels=tokens(5, 0)).loss.backward()
    model.zero_grad()
    for each in (model, plain):
        each(input_ids=tokens(6, 0), labels=tokens(6, 0)).loss.backward()
        torch.optim.SGD(each.parameters(), lr=1.0).step()
    return difference(model, plain)


def first_compiled(strategy):
    """Returns the losses of a compiled model in a process that has run no other model."""
    return ours(llama, STRATEGIES[strategy][1], compiled=True)[0]


SHARDING = ("fsdp2", "megatron_fsdp", "megatron")


@unittest.skipIf(MISSING, MISSING)
class StepsTest(unittest.TestCase):
    def compare(self, size):
        results = ranks.run(steps_of, size, strategies=[name for name, (ranks_, _) in STRATEGIES.items() if ranks_ == size])
        worst = {"loss": 0.0, "norm": 0.0}
        for case, (_, (losses, norms)) in results[0].items():
            loss = max(abs(sum(result[case][0][0][step] for result in results) / size / losses[step] - 1) for step in range(STEPS))
            norm = max(abs(result[case][0][1][step] / norms[step] - 1) for result in results for step in range(STEPS))
            worst = {"loss": max(loss, worst["loss"]), "norm": max(norm, worst["norm"])}
            with self.subTest(case):
                self.assertLess(loss, 1e-6)
                self.assertLess(norm, 1e-4)
        print(f"{size} ranks: largest relative difference of a loss {worst['loss']:.1e}, of a norm {worst['norm']:.1e}")

    def test_one_rank(self):
        self.compare(1)

    def test_two_ranks(self):
        self.compare(2)

    def test_bfloat16(self):
        with tempfile.TemporaryDirectory() as place:
            for models in ranks.run(bfloat16, 2, place=place):
                for theirs, ours in models:
                    for (loss, norm), (mine, my_norm) in zip(theirs, ours, strict=True):
                        self.assertAlmostEqual(mine, loss, delta=1e-4 * loss)
                        self.assertAlmostEqual(my_norm / norm, 1, delta=1e-3)

    def test_norm_for_clipping(self):
        for found in ranks.run(clipped_by_norm, 2, strategies=SHARDING):
            for strategy, norm, expected, error in found:
                with self.subTest(strategy):
                    self.assertAlmostEqual(norm / expected, 1, delta=1e-5)
                    self.assertLess(error, 1e-6)

    def test_edits_within_unsharded(self):
        for found in ranks.run(edited, 2, strategies=SHARDING):
            for strategy, error, loss in found:
                with self.subTest(strategy):
                    self.assertEqual(error, 0)
                    self.assertLess(loss, 1e-5)

    def test_overflow_on_one_rank(self):
        for found in ranks.run(overflowed, 2, strategies=SHARDING[:2]):
            for strategy, scale, changed in found:
                with self.subTest(strategy):
                    self.assertEqual((scale, changed), (4.0, False))

    def test_zero_grad_discards_under_ddp(self):
        for error in ranks.run(discarded, 2):
            self.assertLess(error, 1e-6)

    def test_compiled_first(self):
        expected = reference(llama, 2)[0]
        for strategy in SHARDING:
            with self.subTest(strategy):
                results = ranks.run(first_compiled, 2, strategy=strategy)
                for mine, theirs in zip(zip(*results, strict=True), expected, strict=True):
                    self.assertAlmostEqual(sum(mine) / 2, theirs, delta=1e-5)

    def test_at_most_two_layers_are_gathered(self):
        for found in ranks.run(whole_at_once, 2, layers=24):
            self.assertLessEqual(found, 2)


if __name__ == "__main__":
    ranks.main_of_tests()

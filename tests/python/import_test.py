"""Tests that a training loop with PyTorch's FSDP2, saved by DCP, resumes in heddle."""
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
from numbers_test import STRATEGIES


def fsdp2_loop(place):
    """Trains six steps with FSDP2 and AdamW. DCP saves after three, in three layouts. Returns the losses of this rank."""
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import get_model_state_dict, get_optimizer_state_dict
    from torch.distributed.fsdp import fully_shard

    rank = int(os.environ["RANK"])
    torch.distributed.init_process_group("gloo", init_method=f"file://{place}/group", rank=rank,
                                         world_size=int(os.environ["WORLD_SIZE"]))
    model = llama()
    for layer in model.model.layers:
        fully_shard(layer)
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses = []
    for step in range(6):
        if step == 3:
            state = {"model": get_model_state_dict(model), "optim": get_optimizer_state_dict(model, optimizer), "step": 3}
            dcp.save(state, checkpoint_id=os.path.join(place, "nested"))
            auto = os.path.join(place, "epoch_0_step_2")
            dcp.save(get_optimizer_state_dict(model, optimizer), checkpoint_id=os.path.join(auto, "optim"))
            dcp.save(get_model_state_dict(model), storage_writer=dcp.HuggingFaceStorageWriter(
                os.path.join(auto, "model"), save_distributed=True))
        batch = tokens(step, rank)
        loss = model(input_ids=batch, labels=batch).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    torch.distributed.destroy_process_group()
    return losses


def imported(place):
    return {name: heddle.import_checkpoint(os.path.join(place, name), os.path.join(place, f"{name}-heddle"))
            for name in ("nested", "epoch_0_step_2")}


def resume_in(place, strategies):
    results = {}
    for strategy in strategies:
        for name in ("nested", "epoch_0_step_2"):
            model = heddle.fully_shard(llama(), **STRATEGIES[strategy][1])
            optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
            first = heddle.load(os.path.join(place, f"{name}-heddle"), model, optimizer)["step"]
            losses = []
            for step in range(first, 6):
                batch = tokens(step, heddle.init().rank)
                loss = model(input_ids=batch, labels=batch).loss
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
                losses.append(loss.item())
            results[f"{strategy}, {name}"] = losses
    return results


def imported_without_optimizer(place):
    """Imports a model whose names begin like the entry of the saved dict, flat and nested. Returns whether the loaded values
    are the saved ones, and the error of a checkpoint with two models."""
    import torch.distributed.checkpoint as dcp

    def made():
        torch.manual_seed(1)
        return torch.nn.ModuleDict({"model": torch.nn.Linear(4, 4), "head": torch.nn.Linear(4, 2)})
    plain, equal = made(), []
    state = {key: value.detach() * 2 for key, value in plain.state_dict().items()}
    for name, saved in {"flat": state, "nested": {"model": state}, "two": {"model": state, "average": state}}.items():
        dcp.save(saved, checkpoint_id=os.path.join(place, name), no_dist=True)
    for name in ("flat", "nested"):
        heddle.import_checkpoint(os.path.join(place, name), os.path.join(place, name + "-out"))
        model = heddle.fully_shard(made(), **STRATEGIES["single"][1])
        heddle.load(os.path.join(place, name + "-out"), model)
        equal += [torch.equal(value, state[key]) for key, value in heddle.full_state_dict(model).items()]
    try:
        heddle.import_checkpoint(os.path.join(place, "two"), os.path.join(place, "two-out"))
        return equal, "nothing"
    except heddle.Error as error:
        return equal, str(error)


@unittest.skipIf(MISSING, MISSING)
class ImportTest(unittest.TestCase):
    def test_resumes_from_fsdp2(self):
        strategies = os.environ.get("HEDDLE_TEST_STRATEGIES", "ddp,fsdp2,megatron").split(",")
        with tempfile.TemporaryDirectory() as place:
            theirs = ranks.run(fsdp2_loop, 2, place=place)
            told = ranks.run(imported, 1, place=place)[0]
            self.assertEqual([told[name]["step"] for name in told], [3, 3])
            ours = ranks.run(resume_in, 2, place=place, strategies=strategies)
        for rank in range(2):
            for case, losses in ours[rank].items():
                with self.subTest(case):
                    self.assertEqual(len(losses), 3)
                    for one, other in zip(losses, theirs[rank][3:]):
                        self.assertAlmostEqual(one, other, delta=2e-5)

    def test_finds_names_without_an_optimizer(self):
        with tempfile.TemporaryDirectory() as place:
            equal, told = ranks.run(imported_without_optimizer, 1, place=place)[0]
        self.assertEqual(equal, [True] * 8)
        self.assertIn("the checkpoint has this tensor twice", told)

    def test_refuses_another_directory(self):
        with tempfile.TemporaryDirectory() as place, self.assertRaises(heddle.Error) as caught:
            heddle.import_checkpoint(place, place + "-out")
        self.assertEqual(caught.exception.code, "input")


if __name__ == "__main__":
    ranks.main_of_tests()

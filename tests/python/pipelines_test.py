"""Compares a list of modules in a pipeline with plain PyTorch: schedules, tied weights, resuming, exceptions."""
import os
import tempfile
import unittest

try:
    import torch
    from torch import nn
    MISSING = ""
except ImportError as error:
    MISSING = str(error)

import heddle
import ranks

WIDTH, VOCABULARY, LAYERS, STEPS = 16, 32, 4, 4
SCHEDULES = {"1f1b": {}, "zbv": {"pp_schedule": "ZBVZeroBubble"}}


def parts():
    torch.manual_seed(3)
    layers = [nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH)) for _ in range(LAYERS)]
    return nn.Embedding(VOCABULARY, WIDTH), layers, nn.Linear(WIDTH, VOCABULARY)


def token_losses(logits, labels):
    return nn.functional.cross_entropy(logits.flatten(0, 1).float(), labels.flatten(), reduction="sum")


def batch_of(step):
    tokens = torch.randint(0, VOCABULARY, (4, 9), generator=torch.Generator().manual_seed(step))
    return {"tokens": tokens[:, :-1].contiguous(), "labels": tokens[:, 1:].contiguous()}


def plain(steps):
    embedding, layers, head = parts()
    row = nn.ModuleList([embedding, *layers, head])
    optimizer = torch.optim.AdamW(row.parameters(), lr=1e-2, weight_decay=0.1)
    losses = []
    for step in range(steps):
        batch = batch_of(step)
        x = embedding(batch["tokens"])
        for layer in layers:
            x = x + layer(x)
        loss = token_losses(head(x), batch["labels"]) / batch["labels"].numel()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(row.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses.append((loss.item(), norm.item()))
    return losses


def row_of(fail_at=None):
    embedding, layers, head = parts()

    def layer(index):
        def run(inputs, batch):
            if fail_at == index:
                raise KeyError("mine")
            return [inputs[0] + layers[index](inputs[0])]
        return run
    return [("embedding", embedding, lambda inputs, batch: [embedding(batch.tokens)]),
            *((f"layers.{i}", each, layer(i)) for i, each in enumerate(layers)),
            ("head", head, lambda inputs, batch: [token_losses(head(inputs[0]), batch.labels).reshape(1)])]


def stepped(schedule, place):
    fields = {"strategy": "ddp", "pp_size": 2, "pipeline": {"pp_schedule": "1f1b", "pp_microbatch_size": 1, **SCHEDULES[schedule]}}
    pipeline = heddle.pipeline(row_of(), **fields)
    losses = []
    for step in range(STEPS):
        if step == 2:
            pipeline.save(os.path.join(place, schedule), extra={"step": step})
        losses.append(pipeline.step(batch_of(step), lr=1e-2, weight_decay=0.1))
    again = heddle.pipeline(row_of(), **fields)
    first = again.load(os.path.join(place, schedule))["step"]
    return losses, [again.step(batch_of(step), lr=1e-2, weight_decay=0.1) for step in range(first, STEPS)]


def fails(schedule):
    pipeline = heddle.pipeline(row_of(fail_at=1), strategy="ddp", pp_size=1)
    try:
        pipeline.step(batch_of(0), lr=1e-2)
    except KeyError as error:
        return str(error)
    return "nothing was raised"


@unittest.skipIf(MISSING, MISSING)
class PipelinesTest(unittest.TestCase):
    def test_steps(self):
        expected = plain(STEPS)
        for schedule in SCHEDULES:
            with self.subTest(schedule), tempfile.TemporaryDirectory() as place:
                for losses, again in ranks.run(stepped, 2, schedule=schedule, place=place):
                    self.assertEqual(losses[2:], again)
                    for (loss, norm), (other, other_norm) in zip(losses, expected):
                        self.assertAlmostEqual(loss, other, delta=1e-6 * other)
                        self.assertAlmostEqual(norm / other_norm, 1, delta=1e-4)

    def test_exception_of_a_piece_is_raised_unchanged(self):
        self.assertEqual(ranks.run(fails, 1, schedule="1f1b"), ["'mine'"])


if __name__ == "__main__":
    ranks.main_of_tests()

"""Compares heddle.LightningStrategy with Lightning's DDP: losses, norms, validation, resuming, prediction."""
import os
import tempfile
import unittest

try:
    import torch
    import transformers
    import lightning.pytorch as lightning
    MISSING = ""
except ImportError as error:
    MISSING = str(error)

import heddle
import ranks
from models import llama, tokens
from numbers_test import FP32

if not MISSING:
    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.model, self.losses, self.norms, self.validated = llama(), [], [], []
            self.register_buffer("seen", torch.zeros((), dtype=torch.long))

        def training_step(self, batch, index):
            self.seen += 1
            loss = self.model(input_ids=batch, labels=batch).loss
            self.losses.append(loss.item())
            return loss

        def validation_step(self, batch, index):
            self.validated.append(self.model(input_ids=batch, labels=batch).loss.item())

        def predict_step(self, batch, index):
            return self.model(input_ids=batch).logits.sum()

        def configure_gradient_clipping(self, optimizer, gradient_clip_val, gradient_clip_algorithm):
            norm = torch.nn.utils.clip_grad_norm_([each for group in optimizer.param_groups for each in group["params"]], 1.0)
            self.norms.append(norm.item())

        def configure_optimizers(self):
            return torch.optim.AdamW(self.parameters(), lr=1e-2)


def fit(strategy, place, steps, resume=None):
    module = Module()
    data = torch.utils.data.DataLoader([tokens(i, 0, rows=1)[0] for i in range(32)], batch_size=2)
    saves = lightning.callbacks.ModelCheckpoint(dirpath=place, every_n_train_steps=4, save_top_k=-1, filename="{step}")
    trainer = lightning.Trainer(accelerator="cpu", devices=2, strategy=strategy, max_steps=steps, accumulate_grad_batches=2,
                                val_check_interval=1.0, logger=False, enable_progress_bar=False, enable_model_summary=False,
                                callbacks=[saves], gradient_clip_val=1.0, use_distributed_sampler=True)
    trainer.fit(module, data, data, ckpt_path=resume)
    return trainer, module


def trained(place):
    ddp = fit("ddp", os.path.join(place, "ddp"), 8)[1]
    where = os.path.join(place, "heddle")
    trainer, ours = fit(heddle.LightningStrategy(strategy="fsdp2", mp_policy=FP32), where, 8)
    predicted = trainer.predict(ours, torch.utils.data.DataLoader([tokens(9, 0, rows=1)[0]] * 2, batch_size=1))
    kept = sorted(os.listdir(where))
    _, resumed = fit(heddle.LightningStrategy(strategy="ddp"), os.path.join(place, "more"), 8, os.path.join(where, "step=4.ckpt"))
    values = torch.load(os.path.join(where, "step=8.ckpt"), weights_only=False)["state_dict"]
    whole = heddle.full_state_dict(resumed)
    difference = max(((values[name] - whole[name]).abs().max().item() for name in whole), default=0.0)
    return {"ddp": (ddp.losses, ddp.norms, ddp.validated), "heddle": (ours.losses, ours.norms, ours.validated), "kept": kept,
            "resumed": resumed.losses, "difference": difference, "names": len(values), "predicted": len(predicted),
            "seen": [ours.seen.item(), resumed.seen.item()]}


@unittest.skipIf(MISSING, MISSING)
class LightningTest(unittest.TestCase):
    def test_fits_validates_and_resumes(self):
        with tempfile.TemporaryDirectory() as place:
            results = ranks.run(trained, 2, place=place)
        for result in results:
            for mine, theirs, bar in zip(result["heddle"], result["ddp"], (1e-5, 1e-4, 1e-5)):
                self.assertEqual(len(mine), len(theirs))
                for one, other in zip(mine, theirs):
                    self.assertAlmostEqual(one / other, 1, delta=bar)
            self.assertEqual(len(result["heddle"][1]), 8)
            self.assertEqual(result["kept"], [f"step={step}.ckpt{end}" for step in (4, 8) for end in ("", ".heddle")])
            self.assertEqual(result["names"], 31)
            self.assertEqual(result["seen"], [16, 16])
            self.assertEqual(len(result["resumed"]), 8)
            for one, other in zip(result["resumed"], result["heddle"][0][-len(result["resumed"]):]):
                self.assertAlmostEqual(one / other, 1, delta=1e-5)
            self.assertLess(result["difference"], 1e-5)
            self.assertEqual(result["predicted"], 1)


if __name__ == "__main__":
    ranks.main_of_tests()

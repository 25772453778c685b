"""Tests of heddle.check, heddle.plan and heddle.train: results, errors, callbacks, interrupts. Runs without torch."""
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import heddle
import ranks
from heddle.errors import error_in_output
from heddle.progress import plot

TEXT = "".join(f"{n} " for n in range(4000))


def recipe(place, **sections):
    """Returns the recipe of a small byte-level Llama as a dict."""
    model = {"model_type": "llama", "vocab_size": 256, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2,
             "num_attention_heads": 2, "num_key_value_heads": 2, "max_position_embeddings": 32, "tie_word_embeddings": False}
    return {"seed": 1, "step_scheduler": {"global_batch_size": 4, "local_batch_size": 2, "max_steps": 5, "num_epochs": 1},
            "model": {"_target_": "from_config", "config": model, "dtype": "float32"},
            "dataset": {"file_pattern": os.path.join(place, "train.bin"), "seq_len": 32},
            "optimizer": {"lr": 1e-3}, "lr_scheduler": None, "distributed": {"strategy": "fsdp2"},
            "checkpoint": {"enabled": False, "checkpoint_dir": os.path.join(place, "run")}, **sections}


class ProgramTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.room = tempfile.TemporaryDirectory()
        cls.place = cls.room.name
        text = pathlib.Path(cls.place, "book.txt")
        text.write_text(TEXT)
        subprocess.run([heddle.program(), "data", str(text), "--out", os.path.join(cls.place, "train.bin")], check=True,
                       stdout=subprocess.DEVNULL)

    @classmethod
    def tearDownClass(cls):
        cls.room.cleanup()

    def test_check_resolves_a_dict(self):
        verdict = heddle.check(recipe(self.place), world_size=2)
        self.assertEqual(verdict["strategy"], "fsdp2")
        self.assertEqual(verdict["sizes"]["dp_shard"], 2)
        self.assertEqual(verdict["steps"], 5)

    def test_check_takes_several_world_sizes_and_overrides(self):
        verdicts = heddle.check(recipe(self.place), world_size=[1, 2], overrides={"step_scheduler.max_steps": 3})
        self.assertEqual([each["world_size"] for each in verdicts], [1, 2])
        self.assertEqual(verdicts[0]["steps"], 3)

    def test_check_raises_every_error_with_its_parts(self):
        faulty = recipe(self.place, distributed={"strategy": "nope"}, dataset={"file_pattern": "absent.bin", "seq_len": 8})
        with self.assertRaises(heddle.Error) as caught:
            heddle.check(faulty)
        found = {error.where.split()[-1]: error for error in caught.exception.all}
        self.assertEqual(found["distributed.strategy"].code, "plugin_missing")
        self.assertIn("Unknown strategy: nope", found["distributed.strategy"].message)
        self.assertEqual(found["dataset.file_pattern"].code, "input")
        self.assertIn("hint: ", str(caught.exception))

    def test_plan_finds_layouts_that_check_accepts(self):
        best = os.path.join(self.place, "best.yaml")
        found = heddle.plan(recipe(self.place), 4, device="H100", fix={"reshard_after_forward": False}, top=2, seconds=1, write=best)
        fitting = [each for each in found if each["fits"]]
        self.assertIn(len(fitting), (1, 2))
        self.assertEqual({each["distributed"]["reshard_after_forward"] for each in fitting}, {False})
        self.assertGreater(found[0]["step_seconds"], 0)
        self.assertEqual(heddle.check(best, world_size=4)["strategy"], found[0]["distributed"]["strategy"])

    def test_plan_raises_errors_of_recipes_and_of_options(self):
        with self.assertRaises(heddle.Error) as caught:
            heddle.plan(recipe(self.place, optimizer={"lr": "fast"}), 4)
        self.assertIn("optimizer.lr", caught.exception.where)
        with self.assertRaises(heddle.Error) as caught:
            heddle.plan(recipe(self.place), 4, speed=3)
        self.assertIn("--speed", str(caught.exception))

    def test_train_calls_back_after_each_step(self):
        steps = []
        trained = heddle.train(recipe(self.place), on_step=steps.append, progress=False)
        self.assertEqual([step["step"] for step in steps], list(range(5)))
        self.assertEqual(trained.metrics, steps)
        self.assertEqual(len(trained.losses), 5)
        self.assertLess(trained.losses[-1], trained.losses[0])

    def test_train_on_two_ranks_has_the_losses_of_one(self):
        precise = {"strategy": "fsdp2", "mp_policy": {"param_dtype": "float32", "reduce_dtype": "float32"}}
        one = heddle.train(recipe(self.place, distributed={"strategy": "single"}), progress=False)
        two = heddle.train(recipe(self.place, distributed=precise), ranks=2, progress=False)
        for first, second in zip(one.losses, two.losses):
            self.assertAlmostEqual(first / second, 1, delta=2e-5)

    def test_warns_of_a_run_that_has_no_steps_left(self):
        with tempfile.TemporaryDirectory() as place:
            whole = recipe(self.place, checkpoint={"checkpoint_dir": os.path.join(place, "run")})
            heddle.train(whole)
            with self.assertWarnsRegex(UserWarning, "the run took no step: it resumes .*: all 5 steps are done"):
                self.assertEqual(heddle.train(whole).losses, [])

    def test_refuses_arguments_of_another_type(self):
        for call in (lambda: heddle.check(recipe(self.place), world_size="12"), lambda: heddle.train(recipe(self.place), on_step=3)):
            with self.assertRaises(heddle.Error) as caught:
                call()
            self.assertEqual(caught.exception.code, "usage")

    def test_train_raises_the_error_of_the_run(self):
        with self.assertRaises(heddle.Error) as caught:
            heddle.train(recipe(self.place), overrides={"optimizer.lr": "fast"}, progress=False)
        self.assertEqual(caught.exception.code, "config")
        self.assertIn("optimizer.lr", caught.exception.where)

    def test_exception_of_the_callback_stops_the_run(self):
        def stop(line):
            if line["step"] == 2:
                raise ZeroDivisionError("mine")
        with self.assertRaisesRegex(ZeroDivisionError, "mine"):
            heddle.train(recipe(self.place), on_step=stop, overrides={"step_scheduler.max_steps": 400}, progress=False)

    def test_interrupt_saves_and_is_raised_unchanged(self):
        steps, where = [], os.path.join(self.place, "interrupted")

        def interrupt_once(line):
            steps.append(line)
            if line["step"] == 3:
                threading.Thread(target=os.kill, args=(os.getpid(), signal.SIGINT)).start()
        changed = {"step_scheduler.max_steps": 100000, "step_scheduler.num_epochs": 5000, "checkpoint.enabled": True,
                   "checkpoint.checkpoint_dir": where}
        began = time.monotonic()
        with self.assertRaises(KeyboardInterrupt):
            heddle.train(recipe(self.place), on_step=interrupt_once, overrides=changed, progress=False)
        self.assertLess(time.monotonic() - began, 60)
        self.assertTrue(os.path.exists(os.path.join(where, "LATEST")))

    def test_refuses_values_that_yaml_lacks(self):
        with self.assertRaises(heddle.Error) as caught:
            heddle.check(recipe(self.place, optimizer={"lr": object()}))
        self.assertIn("object", caught.exception.message)


class ImportTest(unittest.TestCase):
    def test_import_does_not_import_torch(self):
        code = "import heddle, sys; sys.exit('torch' in sys.modules)"
        self.assertEqual(subprocess.run([sys.executable, "-c", code]).returncode, 0)

    def test_error_is_found_between_other_lines(self):
        self.assertIsNone(error_in_output("header\n{\"loss\": 1}\n"))
        error = error_in_output('header\n{"error": {"code": "io", "where": "a", "what": "b", "hint": "c"}}\n')
        self.assertEqual((error.code, error.where, error.message, error.hint), ("io", "a", "b", "c"))
        self.assertEqual(str(error), "error[io] a: b\n  hint: c")

    def test_plot_skips_losses_that_are_not_finite(self):
        self.assertEqual(plot([float("nan")]), "")
        self.assertIn("polyline", plot([3.0, float("inf"), 2.0]))


if __name__ == "__main__":
    ranks.main_of_tests()

"""Compares trainers of transformers, TRL and accelerate under heddle with DDP, with and without peft adapters."""
import os
import tempfile
import unittest

try:
    import torch
    import accelerate
    import peft
    import transformers
    import trl
    MISSING = ""
except ImportError as error:
    MISSING = str(error)

import heddle
import ranks
from models import llama, tokens
from numbers_test import FP32

STEPS = 4
ALL_FIELDS = {"fsdp2": {"strategy": "fsdp2", "mp_policy": FP32}, "ddp": {"strategy": "ddp"}}
FIELDS = {name: ALL_FIELDS[name] for name in os.environ.get("HEDDLE_TEST_STRATEGIES", "fsdp2,ddp").split(",")}


def start_torch(place):
    """Creates the process group that transformers uses itself."""
    if torch.distributed.is_initialized():
        return
    torch.distributed.init_process_group("gloo", init_method=f"file://{place}/group", rank=int(os.environ["RANK"]),
                                         world_size=int(os.environ["WORLD_SIZE"]))


def adapted(model, wanted):
    if not wanted:
        return model
    torch.manual_seed(2)
    config = peft.LoraConfig(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj"], lora_dropout=0.0, init_lora_weights=False,
                             task_type="SEQ_CLS" if "Classification" in type(model).__name__ else "CAUSAL_LM")
    return peft.get_peft_model(model, config)


def log_of(trainer):
    """Returns losses and norms of the steps."""
    lines = [line for line in trainer.state.log_history if "loss" in line]
    return [line["loss"] for line in lines], [line["grad_norm"] for line in lines]


def settings(kind, where, **more):
    return kind(output_dir=where, per_device_train_batch_size=2, max_steps=STEPS, learning_rate=1e-2, logging_steps=1,
                report_to=[], use_cpu=True, save_strategy="no", seed=3, disable_tqdm=True, **more)


def texts_tokenizer():
    """Returns a word tokenizer that needs no download."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = ["[PAD]", "[UNK]", "[EOS]", *(f"w{i}" for i in range(61))]
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    return transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]",
                                                eos_token="[EOS]")


def words(seed, count):
    generator = torch.Generator().manual_seed(seed)
    return " ".join(f"w{i}" for i in torch.randint(0, 61, (count,), generator=generator).tolist())


def trainer_of(kind, place, fields, adapters):
    """Creates a trainer of this kind, under heddle if fields are given."""
    from datasets import Dataset

    def under(base):
        return type(base.__name__, (heddle.HfTrainer, base), {}) if fields else base
    more = {"heddle": fields} if fields else {}
    if kind == "transformers":
        data = [{"input_ids": (row := tokens(i, 0, rows=1)[0]), "labels": row} for i in range(16)]
        return under(transformers.Trainer)(adapted(llama(), adapters), settings(transformers.TrainingArguments, place),
                                           train_dataset=data, **more)
    tokenizer = texts_tokenizer()
    if kind == "sft":
        data = Dataset.from_list([{"text": words(i, 10)} for i in range(16)])
        return under(trl.SFTTrainer)(adapted(llama(), adapters), args=settings(trl.SFTConfig, place, max_length=16,
                                     gradient_checkpointing=False, bf16=False), train_dataset=data, processing_class=tokenizer, **more)
    if kind == "dpo":
        data = Dataset.from_list([{"prompt": words(i, 4), "chosen": words(100 + i, 5), "rejected": words(200 + i, 6)}
                                  for i in range(16)])
        reference = None if adapters else llama()
        return under(trl.DPOTrainer)(adapted(llama(), adapters), reference, args=settings(trl.DPOConfig, place,
                                     gradient_checkpointing=False, bf16=False), train_dataset=data, processing_class=tokenizer, **more)
    if kind == "reward":
        data = Dataset.from_list([{"chosen": words(100 + i, 5), "rejected": words(200 + i, 6)} for i in range(16)])
        torch.manual_seed(1)
        config = llama().config
        config.num_labels, config.pad_token_id = 1, 0
        scored = transformers.LlamaForSequenceClassification(config)
        return under(trl.RewardTrainer)(adapted(scored, adapters), args=settings(trl.RewardConfig, place, max_length=16,
                                        gradient_checkpointing=False, bf16=False), train_dataset=data, processing_class=tokenizer,
                                        **more)
    if kind == "grpo":
        data = Dataset.from_list([{"prompt": words(i, 4)} for i in range(16)])
        return under(trl.GRPOTrainer)(
            adapted(llama(), adapters), reward_funcs=lambda completions, **_: [float(len(set(each.split()))) for each in completions],
            args=settings(trl.GRPOConfig, place, num_generations=2, max_completion_length=6, gradient_checkpointing=False, bf16=False),
            train_dataset=data, processing_class=tokenizer, **more)
    raise ValueError(kind)


def trained(kinds, place, adapters):
    """Returns losses and norms of each trainer under DDP and under each strategy."""
    start_torch(place)
    results = {}
    for kind in kinds:
        for name, fields in (("DDP", None), *FIELDS.items()):
            trainer = trainer_of(kind, os.path.join(place, f"{kind}{name}"), fields, adapters)
            trainer.train()
            results[f"{kind}, {name}"] = log_of(trainer)
    return results


def resumed(place):
    """Returns the losses of a run, and of a run that resumes half-way under another strategy, the difference of their models
    and the values of a buffer that counts forwards."""
    start_torch(place)
    where = os.path.join(place, "resumed")
    data = [{"input_ids": (row := tokens(i, 0, rows=1)[0]), "labels": row} for i in range(16)]

    class Trainer(heddle.HfTrainer, transformers.Trainer):
        pass

    def make(fields):
        arguments = settings(transformers.TrainingArguments, where)
        arguments.save_strategy, arguments.save_steps = transformers.trainer_utils.SaveStrategy.STEPS, 2
        return Trainer(counting_llama(), arguments, heddle=fields, train_dataset=data)
    first = make(ALL_FIELDS[next(iter(FIELDS))])
    first.train()
    second = make(ALL_FIELDS["ddp"])
    second.train(resume_from_checkpoint=os.path.join(where, "checkpoint-2"))
    seen = second.model.seen.item()
    exported = transformers.AutoModelForCausalLM.from_pretrained(os.path.join(where, "checkpoint-4"))
    batch = tokens(5, 0)
    with heddle.unsharded(second.model) as whole:
        difference = (whole(input_ids=batch).logits - exported(input_ids=batch).logits).abs().max().item()
    return log_of(first), log_of(second), difference, [first.model.seen.item(), seen]


def counting_llama():
    """Returns a model with a buffer that counts forwards."""
    model = llama()
    model.register_buffer("seen", torch.zeros((), dtype=torch.long))
    model.register_forward_pre_hook(lambda module, _: module.seen.add_(1) and None)
    return model


def best(place):
    """Trains with load_best_model_at_end and a metric that is best at step 2. Returns for each strategy the difference of the
    model at the end from the checkpoint of step 2, and the buffer. Then returns the error of save_only_model."""
    start_torch(place)
    data = [{"input_ids": (row := tokens(i, 0, rows=1)[0]), "labels": row} for i in range(16)]

    class Trainer(heddle.HfTrainer, transformers.Trainer):
        def evaluate(self, *args, **kwargs):
            metrics = super().evaluate(*args, **kwargs)
            self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, metrics)
            return {**metrics, "eval_loss": float(self.state.global_step)}

    def make(where, fields, **more):
        arguments = settings(transformers.TrainingArguments, where, metric_for_best_model="eval_loss", greater_is_better=False,
                             eval_strategy="steps", eval_steps=2, **more)
        arguments.save_strategy, arguments.save_steps = transformers.trainer_utils.SaveStrategy.STEPS, 2
        arguments.load_best_model_at_end = True
        return Trainer(counting_llama(), arguments, heddle=fields, train_dataset=data, eval_dataset=data[:2])
    results = {}
    for name, fields in FIELDS.items():
        where = os.path.join(place, name)
        trainer = make(where, fields)
        trainer.train()
        whole = heddle.full_state_dict(trainer.model, rank0_only=False)
        kept = transformers.AutoModelForCausalLM.from_pretrained(os.path.join(where, "checkpoint-2")).state_dict()
        results[name] = [max((whole[key] - kept[key]).abs().max().item() for key in kept), whole["seen"].item()]
    try:
        make(os.path.join(place, "only"), next(iter(FIELDS.values())), save_only_model=True).train()
        told = "nothing was raised"
    except heddle.Error as error:
        told = error.message
    return results, told


def accelerated(place):
    """Runs a loop of accelerate with gradient accumulation, under DDP and under fsdp2."""
    start_torch(place)
    results, told = {}, {}
    for name, fields in (("DDP", None), *FIELDS.items()):
        accelerator = accelerate.Accelerator(cpu=True, gradient_accumulation_steps=2)
        model = llama()
        if fields:
            heddle.prepare(accelerator, model, **fields)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        optimizer = accelerator.prepare(optimizer)
        if fields:
            try:
                accelerator.save_state(os.path.join(place, "state"))
            except heddle.Error as error:
                told[name] = str(error)
        model = accelerator.prepare(model)
        losses, norms = [], []
        for step in range(4):
            batch = tokens(step, accelerator.process_index)
            with accelerator.accumulate(model):
                loss = model(input_ids=batch, labels=batch).loss
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    norms.append(accelerator.clip_grad_norm_(model.parameters(), 1.0).item())
                optimizer.step()
                optimizer.zero_grad()
            losses.append(accelerator.gather(loss.detach().reshape(1)).mean().item())
        results[name] = (losses, norms)
        accelerator.free_memory()
    return results, told


@unittest.skipIf(MISSING, MISSING)
class TrainersTest(unittest.TestCase):
    def equal(self, results, kind):
        losses, norms = results[f"{kind}DDP"]
        self.assertGreaterEqual(len(losses), STEPS)
        for name in FIELDS:
            mine = results[f"{kind}{name}"]
            with self.subTest(f"{kind}{name}"):
                for one, other in zip(mine[0] + mine[1], losses + norms):
                    self.assertAlmostEqual(one, other, delta=1e-5 * max(1.0, abs(other)))

    def compare(self, kinds, adapters):
        with tempfile.TemporaryDirectory() as place:
            results = ranks.run(trained, 2, kinds=kinds, place=place, adapters=adapters)[0]
        for kind in kinds:
            self.equal(results, f"{kind}, ")

    def test_transformers(self):
        self.compare(["transformers"], False)

    def test_transformers_with_adapters(self):
        self.compare(["transformers"], True)

    def test_trl(self):
        self.compare(["sft", "dpo", "reward", "grpo"], False)

    def test_trl_with_adapters(self):
        self.compare(["sft", "dpo", "reward", "grpo"], True)

    def test_resumes_with_another_strategy(self):
        with tempfile.TemporaryDirectory() as place:
            first, second, difference, seen = ranks.run(resumed, 2, place=place)[0]
        self.assertEqual(seen, [STEPS, STEPS])
        self.assertLess(difference, 1e-5)
        for one, other in zip(first[0][2:] + first[1][2:], second[0][-2:] + second[1][-2:]):
            self.assertAlmostEqual(one, other, delta=1e-5 * max(1.0, abs(other)))

    def test_loads_the_best_model_at_the_end(self):
        with tempfile.TemporaryDirectory() as place:
            for results, told in ranks.run(best, 2, place=place):
                for name, (difference, seen) in results.items():
                    with self.subTest(name):
                        self.assertEqual(difference, 0)
                        self.assertEqual(seen, 3)  # two steps and an evaluation
                self.assertIn("which save_only_model=True does not write", told)

    def test_accelerate(self):
        with tempfile.TemporaryDirectory() as place:
            results, told = ranks.run(accelerated, 2, place=place)[0]
        self.equal(results, "")
        if "fsdp2" in FIELDS:
            self.assertIn("accelerator.save_state: it writes one rank's state", told["fsdp2"])


if __name__ == "__main__":
    ranks.main_of_tests()

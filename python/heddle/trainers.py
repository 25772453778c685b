"""Support for trainers of transformers, TRL and accelerate."""
from __future__ import annotations

import os
import shutil
from typing import Any, Mapping, NoReturn

import torch

from . import state
from .errors import Error
from .sharding import fully_shard, sharded

_FOLDER = "heddle"  # in a checkpoint of the trainer
_SCHEDULER = "scheduler.pt"


def prepare(accelerator: Any, model: Any, **options: Any) -> Any:
    """Applies heddle to a model for a loop of `accelerate`, whose ``prepare()`` then does not change the model, and whose
    ``backward``, ``no_sync``, ``accumulate``, ``clip_grad_norm_`` and ``unwrap_model`` work. Call it before the optimizer
    is created.

    Args:
        options: arguments of `heddle.fully_shard`. With mixed precision of the accelerator the forward runs under autocast
            of that dtype, as in accelerate's own wrapper.
    """
    if accelerator.native_amp and "config" not in options and options.get("strategy", "fsdp2") in ("fsdp2", "ddp"):
        options.setdefault("autocast_dtype", {"bf16": "bfloat16", "fp16": "float16"}.get(accelerator.mixed_precision))
    one = sharded(fully_shard(model, **options))
    model._is_accelerate_prepared = True
    if one.splits:
        accelerator.register_save_state_pre_hook(lambda *_: _refuse_state("save_state", "writes", "save"))
        accelerator.register_load_state_pre_hook(lambda *_: _refuse_state("load_state", "reads", "load"))
    return model


def _refuse_state(call: str, does: str, ours: str) -> NoReturn:
    raise Error("not_built", f"accelerator.{call}", f"it {does} one rank's state of the optimizer, but each rank updates shards",
                f"call heddle.{ours}(directory, model, optimizer)")


class HfTrainer:
    """A mixin for `transformers.Trainer` and its subclasses, which trains the model with a strategy of heddle.

        class Trainer(heddle.HfTrainer, transformers.Trainer): ...
        Trainer(model, arguments, heddle={"strategy": "fsdp2"}, train_dataset=data).train()

    Args:
        heddle: the arguments of `heddle.fully_shard`, as a mapping. Default: ``{"strategy": "fsdp2"}`` in float32.

    Checkpoints of the trainer contain ``heddle/``, from which any strategy and number of ranks can resume, and the model
    in the format of transformers.
    """

    def __init__(self, *args: Any, heddle: Mapping[str, Any] | None = None, **kwargs: Any) -> None:
        self._heddle_options = dict(heddle or default_fields())
        super().__init__(*args, **kwargs)

    def create_optimizer(self, *args: Any, **kwargs: Any) -> Any:
        """Applies the strategy to the model before the optimizer is created."""
        self._check_best_model()
        if "_heddle" not in self.model.__dict__:
            prepare(self.accelerator, self.model, **{"root": self._root(), **self._heddle_options})
        return super().create_optimizer(*args, **kwargs)  # type: ignore[misc]

    def _check_best_model(self) -> None:
        if self.args.load_best_model_at_end and self.args.save_only_model:
            raise Error("usage", "load_best_model_at_end", "the best model is loaded from the folder heddle/ of its checkpoint, "
                        "which save_only_model=True does not write", "set save_only_model or load_best_model_at_end to False")

    def _root(self) -> list[Any]:
        """Returns the head if a trainer of TRL reads its weight outside of its forward (fused losses)."""
        if not any(base.__module__.startswith("trl.") for base in type(self).__mro__):
            return []
        head = self.model.get_output_embeddings() if hasattr(self.model, "get_output_embeddings") else None
        return [] if head is None else [head]

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        if "_heddle" not in self.model.__dict__:
            return super().save_model(output_dir, _internal_call)  # type: ignore[misc]
        whole = state.full_state_dict(self.model)
        if self.args.should_save:
            self._save(output_dir or self.args.output_dir, state_dict=whole)
        if self.args.push_to_hub and not _internal_call:
            self.push_to_hub(commit_message="Model save", revision=self.args.hub_revision)

    def _save_optimizer_and_scheduler(self, output_dir: str) -> None:
        folder = os.path.join(output_dir, _FOLDER)
        if self.args.should_save:  # transformers overwrites too
            shutil.rmtree(folder, ignore_errors=True)
        state.save(folder, self.model, self.optimizer)
        if self.args.should_save:
            torch.save(self.lr_scheduler.state_dict(), os.path.join(output_dir, _SCHEDULER))

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        """Does nothing: the parameters are loaded with the optimizer state, once the model is sharded."""

    def _load_best_model(self) -> None:
        """Loads the parameters and buffers of the best checkpoint. As in transformers, the optimizer is not changed."""
        if "_heddle" not in self.model.__dict__:
            return super()._load_best_model()  # type: ignore[misc]
        state.load(os.path.join(self.state.best_model_checkpoint, _FOLDER), self.model)

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        if checkpoint is None:
            return
        state.load(os.path.join(checkpoint, _FOLDER), self.model, self.optimizer)
        self.lr_scheduler.load_state_dict(torch.load(os.path.join(checkpoint, _SCHEDULER), weights_only=True))


def default_fields() -> dict[str, Any]:
    """Returns the default arguments of `heddle.fully_shard` for a trainer."""
    return {"strategy": "fsdp2", "mp_policy": {"param_dtype": "float32", "reduce_dtype": "float32"}}

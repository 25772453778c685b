"""A strategy of Lightning that puts heddle under a LightningModule."""
from __future__ import annotations

import contextlib
import os
import shutil
from typing import Any, Iterator, Mapping

try:
    from lightning.pytorch.strategies import DDPStrategy, Strategy
except ImportError:
    from pytorch_lightning.strategies import DDPStrategy, Strategy  # the older name of the package

from . import state
from .errors import Error
from .sharding import Sharded, fully_shard, sharded
from .trainers import default_fields
from .world import init

_SUFFIX = ".heddle"  # suffix of the directory beside a Lightning checkpoint: shards of model and optimizer state
_VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "TORCHELASTIC_USE_AGENT_STORE")


class LightningStrategy(DDPStrategy):
    """Trains a LightningModule under a strategy of heddle. Lightning starts the ranks, as for DDP.

        Trainer(strategy=heddle.LightningStrategy(strategy="fsdp2"), ...).fit(module)

    ``configure_optimizers`` makes the optimizer from ``self.parameters()``. A checkpoint of Lightning has the whole model
    in its usual format, and beside it ``<file>.heddle/`` with the optimizer's state, from which any strategy and number of
    ranks resumes.

    Args:
        fields: the arguments of `heddle.fully_shard`. Default: ``strategy="fsdp2"`` in float32.
    """

    def __init__(self, **fields: Any) -> None:
        super().__init__()
        self._fields = fields or default_fields()
        self._checkpoint: str | None = None

    @property
    def _one(self) -> Sharded:
        return sharded(self.lightning_module)

    def setup(self, trainer: Any) -> None:
        Strategy.setup(self, trainer)

    def _setup_model(self, model: Any) -> Any:
        if "_heddle" not in model.__dict__:
            with self._environment():
                init()
            fully_shard(model, **self._fields)
        return model

    @contextlib.contextmanager
    def _environment(self) -> Iterator[None]:
        """Sets the variables of torchrun, for ranks that Lightning has started. The ranks join through torch's store."""
        kept = {name: os.environ.get(name) for name in _VARIABLES}
        if "TORCHELASTIC_USE_AGENT_STORE" not in os.environ:
            os.environ.update(RANK=str(self.global_rank), WORLD_SIZE=str(self.world_size), LOCAL_RANK=str(self.local_rank),
                              LOCAL_WORLD_SIZE=str(self.num_processes), TORCHELASTIC_USE_AGENT_STORE="True")
        try:
            yield
        finally:
            for name, value in kept.items():
                os.environ.pop(name, None) if value is None else os.environ.update({name: value})

    def training_step(self, *args: Any, **kwargs: Any) -> Any:
        with self.precision_plugin.train_step_context():
            return self._one.forward(self.lightning_module.training_step, args, kwargs)

    def validation_step(self, *args: Any, **kwargs: Any) -> Any:
        with self.precision_plugin.val_step_context():
            return self._one.forward(self.lightning_module.validation_step, args, kwargs)

    def test_step(self, *args: Any, **kwargs: Any) -> Any:
        with self.precision_plugin.test_step_context():
            return self._one.forward(self.lightning_module.test_step, args, kwargs)

    def predict_step(self, *args: Any, **kwargs: Any) -> Any:
        with self.precision_plugin.predict_step_context():
            return self._one.forward(self.lightning_module.predict_step, args, kwargs)

    @contextlib.contextmanager
    def block_backward_sync(self) -> Iterator[None]:
        with self._one.no_sync():
            yield

    def lightning_module_state_dict(self) -> dict[str, Any]:
        return state.full_state_dict(self.lightning_module)

    def optimizer_state(self, optimizer: Any) -> dict[str, Any]:
        return {}

    def save_checkpoint(self, checkpoint: dict[str, Any], filepath: Any, storage_options: Any = None) -> None:
        super().save_checkpoint(checkpoint, filepath, storage_options)
        if "optimizer_states" not in checkpoint:
            return
        if len(self.optimizers) > 1:
            raise Error("not_built", os.fspath(filepath), f"a checkpoint holds the state of one optimizer, and the module has "
                        f"{len(self.optimizers)}", "save weights only: ModelCheckpoint(save_weights_only=True)")
        self._remove_shards(filepath)
        self.barrier()
        state.save(os.fspath(filepath) + _SUFFIX, self.lightning_module, next(iter(self.optimizers), None))

    def remove_checkpoint(self, filepath: Any) -> None:
        super().remove_checkpoint(filepath)
        self._remove_shards(filepath)

    def _remove_shards(self, filepath: Any) -> None:
        if self.is_global_zero:
            shutil.rmtree(os.fspath(filepath) + _SUFFIX, ignore_errors=True)

    @property
    def restore_checkpoint_after_setup(self) -> bool:
        return True

    def load_checkpoint(self, checkpoint_path: Any, weights_only: bool | None = None) -> dict[str, Any]:
        self._checkpoint = os.fspath(checkpoint_path) + _SUFFIX
        return super().load_checkpoint(checkpoint_path, weights_only)

    def load_model_state_dict(self, checkpoint: Mapping[str, Any], strict: bool = True) -> None:
        if not os.path.isdir(self._checkpoint or ""):
            raise Error("input", str(self._checkpoint), "this directory of the checkpoint is missing", "resume from a "
                        "checkpoint that heddle.LightningStrategy saved; load the weights of others before the fit")
        state.load(str(self._checkpoint), self.lightning_module)

    def load_optimizer_state_dict(self, checkpoint: Mapping[str, Any]) -> None:
        if self.optimizers:
            state.load(str(self._checkpoint), self.lightning_module, self.optimizers[0])

    def teardown(self) -> None:
        """Leaves the shards on their device."""
        self.cluster_environment.teardown()
        self.precision_plugin.teardown()
        self.accelerator.teardown()
        self.checkpoint_io.teardown()

"""heddle: trains large language models in parallel.

``heddle.check``, ``heddle.plan`` and ``heddle.train`` run recipes with the `heddle` program. ``heddle.init``,
``heddle.fully_shard`` and the functions below them put heddle's strategies into a PyTorch trainer: the model, the loop
and the optimizer stay yours. See docs/embedding-in-python.md.
"""
from __future__ import annotations

import importlib
import pathlib
from typing import TYPE_CHECKING, Any

from .errors import Error
from .recipes import Trained, check, main, plan, program, train

if TYPE_CHECKING:
    from .importing import import_checkpoint
    from .lightning import LightningStrategy
    from .optimizers import clip_grad_norm_, parameters_changed
    from .pipelines import Pipeline, pipeline
    from .released import Released
    from .sharding import Shard, Sharded, fully_shard, sharded
    from .state import full_state_dict, load, save, save_pretrained, unsharded
    from .trainers import HfTrainer, prepare
    from .world import World, init

__version__ = "0.1.0"
prefix = str(pathlib.Path(__file__).resolve().parent)  # for -DCMAKE_PREFIX_PATH; contains lib/plugins and share/heddle

# Names that need torch are imported on first use, so that checking a recipe does not import torch.
_LAZY: dict[str, str] = {
    **dict.fromkeys(("World", "init"), "world"),
    **dict.fromkeys(("Shard", "Sharded", "fully_shard", "sharded"), "sharding"),
    **dict.fromkeys(("clip_grad_norm_", "parameters_changed"), "optimizers"),
    **dict.fromkeys(("full_state_dict", "load", "save", "save_pretrained", "unsharded"), "state"),
    **dict.fromkeys(("HfTrainer", "prepare"), "trainers"),
    "import_checkpoint": "importing",
    "LightningStrategy": "lightning",
    **dict.fromkeys(("Pipeline", "pipeline"), "pipelines"),
    "Released": "released",
}
__all__ = ["Error", "Trained", "check", "plan", "program", "train", *_LAZY]


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(importlib.import_module(f".{_LAZY[name]}", __name__), name)
    raise AttributeError(f"module 'heddle' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})

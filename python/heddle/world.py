"""heddle.init(), which joins the ranks of the run, and the exit from the run."""
from __future__ import annotations

import atexit
import logging
import os
import signal
import sys
from typing import Any, Sequence

from .errors import Error

_TORCH = "2.11.0"
_log = logging.getLogger("heddle")
_LEVELS = (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR)  # heddle::LogLevel
_world: "World | None" = None
_ended = False  # the process has left its ranks


def _engine() -> Any:
    """Returns the extension, loaded after torch, so that both use the same LibTorch."""
    import torch

    if torch.__version__.split("+")[0] != _TORCH:
        raise Error("usage", "torch", f"torch {torch.__version__} is installed, but heddle was built for {_TORCH}",
                    f"pip install torch=={_TORCH}")
    try:
        from . import _engine as extension
    except ImportError as error:
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        place = os.path.dirname(os.path.abspath(__file__))
        others = sorted(name.split(".")[1] for name in os.listdir(place) if name.startswith("_engine."))
        raise Error("usage", "heddle", f"the engine cannot be loaded into Python {version}: {error}. Extensions: "
                    + (", ".join(others) or "none"), "use one of these Pythons, or build the target heddle_python with "
                    "HEDDLE_PYTHONS naming this one") from error
    return extension


class World:
    """The ranks of a run, from heddle.init().

    Attributes:
        rank, size: this rank, and the number of ranks.
        local_rank, local_size: this rank on this machine, and the number of ranks on it.
        launcher: the launcher of the ranks ("torchrun", "slurm", "openmpi"), or "" without one.
    """

    def __init__(self, timeout: float, plugins: Sequence[str]) -> None:
        def sink(level: int, room: str, text: str) -> None:
            _log.log(_LEVELS[level], "[%s] %s", room, text)

        self._extension = _engine()
        self.native = self._extension.World(timeout, list(plugins), sink)
        self.rank: int = self.native.rank
        self.size: int = self.native.size
        self.local_rank: int = self.native.local_rank
        self.local_size: int = self.native.local_size
        self.launcher: str = self.native.launcher
        self._pid = os.getpid()
        self._keys = 0
        atexit.register(self._at_exit)
        os.register_at_fork(after_in_child=self._extension.interpreter_ends)

    def __repr__(self) -> str:
        return f"<heddle.World: rank {self.rank} of {self.size}>"

    def key(self, work: str) -> str:
        """Returns a key for a rendezvous of all ranks, which call this in the same order."""
        self._keys += 1
        return f"python {work} {self._keys}"

    def check_process(self) -> None:
        """Raises heddle.Error in a forked child, which does not have the engine's threads."""
        if os.getpid() != self._pid:
            raise Error("usage", "heddle", "a forked process cannot use the engine of its parent",
                        "call heddle in the process that called heddle.init(), or start workers with 'spawn'")

    def listen(self) -> None:
        """Makes Ctrl-C interrupt a wait for other ranks. Keeps a wakeup descriptor that is already set."""
        try:
            old = signal.set_wakeup_fd(-1)
        except ValueError:  # this is not the main thread
            return
        if old != -1:
            signal.set_wakeup_fd(old)
            return
        read, write = os.pipe()
        os.set_blocking(write, False)
        signal.set_wakeup_fd(write, warn_on_full_buffer=False)
        os.register_at_fork(after_in_child=lambda: signal.set_wakeup_fd(-1))
        self.native.listen(read)

    def _at_exit(self) -> None:
        if os.getpid() != self._pid:
            return
        global _ended
        _ended = True
        failed = getattr(sys, "last_value", None)
        try:
            if failed is not None:
                self.native.abandon(f"{type(failed).__name__}: {failed}")
            elif self.size > 1:
                self.native.leave()
        except Error as error:
            _log.warning("leaving the run: %s", error)
        self._extension.interpreter_ends()


def init(*, timeout: float = 600.0, plugins: Sequence[str] = ()) -> World:
    """Joins the other ranks of the run, started by torchrun, Slurm or MPI. Without a launcher the run has one rank.

    A second call without arguments returns the same object. The process leaves the run at exit. If it exits with an exception, the next
    wait of other ranks raises ``heddle.Error`` with the code ``"rank_lost"``.

    Args:
        timeout: timeout of a collective in seconds.
        plugins: directories of plugins, searched before HEDDLE_PLUGIN_PATH and heddle's own.

    Raises:
        heddle.Error: ``"timeout"``, naming the missing ranks, or ``"usage"`` for an invalid environment or a torch
            version for which heddle was not built.
    """
    global _world
    if _world is None:
        _world = World(timeout, plugins)
        _world.listen()
    elif timeout != 600.0 or plugins:
        raise Error("usage", "heddle.init", "the process has joined its ranks already, so timeout and plugins would have no "
                    "effect", "call heddle.init(...) first, before heddle.fully_shard")
    _world.check_process()
    return _world


def world() -> World:
    """Returns the ranks of this process. Raises heddle.Error before heddle.init()."""
    if _world is None:
        raise Error("usage", "heddle", "heddle.init() has not been called", "call heddle.init() first")
    _world.check_process()
    return _world

"""The `heddle` program from Python: checks recipes, plans layouts, and trains in a child process."""
from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from typing import Any, Callable, Iterator, Mapping, Sequence, Union

from .errors import Error, error_from_json, error_in_output
from .progress import Progress

Recipe = Union[str, "os.PathLike[str]", Mapping[str, Any]]
_POLL_SECONDS = 0.1  # time between reads of the metrics file
_KEPT_BYTES = 1 << 20  # last bytes of the program's output to keep


def program() -> str:
    """Returns the path of the `heddle` program: ``HEDDLE_PROGRAM``, else the program of this package, else of the source
    tree that contains this package, else on PATH. Raises `heddle.Error` (``"usage"``) if there is none."""
    package = pathlib.Path(__file__).resolve().parent
    for place in (os.environ.get("HEDDLE_PROGRAM"), package / "bin/heddle", package.parents[1] / "bin/heddle",
                  package.parents[1] / "build/heddle",
                  shutil.which("heddle")):
        if place and os.access(place, os.X_OK):
            return str(place)
    raise Error("usage", "heddle", "the program `heddle` was not found in this package or on PATH",
                "install the wheel of heddle, or set HEDDLE_PROGRAM to the path of the program")


def environment() -> dict[str, str]:
    """Returns the environment of the program, which uses this interpreter's LibTorch and Python unless environment variables
    name others. Does not import torch."""
    import importlib.util

    variables = dict(os.environ)
    if not variables.get("HEDDLE_TORCH"):
        torch = importlib.util.find_spec("torch")
        if torch is not None and torch.submodule_search_locations:
            variables["HEDDLE_TORCH"] = torch.submodule_search_locations[0]
    variables.setdefault("HEDDLE_PYTHON", sys.executable)
    return variables


@contextlib.contextmanager
def _file_of(recipe: Recipe) -> Iterator[str]:
    """Yields the path of a recipe. A mapping is written to a file that exists within the scope."""
    if not isinstance(recipe, Mapping):
        yield os.fspath(recipe)
        return
    with tempfile.TemporaryDirectory(prefix="heddle-") as place:
        path = os.path.join(place, "recipe.yaml")
        with open(path, "w", encoding="utf-8") as file:
            json.dump(recipe, file, indent=1, default=_written)  # JSON is YAML
        try:
            yield path
        except Error as error:
            for each in error.all:
                each.where, each.message, each.hint = _without_path([each.where, each.message, each.hint], path)
                each.args = (each.code, each.where, each.message, each.hint)
            raise


def _without_path(value: Any, path: str) -> Any:
    """Replaces the path and line of the temporary file of a mapping by ``recipe`` in the strings of a JSON value."""
    if isinstance(value, str):
        return re.sub(re.escape(path) + r"(:\d+)?", "recipe", value)
    if isinstance(value, dict):
        return {key: _without_path(each, path) for key, each in value.items()}
    return [_without_path(each, path) for each in value] if isinstance(value, list) else value


def _written(value: Any) -> Any:
    """Converts values of a recipe that JSON does not support: paths and torch dtypes."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if type(value).__module__ == "torch":
        return str(value).replace("torch.", "")
    raise Error("config", "recipe", f"a value of type {type(value).__name__} cannot be written as YAML",
                "use numbers, strings, lists, mappings and None")


def _overrides(values: Mapping[str, Any] | None) -> list[str]:
    return [part for key, value in (values or {}).items()
            for part in (f"--{key}", "none" if value is None else json.dumps(value, default=_written))]


def check(recipe: Recipe, world_size: int | Sequence[int] = 1, *, overrides: Mapping[str, Any] | None = None,
          elsewhere: bool = False) -> Any:
    """Validates a recipe like `heddle check`, without starting ranks or creating tensors.

    Args:
        recipe: the path of a YAML file, or a mapping with its sections. Relative paths are relative to the working
            directory.
        world_size: the number of ranks, or several numbers.
        overrides: values by key, such as ``{"distributed.tp_size": 2}``.
        elsewhere: whether the run is for another machine. If so, a missing model, data set or device is only a warning.

    Returns:
        The resolved recipe: a dict with ``mesh``, ``sizes``, ``strategy_config``, ``parameters`` (elements),
        ``bytes_per_rank``, ``steps``, ``warnings`` and more. For several world sizes, a list of dicts.

    Raises:
        heddle.Error: the first error; ``.all`` has all errors.
    """
    several = not isinstance(world_size, int)
    sizes = list(world_size) if not isinstance(world_size, int) else [world_size]
    if isinstance(world_size, str) or not all(isinstance(each, int) for each in sizes):
        raise Error("usage", "world_size", f"{world_size!r} is no number of ranks", "pass an int, or a list of ints")
    with _file_of(recipe) as path:
        records = _records(["check", path, "--world-size", ",".join(map(str, sizes)), *(["--elsewhere"] if elsewhere else []),
                            *_overrides(overrides)], len(sizes))
        if isinstance(recipe, Mapping):
            records = _without_path(records, path)
    return records if several else records[0]


def _records(arguments: Sequence[str], count: int | None = None) -> list[dict[str, Any]]:
    """Runs the program and returns the objects that it prints with --json. Raises the error that it reports."""
    done = subprocess.run([program(), *arguments, "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          env=environment(), stdin=subprocess.DEVNULL)
    records = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    for record in records:
        if "error" in record:
            raise error_from_json(record)
    if done.returncode != 0 or len(records) != (count or len(records)):
        raise _failure(done.returncode, done.stderr)
    return records


def plan(recipe: Recipe, world_size: int, *, device: str | None = None, machine: str | os.PathLike[str] | None = None,
         fix: Mapping[str, Any] | None = None, write: str | os.PathLike[str] | None = None,
         overrides: Mapping[str, Any] | None = None, **options: Any) -> list[dict[str, Any]]:
    """Finds the layouts of a run that fit a machine, as `heddle plan` does. No rank is started and no device is needed.

    Args:
        recipe: the path of a YAML file, or a mapping with its sections.
        world_size: the number of ranks.
        device: the machine's device, such as ``"H100"``. Default: ``"H100"``.
        machine: a machine file, instead of `device`.
        fix: values of the layout to keep, such as ``{"tp_size": 4}``.
        write: the file to write, with the recipe of the fastest layout.
        overrides: values by key, such as ``{"step_scheduler.global_batch_size": 512}``.
        options: further options of the command, such as ``top=3``, ``seconds=60``, ``row_length=4096``,
            ``gpus_per_node=8``.

    Returns:
        A dict per layout that fits, the fastest first, then those that do not fit. Each has ``fits``, ``distributed`` (the
        section of a recipe), ``local_batch_size``, ``layout`` (values of ``fix``), ``peak_bytes`` of a rank,
        ``step_seconds``, ``tokens_per_second``, ``mfu`` (percent), ``limit`` and ``parts`` (seconds). A layout that does
        not fit has ``change``: one value with which it is a layout that fits, or None. The first dict has the figures of
        the ``search``.

    Raises:
        heddle.Error: for an invalid recipe, or if no layout fits.
    """
    given = {"device": device, "machine": machine, "write": write, **options}
    arguments = [part for name, value in given.items() if value is not None
                 for part in (f"--{name.replace('_', '-')}", os.fspath(value) if isinstance(value, os.PathLike) else str(value))]
    arguments += [part for key, value in (fix or {}).items() for part in ("--fix", f"{key}={_plain(value)}")]
    with _file_of(recipe) as path:
        return _records(["plan", path, "--world-size", str(world_size), *arguments, *_overrides(overrides)])


def _plain(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


@dataclasses.dataclass
class Trained:
    """The result of a run.

    Attributes:
        metrics: one dict per step, the lines of ``training.jsonl``: ``step``, ``loss``, ``grad_norm``, ``lr``, ``tps``
            (tokens per second), ``mem`` (GiB), ``step_time`` (seconds) and more.
        output: the last MiB of the program's standard output: the header of the run and its progress.
    """

    metrics: list[dict[str, Any]]
    output: str

    @property
    def losses(self) -> list[float]:
        """Returns the loss of each step."""
        return [step["loss"] for step in self.metrics]


class _Lines:
    """Reads the complete lines that are appended to a file, which may not exist yet."""

    def __init__(self, path: str) -> None:
        self._path, self._rest, self._at = path, b"", 0

    def read(self) -> list[dict[str, Any]]:
        try:
            with open(self._path, "rb") as file:
                file.seek(self._at)
                data = file.read()
        except FileNotFoundError:
            return []
        self._at += len(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        return [json.loads(line) for line in lines if line.strip()]


class _Drain:
    """Reads a pipe of the child until its end, so that the child never blocks. Keeps the last bytes."""

    def __init__(self, pipe: Any, echo: Any = None) -> None:
        self._pipe, self._echo, self._kept = pipe, echo, b""
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        with self._pipe:
            for data in iter(lambda: self._pipe.read1(1 << 16), b""):
                self._kept = (self._kept + data)[-_KEPT_BYTES:]
                if self._echo is not None:
                    self._echo.write(data.decode("utf-8", "replace"))
                    self._echo.flush()

    def text(self) -> str:
        self._thread.join()
        return self._kept.decode("utf-8", "replace")


def train(recipe: Recipe, *, ranks: int | None = None, on_step: Callable[[dict[str, Any]], Any] | None = None,
          overrides: Mapping[str, Any] | None = None, metrics: str | os.PathLike[str] | None = None,
          progress: bool | None = None, log: bool = False) -> Trained:
    """Trains a recipe with the `heddle` program in a child process, and returns when the run ends.

    Args:
        recipe: the path of a YAML file, or a mapping with its sections. Relative paths are relative to the working
            directory.
        ranks: number of local ranks to start. Default: 1.
        on_step: called in this thread after each step with its line of ``training.jsonl`` as a dict. An exception stops
            the run like Ctrl-C, and is raised after the run has saved a checkpoint and exited.
        overrides: values by key, such as ``{"optimizer.lr": 3e-4}``.
        metrics: the path of ``training.jsonl``. Default: a temporary file, whose lines are in the result.
        progress: whether to show a progress bar, with a loss plot in a notebook. Default: in a terminal or a notebook.
        log: whether to copy the program's messages to standard output.

    A KeyboardInterrupt is sent to the run as SIGINT: the run saves a checkpoint and exits, then the exception is raised.
    A second KeyboardInterrupt kills the ranks at once.

    Raises:
        heddle.Error: the error of the run, with its code, place and hint.
    """
    if on_step is not None and not callable(on_step):
        raise Error("usage", "on_step", f"{on_step!r} cannot be called", "pass a function of one dict")
    with _file_of(recipe) as path, tempfile.TemporaryDirectory(prefix="heddle-") as place:
        file = os.fspath(metrics) if metrics is not None else os.path.join(place, "training.jsonl")
        command = [program(), "train", path, "--json", "--metrics", file,
                   *(["--nproc-per-node", str(ranks)] if ranks is not None else []), *_overrides(overrides)]
        # A separate session, so that Ctrl-C in a terminal reaches only this process, which forwards it once.
        child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL,
                                 env=environment(), start_new_session=True)
        out, err = _Drain(child.stdout, sys.stdout if log else None), _Drain(child.stderr, sys.stderr if log else None)
        lines: list[dict[str, Any]] = []
        stopped: BaseException | None = None
        with Progress(progress) as bar:
            stopped = _follow(child, _Lines(file), lines, on_step, bar)
        output, errors = out.text(), err.text()
        if stopped is not None:
            raise stopped
        if child.returncode != 0:
            raise error_in_output(output) or _failure(child.returncode, errors)
    if not lines:
        resumed = next((line.strip() for line in output.splitlines() if line.strip().startswith("resumes ")), "")
        warnings.warn("the run took no step" + (f": it {resumed}" if resumed else ""), stacklevel=2)
    return Trained(lines, output)


def _follow(child: subprocess.Popen[bytes], file: _Lines, lines: list[dict[str, Any]],
            on_step: Callable[[dict[str, Any]], Any] | None, bar: Progress) -> BaseException | None:
    """Reports steps until the child has exited. Returns the exception that stopped it, or None."""
    stopped: BaseException | None = None
    while True:
        try:
            running = child.poll() is None
            for line in file.read():
                lines.append(line)
                bar.step(line)
                if on_step is not None and stopped is None:
                    on_step(line)
            if not running:
                return stopped
            time.sleep(_POLL_SECONDS)
        except BaseException as error:  # also KeyboardInterrupt
            if stopped is not None and not isinstance(error, KeyboardInterrupt):
                continue  # the first exception is raised
            if stopped is None:
                stopped = error
                child.send_signal(signal.SIGINT)
            else:
                os.killpg(child.pid, signal.SIGKILL)
                child.wait()


def _failure(status: int, errors: str) -> Error:
    """Returns the error of a program that printed no error as JSON."""
    last = [line for line in errors.splitlines() if line.strip()][-3:]
    if status < 0:
        said = f"the program was killed by {signal.Signals(-status).name}"
    else:
        said = f"the program exited with status {status}"
    return Error("internal", "heddle", said + (": " + " | ".join(last) if last else ""),
                 "run the same command in a terminal to see its messages")


def main() -> None:
    """Replaces this process by the program with the same arguments. The command `heddle` of the wheel."""
    path = program()
    os.execve(path, [path, *sys.argv[1:]], environment())

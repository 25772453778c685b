"""Progress of a run in a terminal or a notebook: a progress bar, and a plot of the loss."""
from __future__ import annotations

import sys
import time
from typing import Any

_PLOT_SECONDS = 1.0  # time between two updates of the plot
_WIDTH, _HEIGHT = 640, 200  # size of the plot in pixels


def _in_notebook() -> bool:
    shell = sys.modules.get("IPython")
    return shell is not None and type(shell.get_ipython()).__name__ == "ZMQInteractiveShell"


def plot(losses: list[float]) -> str:
    """Returns an SVG plot of the loss per step. Steps without a finite loss are skipped."""
    finite = [(i, loss) for i, loss in enumerate(losses) if loss is not None and abs(loss) < float("inf")]
    if not finite:
        return ""
    low, high = min(loss for _, loss in finite), max(loss for _, loss in finite)
    across, span = max(len(losses) - 1, 1), (high - low) or 1.0
    points = " ".join(f"{_WIDTH * i / across:.1f},{_HEIGHT * (high - loss) / span:.1f}" for i, loss in finite)
    return (f'<svg viewBox="-60 -10 {_WIDTH + 80} {_HEIGHT + 40}" width="{_WIDTH}" xmlns="http://www.w3.org/2000/svg">'
            f'<polyline points="{points}" fill="none" stroke="currentColor" stroke-width="1.5"/>'
            f'<g font-size="12" fill="currentColor" text-anchor="end"><text x="-6" y="10">{high:.4g}</text>'
            f'<text x="-6" y="{_HEIGHT}">{low:.4g}</text><text x="{_WIDTH}" y="{_HEIGHT + 24}">step {len(losses)}</text>'
            "</g></svg>")


class Progress:
    """A progress bar of tqdm if it is installed, and in a notebook a plot of the loss below it.

    Args:
        wanted: whether to show the progress. None: if standard error is a terminal, or in a notebook.
    """

    def __init__(self, wanted: bool | None) -> None:
        self._notebook = _in_notebook()
        self._bar: Any = None
        self._losses: list[float] = []
        self._drawn, self._shown = 0.0, None
        if wanted or (wanted is None and (self._notebook or sys.stderr.isatty())):
            self._bar = self._make_bar()
        else:
            self._notebook = False

    @staticmethod
    def _make_bar() -> Any:
        try:
            from tqdm.auto import tqdm
        except ImportError:
            return _Line()
        return tqdm(unit=" steps", dynamic_ncols=True)

    def __enter__(self) -> "Progress":
        return self

    def __exit__(self, *_: Any) -> None:
        if self._bar is not None:
            self._draw(last=True)
            self._bar.close()

    def step(self, line: dict[str, Any]) -> None:
        """Shows one line of ``training.jsonl``."""
        if self._bar is None:
            return
        self._losses.append(line["loss"])
        self._bar.set_postfix(loss=f"{line['loss']:.4f}", lr=f"{line['lr']:.2e}", refresh=False)
        self._bar.update(1)
        self._draw(last=False)

    def _draw(self, last: bool) -> None:
        now = time.monotonic()
        if not self._notebook or not self._losses or not (last or now - self._drawn > _PLOT_SECONDS):
            return
        from IPython.display import SVG, display

        self._drawn = now
        picture = SVG(plot(self._losses))
        if self._shown is None:
            self._shown = display(picture, display_id=True)
        else:
            self._shown.update(picture)


class _Line:
    """A progress line that is overwritten, used if tqdm is not installed."""

    def __init__(self) -> None:
        self._steps, self._told = 0, ""

    def set_postfix(self, refresh: bool = True, **values: str) -> None:
        self._told = "  ".join(f"{name} {value}" for name, value in values.items())

    def update(self, count: int) -> None:
        self._steps += count
        sys.stderr.write(f"\r{self._steps} steps  {self._told}")
        sys.stderr.flush()

    def close(self) -> None:
        sys.stderr.write("\n")

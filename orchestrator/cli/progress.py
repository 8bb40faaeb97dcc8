"""The progress of a run: bars for a terminal, lines of JSON for programs, or nothing."""

import json
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
)
from rich.text import Text

from orchestrator.cli.options import Output, warn
from orchestrator.dispatch.stopping import Reports

WINDOW = 10.0  #: seconds over which a rate is measured
_EVERY = 5.0  #: seconds between two lines of JSON at least


class RecentRate:
    """Items per second, over the last seconds only: it falls while nothing is done."""

    def __init__(self, clock: Callable[[], float] | None = None) -> None:
        self.clock = clock or time.monotonic
        self._begun = self.clock()
        self._added: deque[tuple[float, int]] = deque()

    def add(self, count: int) -> None:
        """So many more are done."""
        self._added.append((self.clock(), count))

    def per_second(self) -> float:
        """The rate by now."""
        now = self.clock()
        while self._added and self._added[0][0] < now - WINDOW:
            self._added.popleft()
        elapsed = min(WINDOW, now - self._begun)
        return sum(count for _, count in self._added) / elapsed if elapsed > 0 else 0.0


class _JsonLines:
    """A line on standard output every few seconds."""

    def __init__(self, total: int, done: int) -> None:
        self._total, self._done, self._checks, self._share = total, done, 0, 0.0
        self._rate, self._last, self._new = RecentRate(), float("-inf"), False

    def items(self, count: int) -> None:
        self._done += count
        self._rate.add(count)
        self._changed()

    def checks(self, count: int, share: float) -> None:
        self._checks, self._share = self._checks + count, share
        self._changed()

    def _changed(self) -> None:
        self._new = True
        if self._rate.clock() - self._last >= _EVERY:
            self.say()

    def say(self) -> None:
        """Write what is new since the last line."""
        if not self._new:
            return
        self._last, self._new, rate = self._rate.clock(), False, self._rate.per_second()
        json_line(
            "progress",
            done=self._done,
            total=self._total,
            items_per_second=round(rate, 2),
            seconds_left=round((self._total - self._done) / rate, 1) if rate else None,
            checks=self._checks,
            checks_share=round(self._share, 3),
        )


class _Rate(ProgressColumn):
    """So many a second."""

    def render(self, task: Task) -> Text:
        rate = task.fields["rate"].per_second()
        return Text(f"{rate:.1f} {task.fields['unit']}/s")


class _Left(ProgressColumn):
    """The time left at the rate of the last seconds."""

    def render(self, task: Task) -> Text:
        rate = task.fields["rate"].per_second()
        if task.total is None or task.completed >= task.total:
            return Text("")  # of checks nobody knows how many are to come
        if not rate:
            return Text("-:--:--")
        minutes, seconds = divmod(round((task.total - task.completed) / rate), 60)
        return Text(f"{minutes // 60}:{minutes % 60:02d}:{seconds:02d}")


class _Bars:
    """A bar over the items, and one over the passes of checks once there are any."""

    def __init__(self, bar: Progress, label: str, total: int, done: int) -> None:
        self._bar, self._label = bar, label
        self._rates = {"items": RecentRate()}
        self._tasks = {"items": self._add(label, "items", total, done)}

    def _add(self, label: str, unit: str, total: int | None, done: int = 0) -> Any:
        return self._bar.add_task(
            label, total=total, completed=done, rate=self._rates[unit], unit=unit
        )

    def items(self, count: int) -> None:
        self._advance("items", count)

    def checks(self, count: int, share: float) -> None:
        if "checks" not in self._tasks:
            self._rates["checks"] = RecentRate()
            self._tasks["checks"] = self._add("", "checks", None)
        description = f"{self._label}: checks, {share:.0%} of the time"
        self._bar.update(self._tasks["checks"], description=description)
        self._advance("checks", count)

    def _advance(self, unit: str, count: int) -> None:
        self._rates[unit].add(count)
        self._bar.advance(self._tasks[unit], count)


@contextmanager
def run_progress(label: str, total: int, done: int, output: Output) -> Iterator[Reports]:
    """Show how far a run of `total` items is, of which `done` were done before."""
    if output == "json":
        lines = _JsonLines(total, done)
        yield Reports(lines.items, lines.checks, warn)
        lines.say()
        return
    console = Console(stderr=True)
    if output == "quiet" or not console.is_terminal:
        yield Reports(wait=warn)
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, _Rate(), _Left(), console=console) as bar:
        bars = _Bars(bar, label, total, done)
        yield Reports(bars.items, bars.checks, warn)


def json_line(event: str, **values: Any) -> None:
    """One event as a line of JSON on standard output."""
    typer.echo(json.dumps({"event": event, **values}, ensure_ascii=False))

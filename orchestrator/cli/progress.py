"""The progress bar: items done, rate and time left."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeRemainingColumn,
)
from rich.text import Text

_EVERY = 10.0  #: seconds between lines where there is no terminal


class RateColumn(ProgressColumn):
    """Items per second."""

    def render(self, task: Task) -> Text:
        """The rate so far."""
        return Text(f"{task.speed:.1f} items/s" if task.speed else "… items/s")


@contextmanager
def item_progress(label: str, total: int, done: int = 0) -> Iterator[Callable[[int], None]]:
    """Show a bar over items; yields the function to call with the number newly finished."""
    console = Console(stderr=True)
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        RateColumn(),
        TimeRemainingColumn(),
        console=console,
        speed_estimate_period=60.0,
        disable=not console.is_terminal,
    )
    with bar:
        task = bar.add_task(label, total=total, completed=done)
        yield lambda count: bar.advance(task, count)

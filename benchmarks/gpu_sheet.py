"""The rows of `benchmarks.gpu`: each measured in its own try block, printed and written at once."""

import json
import math
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.gpu_clock import free

Figures = dict[str, Any]
_WHY = 300  #: characters of an error that are kept
#: key -> head of its column, and how its numbers are written
_COLUMNS = {
    "ms": ("ms", "{:.2f}"),
    "per_second": ("per second", "{:,.1f}"),
    "forwards": ("forwards", "{:.2f}"),
    "peak_gib": ("peak GiB", "{:.2f}"),
    "note": ("note", "{}"),
}


@dataclass(slots=True)
class Sheet:
    """All rows so far, and where they are written."""

    environment: Figures
    device: str
    json: Path | None
    markdown: Path | None
    began: float = field(default_factory=time.time)
    rows: list[Figures] = field(default_factory=list)
    done: list[str] = field(default_factory=list)  #: tasks
    current: tuple[str, str] | None = None  #: part and name of the row in hand
    lock: Any = field(default_factory=threading.RLock)

    def row(self, part: str, name: str, measure: Callable[[], Figures]) -> Figures:
        """Measure one row; an error becomes what it says."""
        self.current = part, name
        begun = time.perf_counter()
        try:
            found = {"status": "measured", **measure()}
        except Exception as error:  # noqa: BLE001 - the other rows go on, whatever this one raises
            traceback.print_exc()
            found = {"status": f"failed: {type(error).__name__}: {error}"[:_WHY]}
        found["took"] = time.perf_counter() - begun
        try:
            free(self.device)
        except Exception as error:  # noqa: BLE001 - of a device that is lost; the next row says so
            found["note"] = f"afterwards: {error}"[:_WHY]
        return self.add(part, name, found)

    def add(self, part: str, name: str, figures: Figures) -> Figures:
        """Keep a row, print it, and write all of them."""
        row = {"part": part, "row": name, **figures}
        with self.lock:
            self.rows.append(row)
            self.current = None
            print(f"{time.time() - self.began:6.1f} s  {part}: {_line(row)}", flush=True)
            self.write()
        return row

    def left_out(self, part: str, name: str, why: str = "no time") -> None:
        """Keep a row that was not measured."""
        self.add(part, name, {"status": f"left out: {why}"})

    def write(self) -> None:
        """JSON and Markdown of all rows."""
        with self.lock:
            known = {"environment": self.environment, "rows": self.rows, "done": self.done}
            if self.json:
                self.json.write_text(json.dumps(_plain(known), indent=1) + "\n", encoding="utf-8")
            if self.markdown:
                self.markdown.write_text("\n".join(self.lines()) + "\n", encoding="utf-8")

    def resume(self) -> None:
        """Go on from what another process wrote."""
        if self.json is not None and self.json.exists():
            known = json.loads(self.json.read_text(encoding="utf-8"))
            self.rows, self.done = known["rows"], known["done"]

    def lines(self) -> Iterator[str]:
        """The Markdown, line by line."""
        yield "# benchmarks.gpu"
        yield ""
        yield from (f"- {name}: {value}" for name, value in self.environment.items())
        for part in dict.fromkeys(row["part"] for row in self.rows):
            rows = [row for row in self.rows if row["part"] == part]
            used = [key for key in _COLUMNS if any(_has(row, key) for row in rows)]
            yield from ("", f"## {part}", "")
            yield f"| | {' | '.join(_COLUMNS[key][0] for key in used)} |".replace("|  |", "| |")
            yield "|---" * (len(used) + 1) + "|"
            for row in rows:
                yield f"| {row['row']} | {' | '.join(_cells(row, used))} |".replace("\n", " ")


def _has(row: Figures, key: str) -> bool:
    """Whether the row needs this column; why it was not measured stands in the last one."""
    return row.get(key) is not None or (key == "note" and row["status"] != "measured")


def _cells(row: Figures, used: list[str]) -> list[str]:
    cells = [_written(row, key) for key in used]
    if row["status"] != "measured":
        cells[-1] = row["status"].replace("|", "/")
    return cells


def _written(row: Figures, key: str) -> str:
    value = row.get(key)
    return "" if value is None else _COLUMNS[key][1].format(value).replace("|", "/")


def _line(row: Figures) -> str:
    if row["status"] != "measured":
        return f"{row['row']}: {row['status']}"
    found = [
        f"{_written(row, key)}{' ' + head if key != 'note' else ''}"
        for key, (head, _) in _COLUMNS.items()
        if row.get(key) is not None
    ]
    return f"{row['row']}: {', '.join(found)}"


def _plain(value: Any) -> Any:
    """The same without numbers that JSON does not have."""
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value

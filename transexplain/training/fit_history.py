"""The history of a fit, and its curves as pictures, JSON and CSV."""

import csv
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import altair as alt


_POINTS = 200  #: of the training curve, about


@dataclass(slots=True)
class History:
    """Losses by step and measures by epoch; a checkpoint holds all of it."""

    digest: str  #: of all that decides the weights
    steps: int  #: of the whole fit
    epoch_steps: int
    unfrozen: list[tuple[int, str]]  #: first step and name of every stage
    training: list[dict[str, float]] = field(default_factory=list)  #: `step` and mean losses
    validation: list[dict[str, float]] = field(default_factory=list)  #: `epoch`, `step`, measures
    sums: dict[str, float] = field(default_factory=dict)  #: since the last point of `training`
    summed: int = 0  #: steps in `sums`
    best_epoch: int | None = None  #: counted from 1
    best: float | None = None  #: the monitored measure then

    def add(self, step: int, losses: Mapping[str, float]) -> None:
        """`step` steps are done; the last one had these losses."""
        for name, value in losses.items():
            self.sums[name] = self.sums.get(name, 0.0) + value
        self.summed += 1
        every = max(1, self.steps // _POINTS)
        if step % every == 0 or step % self.epoch_steps == 0:
            means = {name: value / self.summed for name, value in self.sums.items()}
            self.training.append({"step": step, **means})
            self.sums, self.summed = {}, 0

    def add_epoch(self, epoch: int, step: int, metrics: Mapping[str, float]) -> None:
        """The measures at the end of `epoch`, counted from 1."""
        self.validation.append({"epoch": epoch, "step": step, **metrics})

    def improved(self, epoch: int, value: float, *, higher_is_better: bool) -> bool:
        """Whether `value` is the best so far, which is then remembered."""
        better = self.best is None or (value > self.best if higher_is_better else value < self.best)
        if better:
            self.best, self.best_epoch = value, epoch
        return better

    def state_dict(self) -> dict[str, Any]:
        """All of it as JSON values."""
        return asdict(self)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from `state`."""
        for name, value in state.items():
            setattr(self, name, value)
        self.unfrozen = [(step, name) for step, name in state["unfrozen"]]


@dataclass(frozen=True, kw_only=True, slots=True)
class FitResult:
    """What a fit found; the objective's module holds the kept weights."""

    history: History
    metrics: dict[str, float]  #: validation of the kept weights; empty: nothing was validated
    epochs: int  #: that were run
    best_epoch: int | None  #: counted from 1
    stopped_early: bool


_WIDTH, _HEIGHT, _SCALE = 640, 220, 2.0
#: Okabe & Ito's colours, which differ for every kind of colour blindness
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")


def write_history(history: History, folder: Path, prefix: str = "") -> tuple[Path, Path]:
    """Write `history.json` and `history.csv` (columns part, step, epoch, measure, value)."""
    values, table = folder / f"{prefix}history.json", folder / f"{prefix}history.csv"
    known = {
        "steps": history.steps,
        "epoch_steps": history.epoch_steps,
        "unfrozen": [{"step": step, "stage": name} for step, name in history.unfrozen],
        "best_epoch": history.best_epoch,
        "best": history.best,
        "training": history.training,
        "validation": history.validation,
    }
    values.write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")
    with table.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("part", "step", "epoch", "measure", "value"))
        writer.writerows(
            (row["part"], int(row["step"]), row["epoch"], row["measure"], row["value"])
            for row in _rows(history)
        )
    return values, table


def draw_curves(
    history: History, folder: Path, measures: Sequence[str] = ("accuracy",), prefix: str = ""
) -> tuple[Path, Path]:
    """Write `curves.svg` and `curves.png`: losses, and measures of the validation by epoch.

    Dashed verticals stand where layers were unfrozen, a dot at the best epoch.
    """
    import vl_convert

    text = _chart(history, measures).to_json()
    svg, png = folder / f"{prefix}curves.svg", folder / f"{prefix}curves.png"
    svg.write_text(vl_convert.vegalite_to_svg(text, allowed_base_urls=[]), encoding="utf-8")
    png.write_bytes(vl_convert.vegalite_to_png(text, scale=_SCALE, allowed_base_urls=[]))
    return svg, png


def _rows(history: History) -> Iterator[dict[str, Any]]:
    for part, rows in (("training", history.training), ("validation", history.validation)):
        for row in rows:
            for name, value in row.items():
                if name not in ("step", "epoch"):
                    yield {
                        "part": part,
                        "step": row["step"],
                        "epoch": row["step"] / history.epoch_steps,
                        "measure": name,
                        "value": value,
                    }


def _chart(history: History, measures: Sequence[str]) -> "alt.VConcatChart":
    import altair as alt

    rows = list(_rows(history))
    in_parts = {row["measure"] for row in rows if row["part"] == "training"} != {"loss"}
    whole = " total" if in_parts else ""
    for row in rows:
        part, measure = row["part"], row["measure"].replace("_", " ")
        row["line"] = f"{part}{whole}" if measure == "loss" else f"{part} {measure}"
    losses = [row for row in rows if row["part"] == "training" or row["measure"] == "loss"]
    panels = [_panel(history, losses, "loss")]
    for measure in measures:
        measured = [
            row for row in rows if row["part"] == "validation" and row["measure"] == measure
        ]
        if measured:
            title = f"validation {measure.replace('_', ' ')}"
            panels.append(_panel(history, measured, title))
    apart: alt.VConcatChart = alt.vconcat(*panels).resolve_scale(color="independent")
    chart: alt.VConcatChart = apart.configure(
        background="white", font="sans-serif", view={"stroke": None}
    )
    return chart


def _panel(history: History, rows: list[dict[str, Any]], title: str) -> "alt.LayerChart":
    import altair as alt

    last = history.steps / history.epoch_steps
    x = alt.X("epoch:Q", title="epoch", scale=alt.Scale(domain=[0, last], nice=False))
    names = list(dict.fromkeys(str(row["line"]) for row in rows))
    colours = [_COLOURS[place % len(_COLOURS)] for place in range(len(names))]
    legend = alt.Legend(title=None, orient="top") if len(names) > 1 else None
    base = alt.Chart({"values": rows}).encode(
        x=x,
        y=alt.Y("value:Q", title=title, scale=alt.Scale(zero=False, padding=6)),
        color=alt.Color("line:N", legend=legend, scale=alt.Scale(domain=names, range=colours)),
    )
    layers = [base.mark_line(strokeWidth=1.8), *_marks(history, base, x)]
    panel: alt.LayerChart = alt.LayerChart(layer=layers).properties(width=_WIDTH, height=_HEIGHT)
    return panel


def _marks(history: History, base: "alt.Chart", x: "alt.X") -> Iterator["alt.Chart"]:
    """Points of the validation, the best one larger, and a rule with its name at each stage."""
    import altair as alt

    points = base.transform_filter("datum.part == 'validation'")
    yield points.mark_point(filled=True, size=30, opacity=1)
    if history.best_epoch is not None:
        best = points.transform_filter(f"datum.epoch == {history.best_epoch}")
        yield best.mark_point(size=140, strokeWidth=1.5)
    starts = [
        {"epoch": step / history.epoch_steps, "stage": name.partition(",")[0]}
        for step, name in history.unfrozen
        if step
    ]
    if starts:
        rules = alt.Chart({"values": starts}).encode(x=x)
        yield rules.mark_rule(strokeDash=[4, 3], color="#888")
        yield rules.mark_text(align="left", baseline="top", dx=4, fontSize=10, color="#555").encode(
            y=alt.value(2), text="stage:N"
        )

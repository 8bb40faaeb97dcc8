"""The training loop, and its checkpoints as single safetensors files."""

import csv
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import altair as alt
import math
import time

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from transexplain.errors import ConfigurationError
from transexplain.extras.training.examples import Examples
from transexplain.extras.training.optimisation import Objective, Stepper, identity_of
from transexplain.extras.training.training_plans import FitObserver, FitPlan, seed_of
from transexplain.files.atomic_write import atomic_file

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
    done: int = 0  #: steps
    waited: int = 0  #: epochs without a better one, since patience counts
    awaited: float | None = None  #: the best score since then; higher is better

    def add(self, step: int, losses: Mapping[str, float]) -> None:
        """`step` steps are done; the last one had these losses."""
        for name, value in losses.items():
            self.sums[name] = self.sums.get(name, 0.0) + value
        self.summed += 1
        self.done = step
        every = max(1, self.steps // _POINTS)
        if step % every == 0 or step % self.epoch_steps == 0:
            means = {name: value / self.summed for name, value in self.sums.items()}
            self.training.append({"step": step, **means})
            self.sums, self.summed = {}, 0

    def improved(self, epoch: int, value: float, *, higher_is_better: bool) -> bool:
        """Return whether `value` is the best so far, which is then remembered."""
        better = self.best is None or (value > self.best if higher_is_better else value < self.best)
        if better:
            self.best, self.best_epoch = value, epoch
        return better

    def wait(self, score: float) -> None:
        """Count an epoch whose score is not better than the best one since patience counts."""
        if self.awaited is not None and score <= self.awaited:
            self.waited += 1
        else:
            self.waited, self.awaited = 0, score

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


_TREE = "tree"  #: the entry of the file's metadata that holds all but the tensors
_TENSOR, _PAIRS = "$tensor", "$pairs"


def write_tree(path: Path, tree: Mapping[str, Any]) -> None:
    """Write nested mappings and lists of tensors and JSON values, atomically.

    The old file stays until the new one is on the disk: a kill at any moment leaves a whole one.
    """
    tensors: dict[str, Tensor] = {}
    text = json.dumps(_flat(tree, "", tensors))
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_file(path) as temporary:
        save_file(tensors, temporary, metadata={_TREE: text})


def read_tree(path: Path, device: str = "cpu") -> dict[str, Any]:
    """Read a file of `write_tree`; ConfigurationError where it is damaged."""
    try:
        with safe_open(path, framework="pt", device=device) as file:
            tree = json.loads((file.metadata() or {})[_TREE])
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        state: dict[str, Any] = _nested(tree, tensors)
    except (SafetensorError, OSError, KeyError, ValueError) as error:
        raise ConfigurationError(
            f"the checkpoint {path} cannot be read ({error}); begin again with --restart"
        ) from error
    return state


def _flat(value: Any, place: str, tensors: dict[str, Tensor]) -> Any:
    if isinstance(value, Tensor):
        # a copy: weights that share memory are one file's entries twice
        tensors[place] = value.detach().cpu().contiguous().clone()
        return {_TENSOR: place}
    if isinstance(value, Mapping):
        pairs = [[key, _flat(entry, f"{place}/{key}", tensors)] for key, entry in value.items()]
        return {_PAIRS: pairs}
    if isinstance(value, list | tuple):
        return [_flat(entry, f"{place}/{row}", tensors) for row, entry in enumerate(value)]
    return value


def _nested(value: Any, tensors: Mapping[str, Tensor]) -> Any:
    if isinstance(value, list):
        return [_nested(entry, tensors) for entry in value]
    if isinstance(value, dict):
        if _TENSOR in value:
            return tensors[value[_TENSOR]]
        return {key: _nested(entry, tensors) for key, entry in value[_PAIRS]}
    return value


CHECKPOINT, FINISHED = "checkpoint.safetensors", "finished.safetensors"


def fit(
    objective: Objective,
    plan: FitPlan,
    folder: Path,
    *,
    examples: Examples,
    observer: FitObserver,
) -> FitResult:
    """Train the objective's module on `examples`, or go on with what `folder` holds.

    To go on, the module has to have its first weights, as a new process makes them.
    Checkpoints lie in `folder` (made if absent) as safetensors. A finished fit gives its result
    again and its weights to the module. The caller's random state is left as it was.

    Raises ConfigurationError where the folder holds another fit or a damaged checkpoint, or the
    loss is no number; KeyboardInterrupt, with a checkpoint written, when the observer says so.
    """
    module = objective.module
    device = next(module.parameters()).device
    trainable = [(parameter, parameter.requires_grad) for parameter in module.parameters()]
    devices = [device] if device.type == "cuda" else []
    try:
        with torch.random.fork_rng(devices=devices):
            return _Fit(objective, plan, folder, examples, observer).run()
    finally:
        module.eval()
        for parameter, before in trainable:
            parameter.grad = None
            parameter.requires_grad_(before)


class _Fit:
    """One fit while it runs."""

    def __init__(
        self,
        objective: Objective,
        plan: FitPlan,
        folder: Path,
        examples: Examples,
        observer: FitObserver,
    ) -> None:
        self.objective, self.plan, self.folder = objective, plan, folder
        self.examples, self.observer = examples, observer
        self.epoch_steps = examples.steps(plan.batch_size)
        self.steps = plan.epochs * self.epoch_steps
        groups = objective.parameter_groups()
        self.digest = identity_of(objective, groups, plan, examples)
        self.stepper = Stepper(objective, groups, plan, self.steps)
        self.history = History(
            digest=self.digest,
            steps=self.steps,
            epoch_steps=self.epoch_steps,
            unfrozen=self.stepper.unfrozen,
        )
        self.saved_at = time.monotonic()

    def run(self) -> FitResult:
        """Begin, go on, or only read the result."""
        finished, checkpoint = self.folder / FINISHED, self.folder / CHECKPOINT
        if finished.is_file():
            self._restore(finished, ("module", "history"))
            return self._result()
        if checkpoint.is_file():
            self._restore(checkpoint, tuple(self._saved()))
        for epoch in range(self.history.done // self.epoch_steps, self.plan.epochs):
            if self._stopped_early():
                break
            self._train(epoch)
            self._validate(epoch + 1)
        return self._finish()

    def _saved(self) -> dict[str, Any]:
        """What a checkpoint holds the state of, by name."""
        return {
            "module": self.objective.module,
            "optimizer": self.stepper.optimizer,
            "scaler": self.stepper.scaler,
            "history": self.history,
        }

    def _restore(self, path: Path, names: tuple[str, ...]) -> None:
        tree = read_tree(path)
        if tree["history"]["digest"] != self.digest:
            raise ConfigurationError(
                f"{self.folder} holds a training with other settings, data or first weights; "
                "give another output, or begin again there with --restart"
            )
        saved = self._saved()
        for name in names:
            if tree[name]:
                saved[name].load_state_dict(tree[name])

    def _train(self, epoch: int) -> None:
        """The steps of `epoch`, counted from 0, that are not done yet."""
        seed, first = self.plan.seed, self.history.done
        order = self.examples.shuffled(self.plan.batch_size, seed=seed, epoch=epoch)
        torch.manual_seed(seed_of(seed, "epoch", epoch))
        for step in range(first, (epoch + 1) * self.epoch_steps):
            torch.manual_seed(seed_of(seed, "step", step))
            batch = self.examples.batch(order[step % self.epoch_steps])
            losses = self.stepper.step(batch, step)
            if not math.isfinite(losses["loss"]):
                raise ConfigurationError(
                    f"the loss of step {step + 1} is {losses['loss']}: the training diverged; "
                    "lower learning_rate or raise warmup, and begin again with --restart"
                )
            self._stepped(step + 1, losses)

    def _stepped(self, done: int, losses: dict[str, float]) -> None:
        self.history.add(done, losses)
        self.observer.stepped(done, self.steps, losses)
        if done % self.epoch_steps == 0:
            return  # the end of the epoch saves, after its validation
        stop, every = self.observer.should_stop(), self.plan.checkpoint_steps
        late = time.monotonic() - self.saved_at > self.plan.checkpoint_seconds
        if stop or (late if every is None else done % every == 0):
            self._save()
        if stop:
            raise KeyboardInterrupt

    def _validate(self, epoch: int) -> None:
        """The end of `epoch`, counted from 1."""
        done = self.history.done
        metrics = self.objective.validate()
        self.history.validation.append({"epoch": epoch, "step": done, **metrics})
        self.observer.validated(epoch, metrics)
        if metrics:
            higher = self.objective.higher_is_better
            value = metrics[self.objective.monitor]
            better = self.history.improved(epoch, value, higher_is_better=higher)
            if better and self.plan.keep == "best":
                state = {"module": self.objective.module.state_dict()}
                write_tree(self.folder / _best(epoch), state)
            # what is still frozen cannot have shown what it does
            if self.plan.patience_from == "start" or done > self.stepper.last_start:
                self.history.wait(value if higher else -value)
        self._save()
        if self.observer.should_stop() and done < self.steps and not self._stopped_early():
            raise KeyboardInterrupt

    def _stopped_early(self) -> bool:
        return self.plan.patience is not None and self.history.waited >= self.plan.patience

    def _save(self) -> None:
        state = {name: part.state_dict() for name, part in self._saved().items()}
        write_tree(self.folder / CHECKPOINT, state)
        self.saved_at = time.monotonic()
        kept = _best(self.history.best_epoch or 0)
        for path in self.folder.glob("best-*.safetensors"):
            if path.name != kept:
                path.unlink(missing_ok=True)

    def _finish(self) -> FitResult:
        best = self.folder / _best(self.history.best_epoch or 0)
        if self.plan.keep == "best" and best.is_file():
            self.objective.module.load_state_dict(read_tree(best)["module"])
        finished = {
            "module": self.objective.module.state_dict(),
            "history": self.history.state_dict(),
        }
        write_tree(self.folder / FINISHED, finished)
        for path in (self.folder / CHECKPOINT, best):
            path.unlink(missing_ok=True)
        return self._result()

    def _result(self) -> FitResult:
        measured = self.history.validation
        best = self.history.best_epoch
        row = measured[(best if best and self.plan.keep == "best" else len(measured)) - 1]
        return FitResult(
            history=self.history,
            metrics={name: row[name] for name in row if name not in ("epoch", "step")},
            epochs=len(measured),
            best_epoch=best,
            stopped_early=self._stopped_early(),
        )


def _best(epoch: int) -> str:
    return f"best-{epoch:05d}.safetensors"

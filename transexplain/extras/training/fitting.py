"""The training loop, its checkpoints as single safetensors files, and its curves."""

import csv
import json
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
import vl_convert
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from transexplain.errors import ConfigurationError
from transexplain.extras.training.examples import Examples
from transexplain.extras.training.optimisation import Objective, Stepper, identity_of
from transexplain.extras.training.training_plans import FitObserver, FitPlan, seed_of
from transexplain.files.atomic_write import atomic_file

_POINTS = 200  #: of the training curve, about


@dataclass(slots=True, kw_only=True)
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
    best_epoch: int | None = None  #: counted from 1; None: nothing was validated
    best: float | None = None  #: the monitored measure then
    done: int = 0  #: steps
    waited: int = 0  #: epochs without a better one, since patience counts
    awaited: float | None = None  #: the best monitored measure since then
    stopped_early: bool = False
    metrics: dict[str, float] = field(default_factory=dict)  #: validation of the kept weights

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

    @property
    def epochs(self) -> int:
        """Epochs that were run."""
        return len(self.validation)


_WIDTH, _HEIGHT, _SCALE = 640, 220, 2.0
#: Okabe & Ito's colours, which differ for every kind of colour blindness
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")


def write_history(history: History, folder: Path, prefix: str = "") -> Path:
    """Write `history.json`, and `history.csv` (columns part, step, epoch, measure, value)."""
    values = folder / f"{prefix}history.json"
    facts = {
        "steps": history.steps,
        "epoch_steps": history.epoch_steps,
        "unfrozen": [{"step": step, "stage": name} for step, name in history.unfrozen],
        "best_epoch": history.best_epoch,
        "best": history.best,
        "training": history.training,
        "validation": history.validation,
    }
    values.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    with values.with_suffix(".csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, ("part", "step", "epoch", "measure", "value"))
        writer.writeheader()
        writer.writerows(_rows(history))
    return values


def draw_curves(
    history: History, folder: Path, measures: Sequence[str], prefix: str = ""
) -> tuple[Path, Path]:
    """Write `curves.svg` and `curves.png`: losses, and measures of the validation by epoch.

    Dashed verticals stand where layers were unfrozen, a dot at the best epoch.
    """
    text = json.dumps(_chart(history, measures))
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


def _chart(history: History, measures: Sequence[str]) -> dict[str, Any]:
    """The curves as Vega-Lite."""
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
            panels.append(_panel(history, measured, f"validation {measure.replace('_', ' ')}"))
    return {
        "$schema": "https://vega.github.io/schema/vega-lite/v6.json",
        "vconcat": panels,
        "resolve": {"scale": {"color": "independent"}},
        "config": {"background": "white", "font": "sans-serif", "view": {"stroke": None}},
    }


def _panel(history: History, rows: list[dict[str, Any]], title: str) -> dict[str, Any]:
    """Lines with points of the validation, the best one larger, and a rule for each stage."""
    last = history.steps / history.epoch_steps
    x: dict[str, Any] = {"field": "epoch", "type": "quantitative", "title": "epoch"}
    x["scale"] = {"domain": [0, last], "nice": False}
    y: dict[str, Any] = {"field": "value", "type": "quantitative", "title": title}
    y["scale"] = {"zero": False, "padding": 6}
    names = list(dict.fromkeys(str(row["line"]) for row in rows))
    colours = [_COLOURS[place % len(_COLOURS)] for place in range(len(names))]
    legend = {"title": None, "orient": "top"} if len(names) > 1 else None
    colour: dict[str, Any] = {"field": "line", "type": "nominal", "legend": legend}
    colour["scale"] = {"domain": names, "range": colours}
    curves = {"data": {"values": rows}, "encoding": {"x": x, "y": y, "color": colour}}
    validated = {"filter": "datum.part == 'validation'"}
    layers: list[dict[str, Any]] = [
        {"mark": {"type": "line", "strokeWidth": 1.8}},
        {
            "mark": {"type": "point", "filled": True, "size": 30, "opacity": 1},
            "transform": [validated],
        },
    ]
    if history.best_epoch is not None:
        best = {"filter": f"datum.epoch == {history.best_epoch}"}
        mark = {"type": "point", "size": 140, "strokeWidth": 1.5}
        layers.append({"mark": mark, "transform": [validated, best]})
    layers = [{**curves, **layer} for layer in layers]
    starts = [
        {"epoch": step / history.epoch_steps, "stage": name.partition(",")[0]}
        for step, name in history.unfrozen
        if step
    ]
    if starts:
        stages = {"data": {"values": starts}}
        text = {"field": "stage", "type": "nominal"}
        words = {"type": "text", "align": "left", "baseline": "top", "dx": 4, "fontSize": 10}
        layers += [
            {
                **stages,
                "mark": {"type": "rule", "strokeDash": [4, 3], "color": "#888"},
                "encoding": {"x": x},
            },
            {
                **stages,
                "mark": {**words, "color": "#555"},
                "encoding": {"x": x, "y": {"value": 2}, "text": text},
            },
        ]
    return {"width": _WIDTH, "height": _HEIGHT, "layer": layers}


CHECKPOINT, FINISHED = "checkpoint.safetensors", "finished.safetensors"
_FACTS = "facts"  #: the entry of the file's metadata that holds all but the tensors
_OPTIMIZER = "optimizer/"  #: what the names of the optimizer's tensors begin with


def fit(
    objective: Objective,
    plan: FitPlan,
    folder: Path,
    *,
    examples: Examples,
    observer: FitObserver,
) -> History:
    """Train the objective's module on `examples`, or go on with what `folder` holds.

    To go on, the module has to have its first weights, as a new process makes them; at the end it
    has the kept ones. Checkpoints lie in `folder` (made if absent) as safetensors. A finished fit
    gives its history again and its weights to the module. The caller's random state is left as it
    was.

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
        self.stepper = Stepper(objective, plan, self.steps)
        self.history = History(
            digest=identity_of(objective, plan, examples),
            steps=self.steps,
            epoch_steps=self.epoch_steps,
            unfrozen=self.stepper.unfrozen,
        )
        self.saved_at = time.monotonic()

    def run(self) -> History:
        """Begin, go on, or only read the result."""
        self.folder.mkdir(parents=True, exist_ok=True)
        if (self.folder / FINISHED).is_file():
            self._restore(FINISHED)
            return self.history
        if (self.folder / CHECKPOINT).is_file():
            self._restore(CHECKPOINT)
        for epoch in range(self.history.done // self.epoch_steps, self.plan.epochs):
            if self._stopped_early():
                break
            self._train(epoch)
            self._validate(epoch + 1)
        self._finish()
        return self.history

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
        history, metrics = self.history, self.objective.validate()
        history.validation.append({"epoch": epoch, "step": history.done, **metrics})
        self.observer.validated(epoch, metrics)
        if metrics:
            value = metrics[self.objective.monitor]
            if self._better(value, history.best):
                history.best, history.best_epoch = value, epoch
                if self.plan.keep == "best":
                    self._write(_best(epoch))
            # what is still frozen cannot have shown what it does
            if self.plan.patience_from == "start" or history.done > self.stepper.last_start:
                if self._better(value, history.awaited):
                    history.waited, history.awaited = 0, value
                else:
                    history.waited += 1
        self._save()
        if self.observer.should_stop() and history.done < self.steps and not self._stopped_early():
            raise KeyboardInterrupt

    def _better(self, value: float, best: float | None) -> bool:
        if best is None:
            return True
        return value > best if self.objective.higher_is_better else value < best

    def _stopped_early(self) -> bool:
        return self.plan.patience is not None and self.history.waited >= self.plan.patience

    def _save(self) -> None:
        """Write the checkpoint, and remove the weights of epochs that are not the best any more."""
        slots = self.stepper.optimizer.state_dict()["state"]
        more = {
            f"{_OPTIMIZER}{row}/{name}": tensor
            for row, of_row in slots.items()
            for name, tensor in of_row.items()
        }
        self._write(CHECKPOINT, more)
        self.saved_at = time.monotonic()
        kept = _best(self.history.best_epoch or 0)
        for path in self.folder.glob("best-*.safetensors"):
            if path.name != kept:
                path.unlink(missing_ok=True)

    def _finish(self) -> None:
        history, best = self.history, self.folder / _best(self.history.best_epoch or 0)
        epoch = history.epochs
        if self.plan.keep == "best" and history.best_epoch is not None:
            self.objective.module.load_state_dict(_read(best)[0])
            epoch = history.best_epoch
        row = history.validation[epoch - 1]
        history.metrics = {name: row[name] for name in row if name not in ("epoch", "step")}
        history.stopped_early = self._stopped_early()
        self._write(FINISHED)
        for path in (self.folder / CHECKPOINT, best):
            path.unlink(missing_ok=True)

    def _write(self, name: str, more: Mapping[str, Tensor] | None = None) -> None:
        """Write the module and the history; a kill at any moment leaves a whole file."""
        tensors = {**self.objective.module.state_dict(), **(more or {})}
        # a copy: weights that share memory are one file's entries twice
        copies = {
            key: values.detach().cpu().contiguous().clone() for key, values in tensors.items()
        }
        facts = {"history": asdict(self.history), "scaler": self.stepper.scaler.state_dict()}
        with atomic_file(self.folder / name) as temporary:
            save_file(copies, temporary, metadata={_FACTS: json.dumps(facts)})

    def _restore(self, name: str) -> None:
        """Go on from a file of `_write`."""
        tensors, facts = _read(self.folder / name)
        if facts["history"]["digest"] != self.history.digest:
            raise ConfigurationError(
                f"{self.folder} holds a training with other settings, data or first weights; "
                "give another output, or begin again there with --restart"
            )
        self.history = History(**facts["history"])
        slots: dict[int, dict[str, Tensor]] = {}
        for key in [key for key in tensors if key.startswith(_OPTIMIZER)]:
            _, row, slot = key.split("/")
            slots.setdefault(int(row), {})[slot] = tensors.pop(key)
        self.objective.module.load_state_dict(tensors)
        optimizer, scaler = self.stepper.optimizer, self.stepper.scaler
        optimizer.load_state_dict({**optimizer.state_dict(), "state": slots})
        if facts["scaler"]:
            scaler.load_state_dict(facts["scaler"])


def _read(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors and the facts of a checkpoint; ConfigurationError where it is damaged."""
    try:
        with safe_open(path, framework="pt") as file:
            facts = json.loads((file.metadata() or {})[_FACTS])
            return {name: file.get_tensor(name) for name in file.keys()}, facts  # noqa: SIM118
    except (SafetensorError, OSError, KeyError, ValueError) as error:
        raise ConfigurationError(
            f"the checkpoint {path} cannot be read ({error}); begin again with --restart"
        ) from error


def _best(epoch: int) -> str:
    return f"best-{epoch:05d}.safetensors"

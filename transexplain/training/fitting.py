"""The training loop, and its checkpoints as single safetensors files."""

import json
import logging
import math
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from ignite.engine import Engine, Events
from ignite.handlers import Checkpoint, EarlyStopping
from ignite.handlers.checkpoint import BaseSaveHandler
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from transexplain.atomic_write import atomic_file
from transexplain.errors import ConfigurationError
from transexplain.training.examples import Examples
from transexplain.training.fit_history import FitResult, History
from transexplain.training.objective import Objective
from transexplain.training.optimisation import Stepper, identity_of
from transexplain.training.training_plans import FitObserver, FitPlan, seed_of

_TREE = "tree"  #: the entry of the file's metadata that holds all but the tensors
_TENSOR, _PAIRS = "$tensor", "$pairs"


class SafetensorsSaver(BaseSaveHandler):
    """Saves what ignite's Checkpoint hands it into a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(
        self,
        checkpoint: Mapping[str, Any],
        filename: str,
        metadata: Mapping[str, Any] | None = None,
    ) -> None:
        """Replace `filename` by `checkpoint` in one step."""
        del metadata
        write_tree(self.folder / filename, checkpoint)

    def remove(self, filename: str) -> None:
        """Remove a checkpoint that a newer one has replaced."""
        (self.folder / filename).unlink(missing_ok=True)


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
    """What `write_tree` wrote; ConfigurationError where the file is damaged."""
    try:
        with safe_open(path, framework="pt", device=device) as file:
            tree = json.loads((file.metadata() or {})[_TREE])
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        found: dict[str, Any] = _nested(tree, tensors)
    except (SafetensorError, OSError, KeyError, ValueError) as error:
        raise ConfigurationError(
            f"the checkpoint {path} cannot be read ({error}); begin again with --restart"
        ) from error
    return found


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
_LOGGER = logging.getLogger("transexplain.training")
_LOGGER.disabled = True  # ignite writes each exception that it passes on


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
    trainable = [(one, one.requires_grad) for one in module.parameters()]
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
        self.engine = Engine(self._step)
        self.engine.logger = _LOGGER
        self.stopping = EarlyStopping(
            patience=plan.patience or self.steps + 1,
            score_function=lambda _: self._score(),
            trainer=self.engine,
        )
        self.checkpoint = Checkpoint(
            self._saved(), SafetensorsSaver(folder), filename_pattern=CHECKPOINT, n_saved=1
        )
        self.saved_at = time.monotonic()
        self.order: list[tuple[int, ...]] = []
        self.losses: dict[str, float] = {}  #: of the last step

    def run(self) -> FitResult:
        """Begin, go on, or only read the result."""
        finished = self.folder / FINISHED
        if finished.is_file():
            self._restore(finished, ("module", "history", "stopping"))
            return self._result()
        if (self.folder / CHECKPOINT).is_file():
            self._restore(self.folder / CHECKPOINT, tuple(self._saved()))
        self.engine.add_event_handler(Events.EPOCH_STARTED, self._epoch_started)
        self.engine.add_event_handler(Events.ITERATION_COMPLETED, self._stepped)
        self.engine.add_event_handler(Events.EPOCH_COMPLETED, self._epoch_completed)
        if self.engine.state.iteration < self.steps and not self._stopped_early():
            self.engine.run(None, max_epochs=self.plan.epochs, epoch_length=self.epoch_steps)
        return self._finish()

    def _saved(self) -> dict[str, object]:
        """What a checkpoint holds, by name."""
        return {
            "module": self.objective.module,
            "optimizer": self.stepper.optimizer,
            "scaler": self.stepper.scaler,
            "history": self.history,
            "stopping": self.stopping,
            "engine": self.engine,
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
                saved[name].load_state_dict(tree[name])  # type: ignore[attr-defined]

    def _epoch_started(self, engine: Engine) -> None:
        epoch = engine.state.epoch - 1
        self.order = self.examples.shuffled(self.plan.batch_size, seed=self.plan.seed, epoch=epoch)
        torch.manual_seed(seed_of(self.plan.seed, "epoch", epoch))
        self.objective.epoch_started(epoch)

    def _step(self, engine: Engine, _: object) -> None:
        step = engine.state.iteration - 1
        torch.manual_seed(seed_of(self.plan.seed, "step", step))
        batch = self.examples.batch(self.order[step % self.epoch_steps])
        self.losses = losses = self.stepper.step(batch, step)
        if not math.isfinite(losses["loss"]):
            raise ConfigurationError(
                f"the loss of step {step + 1} is {losses['loss']}: the training diverged; lower "
                "learning_rate or raise warmup, and begin again with --restart"
            )

    def _stepped(self, engine: Engine) -> None:
        done, losses = engine.state.iteration, self.losses
        self.history.add(done, losses)
        self.observer.stepped(done, self.steps, losses)
        if done % self.epoch_steps == 0 or not self.plan.within_epoch:
            return  # the end of the epoch saves, after its validation
        stop = self.observer.should_stop()
        if stop or self._due(done):
            self._save()
        if stop:
            raise KeyboardInterrupt

    def _epoch_completed(self, engine: Engine) -> None:
        epoch, done = engine.state.epoch, engine.state.iteration
        metrics = self.objective.validate()
        self.history.add_epoch(epoch, done, metrics)
        self.observer.validated(epoch, metrics)
        if metrics:
            self._compare(epoch, done, metrics)
        self._save()
        if self.observer.should_stop() and done < self.steps and not self._stopped_early():
            raise KeyboardInterrupt

    def _compare(self, epoch: int, done: int, metrics: dict[str, float]) -> None:
        higher = self.objective.higher_is_better
        better = self.history.improved(
            epoch, metrics[self.objective.monitor], higher_is_better=higher
        )
        if better and self.plan.keep == "best":
            state = {"module": self.objective.module.state_dict()}
            write_tree(self.folder / _best(epoch), state)
        # what is still frozen cannot have shown what it does
        counted = self.plan.patience_from == "start" or done > self.stepper.last_start
        if self.plan.patience is not None and counted:
            self.stopping(self.engine)

    def _score(self) -> float:
        value = self.history.validation[-1][self.objective.monitor]
        return value if self.objective.higher_is_better else -value

    def _stopped_early(self) -> bool:
        return self.plan.patience is not None and self.stopping.counter >= self.plan.patience

    def _due(self, done: int) -> bool:
        if self.plan.checkpoint_steps is not None:
            return done % self.plan.checkpoint_steps == 0
        return time.monotonic() - self.saved_at > self.plan.checkpoint_seconds

    def _save(self) -> None:
        self.checkpoint(self.engine)
        self.saved_at = time.monotonic()
        kept = _best(self.history.best_epoch or 0)
        for path in self.folder.glob(_best(None)):
            if path.name != kept:
                path.unlink(missing_ok=True)

    def _finish(self) -> FitResult:
        best = self.folder / _best(self.history.best_epoch or 0)
        if self.plan.keep == "best" and best.is_file():
            self.objective.module.load_state_dict(read_tree(best)["module"])
        finished = {
            "module": self.objective.module.state_dict(),
            "history": self.history.state_dict(),
            "stopping": self.stopping.state_dict(),
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


def _best(epoch: int | None) -> str:
    return f"best-{'*' if epoch is None else f'{epoch:05d}'}.safetensors"

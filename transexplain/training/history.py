"""What a fit has measured so far: the state behind curves, best weights and early stopping."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

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

"""What is declared about a method without running it: unit, cost, what it reads, source."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from transexplain.plans import Modality
from transexplain.types import Unit

#: `no`: the target changes nothing; `weakly`: formally, but hardly in practice
ReadsTarget = Literal["yes", "weakly", "no"]
Parameters = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class Cost:
    """Passes through the whole model for one item."""

    forwards: float = 1  #: whatever the number of targets
    backwards: float = 0
    target_forwards: float = 0  #: for each target
    target_backwards: float = 1

    def of(self, targets: int) -> tuple[float, float]:
        """Forwards and backwards for one item with `targets` targets."""
        return (
            self.forwards + targets * self.target_forwards,
            self.backwards + targets * self.target_backwards,
        )


def one_backward(params: Parameters, positions: int) -> Cost:
    """One forward, and one backward for each target."""
    del params, positions
    return Cost()


def no_backward(params: Parameters, positions: int) -> Cost:
    """One forward, whatever the targets."""
    del params, positions
    return Cost(target_backwards=0)


def relevance_and_gradient(params: Parameters, positions: int) -> Cost:
    """A forward in relevance form and a plain one, and a backward of each for each target."""
    del positions
    return Cost(forwards=2, target_backwards=1 + bool(params["gradient"]))


@dataclass(frozen=True, kw_only=True, slots=True)
class MethodFacts:
    """One line of the table of methods."""

    place: str  #: `module:function`, imported on first use
    source: str  #: the paper, with section or equation
    unit: Unit = "logits"
    reads_target: ReadsTarget = "yes"
    needs_rules: bool = False  #: an operator without a rule in the engine is refused
    modalities: tuple[Modality, ...] = ("text", "image", "nodes")
    files: tuple[str, ...] = ()  #: parameters that name a file or folder
    #: an optional package that the method needs, and the extra of this project that installs it
    needs: tuple[str, str] | None = None
    #: all parameters (defaults filled in) and T -> what it costs
    cost: Callable[[Parameters, int], Cost] = one_backward

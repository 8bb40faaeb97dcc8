"""What is declared about a method without running it: unit, cost, what it reads, source."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from transexplain.errors import ConfigurationError
from transexplain.methods.learned_facts import read_facts
from transexplain.types.items import Unit
from transexplain.types.plans import Modality

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


def saliency(params: Parameters, positions: int) -> Cost:
    """A forward for the logits; a forward and a backward for each target."""
    del params, positions
    return Cost(target_forwards=1)


def smoothgrad(params: Parameters, positions: int) -> Cost:
    """A forward for the logits; for a target a pass for every noisy copy."""
    del positions
    return _passes(params["samples"], forwards=1)


def integrated_gradients(params: Parameters, positions: int) -> Cost:
    """Forwards for the logits of item and baseline; for a target a pass for every step."""
    del positions
    return _passes(params["steps"], forwards=2 + _reading(params))


def gradient_shap(params: Parameters, positions: int) -> Cost:
    """A forward for the logits; for a target a pass for every sample."""
    del positions
    return _passes(params["samples"], forwards=1 + _reading(params))


def deeplift_shap(params: Parameters, positions: int) -> Cost:
    """Forwards for the logits of item and references; for a target both run once more."""
    del positions
    references = params["references"]
    return Cost(
        forwards=1 + references + _reading(params),
        target_forwards=2 * references,
        target_backwards=references,
    )


def _passes(number: int, *, forwards: int) -> Cost:
    return Cost(forwards=forwards, target_forwards=number, target_backwards=number)


def _reading(params: Parameters) -> int:
    """The forward that reads the input layer of a baseline made of other inputs."""
    return int(params["baseline"] != "zero")


def occlusion(params: Parameters, positions: int) -> Cost:
    """Everything present, and one pass for each window; with strides, more than a picture has."""
    steps = -(-max(0, positions - params["window"]) // params["stride"])
    return Cost(forwards=2 + steps, target_backwards=0)


def lime(params: Parameters, positions: int) -> Cost:
    """Everything present, and one pass for each neighbour."""
    del positions
    return Cost(forwards=1 + params["samples"], target_backwards=0)


def shapley_sampling(params: Parameters, positions: int) -> Cost:
    """Everything, nothing, and what lies between them in each order."""
    return Cost(forwards=2 + params["samples"] * max(0, positions - 1), target_backwards=0)


def kernel_shap(params: Parameters, positions: int) -> Cost:
    """Everything, nothing, and each coalition, of which there may be fewer than samples."""
    samples = params["samples"] or default_samples(positions)
    most = max(0.0, 2.0 ** min(positions, 64) - 2)
    return Cost(forwards=2 + min(samples, most), target_backwards=0)


def default_samples(features: int) -> int:
    """Coalitions of kernel SHAP: as many as `shapley-sampling` asks for, but at least 512."""
    return max(512, 25 * features)


def learned(params: Parameters, positions: int) -> Cost:
    """One forward and the explainer's own operations, whatever the targets."""
    del positions
    return Cost(forwards=read_facts(explainer_of(params)).forwards, target_backwards=0)


def explainer_of(params: Parameters) -> str:
    """The path of the explainer; raises ConfigurationError where none was given."""
    path = params.get("explainer")
    if path is None:
        raise ConfigurationError(
            "method 'learned' needs explainer=FILE, the explainer.safetensors that "
            "`transexplain train` writes for a model"
        )
    return str(path)

"""The table of methods: their function, parameters, unit and cost, known without importing them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from transexplain.errors import ConfigurationError
from transexplain.registry import load
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
    return Cost()


def no_backward(params: Parameters, positions: int) -> Cost:
    """One forward, whatever the targets."""
    return Cost(target_backwards=0)


def relevance_and_gradient(params: Parameters, positions: int) -> Cost:
    """A forward in relevance form and a plain one, and a backward of each for each target."""
    return Cost(forwards=2, target_backwards=1 + bool(params["gradient"]))


@dataclass(frozen=True, kw_only=True, slots=True)
class MethodFacts:
    """One row of the table of methods."""

    place: str  #: `module:function`, imported on first use
    source: str  #: the paper, with section or equation
    unit: Unit = "logits"
    reads_target: ReadsTarget = "yes"
    needs_rules: bool = False  #: an operator without a rule in the engine is refused
    at_positions: bool = False  #: explains logits at positions, too
    modalities: tuple[Modality, ...] = ("text", "image", "nodes")
    files: tuple[str, ...] = ()  #: parameters that name a file or folder
    #: learned from another method: what reads the facts of the file in parameter `explainer`
    facts: str | None = None
    #: an optional package that the method needs, and the extra of this project that installs it
    needs: tuple[str, str] | None = None
    #: all parameters (defaults filled in) and T -> what it costs
    cost: Callable[[Parameters, int], Cost] = one_backward


def saliency(params: Parameters, positions: int) -> Cost:
    """A forward for the logits; a forward and a backward for each target."""
    return Cost(target_forwards=1)


def smoothgrad(params: Parameters, positions: int) -> Cost:
    """A forward for the logits; for a target a pass for every noisy copy."""
    return _passes(params["samples"], forwards=1)


def integrated_gradients(params: Parameters, positions: int) -> Cost:
    """Forwards for the logits of item and baseline; for a target a pass for every step."""
    return _passes(params["steps"], forwards=2 + _reading(params))


def gradient_shap(params: Parameters, positions: int) -> Cost:
    """A forward for the logits; for a target a pass for every sample."""
    return _passes(params["samples"], forwards=1 + _reading(params))


def deeplift_shap(params: Parameters, positions: int) -> Cost:
    """Forwards for the logits of item and references; for a target both run once more."""
    references = params["references"]
    return Cost(
        forwards=1 + references + _reading(params),
        target_forwards=2 * references,
        target_backwards=references,
    )


def _passes(number: int, *, forwards: int) -> Cost:
    return Cost(forwards=forwards, target_forwards=number, target_backwards=number)


def _reading(params: Parameters) -> int:
    """The forward pass that reads the input layer of a baseline made of other inputs."""
    return int(params["baseline"] != "zero")


def occlusion(params: Parameters, positions: int) -> Cost:
    """Everything present, and one pass for each window; with strides, more than a picture has."""
    steps = -(-max(0, positions - params["window"]) // params["stride"])
    return Cost(forwards=2 + steps, target_backwards=0)


def lime(params: Parameters, positions: int) -> Cost:
    """Everything present, and one pass for each neighbour."""
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


_LEARNED_FACTS = "transexplain.extras.learned.learned_facts:read_facts"


def learned(params: Parameters, positions: int) -> Cost:
    """One forward and the explainer's own operations, whatever the targets."""
    return Cost(forwards=load(_LEARNED_FACTS)(explainer_of(params)).forwards, target_backwards=0)


def explainer_of(params: Parameters) -> str:
    """The path of the explainer; raises ConfigurationError where none was given."""
    path = params.get("explainer")
    if path is None:
        raise ConfigurationError(
            "method 'learned' needs explainer=FILE, the explainer.safetensors that "
            "`transexplain train` writes for a model"
        )
    return str(path)


def _row(module: str, function: str, source: str, **facts: Any) -> MethodFacts:
    """The row of a method that is a function of a module."""
    return MethodFacts(place=f"{module}:{function}", source=source, **facts)


_relevance = partial(_row, "transexplain.methods.relevance", needs_rules=True, at_positions=True)
_gradient = partial(_row, "transexplain.methods.input_gradients", at_positions=True)
_attention = partial(_row, "transexplain.methods.global_maps", unit="score")
#: a position that can be absent has to be a token or a patch
_perturbation = partial(
    _row, "transexplain.methods.perturbation", modalities=("text", "image"), at_positions=True
)
_LRP = "explain"
_BACH = "Bach et al. 2015"
_ALI = "Ali et al. 2022, section 4"

RELEVANCE = {
    "lrp": _relevance(_LRP, f"{_ALI}, with the identity rule for activations"),
    "lrp-ah": _relevance(_LRP, f"{_ALI}, AH rule"),
    "lrp-ln": _relevance(_LRP, f"{_ALI}, LN rule"),
    "lrp-ah-ln": _relevance(_LRP, _ALI),
    "attnlrp": _relevance(_LRP, "Achtibat et al. 2024"),
    "lrp-epsilon": _relevance(_LRP, f"{_BACH}, Eq. 58"),
    "lrp-gamma": _relevance(_LRP, "Montavon et al. 2019, section 10.2"),
    "lrp-alpha-beta": _relevance(_LRP, f"{_BACH}, Eq. 60"),
    "chefer-lrp": _relevance(
        "explain_chefer",
        "Chefer et al. 2021a, Eq. 3-10",
        unit="unit_relevance",
        reads_target="weakly",
    ),
    "full-lrp": _relevance(
        "explain_full",
        "the baseline LRP of Chefer et al. 2021a, section 4",
        unit="unit_relevance",
        reads_target="weakly",
    ),
}

GRADIENT = {
    "gradient-x-input": _relevance("explain_gradient", "Shrikumar et al. 2017, section 2.2"),
    "saliency": _gradient(
        "explain_saliency", "Simonyan et al. 2014, section 3", unit="score", cost=saliency
    ),
    "smoothgrad": _gradient(
        "explain_smoothgrad", "Smilkov et al. 2017, section 3, times the input", cost=smoothgrad
    ),
    "integrated-gradients": _gradient(
        "explain_integrated_gradients",
        "Sundararajan et al. 2017, section 3",
        cost=integrated_gradients,
    ),
    "gradient-shap": _gradient(
        "explain_gradient_shap", "Lundberg and Lee 2017; Erion et al. 2021", cost=gradient_shap
    ),
    "deeplift-shap": _gradient(
        "explain_deeplift_shap",
        "Shrikumar et al. 2017, section 3.5.2; Lundberg and Lee 2017, section 4.2",
        needs_rules=True,
        cost=deeplift_shap,
    ),
}

_CHEFER = "Chefer et al. 2021a"

ATTENTION = {
    "attention-last": _attention(
        "explain_last",
        f"a baseline of {_CHEFER} and of Ali et al. 2022 (A-Last)",
        reads_target="no",
        cost=no_backward,
    ),
    "rollout": _attention(
        "explain_rollout", "Abnar & Zuidema 2020, Eq. 1", reads_target="no", cost=no_backward
    ),
    "attention-flow": _attention(
        "explain_flow",
        "Abnar & Zuidema 2020, section 3",
        reads_target="no",
        needs=("igraph", "flow"),
        cost=no_backward,
    ),
    "attention-gradcam": _attention(
        "explain_gradcam", f"a baseline of {_CHEFER}; Selvaraju et al. 2017, Eq. 1-2"
    ),
    "gae": _attention("explain_gae", "Chefer et al. 2021b, Eq. 5-6"),
    "transformer-attribution": _attention(
        "explain_transformer_attribution",
        f"{_CHEFER}, Eq. 13-14",
        needs_rules=True,
        cost=relevance_and_gradient,
    ),
    "partial-lrp": _attention(
        "explain_partial_lrp",
        "Voita et al. 2019, section 5.1",
        unit="unit_relevance",
        reads_target="weakly",
        needs_rules=True,
        cost=relevance_and_gradient,
    ),
}

PERTURBATION = {
    "occlusion": _perturbation(
        "explain_occlusion", "Zeiler & Fergus 2014, section 4.2", cost=occlusion
    ),
    "lime": _perturbation("explain_lime", "Ribeiro et al. 2016, Eq. 2", cost=lime),
    "shapley-sampling": _perturbation(
        "explain_shapley_sampling",
        "Castro et al. 2009; Strumbelj & Kononenko 2010",
        cost=shapley_sampling,
    ),
    "kernel-shap": _perturbation(
        "explain_kernel_shap", "Lundberg & Lee 2017, Theorem 2", cost=kernel_shap
    ),
}

LAYER = {
    "layer-gradcam": _row(
        "transexplain.methods.layer_gradcam",
        "explain",
        "Selvaraju et al. 2017, Eq. 1 and 2, over the hidden units of a layer",
        unit="score",
    ),
    "decoded-gradcam": _row(
        "transexplain.methods.layer_gradcam",
        "explain_decoded",
        "Hou and Castanon 2023, Algorithm 1",
        unit="score",
        modalities=("text",),
        files=("head",),
    ),
}

LEARNED = {
    "learned": MethodFacts(
        place="transexplain.extras.learned.learned_explainer:explain",
        source="TransExplain, section 4; the form of the explainer is ours",
        modalities=("text", "image"),
        files=("explainer",),
        facts=_LEARNED_FACTS,
        cost=learned,
    ),
}

FLOOR = {
    "random": _row(
        "transexplain.methods.random",
        "explain",
        "the floor: relevance that knows nothing",
        unit="score",
        reads_target="no",
        at_positions=True,
        cost=no_backward,
    ),
}

TABLE: dict[str, MethodFacts] = {
    **RELEVANCE,
    **GRADIENT,
    **ATTENTION,
    **PERTURBATION,
    **LAYER,
    **LEARNED,
    **FLOOR,
}

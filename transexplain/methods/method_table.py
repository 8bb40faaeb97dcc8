"""The table of methods: their function, parameters, unit and cost, known without importing them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
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


_LRP = "transexplain.methods.relevance:explain"
_BACH = "Bach et al. 2015"
_ALI = "Ali et al. 2022, section 4"

_RELEVANCE = {
    "lrp": MethodFacts(place=_LRP, source=f"{_ALI}, with the identity rule for activations"),
    "lrp-ah": MethodFacts(place=_LRP, source=f"{_ALI}, AH rule"),
    "lrp-ln": MethodFacts(place=_LRP, source=f"{_ALI}, LN rule"),
    "lrp-ah-ln": MethodFacts(place=_LRP, source=_ALI),
    "attnlrp": MethodFacts(place=_LRP, source="Achtibat et al. 2024"),
    "lrp-epsilon": MethodFacts(place=_LRP, source=f"{_BACH}, Eq. 58"),
    "lrp-gamma": MethodFacts(place=_LRP, source="Montavon et al. 2019, section 10.2"),
    "lrp-alpha-beta": MethodFacts(place=_LRP, source=f"{_BACH}, Eq. 60"),
    "chefer-lrp": MethodFacts(
        place="transexplain.methods.relevance:explain_chefer",
        source="Chefer et al. 2021a, Eq. 3-10",
        unit="unit_relevance",
        reads_target="weakly",
    ),
    "full-lrp": MethodFacts(
        place="transexplain.methods.relevance:explain_full",
        source="the baseline LRP of Chefer et al. 2021a, section 4",
        unit="unit_relevance",
        reads_target="weakly",
    ),
}

RELEVANCE = {
    name: replace(facts, needs_rules=True, at_positions=True) for name, facts in _RELEVANCE.items()
}

_GRADIENT = {
    "gradient-x-input": MethodFacts(
        place="transexplain.methods.relevance:explain_gradient",
        source="Shrikumar et al. 2017, section 2.2",
        needs_rules=True,
    ),
    "saliency": MethodFacts(
        place="transexplain.methods.input_gradients:explain_saliency",
        source="Simonyan et al. 2014, section 3",
        unit="score",
        cost=saliency,
    ),
    "smoothgrad": MethodFacts(
        place="transexplain.methods.input_gradients:explain_smoothgrad",
        source="Smilkov et al. 2017, section 3, times the input",
        cost=smoothgrad,
    ),
    "integrated-gradients": MethodFacts(
        place="transexplain.methods.input_gradients:explain_integrated_gradients",
        source="Sundararajan et al. 2017, section 3",
        cost=integrated_gradients,
    ),
    "gradient-shap": MethodFacts(
        place="transexplain.methods.input_gradients:explain_gradient_shap",
        source="Lundberg and Lee 2017; Erion et al. 2021",
        cost=gradient_shap,
    ),
    "deeplift-shap": MethodFacts(
        place="transexplain.methods.input_gradients:explain_deeplift_shap",
        source="Shrikumar et al. 2017, section 3.5.2; Lundberg and Lee 2017, section 4.2",
        needs_rules=True,
        cost=deeplift_shap,
    ),
}

GRADIENT = {name: replace(facts, at_positions=True) for name, facts in _GRADIENT.items()}

_CHEFER = "Chefer et al. 2021a"

_ATTENTION = {
    "attention-last": MethodFacts(
        place="transexplain.methods.global_maps:explain_last",
        source=f"a baseline of {_CHEFER} and of Ali et al. 2022 (A-Last)",
        reads_target="no",
        cost=no_backward,
    ),
    "rollout": MethodFacts(
        place="transexplain.methods.global_maps:explain_rollout",
        source="Abnar & Zuidema 2020, Eq. 1",
        reads_target="no",
        cost=no_backward,
    ),
    "attention-flow": MethodFacts(
        place="transexplain.methods.global_maps:explain_flow",
        source="Abnar & Zuidema 2020, section 3",
        reads_target="no",
        needs=("igraph", "flow"),
        cost=no_backward,
    ),
    "attention-gradcam": MethodFacts(
        place="transexplain.methods.global_maps:explain_gradcam",
        source=f"a baseline of {_CHEFER}; Selvaraju et al. 2017, Eq. 1-2",
    ),
    "gae": MethodFacts(
        place="transexplain.methods.global_maps:explain_gae",
        source="Chefer et al. 2021b, Eq. 5-6",
    ),
    "transformer-attribution": MethodFacts(
        place="transexplain.methods.global_maps:explain_transformer_attribution",
        source=f"{_CHEFER}, Eq. 13-14",
        needs_rules=True,
        cost=relevance_and_gradient,
    ),
    "partial-lrp": MethodFacts(
        place="transexplain.methods.global_maps:explain_partial_lrp",
        source="Voita et al. 2019, section 5.1",
        unit="unit_relevance",
        reads_target="weakly",
        needs_rules=True,
        cost=relevance_and_gradient,
    ),
}

ATTENTION = {
    name: replace(facts, unit="score" if facts.unit == "logits" else facts.unit)
    for name, facts in _ATTENTION.items()
}

_PERTURBATION = {
    "occlusion": MethodFacts(
        place="transexplain.methods.perturbation:explain_occlusion",
        source="Zeiler & Fergus 2014, section 4.2",
        cost=occlusion,
    ),
    "lime": MethodFacts(
        place="transexplain.methods.perturbation:explain_lime",
        source="Ribeiro et al. 2016, Eq. 2",
        cost=lime,
    ),
    "shapley-sampling": MethodFacts(
        place="transexplain.methods.perturbation:explain_shapley_sampling",
        source="Castro et al. 2009; Strumbelj & Kononenko 2010",
        cost=shapley_sampling,
    ),
    "kernel-shap": MethodFacts(
        place="transexplain.methods.perturbation:explain_kernel_shap",
        source="Lundberg & Lee 2017, Theorem 2",
        cost=kernel_shap,
    ),
}

#: a position that can be absent has to be a token or a patch
PERTURBATION = {
    name: replace(facts, modalities=("text", "image"), at_positions=True)
    for name, facts in _PERTURBATION.items()
}

LAYER = {
    "layer-gradcam": MethodFacts(
        place="transexplain.methods.layer_gradcam:explain",
        source="Selvaraju et al. 2017, Eq. 1 and 2, over the hidden units of a layer",
        unit="score",
    ),
    "decoded-gradcam": MethodFacts(
        place="transexplain.methods.layer_gradcam:explain_decoded",
        source="Hou and Castanon 2023, Algorithm 1",
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
    "random": MethodFacts(
        place="transexplain.methods.random:explain",
        source="the floor: relevance that knows nothing",
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

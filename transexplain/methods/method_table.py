"""The methods that exist: name -> facts. A new method is one file and one entry here."""

from dataclasses import replace

from transexplain.methods import method_facts
from transexplain.methods.method_facts import MethodFacts, no_backward, relevance_and_gradient

_LRP = "transexplain.methods.relevance:explain"
_BACH = "Bach et al. 2015"
_ALI = "Ali et al. 2022, section 4"

_RELEVANCE = {
    "lrp": MethodFacts(place=_LRP, source=f"{_ALI}, with the identity rule for activations"),
    "lrp-ah": MethodFacts(place=_LRP, source=f"{_ALI}, Eq. 8"),
    "lrp-ln": MethodFacts(place=_LRP, source=f"{_ALI}, Eq. 9"),
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
        place="transexplain.methods.full_lrp:explain",
        source="the baseline LRP of Chefer et al. 2021a, section 4",
        unit="unit_relevance",
        reads_target="weakly",
    ),
}

RELEVANCE = {name: replace(facts, needs_rules=True) for name, facts in _RELEVANCE.items()}

GRADIENT = {
    "gradient-x-input": MethodFacts(
        place="transexplain.methods.relevance:explain_gradient",
        source="Shrikumar et al. 2017, section 2.2",
        needs_rules=True,
    ),
    "saliency": MethodFacts(
        place="transexplain.methods.saliency:explain",
        source="Simonyan et al. 2014, section 3",
        unit="score",
        cost=method_facts.saliency,
    ),
    "smoothgrad": MethodFacts(
        place="transexplain.methods.smoothgrad:explain",
        source="Smilkov et al. 2017, section 3, times the input",
        cost=method_facts.smoothgrad,
    ),
    "integrated-gradients": MethodFacts(
        place="transexplain.methods.integrated_gradients:explain",
        source="Sundararajan et al. 2017, section 3",
        cost=method_facts.integrated_gradients,
    ),
    "gradient-shap": MethodFacts(
        place="transexplain.methods.gradient_shap:explain",
        source="Lundberg and Lee 2017; Erion et al. 2021",
        cost=method_facts.gradient_shap,
    ),
    "deeplift-shap": MethodFacts(
        place="transexplain.methods.deeplift_shap:explain",
        source="Shrikumar et al. 2017, section 3.5.2; Lundberg and Lee 2017, section 4.2",
        needs_rules=True,
        cost=method_facts.deeplift_shap,
    ),
}

_CHEFER = "Chefer et al. 2021a"

_ATTENTION = {
    "attention-last": MethodFacts(
        place="transexplain.methods.attention_last:explain",
        source=f"a baseline of {_CHEFER} and of Ali et al. 2022 (A-Last)",
        reads_target="no",
        cost=no_backward,
    ),
    "rollout": MethodFacts(
        place="transexplain.methods.rollout:explain",
        source="Abnar & Zuidema 2020, Eq. 1",
        reads_target="no",
        cost=no_backward,
    ),
    "attention-flow": MethodFacts(
        place="transexplain.methods.attention_flow:explain",
        source="Abnar & Zuidema 2020, section 3",
        reads_target="no",
        needs=("igraph", "flow"),
        cost=no_backward,
    ),
    "attention-gradcam": MethodFacts(
        place="transexplain.methods.attention_gradcam:explain",
        source=f"a baseline of {_CHEFER}; Selvaraju et al. 2017, Eq. 1-2",
    ),
    "gae": MethodFacts(
        place="transexplain.methods.gae:explain",
        source="Chefer et al. 2021b, Eq. 5-6",
    ),
    "transformer-attribution": MethodFacts(
        place="transexplain.methods.transformer_attribution:explain",
        source=f"{_CHEFER}, Eq. 13-14",
        needs_rules=True,
        cost=relevance_and_gradient,
    ),
    "partial-lrp": MethodFacts(
        place="transexplain.methods.partial_lrp:explain",
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
        place="transexplain.methods.occlusion:explain",
        source="Zeiler & Fergus 2014, section 4.2",
        cost=method_facts.occlusion,
    ),
    "lime": MethodFacts(
        place="transexplain.methods.lime:explain",
        source="Ribeiro et al. 2016, Eq. 2",
        cost=method_facts.lime,
    ),
    "shapley-sampling": MethodFacts(
        place="transexplain.methods.shapley_sampling:explain",
        source="Castro et al. 2009; Strumbelj & Kononenko 2010",
        cost=method_facts.shapley_sampling,
    ),
    "kernel-shap": MethodFacts(
        place="transexplain.methods.kernel_shap:explain",
        source="Lundberg & Lee 2017, Theorem 2",
        cost=method_facts.kernel_shap,
    ),
}

#: a position that can be absent has to be a token or a patch
PERTURBATION = {
    name: replace(facts, modalities=("text", "image")) for name, facts in _PERTURBATION.items()
}

LAYER = {
    "layer-gradcam": MethodFacts(
        place="transexplain.methods.layer_gradcam:explain",
        source="Selvaraju et al. 2017, Eq. 1 and 2, over the hidden units of a layer",
        unit="score",
    ),
    "decoded-gradcam": MethodFacts(
        place="transexplain.methods.decoded_gradcam:explain",
        source="Hou and Castanon 2023, Algorithm 1",
        unit="score",
        modalities=("text",),
        files=("head",),
    ),
}

LEARNED = {
    "learned": MethodFacts(
        place="transexplain.methods.learned_explainer:explain",
        source="TransExplain, section 4; the form of the explainer is ours",
        modalities=("text", "image"),
        files=("explainer",),
        cost=method_facts.learned,
    ),
}

FLOOR = {
    "random": MethodFacts(
        place="transexplain.methods.random:explain",
        source="the floor: relevance that knows nothing",
        unit="score",
        reads_target="no",
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

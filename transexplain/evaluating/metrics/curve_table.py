"""The metrics that run the model on parts of an item."""

from transexplain.evaluating.metrics.metric_row import CHEFER, ERASER, MetricFacts

_ALI = "Ali et al. 2022, section 6.2"
_HOU = "Hou and Castanon 2023, section 3.1"
_PROBABILITY = "probability"
_SHOWN, _HIDDEN = "share of positions shown", "share of positions hidden"

CURVES = {
    "activation": MetricFacts(
        place="transexplain.evaluating.metrics.protocols:activation",
        title="Activation (AUAC)",
        source=_ALI,
        kind="curve",
        better="higher",
        unit=_PROBABILITY,
        axis=_SHOWN,
    ),
    "pruning": MetricFacts(
        place="transexplain.evaluating.metrics.protocols:pruning",
        title="Pruning (AU-MSE)",
        source=_ALI,
        kind="curve",
        better="lower",
        unit="squared logits",
        axis=_HIDDEN,
    ),
    "hiding": MetricFacts(
        place="transexplain.evaluating.metrics.protocols:hiding",
        title="Hiding game",
        source=_HOU,
        kind="curve",
        better="lower",
        unit=_PROBABILITY,
        axis=_HIDDEN,
    ),
    "revealing": MetricFacts(
        place="transexplain.evaluating.metrics.protocols:revealing",
        title="Revealing game",
        source=_HOU,
        kind="curve",
        better="higher",
        unit=_PROBABILITY,
        axis=_SHOWN,
    ),
    "comprehensiveness": MetricFacts(
        place="transexplain.evaluating.metrics.protocols:comprehensiveness",
        title="Comprehensiveness (AOPC)",
        source=f"{ERASER}, Eq. 1",
        kind="curve",
        better="higher",
        unit=_PROBABILITY,
        axis=_HIDDEN,
    ),
    "sufficiency": MetricFacts(
        place="transexplain.evaluating.metrics.protocols:sufficiency",
        title="Sufficiency (AOPC)",
        source=f"{ERASER}, Eq. 2",
        kind="curve",
        better="lower",
        unit=_PROBABILITY,
        axis=_SHOWN,
    ),
    "positive-perturbation": MetricFacts(
        place="transexplain.evaluating.metrics.protocols:positive_perturbation",
        title="Positive perturbation",
        source=CHEFER,
        kind="curve",
        better="lower",
        unit="share of items",
        axis=_HIDDEN,
    ),
    "negative-perturbation": MetricFacts(
        place="transexplain.evaluating.metrics.protocols:negative_perturbation",
        title="Negative perturbation",
        source=CHEFER,
        kind="curve",
        better="higher",
        unit="share of items",
        axis=_HIDDEN,
    ),
    "insertion": MetricFacts(
        place="transexplain.evaluating.metrics.protocols:insertion",
        title="Insertion",
        source="Petsiuk et al. 2018, section 3.3",
        kind="curve",
        better="higher",
        unit=_PROBABILITY,
        modalities=("image",),
        axis=_SHOWN,
    ),
    "deletion": MetricFacts(
        place="transexplain.evaluating.metrics.protocols:deletion",
        title="Deletion",
        source="Petsiuk et al. 2018, section 3.3",
        kind="curve",
        better="lower",
        unit=_PROBABILITY,
        modalities=("image",),
        axis=_HIDDEN,
    ),
    "fidelity": MetricFacts(
        place="transexplain.evaluating.metrics.protocols:fidelity",
        title="Fidelity",
        source="TransExplain, section 4.2, our definition",
        kind="curve",
        better="higher",
        unit="share of items",
        axis=_SHOWN,
    ),
}

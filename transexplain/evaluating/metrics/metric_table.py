"""The table of metrics, and what a metric is written with."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from transexplain.types.items import Attribution, Item, PatchGrid, own_positions
from transexplain.types.plans import Modality

if TYPE_CHECKING:
    from transexplain.models.loaded_model import LoadedModel


#: `curve`: runs the model on parts of an item; `map`: reads one explanation; `model`: explains
#: again, another class, another input or another model
MetricKind = Literal["curve", "map", "model"]
Better = Literal["higher", "lower", "neither"]


@dataclass(frozen=True, kw_only=True, slots=True)
class MetricFacts:
    """One row of the table of metrics."""

    place: str  #: `module:attribute`, imported on first use
    title: str  #: heading of its table
    source: str  #: the paper, with section or equation
    kind: MetricKind
    better: Better
    unit: str  #: of its values
    modalities: tuple[Modality, ...] = ("text", "image", "nodes")
    needs_evidence: bool = False  #: items on which people marked what they went by
    axis: str = ""  #: what its curve runs over; "": it has none
    #: `module:constant` with the places of its points, where they are not shares; "": 1, 2, ...
    points: str = ""
    of_oracle: bool = True  #: is also computed for the rationale as if it were an explanation
    #: is a time: of a prediction alone too, and of nothing that runs for the first time
    timed: bool = False
    usual: bool = True  #: is measured where no metric is named
    #: `module:function` that makes one Scored of the details of many items, where its value is of
    #: all of them together; "": every item has its own
    corpus: str = ""
    #: names of the two numbers under `pair` in its details, for their correlation over items and a
    #: scatter; (): there are none
    pair: tuple[str, str] | tuple[()] = ()
    files: tuple[str, ...] = ()  #: parameters that may name a file, also with `#column` behind it
    #: `module:function` that makes the parameters of a plan of given ones; "": they stay
    planned: str = ""


ERASER = "DeYoung et al. 2020"
CHEFER = "Chefer et al. 2021a, section 4"


_ALI = "Ali et al. 2022, section 6.2"
_HOU = "Hou and Castanon 2023, section 3.1"
_PROBABILITY = "probability"
_ACCURACY = "top-1 accuracy on the label"
_SHOWN, _HIDDEN = "share of positions shown", "share of positions hidden"
_PIXELS = "share of the picture hidden"

CURVES = {
    "activation": MetricFacts(
        place="transexplain.evaluating.metrics.perturbation_curves:activation",
        title="Activation (AUAC)",
        source=_ALI,
        kind="curve",
        better="higher",
        unit=_PROBABILITY,
        axis=_SHOWN,
    ),
    "pruning": MetricFacts(
        place="transexplain.evaluating.metrics.perturbation_curves:pruning",
        title="Pruning (AU-MSE)",
        source=_ALI,
        kind="curve",
        better="lower",
        unit="squared logits",
        axis=_HIDDEN,
    ),
    "hiding": MetricFacts(
        place="transexplain.evaluating.metrics.perturbation_curves:hiding",
        title="Hiding game",
        source=_HOU,
        kind="curve",
        better="lower",
        unit=_PROBABILITY,
        axis=_HIDDEN,
    ),
    "revealing": MetricFacts(
        place="transexplain.evaluating.metrics.perturbation_curves:revealing",
        title="Revealing game",
        source=_HOU,
        kind="curve",
        better="higher",
        unit=_PROBABILITY,
        axis=_SHOWN,
    ),
    "comprehensiveness": MetricFacts(
        place="transexplain.evaluating.metrics.perturbation_curves:comprehensiveness",
        title="Comprehensiveness (AOPC)",
        source=f"{ERASER}, Eq. 1",
        kind="curve",
        better="higher",
        unit=_PROBABILITY,
        axis=_HIDDEN,
    ),
    "sufficiency": MetricFacts(
        place="transexplain.evaluating.metrics.perturbation_curves:sufficiency",
        title="Sufficiency (AOPC)",
        source=f"{ERASER}, Eq. 2",
        kind="curve",
        better="lower",
        unit=_PROBABILITY,
        axis=_SHOWN,
    ),
    "positive-perturbation": MetricFacts(
        place="transexplain.evaluating.metrics.perturbation_curves:positive_perturbation",
        title="Positive perturbation",
        source=CHEFER,
        kind="curve",
        better="lower",
        unit="share of items",
        axis=_HIDDEN,
    ),
    "negative-perturbation": MetricFacts(
        place="transexplain.evaluating.metrics.perturbation_curves:negative_perturbation",
        title="Negative perturbation",
        source=CHEFER,
        kind="curve",
        better="higher",
        unit="share of items",
        axis=_HIDDEN,
    ),
    "insertion": MetricFacts(
        place="transexplain.evaluating.metrics.perturbation_curves:insertion",
        title="Insertion",
        source="Petsiuk et al. 2018, section 3.3",
        kind="curve",
        better="higher",
        unit=_PROBABILITY,
        modalities=("image",),
        axis=_SHOWN,
    ),
    "deletion": MetricFacts(
        place="transexplain.evaluating.metrics.perturbation_curves:deletion",
        title="Deletion",
        source="Petsiuk et al. 2018, section 3.3",
        kind="curve",
        better="lower",
        unit=_PROBABILITY,
        modalities=("image",),
        axis=_HIDDEN,
    ),
    "fidelity": MetricFacts(
        place="transexplain.evaluating.metrics.perturbation_curves:fidelity",
        title="Fidelity",
        source="TransExplain, section 4.2, our definition",
        kind="curve",
        better="higher",
        unit="share of items",
        axis=_SHOWN,
    ),
    "auac": MetricFacts(
        place="transexplain.evaluating.metrics.perturbation_curves:auac",
        title="Activation of the correct class (AUAC)",
        source=_ALI,
        kind="curve",
        better="higher",
        unit=_PROBABILITY,
        axis=_SHOWN,
        usual=False,
    ),
    "hiding-accuracy": MetricFacts(
        place="transexplain.evaluating.metrics.perturbation_curves:hiding_accuracy",
        title="Hiding game by accuracy (AUC)",
        source=f"{_HOU}, tables 1 and 2",
        kind="curve",
        better="lower",
        unit=_ACCURACY,
        modalities=("text",),
        axis=_HIDDEN,
        usual=False,
    ),
    "revealing-accuracy": MetricFacts(
        place="transexplain.evaluating.metrics.perturbation_curves:revealing_accuracy",
        title="Revealing game by accuracy (AUC)",
        source=f"{_HOU}, tables 1 and 2",
        kind="curve",
        better="higher",
        unit=_ACCURACY,
        modalities=("text",),
        axis=_SHOWN,
        usual=False,
    ),
    "positive-perturbation-accuracy": MetricFacts(
        place="transexplain.evaluating.metrics.perturbation_curves:positive_perturbation_accuracy",
        title="Positive perturbation by accuracy (AUC)",
        source=f"{CHEFER}, table 1",
        kind="curve",
        better="lower",
        unit=_ACCURACY,
        modalities=("image",),
        axis=_PIXELS,
        usual=False,
    ),
    "negative-perturbation-accuracy": MetricFacts(
        place="transexplain.evaluating.metrics.perturbation_curves:negative_perturbation_accuracy",
        title="Negative perturbation by accuracy (AUC)",
        source=f"{CHEFER}, table 1",
        kind="curve",
        better="higher",
        unit=_ACCURACY,
        modalities=("image",),
        axis=_PIXELS,
        usual=False,
    ),
}


MAPS = {
    "conservation": MetricFacts(
        place="transexplain.evaluating.metrics.map_metrics:conservation",
        title="Conservation",
        source="Ali et al. 2022, section 6.1, figure 3",
        kind="map",
        better="lower",
        unit="share of |logit|",
        of_oracle=False,
        pair=("explained logit", "sum of relevance"),
    ),
    "ledger-gap": MetricFacts(
        place="transexplain.evaluating.metrics.map_metrics:ledger_gap",
        title="Gap of the ledger",
        source="Bach et al. 2015, Eq. 2, with what biases take and rules lose booked",
        kind="map",
        better="lower",
        unit="share of the sum of |terms|",
        of_oracle=False,
    ),
    "runtime": MetricFacts(
        place="transexplain.evaluating.metrics.map_metrics:runtime",
        title="Runtime",
        source="Ali et al. 2022, appendix E",
        kind="map",
        better="lower",
        unit="seconds",
        of_oracle=False,
        timed=True,
    ),
    "sparsity": MetricFacts(
        place="transexplain.evaluating.metrics.map_metrics:sparsity",
        title="Sparsity",
        source="Hurley and Rickard 2009; TransExplain, section 4.2, our definition",
        kind="map",
        better="neither",
        unit="Gini index",
    ),
    "token-f1": MetricFacts(
        place="transexplain.evaluating.metrics.rationale:token_f1",
        title="Token F1",
        source="Chefer et al. 2021a, Fig. 4",
        kind="map",
        better="higher",
        unit="F1",
        modalities=("text",),
        needs_evidence=True,
        axis="tokens taken",
        points="transexplain.evaluating.metrics.rationale:COUNTS",
    ),
    "rationale-auprc": MetricFacts(
        place="transexplain.evaluating.metrics.rationale:rationale_auprc",
        title="Rationale AUPRC",
        source=f"{ERASER}, section 5",
        kind="map",
        better="higher",
        unit="area",
        modalities=("text",),
        needs_evidence=True,
    ),
    "rationale-iou": MetricFacts(
        place="transexplain.evaluating.metrics.rationale:rationale_iou",
        title="Rationale IOU",
        source=f"{ERASER}, section 5",
        kind="map",
        better="higher",
        unit="IOU of tokens",
        modalities=("text",),
        needs_evidence=True,
    ),
    "rationale-iou-f1": MetricFacts(
        place="transexplain.evaluating.metrics.rationale:rationale_iou_f1",
        title="Rationale IOU F1",
        source=f"{ERASER}, section 5",
        kind="map",
        better="higher",
        unit="F1",
        modalities=("text",),
        needs_evidence=True,
    ),
    "pixel-accuracy": MetricFacts(
        place="transexplain.evaluating.metrics.segmentation:pixel_accuracy",
        title="Pixel accuracy",
        source=CHEFER,
        kind="map",
        better="higher",
        unit="share of pixels",
        modalities=("image",),
        needs_evidence=True,
    ),
    "segmentation-ap": MetricFacts(
        place="transexplain.evaluating.metrics.segmentation:segmentation_ap",
        title="Segmentation AP",
        source=CHEFER,
        kind="map",
        better="higher",
        unit="average precision",
        modalities=("image",),
        needs_evidence=True,
    ),
    "segmentation-miou": MetricFacts(
        place="transexplain.evaluating.metrics.segmentation:segmentation_miou",
        title="Segmentation mIoU",
        source=CHEFER,
        kind="map",
        better="higher",
        unit="IOU",
        modalities=("image",),
        needs_evidence=True,
    ),
    "pixel-accuracy-pooled": MetricFacts(
        place="transexplain.evaluating.metrics.segmentation:pixel_counts",
        title="Pixel accuracy, pooled",
        source=f"{CHEFER}, table 2",
        kind="map",
        better="higher",
        unit="share of all pixels",
        modalities=("image",),
        needs_evidence=True,
        corpus="transexplain.evaluating.metrics.segmentation:pooled_accuracy",
        usual=False,
    ),
    "segmentation-miou-pooled": MetricFacts(
        place="transexplain.evaluating.metrics.segmentation:pixel_counts",
        title="Segmentation mIoU, pooled",
        source=f"{CHEFER}, table 2",
        kind="map",
        better="higher",
        unit="IOU",
        modalities=("image",),
        needs_evidence=True,
        corpus="transexplain.evaluating.metrics.segmentation:pooled_miou",
        usual=False,
    ),
    "segmentation-map": MetricFacts(
        place="transexplain.evaluating.metrics.segmentation:segmentation_map",
        title="Segmentation mAP of both sides",
        source=f"{CHEFER}, table 2",
        kind="map",
        better="higher",
        unit="average precision",
        modalities=("image",),
        needs_evidence=True,
        usual=False,
    ),
    "pointing-game": MetricFacts(
        place="transexplain.evaluating.metrics.map_metrics:pointing_game",
        title="Pointing game",
        source="Zhang et al. 2016, section 4.1",
        kind="map",
        better="higher",
        unit="share of items",
        modalities=("image",),
        needs_evidence=True,
    ),
    "token-overlap": MetricFacts(
        place="transexplain.evaluating.metrics.token_overlap:token_overlap",
        title="Token overlap between classes",
        source="Hou and Castanon 2023, section 3.2, as they define it with a reference corpus",
        kind="map",
        better="lower",
        unit="share of words",
        modalities=("text",),
        axis="words listed for each class",
        points="transexplain.evaluating.metrics.token_overlap:COUNTS",
        corpus="transexplain.evaluating.metrics.token_overlap:overlap",
        files=("reference",),
        planned="transexplain.evaluating.metrics.token_overlap:planned_reference",
    ),
}

MODELS = {
    "class-sensitivity": MetricFacts(
        place="transexplain.evaluating.metrics.map_metrics:class_sensitivity_scores",
        title="Class sensitivity",
        source="our definition",
        kind="model",
        better="higher",
        unit="(1 - rank correlation) / 2",
    ),
    "randomisation": MetricFacts(
        place="transexplain.evaluating.metrics.randomisation:randomisation",
        title="Model parameter randomisation",
        source="Adebayo et al. 2018, section 3",
        kind="model",
        better="lower",
        unit="rank correlation",
        axis="layers randomised, from the top",
    ),
    "max-sensitivity": MetricFacts(
        place="transexplain.evaluating.metrics.max_sensitivity:max_sensitivity",
        title="Max-sensitivity",
        source="Yeh et al. 2019, Definition 2",
        kind="model",
        better="lower",
        unit="share of the norm",
    ),
}


Array = NDArray[np.float64]
Masks = NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Case:
    """One explanation of one item, to be measured."""

    item: Item
    attribution: Attribution
    logits: Array  #: (C,) of the whole item
    seconds: float  #: explaining took, its share of its batch
    label: int | None = None  #: class index of the item's label; None: it has none

    @property
    def own(self) -> Masks:
        """(T,) which positions are the item's own: no special token."""
        features = self.attribution.features
        if isinstance(features, PatchGrid):
            return np.ones(self.attribution.relevance.size, dtype=bool)
        return own_positions(features)

    @property
    def relevance(self) -> Array:
        """(P,) relevance of its own positions, row by row where it is a picture."""
        flat = np.asarray(self.attribution.relevance, dtype=np.float64).reshape(-1)
        return flat[self.own]


@dataclass(frozen=True, kw_only=True, slots=True)
class Scored:
    """The score of one case."""

    value: float | None  #: None: it cannot be computed, `reason` says why
    curve: tuple[float, ...] = ()  #: over the metric's axis
    reason: str = ""
    detail: Mapping[str, Any] = field(default_factory=dict)  #: JSON-able, for corpus metrics


def unmeasured(reason: str) -> Scored:
    """A case that the metric has no value for."""
    return Scored(value=None, reason=reason)


class Bench(Protocol):
    """Where a metric of kind `model` explains again: one method on one model."""

    @property
    def model(self) -> "LoadedModel":
        """The model that is audited."""

    def again(
        self,
        cases: Sequence[Case],
        *,
        classes: Sequence[int] | None = None,
        items: Sequence[Item] | None = None,
        model: "LoadedModel | None" = None,
    ) -> list[Attribution | str]:
        """Explain the cases' items again by the same method.

        Args:
            cases: what is explained again.
            classes: of each, the index of the class that is explained; default: as before.
            items: explained in their place, one for each case.
            model: explained in the place of the audited one; of the same classes.

        Returns:
            For each case its attribution, or why there is none.
        """


__all__ = [
    "CURVES",
    "MAPS",
    "MODELS",
    "TABLE",
    "Array",
    "Bench",
    "Better",
    "Case",
    "Masks",
    "MetricFacts",
    "MetricKind",
    "Scored",
    "unmeasured",
]

TABLE = {**CURVES, **MAPS, **MODELS}

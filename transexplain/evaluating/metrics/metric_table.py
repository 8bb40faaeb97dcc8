"""The table of metrics, and what a metric is written with."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
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
_ERASER_5 = f"{ERASER}, section 5"
_CHEFER_1, _CHEFER_2 = f"{CHEFER}, table 1", f"{CHEFER}, table 2"
_HOU = "Hou and Castanon 2023, section 3.1"
_HOU_1_2 = f"{_HOU}, tables 1 and 2"
_PETSIUK = "Petsiuk et al. 2018, section 3.3"
_PROBABILITY = "probability"
_ITEMS = "share of items"
_ACCURACY = "top-1 accuracy on the label"
_SHOWN, _HIDDEN = "share of positions shown", "share of positions hidden"
_PIXELS = "share of the picture hidden"

_CURVES = "transexplain.evaluating.metrics.perturbation_curves"
_MAPS = "transexplain.evaluating.metrics.map_metrics"
_RATIONALE = "transexplain.evaluating.metrics.rationale"
_SEGMENTATION = "transexplain.evaluating.metrics.segmentation"
_OVERLAP = "transexplain.evaluating.metrics.token_overlap"
_RANDOMISATION = "transexplain.evaluating.metrics.randomisation"
_SENSITIVITY = "transexplain.evaluating.metrics.max_sensitivity"


def _row(
    place: str, title: str, source: str, better: Better, unit: str, **facts: Any
) -> MetricFacts:
    facts = {"kind": "map", **facts}
    return MetricFacts(place=place, title=title, source=source, better=better, unit=unit, **facts)


def _curve(
    title: str, source: str, better: Better, unit: str, axis: str, **facts: Any
) -> MetricFacts:
    return _row(_CURVES, title, source, better, unit, axis=axis, kind="curve", **facts)


def _accuracy(
    title: str, source: str, better: Better, axis: str, modality: Modality
) -> MetricFacts:
    title = f"{title} by accuracy (AUC)"
    return _curve(title, source, better, _ACCURACY, axis, modalities=(modality,), usual=False)


_of_words = partial(_row, modalities=("text",), needs_evidence=True)
_of_pixels = partial(_row, modalities=("image",), needs_evidence=True)


_ROWS = {
    "activation": _curve("Activation (AUAC)", _ALI, "higher", _PROBABILITY, _SHOWN),
    "pruning": _curve("Pruning (AU-MSE)", _ALI, "lower", "squared logits", _HIDDEN),
    "hiding": _curve("Hiding game", _HOU, "lower", _PROBABILITY, _HIDDEN),
    "revealing": _curve("Revealing game", _HOU, "higher", _PROBABILITY, _SHOWN),
    "comprehensiveness": _curve(
        "Comprehensiveness (AOPC)", f"{ERASER}, Eq. 1", "higher", _PROBABILITY, _HIDDEN
    ),
    "sufficiency": _curve("Sufficiency (AOPC)", f"{ERASER}, Eq. 2", "lower", _PROBABILITY, _SHOWN),
    "positive-perturbation": _curve("Positive perturbation", CHEFER, "lower", _ITEMS, _HIDDEN),
    "negative-perturbation": _curve("Negative perturbation", CHEFER, "higher", _ITEMS, _HIDDEN),
    "insertion": _curve(
        "Insertion", _PETSIUK, "higher", _PROBABILITY, _SHOWN, modalities=("image",)
    ),
    "deletion": _curve("Deletion", _PETSIUK, "lower", _PROBABILITY, _HIDDEN, modalities=("image",)),
    "fidelity": _curve(
        "Fidelity", "TransExplain, section 4.2, our definition", "higher", _ITEMS, _SHOWN
    ),
    "auac": _curve(
        "Activation of the correct class (AUAC)", _ALI, "higher", _PROBABILITY, _SHOWN, usual=False
    ),
    "hiding-accuracy": _accuracy("Hiding game", _HOU_1_2, "lower", _HIDDEN, "text"),
    "revealing-accuracy": _accuracy("Revealing game", _HOU_1_2, "higher", _SHOWN, "text"),
    "positive-perturbation-accuracy": _accuracy(
        "Positive perturbation", _CHEFER_1, "lower", _PIXELS, "image"
    ),
    "negative-perturbation-accuracy": _accuracy(
        "Negative perturbation", _CHEFER_1, "higher", _PIXELS, "image"
    ),
}
CURVES = {
    name: replace(facts, place=f"{_CURVES}:{name.replace('-', '_')}")
    for name, facts in _ROWS.items()
}


MAPS = {
    "conservation": _row(
        f"{_MAPS}:conservation",
        "Conservation",
        "Ali et al. 2022, section 6.1, figure 3",
        "lower",
        "share of |logit|",
        of_oracle=False,
        pair=("explained logit", "sum of relevance"),
    ),
    "ledger-gap": _row(
        f"{_MAPS}:ledger_gap",
        "Gap of the ledger",
        "Bach et al. 2015, Eq. 2, with what biases take and rules lose booked",
        "lower",
        "share of the sum of |terms|",
        of_oracle=False,
    ),
    "runtime": _row(
        f"{_MAPS}:runtime",
        "Runtime",
        "Ali et al. 2022, appendix E",
        "lower",
        "seconds",
        of_oracle=False,
        timed=True,
    ),
    "sparsity": _row(
        f"{_MAPS}:sparsity",
        "Sparsity",
        "Hurley and Rickard 2009; TransExplain, section 4.2, our definition",
        "neither",
        "Gini index",
    ),
    "token-f1": _of_words(
        f"{_RATIONALE}:token_f1",
        "Token F1",
        "Chefer et al. 2021a, Fig. 4",
        "higher",
        "F1",
        axis="tokens taken",
        points=f"{_RATIONALE}:COUNTS",
    ),
    "rationale-auprc": _of_words(
        f"{_RATIONALE}:rationale_auprc", "Rationale AUPRC", _ERASER_5, "higher", "area"
    ),
    "rationale-iou": _of_words(
        f"{_RATIONALE}:rationale_iou", "Rationale IOU", _ERASER_5, "higher", "IOU of tokens"
    ),
    "rationale-iou-f1": _of_words(
        f"{_RATIONALE}:rationale_iou_f1", "Rationale IOU F1", _ERASER_5, "higher", "F1"
    ),
    "pixel-accuracy": _of_pixels(
        f"{_SEGMENTATION}:pixel_accuracy", "Pixel accuracy", CHEFER, "higher", "share of pixels"
    ),
    "segmentation-ap": _of_pixels(
        f"{_SEGMENTATION}:segmentation_ap", "Segmentation AP", CHEFER, "higher", "average precision"
    ),
    "segmentation-miou": _of_pixels(
        f"{_SEGMENTATION}:segmentation_miou", "Segmentation mIoU", CHEFER, "higher", "IOU"
    ),
    "pixel-accuracy-pooled": _of_pixels(
        f"{_SEGMENTATION}:pixel_counts",
        "Pixel accuracy, pooled",
        _CHEFER_2,
        "higher",
        "share of all pixels",
        corpus=f"{_SEGMENTATION}:pooled_accuracy",
        usual=False,
    ),
    "segmentation-miou-pooled": _of_pixels(
        f"{_SEGMENTATION}:pixel_counts",
        "Segmentation mIoU, pooled",
        _CHEFER_2,
        "higher",
        "IOU",
        corpus=f"{_SEGMENTATION}:pooled_miou",
        usual=False,
    ),
    "segmentation-map": _of_pixels(
        f"{_SEGMENTATION}:segmentation_map",
        "Segmentation mAP of both sides",
        _CHEFER_2,
        "higher",
        "average precision",
        usual=False,
    ),
    "pointing-game": _of_pixels(
        f"{_MAPS}:pointing_game",
        "Pointing game",
        "Zhang et al. 2016, section 4.1",
        "higher",
        _ITEMS,
    ),
    "token-overlap": _row(
        f"{_OVERLAP}:token_overlap",
        "Token overlap between classes",
        "Hou and Castanon 2023, section 3.2, as they define it with a reference corpus",
        "lower",
        "share of words",
        modalities=("text",),
        axis="words listed for each class",
        points=f"{_OVERLAP}:COUNTS",
        corpus=f"{_OVERLAP}:overlap",
        files=("reference",),
        planned=f"{_OVERLAP}:planned_reference",
    ),
}


MODELS = {
    "class-sensitivity": _row(
        f"{_MAPS}:class_sensitivity_scores",
        "Class sensitivity",
        "our definition",
        "higher",
        "(1 - rank correlation) / 2",
        kind="model",
    ),
    "randomisation": _row(
        f"{_RANDOMISATION}:randomisation",
        "Model parameter randomisation",
        "Adebayo et al. 2018, section 3",
        "lower",
        "rank correlation",
        axis="layers randomised, from the top",
        kind="model",
    ),
    "max-sensitivity": _row(
        f"{_SENSITIVITY}:max_sensitivity",
        "Max-sensitivity",
        "Yeh et al. 2019, Definition 2",
        "lower",
        "share of the norm",
        kind="model",
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


TABLE = {**CURVES, **MAPS, **MODELS}

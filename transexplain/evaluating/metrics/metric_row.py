"""One row of the table of metrics: what a metric measures, how to read it, where it is from."""

from dataclasses import dataclass
from typing import Literal

from transexplain.types.plans import Modality

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

"""The section `groups.practical`: the smallest differences that matter."""

from typing import Annotated, ClassVar

from pydantic import BeforeValidator, Field

from orchestrator.spec.spec_document import Section


class PracticalSection(Section):
    """The smallest differences that matter; a number by itself is that in logits."""

    shorthand: ClassVar[str] = "logit"

    logit: float = Field(
        default=0.1,
        ge=0,
        allow_inf_nan=False,
        description="difference that matters, of a prediction's log-odds when a mention is "
        "swapped, and of relevance",
    )
    probability: float = Field(
        default=0.02,
        ge=0,
        le=1,
        description="difference that matters, of a prediction's probability when a mention is "
        "swapped",
    )
    changed: float = Field(
        default=0.05,
        ge=0,
        le=1,
        description="share of predictions that may change by swapping a mention for one of the "
        "reference, beyond the share that changes by swapping it within the group",
    )
    spread: float = Field(
        default=0.25,
        ge=0,
        allow_inf_nan=False,
        description="standard deviation, in logits, by which the effect of a swap may differ "
        "between texts",
    )
    rates: float = Field(
        default=0.05,
        ge=0,
        le=1,
        description="difference that matters, of rates of predictions and of errors",
    )
    impact_ratio: float = Field(
        default=0.8,
        gt=0,
        le=1,
        description="ratio of the rates of a favourable prediction below which, or above whose "
        "inverse, it matters",
    )


#: the section, or a number
PracticalLimits = Annotated[
    PracticalSection,
    BeforeValidator(lambda value: {"logit": value} if isinstance(value, int | float) else value),
]

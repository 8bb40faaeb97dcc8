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
        description="difference that matters, of the answer's log-odds when a mention is swapped "
        "and of relevance",
    )
    probability: float = Field(
        default=0.02,
        ge=0,
        le=1,
        description="difference that matters, of the answer's probability and of rates",
    )
    impact_ratio: float = Field(
        default=0.8,
        gt=0,
        le=1,
        description="ratio of the rates of a group and its reference below which, or above whose "
        "inverse, it matters",
    )


#: the section, or a number
PracticalLimits = Annotated[
    PracticalSection,
    BeforeValidator(lambda value: {"logit": value} if isinstance(value, int | float) else value),
]

"""Named choices of one rule per operator kind (the table of design section 4)."""

from dataclasses import dataclass
from typing import Literal

from transexplain.errors import ConfigurationError

AttentionRule = Literal["gradient", "constant"]
NormRule = Literal["gradient", "constant"]
ActivationRule = Literal["gradient", "identity"]
ProductRule = Literal["gradient", "half"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Composite:
    """One rule per operator kind; linear operators always keep LRP-0 (their gradient)."""

    name: str
    attention: AttentionRule = "gradient"  #: softmax weights: AH of Ali et al. 2022 is `constant`
    norm: NormRule = "gradient"  #: 1/std: LN of Ali et al. 2022 is `constant`
    activation: ActivationRule = "gradient"  #: f(x)/x is `identity`
    product: ProductRule = "gradient"  #: half of the relevance to each factor is `half`


COMPOSITES: dict[str, Composite] = {
    composite.name: composite
    for composite in (
        Composite(name="gradient-x-input"),
        Composite(name="lrp-ah", attention="constant"),
        Composite(name="lrp-ln", norm="constant"),
        Composite(name="lrp-ah-ln", attention="constant", norm="constant"),
        Composite(
            name="lrp",
            attention="constant",
            norm="constant",
            activation="identity",
            product="half",
        ),
    )
}


def composite(name: str) -> Composite:
    """The composite called `name`; raises ConfigurationError naming those that exist."""
    try:
        return COMPOSITES[name]
    except KeyError:
        known = ", ".join(COMPOSITES)
        raise ConfigurationError(f"unknown composite {name!r}. Known: {known}") from None

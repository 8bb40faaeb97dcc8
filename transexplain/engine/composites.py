"""Named choices of one rule per operator kind (the table of design section 4)."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from transexplain.engine.linear_rules import InputRule, LinearRule, Override, linear_rule
from transexplain.errors import ConfigurationError

AttentionRule = Literal["gradient", "constant", "softmax"]
NormRule = Literal["gradient", "constant"]
ActivationRule = Literal["gradient", "identity"]
ProductRule = Literal["gradient", "half"]


@dataclass(frozen=True, kw_only=True, slots=True)
class ChefersRules:
    """Chefer et al. 2021 (Transformer Interpretability Beyond Attention Visualization)."""

    normalised: bool = True  #: sums of two carriers are rescaled; False: their LRP baseline
    #: what their released code does: 1e-9 added to every denominator whatever its sign
    authors: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Composite:
    """One rule per operator kind, with exceptions by the name of a weight."""

    name: str
    #: softmax weights: AH of Ali et al. 2022 is `constant`, AttnLRP's rule is `softmax`
    attention: AttentionRule = "gradient"
    norm: NormRule = "gradient"  #: 1/std: LN of Ali et al. 2022 is `constant`
    activation: ActivationRule = "gradient"  #: f(x)/x is `identity`
    product: ProductRule = "gradient"  #: half of the relevance to each factor is `half`
    linear: LinearRule = field(default_factory=LinearRule)
    input_rule: InputRule | None = None  #: for the operator that reads the input layer
    overrides: tuple[Override, ...] = ()  #: the first that matches decides
    chefer: ChefersRules | None = None  #: the backward pass carries relevance itself

    @property
    def relevance_form(self) -> bool:
        """Whether the backward pass carries relevance instead of gradients."""
        return self.chefer is not None

    @property
    def unit(self) -> Literal["logits", "unit_relevance"]:
        """Logits, or the seed of 1 that Chefer's rules start from."""
        return "unit_relevance" if self.relevance_form else "logits"


_LRP = Composite(
    name="lrp", attention="constant", norm="constant", activation="identity", product="half"
)

COMPOSITES: dict[str, Composite] = {
    composite.name: composite
    for composite in (
        Composite(name="gradient-x-input"),
        Composite(name="lrp-ah", attention="constant"),
        Composite(name="lrp-ln", norm="constant"),
        Composite(name="lrp-ah-ln", attention="constant", norm="constant"),
        _LRP,
        replace(_LRP, name="attnlrp", attention="softmax"),
        replace(_LRP, name="lrp-epsilon", linear=linear_rule("epsilon")),
        replace(_LRP, name="lrp-gamma", linear=linear_rule("gamma")),
        replace(_LRP, name="lrp-alpha-beta", linear=linear_rule("alpha-beta")),
        Composite(name="chefer-lrp", linear=linear_rule("z+"), chefer=ChefersRules()),
    )
}


def composite(name: str) -> Composite:
    """The composite called `name`; raises ConfigurationError naming those that exist."""
    try:
        return COMPOSITES[name]
    except KeyError:
        known = ", ".join(COMPOSITES)
        raise ConfigurationError(f"unknown composite {name!r}. Known: {known}") from None


def tuned(
    base: Composite,
    *,
    linear: Mapping[str, Any],
    input_rule: InputRule | None = None,
    overrides: Iterable[Override] = (),
) -> Composite:
    """`base` with parameters of its linear rule, an input rule and overrides by weight.

    Raises ConfigurationError where the parameters contradict each other.
    """
    given = {name: value for name, value in linear.items() if value is not None}
    if "alpha" in given:
        # alpha - beta is 1, or relevance would not be conserved
        given.setdefault("beta", given["alpha"] - 1)
    if given.get("gamma_form") == "transexplain" and not (given.get("gamma") or base.linear.gamma):
        raise ConfigurationError("gamma_form says how gamma is meant; give gamma > 0 with it")
    return replace(
        base,
        linear=replace(base.linear, **given),
        input_rule=input_rule,
        overrides=tuple(overrides),
    )

"""Composites, which choose one rule per operator kind (design, section 4), and the parameters of
rules.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from fnmatch import fnmatchcase
from typing import Any, Literal

from transexplain.errors import ConfigurationError

InputRuleName = Literal["zb", "w2", "flat"]
GammaForm = Literal["generalised", "transexplain"]


@dataclass(frozen=True, kw_only=True, slots=True)
class LinearRule:
    """How a linear operator hands relevance to its inputs; z_j = sum_i x_i w_ij + b_j.

    LRP-0 is `epsilon=0, gamma=0`; epsilon and gamma may stand together. Sources: LRP-0, epsilon,
    gamma and alpha-beta as in Montavon et al. 2019 (Layer-Wise Relevance Propagation: An
    Overview); gamma in the generalised form, which treats negative outputs by the mirrored rule,
    so that its denominator never crosses zero.
    """

    epsilon: float = 0.0  #: added to |z|: takes a share epsilon / (|z| + epsilon)
    gamma: float = 0.0  #: how much more the contributions of the output's sign count
    gamma_form: GammaForm = "generalised"
    alpha: float | None = None  #: alpha-beta: weight of positive contributions
    beta: float = 0.0  #: alpha - 1

    def __post_init__(self) -> None:
        if self.epsilon < 0 or self.gamma < 0:
            raise ConfigurationError("epsilon and gamma must not be negative")
        if self.gamma_form not in ("generalised", "transexplain"):
            raise ConfigurationError(
                f"gamma_form is 'generalised' or 'transexplain', not {self.gamma_form!r}"
            )
        if self.gamma_form == "transexplain" and not self.epsilon:
            raise ConfigurationError(
                "gamma_form='transexplain' needs epsilon > 0: its denominator can cross zero"
            )
        if self.alpha is None:
            if self.beta:
                raise ConfigurationError("beta needs alpha: alpha - beta must be 1")
        elif self.gamma or self.epsilon:
            raise ConfigurationError("alpha-beta has no epsilon and no gamma")
        elif self.alpha < 1 or abs(self.alpha - self.beta - 1) > 1e-9:
            raise ConfigurationError(
                f"alpha - beta must be 1 with alpha >= 1, not alpha={self.alpha}, beta={self.beta}"
            )

    @property
    def plain(self) -> bool:
        """Return whether this is LRP-0, the gradient itself."""
        return self == LinearRule()

    def __str__(self) -> str:
        if self.alpha is not None:
            return f"alpha-beta ({self.alpha:g}, {self.beta:g})" if self.beta else "z+"
        parts = [f"epsilon {self.epsilon:g}"] if self.epsilon else []
        if self.gamma:
            form = "" if self.gamma_form == "generalised" else f" ({self.gamma_form})"
            parts.insert(0, f"gamma {self.gamma:g}{form}")
        return ", ".join(parts) or "LRP-0"


@dataclass(frozen=True, kw_only=True, slots=True)
class InputRule:
    """How the first linear operator hands relevance to the input layer itself, biases taking none.

    `zb` (z^B, Montavon et al. 2017, Deep Taylor) for inputs within [low, high], `w2` by squared
    weights, `flat` evenly over the receptive field.
    """

    name: InputRuleName
    low: float | None = None  #: None: the smallest value of the item
    high: float | None = None  #: None: the largest value of the item
    required: bool = True  #: an error where no operator reads the input layer

    def __post_init__(self) -> None:
        if self.name not in ("zb", "w2", "flat"):
            raise ConfigurationError(f"input_rule is 'zb', 'w2' or 'flat', not {self.name!r}")
        if self.low is not None and self.high is not None and self.low >= self.high:
            raise ConfigurationError(f"input range is empty: low={self.low}, high={self.high}")


#: names that an override may give without parameters
_NAMED: Mapping[str, LinearRule] = {
    "lrp-0": LinearRule(),
    "epsilon": LinearRule(epsilon=1e-6),
    "gamma": LinearRule(gamma=0.25),
    "alpha-beta": LinearRule(alpha=2.0, beta=1.0),
    "z+": LinearRule(alpha=1.0),
}
_PARAMETERS = tuple(field.name for field in fields(LinearRule))


def linear_rule(given: str | Mapping[str, Any]) -> LinearRule:
    """The rule of an override: a name, or a mapping `{rule: name, parameter: value, ...}`.

    Raises ConfigurationError naming what is known.
    """
    params = {"rule": given} if isinstance(given, str) else dict(given)
    name = params.pop("rule", "lrp-0")
    if name not in _NAMED:
        raise ConfigurationError(f"unknown rule {name!r}. Known: {', '.join(_NAMED)}")
    unknown = sorted(set(params) - set(_PARAMETERS))
    if unknown:
        raise ConfigurationError(
            f"rule {name!r} has no parameter {unknown[0]!r}; it has: {', '.join(_PARAMETERS)}"
        )
    base = {key: getattr(_NAMED[name], key) for key in _PARAMETERS}
    return LinearRule(**{**base, **params})


@dataclass(frozen=True, kw_only=True, slots=True)
class Override:
    """A rule for the operators whose weight's qualified name matches `pattern` (fnmatch).

    A weight that is no parameter (made of others) goes by the module that is at work.
    """

    pattern: str
    rule: LinearRule

    def takes(self, name: str) -> bool:
        """Whether it applies to the operator called `name` (the weight's name, or a call site)."""
        return fnmatchcase(name, self.pattern) or fnmatchcase(name, f"{self.pattern}.weight")


def parsed_overrides(given: Any) -> tuple[Override, ...]:
    """Overrides from (pattern, rule) pairs, a mapping, or Override records.

    Raises ConfigurationError for a rule that is not known.
    """
    pairs = given.items() if isinstance(given, Mapping) else given
    words = []
    for entry in pairs:
        if isinstance(entry, Override):
            words.append(entry)
            continue
        if isinstance(entry, str) or len(entry) != 2:
            raise ConfigurationError(f"an override is a pair (pattern, rule), not {entry!r}")
        pattern, rule = entry
        words.append(Override(pattern=str(pattern), rule=linear_rule(rule)))
    return tuple(words)


def parsed_input_rule(given: str | Mapping[str, Any]) -> InputRule:
    """An input rule from its name, or from `{rule: zb, low: ..., high: ...}`.

    Raises ConfigurationError for what it does not know.
    """
    params = {"rule": given} if isinstance(given, str) else dict(given)
    name: Any = params.pop("rule", None)
    unknown = sorted(set(params) - {"low", "high"})
    if unknown:
        raise ConfigurationError(f"an input rule has low and high, no {unknown[0]!r}")
    return InputRule(name=name, **params)


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
        """Return whether the backward pass carries relevance instead of gradients."""
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

"""The policy of a gate: one YAML file, every key checked, every unknown key refused."""

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, ValidationError, model_validator

from orchestrator.spec.spec_document import Strict, explained, yaml_value
from transexplain.analysis.groups.group_verdicts import Mentioned, Outcomes
from transexplain.errors import ConfigurationError, reason_of
from transexplain.text.parsing import UnreadableError, read_text
from transexplain.types.findings import Decision

_AsList = BeforeValidator(lambda value: [value] if isinstance(value, str) else value)
Names = Annotated[tuple[str, ...], _AsList]
Share = Annotated[float, Field(ge=0, le=1)]


def _is_set(rule: Any) -> bool:
    """Return whether a rule is named; 0 is a limit."""
    return rule is not None and rule is not False


class VerdictRule(Strict):
    """States of a verdict that no group may have, for either question."""

    mention: Annotated[tuple[Mentioned, ...], _AsList] = Field(
        default=("changes",), description="whether a mention changes the prediction"
    )
    outcome: Annotated[tuple[Outcomes, ...], _AsList] = Field(
        default=("differ",), description="whether rates of predictions and errors differ"
    )
    groups: Names = Field(default=(), description="only these; empty: all")

    @model_validator(mode="after")
    def _check_not_empty(self) -> "VerdictRule":
        if not (self.mention or self.outcome):
            raise ValueError("forbids no state; name some of mention or of outcome")
        return self


class RelevanceRule(Strict):
    """Verdicts that no comparison of relevance may have; relevance is no measure of harm."""

    forbid: Annotated[tuple[Decision, ...], _AsList] = Field(default=("difference",), min_length=1)
    groups: Names = Field(default=(), description="only these; empty: all")
    targets: Names = Field(default=(), description="only these; empty: all")


class FaithfulnessRule(Strict):
    """The least faithfulness that the run's sample must show of its method."""

    beats_random: bool = Field(default=True, description="beyond chance, on every metric")
    metrics: Names = Field(default=(), description="only these; empty: all that were judged")


class DriftRule(Strict):
    """The limits of the differences between two runs over the same data."""

    against: str = Field(default="previous", description="run id, its beginning, or `previous`")
    max_changed_predictions: Share | None = Field(
        default=None, description="share of common items that are predicted differently"
    )
    max_rate_change: Share | None = Field(
        default=None, description="of the rate of any prediction of any group, on common items"
    )
    max_accuracy_drop: Share | None = Field(default=None, description="on common labelled items")
    min_agreement: float | None = Field(
        default=None, ge=-1, le=1, description="mean rank correlation, for every target and class"
    )
    max_group_change: float | None = Field(
        default=None, ge=0, description="|mean change of relevance| of every group, in the unit"
    )
    forbid_new_differences: bool = Field(
        default=False,
        description="groups whose mention now changes the prediction, or whose outcome now differs",
    )
    force: bool = Field(default=False, description="compare although more than the model differs")

    @model_validator(mode="after")
    def _check_not_empty(self) -> "DriftRule":
        rules = type(self).model_fields.keys() - {"against", "force"}
        if not any(_is_set(getattr(self, name)) for name in rules):
            raise ValueError(f"names no limit; set one of {', '.join(sorted(rules))}")
        return self


class Policy(Strict):
    """The rules of a gate; a rule that is not named is not checked."""

    max_failed: Share | None = Field(default=None, description="share of items without explanation")
    max_truncated: Share | None = Field(default=None, description="share of explained items cut")
    max_gap_above: int | None = Field(
        default=None, ge=0, description="explanations whose ledger misses the tolerance"
    )
    min_accuracy: Share | None = Field(
        default=None, description="share of the labelled items that are predicted as labelled"
    )
    min_class_sensitivity: Share | None = Field(
        default=None, description="0: the same map whatever class is explained; 0.5: unrelated ones"
    )
    max_difference: float | None = Field(
        default=None,
        ge=0,
        description="|difference of relevance| of any group, in the unit",
    )
    verdicts: VerdictRule | None = None
    on_open: Literal["pass", "fail"] = Field(
        default="pass", description="what becomes of a rule whose limit lies within the interval"
    )
    max_rate_difference: Share | None = Field(
        default=None,
        description="|difference| of the rate of any prediction, or of its true or false positive "
        "rate, to the reference's",
    )
    min_impact_ratio: Share | None = Field(
        default=None, description="of the rates of the classes in `groups.favourable`, either way"
    )
    min_category_ratio: Share | None = Field(
        default=None,
        description="of selection rates of people by category, `groups.impact`; of scoring rates "
        "where the model has one class",
    )
    max_swap_changed: Share | None = Field(
        default=None,
        description="share of predictions that swapping to the other group changes, less the share "
        "that swapping within the group changes",
    )
    max_swap_probability: Share | None = Field(
        default=None, description="|mean change| of a prediction's probability by swapping"
    )
    max_swap_logit: float | None = Field(
        default=None, ge=0, description="|mean change| of a prediction's log-odds by swapping"
    )
    forbid_suppressed: bool = Field(
        default=False, description="every group that is mentioned can be judged"
    )
    forbid_gaps: bool = Field(
        default=False,
        description="items without answers, cut or ambiguous mentions, one entity for a group",
    )
    relevance: RelevanceRule | None = None
    faithfulness: FaithfulnessRule | None = None
    drift: DriftRule | None = None

    @model_validator(mode="after")
    def _check_not_empty(self) -> "Policy":
        names = [name for name in type(self).model_fields if name != "on_open"]
        if not any(_is_set(getattr(self, name)) for name in names):
            raise ValueError(f"names no rule; known: {', '.join(names)}")
        return self


def load_policy(path: Path) -> Policy:
    """Read a policy; raises ConfigurationError for a file or key that is wrong, each named."""
    try:
        text = read_text(path)
    except (OSError, UnicodeDecodeError, UnreadableError) as error:
        raise ConfigurationError(f"cannot read the policy {path}: {reason_of(error)}") from None
    document = yaml_value(text, f"the policy {path}") or {}
    if not isinstance(document, dict):
        raise ConfigurationError(
            f"{path} holds no mapping; a policy has lines like `max_failed: 0`"
        )
    try:
        return Policy.model_validate(document)
    except ValidationError as error:
        wrong = explained(error, Policy, _SECTIONS)
        raise ConfigurationError(f"the policy {path} is wrong:\n{wrong}") from None


_SECTIONS: dict[str, type[Strict]] = {
    "verdicts": VerdictRule,
    "relevance": RelevanceRule,
    "faithfulness": FaithfulnessRule,
    "drift": DriftRule,
}

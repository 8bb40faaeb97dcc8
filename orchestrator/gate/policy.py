"""What a gate asks of a run: one YAML file, every key checked, every unknown key refused."""

from pathlib import Path
from typing import Annotated

from pydantic import BeforeValidator, Field, ValidationError, model_validator

from orchestrator.spec.spec_document import Strict, explained, yaml_value
from transexplain.analysis.groups.group_verdicts import GroupFinding
from transexplain.errors import ConfigurationError, reason_of
from transexplain.parsing import UnreadableError, read_text
from transexplain.types.findings import Decision

_AsList = BeforeValidator(lambda value: [value] if isinstance(value, str) else value)
Names = Annotated[tuple[str, ...], _AsList]
Share = Annotated[float, Field(ge=0, le=1)]


class VerdictRule(Strict):
    """Verdicts that no group may have."""

    forbid: Annotated[tuple[GroupFinding, ...], _AsList] = Field(
        default=("different answers", "different outcomes"), min_length=1
    )
    groups: Names = Field(default=(), description="only these; empty: all")


class RelevanceRule(Strict):
    """Verdicts that no comparison of relevance may have; relevance is no measure of harm."""

    forbid: Annotated[tuple[Decision, ...], _AsList] = Field(default=("difference",), min_length=1)
    groups: Names = Field(default=(), description="only these; empty: all")
    targets: Names = Field(default=(), description="only these; empty: all")


class FaithfulnessRule(Strict):
    """What the run's sample must say of its method."""

    beats_random: bool = Field(default=True, description="beyond chance, on every metric")
    metrics: Names = Field(default=(), description="only these; empty: all that were judged")


class DriftRule(Strict):
    """How far a run may be from another one of the same data."""

    against: str = Field(default="previous", description="run id, its beginning, or `previous`")
    max_flips: Share | None = Field(default=None, description="share of common items")
    max_accuracy_drop: Share | None = Field(default=None, description="on common labelled items")
    min_agreement: float | None = Field(
        default=None, ge=-1, le=1, description="mean rank correlation, for every target and class"
    )
    max_group_change: float | None = Field(
        default=None, ge=0, description="|mean change| of every group, in the unit"
    )
    forbid_new_differences: bool = False
    force: bool = Field(default=False, description="compare although more than the model differs")

    @model_validator(mode="after")
    def _check_not_empty(self) -> "DriftRule":
        limits = (self.max_flips, self.max_accuracy_drop, self.min_agreement, self.max_group_change)
        if all(one is None for one in limits) and not self.forbid_new_differences:
            raise ValueError(
                "names no limit; set one of max_flips, max_accuracy_drop, "
                "min_agreement, max_group_change, forbid_new_differences"
            )
        return self


class Policy(Strict):
    """The rules of a gate; what is not named is not asked."""

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
    min_impact_ratio: Share | None = Field(
        default=None,
        description="of selection rates, either way, of every group, answer and stratum",
    )
    min_category_ratio: Share | None = Field(
        default=None,
        description="of selection rates of people by category, `groups.impact`; of scoring rates "
        "where the model has one class",
    )
    max_swap_logit: float | None = Field(
        default=None, ge=0, description="|mean change| of log-odds by swapping, in every stratum"
    )
    max_swap_probability: Share | None = Field(
        default=None, description="|mean change| of the probability by swapping, in every stratum"
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
        rules = (getattr(self, name) for name in type(self).model_fields)
        if all(rule is None or rule is False for rule in rules):  # 0 is a limit
            raise ValueError(f"names no rule; known: {', '.join(type(self).model_fields)}")
        return self


def load_policy(path: Path) -> Policy:
    """Read a policy; raises ConfigurationError for a file or key that is wrong, each named."""
    try:
        text = read_text(path)
    except (OSError, UnicodeDecodeError, UnreadableError) as error:
        raise ConfigurationError(f"cannot read the policy {path}: {reason_of(error)}") from None
    document = yaml_value(text, f"the policy {path}")
    if document is None:
        document = {}
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

"""What a gate asks of a run: one YAML file, every key checked, every unknown key refused."""

from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import BaseModel, BeforeValidator, Field, ValidationError, model_validator

from orchestrator.sections import Strict
from transexplain.errors import ConfigurationError
from transexplain.findings import Verdict

_AsList = BeforeValidator(lambda value: [value] if isinstance(value, str) else value)
Names = Annotated[tuple[str, ...], _AsList]
Share = Annotated[float, Field(ge=0, le=1)]


class VerdictRule(Strict):
    """Verdicts that no comparison of groups may have."""

    forbid: Annotated[tuple[Verdict, ...], _AsList] = Field(default=("difference",), min_length=1)
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
    def _asks_something(self) -> "DriftRule":
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
    min_accuracy: Share | None = None
    min_class_sensitivity: Share | None = None
    max_difference: float | None = Field(
        default=None, ge=0, description="|difference| of any group to the reference, in the unit"
    )
    verdicts: VerdictRule | None = None
    faithfulness: FaithfulnessRule | None = None
    drift: DriftRule | None = None

    @model_validator(mode="after")
    def _asks_something(self) -> "Policy":
        if all(getattr(self, name) is None for name in type(self).model_fields):
            raise ValueError(f"names no rule; known: {', '.join(type(self).model_fields)}")
        return self


def load_policy(path: Path) -> Policy:
    """Read a policy; raises ConfigurationError for a file or key that is wrong, each named."""
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"cannot read the policy {path}: {error}") from None
    except yaml.YAMLError as error:
        raise ConfigurationError(f"the policy {path} is not valid YAML: {error}") from None
    if document is None:
        document = {}
    if not isinstance(document, dict):
        raise ConfigurationError(
            f"{path} holds no mapping; a policy has lines like `max_failed: 0`"
        )
    try:
        return Policy.model_validate(document)
    except ValidationError as error:
        raise ConfigurationError(f"the policy {path} is wrong:\n{_explain(error)}") from None


_SECTIONS: dict[str, type[BaseModel]] = {
    "verdicts": VerdictRule,
    "faithfulness": FaithfulnessRule,
    "drift": DriftRule,
}


def _explain(error: ValidationError) -> str:
    return "\n".join(f"  {_place(one['loc'])}: {_message(one)}" for one in error.errors())


def _place(parts: tuple[int | str, ...]) -> str:
    return ".".join(map(str, parts)) or "(top)"


def _message(problem: Any) -> str:
    if problem["type"] != "extra_forbidden":
        return str(problem["msg"])
    place = problem["loc"][:-1]
    section = _SECTIONS.get(str(place[0]), Policy) if place else Policy
    return f"unknown key; known here: {', '.join(section.model_fields)}"

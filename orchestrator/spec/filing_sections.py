"""The sections `groups.scenario` and `groups.impact`: the statements that a filing needs."""

import re
from datetime import date
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, StringConstraints, model_validator

from orchestrator.spec.data_section import DataSection
from orchestrator.spec.spec_document import SpecSection, as_texts
from transexplain.data.shard_reader import value_counts
from transexplain.errors import SpecError
from transexplain.types.plans import DatasetRef, ImpactPlan, Scenario

#: categories of a column above which it is taken for something else
MAX_CATEGORIES = 20
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)


def _day(value: str) -> str:
    """Parse YYYY-MM-DD only: the standard library also takes weeks and days without hyphens."""
    if not _DAY.fullmatch(value):
        raise ValueError(f"{value!r} is no day; write it as YYYY-MM-DD, such as 2026-09-30")
    try:
        date.fromisoformat(value)
    except ValueError:
        raise ValueError(f"there is no day {value}; write one of the calendar") from None
    return value


#: other readers of YAML than this package's give dates
Day = Annotated[
    str,
    BeforeValidator(lambda value: value.isoformat() if type(value) is date else value),
    AfterValidator(_day),
]
_Words = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]


class ScenarioSection(SpecSection):
    """A harm that the audit looks for, and who does what about it."""

    harm: _Words = Field(description="what may happen to whom, in a sentence or two")
    affected: _Words | None = Field(default=None, description="who may suffer it")
    measure: _Words | None = Field(
        default=None, description="what would show it, such as the impact ratio by sex"
    )
    threshold: _Words | None = Field(
        default=None,
        description="from which value of the measure on it is not accepted; it is reported, and "
        "a policy of `gate` is what checks it",
    )
    mitigation: _Words | None = Field(default=None, description="what is done against it")
    owner: _Words | None = Field(default=None, description="who answers for it")
    review_date: Day | None = Field(
        default=None, description="day on which it is looked at again, YYYY-MM-DD"
    )

    def planned(self) -> Scenario:
        """The plan of the section."""
        return Scenario(**_given(self))


def _listed(value: Any) -> Any:
    """One scenario as a list of one; a bare text is its harm."""
    several = value if isinstance(value, list | tuple) else [value]
    return [{"harm": harm} if isinstance(harm, str) else harm for harm in several]


#: one scenario, or a list of them
Scenarios = Annotated[tuple[ScenarioSection, ...], BeforeValidator(_listed)]


class ImpactSection(SpecSection):
    """Selection and scoring rates by categories of people, as New York's Local Law 144 has them."""

    favourable: Annotated[tuple[_Words, ...], BeforeValidator(as_texts)] = Field(
        min_length=1,
        description="class or classification that is good for a person, or a list of them, each "
        "with tables of its own",
    )
    sex: str | None = Field(default=None, description="column of data.meta with the sex")
    ethnicity: str | None = Field(
        default=None, description="column of data.meta with race or ethnicity"
    )
    unknown: tuple[str, ...] = Field(
        default=("unknown", "n/a", "not given", "prefer not to say"),
        description="values of these columns, in letters of either case, that mean that the "
        "category is not known; an empty one always does",
    )
    exclude_below: float = Field(
        default=0.02,
        ge=0,
        lt=1,
        description="share of the items below which a category gets no ratio and is no "
        "reference; it is listed with its count and rates; 0: none is left out",
    )
    exclusion_reason: _Words | None = Field(
        default=None, description="why such categories are left out"
    )
    data_source: _Words | None = Field(
        default=None,
        description="where the data are from and how they came about; of test data also why no "
        "historical data were used",
    )
    data_date: _Words | None = Field(default=None, description="day or period that they are of")
    in_use_since: Day | None = Field(
        default=None, description="day on which the model was first used, YYYY-MM-DD"
    )

    @model_validator(mode="after")
    def _has_a_column(self) -> "ImpactSection":
        if self.sex is None and self.ethnicity is None:
            raise ValueError("name the column of `sex`, that of `ethnicity`, or both")
        if self.sex == self.ethnicity:
            raise ValueError(f"`sex` and `ethnicity` are one column, {self.sex!r}; name two")
        if len(set(self.favourable)) < len(self.favourable):
            raise ValueError("`favourable` names a class twice")
        return self

    def planned(self) -> ImpactPlan:
        """The plan of the section."""
        return ImpactPlan(**_given(self))

    def check(self, data: DataSection, dataset: DatasetRef) -> None:
        """Raise SpecError where a column is not kept, or does not hold categories."""
        for name, column in (("sex", self.sex), ("ethnicity", self.ethnicity)):
            if column is None:
                continue
            key = f"groups.impact.{name}"
            data.require_kept(key, column)
            unknown = {value.strip().casefold() for value in self.unknown} | {""}
            values = {value.strip() for value in filter(None, value_counts(dataset, column))}
            known = [value for value in values if value.casefold() not in unknown]
            if not 1 <= len(known) <= MAX_CATEGORIES:
                raise SpecError(
                    f"{key} is {column!r}, which has {len(known):,} different categories; a "
                    f"column of categories has 1 to {MAX_CATEGORIES}, besides those of "
                    "groups.impact.unknown"
                )


def _given(section: SpecSection) -> dict[str, Any]:
    """The given keys of a section; the plan's record has the defaults."""
    return {name: value for name, value in section if value is not None}

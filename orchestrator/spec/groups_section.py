"""The section `groups`: the entity groups to compare, the comparison, and what a filing needs."""

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import date
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self

import typer
from pydantic import AfterValidator, BeforeValidator, Field, StringConstraints, model_validator

from orchestrator.spec.data_section import DataSection
from orchestrator.spec.spec_document import SpecSection, absolute_path, as_texts
from transexplain.analysis.groups.lexicon import BUILTIN
from transexplain.data.shard_reader import value_counts
from transexplain.errors import LexiconError, SpecError
from transexplain.files.paths import AnyPath, any_path
from transexplain.types.findings import Correction, Practical
from transexplain.types.items import EntityGroup
from transexplain.types.plans import (
    AmbiguityPolicy,
    CasePolicy,
    DatasetRef,
    ImpactPlan,
    Matching,
    MatchPolicy,
    RecogniserPlan,
    Scenario,
    SourceFile,
)

if TYPE_CHECKING:
    from transexplain.analysis.groups.lexicon import Pair


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


class PracticalSection(SpecSection):
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


LexiconOption = Annotated[
    str | None,
    typer.Option(
        "--lexicon", help="entity groups: yaml, json, csv or tsv file, or builtin:gender and such"
    ),
]
ReferenceOption = Annotated[
    str | None,
    typer.Option("--reference", help="group that the others are compared with; default: all"),
]


class GroupsSection(SpecSection):
    """Entity groups whose relevance is compared."""

    shorthand: ClassVar[str] = "lexicon"
    options: ClassVar[Mapping[str, str]] = {
        name: name for name in ("lexicon", "reference", "practical", "slice")
    }

    lexicon: str | tuple[str, ...] | None = Field(
        default=None,
        description="yaml, json, csv or tsv file of groups and terms, builtin:gender, "
        "builtin:nationality, builtin:religion, or a list of these",
    )
    pairs: str | tuple[tuple[str, str], ...] | None = Field(
        default=None,
        description="yaml, json, csv or tsv file, or a list, of words that take each other's place "
        "when a mention is swapped, such as [[he, she], [Thomas, Maria]]; default: those of "
        "builtin:gender-pairs whose words are in two groups of a family",
    )
    second: str | None = Field(
        default=None,
        description="another lexicon with some of the groups: the same comparisons by its words",
    )
    recogniser: str | None = Field(
        default=None,
        description="finds entities in texts: spacy:PACKAGE_OR_FOLDER, gliner:FOLDER, or "
        "package.module:function",
    )
    entity_types: tuple[str, ...] | None = Field(
        default=None,
        description="types of the recogniser that are groups, such as [PERSON, GPE], which are "
        "entity/PERSON and entity/GPE; []: none; default: all of its own",
    )
    column: str | tuple[str, ...] | None = Field(
        default=None,
        description="column of data.meta whose values are groups, or a list of them; the unit is "
        "then the item",
    )
    intersections: tuple[tuple[str, ...], ...] = Field(
        default=(),
        description="families of lexicons, or columns of groups.column, whose groups meet: "
        "[[gender, ethnicity]] makes groups such as `gender x ethnicity/female x black`",
    )
    ambiguous: AmbiguityPolicy = Field(
        default="cue",
        description="terms that are ordinary words too: with a cue, always, never, or where the "
        "recogniser finds an entity",
    )
    case: CasePolicy = Field(
        default="smart", description="capitals of a term are needed; exact; or ignore all"
    )
    match: MatchPolicy = Field(
        default="folded",
        description="names (terms with a capital, or of a script without) are found whatever "
        "their accents and the width of their letters, so Jose finds José, too; exact: as they "
        "are spelled",
    )
    include: tuple[str, ...] = Field(default=(), description="names or prefixes; empty: all")
    reference: str | dict[str, str] | None = Field(
        default=None,
        description="a group for all, or a mapping of families to groups, such as "
        "{gender: gender/male}; default: all other groups of a group's family, which is what "
        "stands before the slash of its name",
    )
    practical: PracticalLimits = Field(
        default=PracticalSection(), description="smallest differences that matter"
    )
    correction: Correction = Field(
        default="bh",
        description="correction of p-values of relevance: bh and by (false discoveries), holm, "
        "none; verdicts take holm",
    )
    complete: bool = Field(
        default=False,
        description="the lists of names are complete (nationalities, pronouns), so that names are "
        "no sample of others",
    )
    favourable: Annotated[tuple[str, ...], BeforeValidator(as_texts)] = Field(
        default=(),
        description="classes that are to a person's advantage: their impact ratio is judged, too",
    )
    slice: str | None = Field(default=None, description="column of data.meta to split by")
    check: int = Field(
        default=100,
        ge=0,
        description="items that mention somebody, about, in which the mention is removed and "
        "which the randomised model explains; and texts of every group, at least, in which the "
        "mention is swapped; 0: none",
    )
    budget: float = Field(
        default=0.1,
        ge=0,
        le=10,
        description="share of the passes of the run's explanations that swaps may take, where "
        "more texts than `check` are to be had",
    )
    randomised: bool = Field(
        default=True, description="let models with new random weights explain the checked items"
    )
    draws: int | None = Field(
        default=None,
        ge=1,
        le=20,
        description="of these weights; each explains its part of the checked items, and holds as "
        "much memory as the model; default: 3, or 1 for more than 500 million parameters",
    )
    planted: float | None = Field(
        default=None,
        gt=0,
        allow_inf_nan=False,
        description="size of a difference, in the unit, that is planted into randomly sampled "
        "groups; the report says how often it is found",
    )
    scenario: Scenarios = Field(
        default=(),
        description="the harm that the audit looks for, or a list of harms, as the report and "
        "the exports state them",
    )
    impact: ImpactSection | None = Field(
        default=None,
        description="selection rates, scoring rates and impact ratios by the sex and ethnicity "
        "of the people that items are of",
    )

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns as a list."""
        return (self.column,) if isinstance(self.column, str) else self.column or ()

    @property
    def lexicons(self) -> tuple[str, ...]:
        """The lexicons as a list."""
        if self.lexicon is None:
            return ()
        return (self.lexicon,) if isinstance(self.lexicon, str) else self.lexicon

    def absolute(self) -> Self:
        """The section with absolute paths of its lexicons and pairs; `builtin:` stays."""
        changed: dict[str, Any] = {"lexicon": tuple(map(_absolute, self.lexicons)) or None}
        for name in ("second", "pairs"):
            if isinstance(value := getattr(self, name), str):
                changed[name] = _absolute(value)
        if self.recogniser is not None:
            from transexplain.analysis.groups.entity_recogniser import absolute_recogniser

            changed["recogniser"] = absolute_recogniser(self.recogniser)
        return self.model_copy(update=changed)

    def lexicon_groups(self, data: DataSection) -> tuple[EntityGroup, ...]:
        """The groups of the lexicons and of the recogniser.

        Raises:
            LexiconError: a lexicon is wrong.
            SpecError: there is nothing to compare, or `data.meta` does not keep a column.
            ConfigurationError: the recogniser is missing.
        """
        from transexplain.analysis.groups.lexicon import load_lexicon

        if not (self.lexicons or self.columns or data.spans or self.impact or self.recogniser):
            raise SpecError(
                "groups names nothing to compare: give groups.lexicon, groups.recogniser, "
                "groups.column, groups.impact or data.spans"
            )
        recogniser = self.planned_recogniser()
        for column in self.columns:
            data.require_kept("groups.column", column)
        listed = [group for lexicon in self.lexicons for group in load_lexicon(_place(lexicon))]
        if recogniser is None:
            return tuple(listed)
        from transexplain.analysis.groups.entity_recogniser import recognised_groups

        return (*listed, *recognised_groups(recogniser))

    def planned_recogniser(self) -> RecogniserPlan | None:
        """The recogniser as a plan has it; raises ConfigurationError."""
        if self.recogniser is not None:
            from transexplain.analysis.groups.entity_recogniser import planned_recogniser

            return planned_recogniser(self.recogniser, self.entity_types)
        if self.entity_types is not None or self.ambiguous == "recogniser":
            key = "entity_types" if self.entity_types is not None else "ambiguous: recogniser"
            raise SpecError(f"groups.{key} is for groups.recogniser, which is not given; name one")
        return None

    def plan_fields(self, data: DataSection, groups: tuple[EntityGroup, ...]) -> dict[str, Any]:
        """The fields of a plan about these groups: their source, comparison and splits.

        Raises LexiconError where a file is wrong; SpecError for `second`, `pairs` and `slice` that
        do not fit the groups or the data.
        """
        if self.slice is not None:
            data.require_kept("groups.slice", self.slice)
        columns = self.columns
        return {
            "groups": groups,
            "lexicons": self._files(),
            "recogniser": self.planned_recogniser(),
            "second": self._second(groups),
            "matching": Matching(
                ambiguous=self.ambiguous,
                case=self.case,
                match=self.match,
                column=(columns if len(columns) > 1 else columns[0] if columns else None),
            ),
            "reference": self.reference,
            "intersections": self.intersections,
            "pairs": self._pairs(groups),
            "practical": self.practical.logit,
            "limits": Practical(**self.practical.model_dump()),
            "correction": self.correction,
            "complete": self.complete,
            "favourable": self.favourable,
            "slice": self.slice,
            "planted": self.planted,
            "scenario": tuple(scenario.planned() for scenario in self.scenario),
            "impact": self.impact.planned() if self.impact else None,
        }

    def includes(self, name: str) -> bool:
        """Return whether a group is used."""
        return not self.include or any(is_in(name, included) for included in self.include)

    def _files(self) -> tuple[SourceFile, ...]:
        """The lexicons and pairs with digests; raises LexiconError."""
        from transexplain.analysis.groups.lexicon import lexicon_file

        pairs = self.pairs if isinstance(self.pairs, str) else None
        named = (*self.lexicons, self.second, pairs)
        return tuple(lexicon_file(_place(path)) for path in named if path is not None)

    def _second(self, groups: Iterable[EntityGroup]) -> tuple[EntityGroup, ...]:
        """The groups of `second`, narrowed as those of the audit are."""
        from transexplain.analysis.groups.lexicon import load_lexicon

        if self.second is None:
            return ()
        names = [group.name for group in groups]
        second = [group for group in load_lexicon(_place(self.second)) if self.includes(group.name)]
        if unknown := [group.name for group in second if group.name not in names]:
            raise SpecError(
                f"groups.second: {self.second} has the group {unknown[0]!r}, which is not among "
                f"the groups used: {', '.join(names)}; give it the name of the group that it "
                "stands for"
            )
        if not second:
            raise SpecError(f"groups.second: {self.second} has no group that groups.include names")
        return tuple(second)

    def _pairs(self, groups: Sequence[EntityGroup]) -> "tuple[Pair, ...]":
        """The pairs that are given, else those shipped for a lexicon that is used."""
        from transexplain.analysis.groups.lexicon import SHIPPED, checked_pairs, load_pairs

        pairs = self.pairs
        if pairs is None:
            terms = {term for group in groups for term in group.terms}
            fitting: list[Pair] = []
            for pair in filter(terms.issuperset, load_pairs(SHIPPED)):
                with suppress(LexiconError):  # its words cannot be swapped between the groups
                    fitting += checked_pairs([pair], groups)
            return tuple(fitting)
        pairs = load_pairs(_place(pairs)) if isinstance(pairs, str) else pairs
        try:
            return checked_pairs(pairs, groups)
        except LexiconError as error:
            raise SpecError(f"groups.pairs: {error}") from None


def is_in(name: str, included: str) -> bool:
    """Return whether a group has this name, or is of the family of this name."""
    return name == included or name.startswith(f"{included}/")


def _place(lexicon: str) -> AnyPath | str:
    return lexicon if lexicon.startswith(BUILTIN) else any_path(lexicon)


def _absolute(lexicon: str) -> str:
    return lexicon if lexicon.startswith(BUILTIN) else absolute_path(lexicon)

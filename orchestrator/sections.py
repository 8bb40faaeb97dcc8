"""The sections of an audit's specification: every key checked, every unknown key refused."""

from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, JsonValue

from transexplain.findings import Correction
from transexplain.plans import AmbiguityPolicy, CasePolicy, Duplicates


class Strict(BaseModel):
    """A mapping that may hold no key beside its own."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def from_string(key: str) -> BeforeValidator:
    """Let `model: path` stand for `model: {source: path}`."""
    return BeforeValidator(lambda value: {key: value} if isinstance(value, str) else value)


#: YAML 1.1 reads `off` as false
_OffIsFalse = BeforeValidator(lambda value: "off" if value is False else value)


class ModelSection(Strict):
    """Which model is audited."""

    source: str = Field(description="directory, hub id, or timm:NAME?checkpoint=FILE")
    dtype: Literal["float64", "float32", "bfloat16", "float16"] = "float32"
    device: str = Field(default="cpu", description="torch device of local runs, e.g. cuda:0")


class DataSection(Strict):
    """Which items, and what their columns mean."""

    source: str = Field(
        description="csv|tsv|jsonl|parquet file or glob, imagefolder:DIR or eraser:DIR#split"
    )
    text: str | None = None
    image: str | None = None
    label: str | None = None
    id: str | None = None
    meta: tuple[str, ...] = ()
    evidence: str | None = Field(
        default=None,
        description="column of what people marked: [[start, end], ...] characters of a text; "
        "[[left, top, right, bottom], ...] shares of a picture, or the path of its mask",
    )
    spans: str | None = Field(
        default=None,
        description="column of entities that are marked: [[start, end, group, entity], ...] in "
        "characters of a text; [[left, top, right, bottom, group, entity], ...] in shares of a "
        "picture, or [path of its mask, group, entity]; the entity may be left out",
    )
    cluster: str | None = Field(
        default=None,
        description="column of what makes items alike: their author, thread or source; the "
        "statistics then count clusters and not items",
    )
    template: str | None = Field(
        default=None,
        description="column that names the template or minimal pair that a text belongs to",
    )
    duplicates: Annotated[Duplicates, _OffIsFalse] = Field(
        default="auto",
        description="auto: texts that are nearly the same are one cluster, looked for where no "
        "data.template is given; off: they are not looked for",
    )
    quoting: Literal["auto", "none", "rfc4180"] = "auto"
    limit: int | None = Field(default=None, ge=1, description="only the first rows")
    sample: int | None = Field(default=None, ge=1, description="of those draw so many")
    seed: int = Field(default=0, description="of the drawing")


class RedactSection(Strict):
    """Which function says what to blank in texts; its file is found beside the specification."""

    function: str = Field(description="package.module:function")
    file: str | None = Field(default=None, description="of its module, beside the specification")
    sha256: str | None = Field(default=None, description="of that file")


class MethodSection(Strict):
    """Which explanation method, with its parameters."""

    name: str = "lrp"
    params: dict[str, JsonValue] = Field(default_factory=dict)


class ExplainSection(Strict):
    """A cheap method for every item, and an exact one on a sample that corrects it."""

    method: str = Field(description="explains every item; in logits")
    params: dict[str, JsonValue] = Field(default_factory=dict)
    exact: str | None = Field(
        default=None,
        description="explains the sample; in logits; default: what an explainer learned from, "
        "else lrp",
    )
    exact_params: dict[str, JsonValue] = Field(default_factory=dict)
    exact_sample: float = Field(
        gt=0, le=1, allow_inf_nan=False, description="share of the items that are drawn for it"
    )
    seed: int = Field(default=0, description="of the drawing")


class PracticalSection(Strict):
    """The smallest differences that matter; a number by itself is that in logits."""

    logit: float = Field(
        default=0.1,
        ge=0,
        allow_inf_nan=False,
        description="of the answer's log-odds when a mention is swapped, and of relevance",
    )
    probability: float = Field(
        default=0.02, ge=0, le=1, description="of the answer's probability, and of rates"
    )
    impact_ratio: float = Field(
        default=0.8, gt=0, le=1, description="of rates of a group and its reference; or its inverse"
    )


_Practical = Annotated[
    PracticalSection,
    BeforeValidator(lambda value: {"logit": value} if isinstance(value, int | float) else value),
]


class GroupsSection(Strict):
    """Entity groups whose relevance is compared."""

    lexicon: str | tuple[str, ...] | None = Field(
        default=None,
        description="yaml, json, csv or tsv file of groups and terms, builtin:gender, "
        "builtin:nationality, builtin:religion, or a list of these",
    )
    pairs: str | tuple[tuple[str, str], ...] | None = Field(
        default=None,
        description="yaml, json, csv or tsv file, or a list, of words that take each other's place "
        "when a mention is swapped, such as [[he, she], [Thomas, Maria]]; default: "
        "builtin:gender-pairs with the lexicon builtin:gender, else none",
    )
    second: str | None = Field(
        default=None,
        description="another lexicon with some of the groups: the same comparisons by its words",
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
        default="cue", description="terms that are ordinary words too: with a cue, always, never"
    )
    case: CasePolicy = Field(
        default="smart", description="capitals of a term are needed; exact; or ignore all"
    )
    include: tuple[str, ...] = Field(default=(), description="names or prefixes; empty: all")
    reference: str | dict[str, str] | None = Field(
        default=None,
        description="a group for all, or a mapping of families to groups, such as "
        "{gender: gender/male}; default: all other groups of a group's family, which is what "
        "stands before the slash of its name",
    )
    practical: _Practical = Field(
        default=PracticalSection(), description="smallest differences that matter"
    )
    correction: Correction = Field(
        default="bh", description="of p-values: bh and by (false discoveries), holm, none"
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
        default=True, description="let models with weights drawn anew explain the checked items"
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
        description="size of a difference, in the unit, that is planted into groups drawn by lot; "
        "the report says how often it is found",
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


class ClassificationSection(Strict):
    """A class of the user's own: the sum of some of the model's logits."""

    name: str
    classes: tuple[str, ...] = Field(min_length=1)


class EvaluatedMethodSection(Strict):
    """One row of every table of an evaluation."""

    name: str
    params: dict[str, JsonValue] = Field(default_factory=dict)
    label: str | None = Field(default=None, description="default: the name")
    items: int | None = Field(default=None, ge=1, description="measured on so many items")


class MetricSection(Strict):
    """One metric, with its parameters."""

    name: str
    params: dict[str, JsonValue] = Field(default_factory=dict)
    items: int | None = Field(default=None, ge=1, description="computed on so many items")
    label: str | None = Field(default=None, description="default: the name")


_Named = Annotated[EvaluatedMethodSection, from_string("name")]
_Metric = Annotated[MetricSection, from_string("name")]


class EvaluationSection(Strict):
    """What is measured about explanations: by `evaluate`, and on a sample of every audit."""

    methods: Literal["all"] | tuple[_Named, ...] = Field(
        default=(), description="default: those of few passes; in an audit its own"
    )
    metrics: Literal["all"] | tuple[_Metric, ...] = ()
    baseline: str | int | None = Field(
        default=None, description="what stands in the place of what is hidden"
    )
    over: Literal["tokens", "words"] | None = None
    items: int | None = Field(
        default=None, ge=0, description="drawn from the dataset; in an audit 32, 0: none"
    )
    seed: int = 0
    confidence: float = Field(default=0.0, ge=0, lt=1, description="least, to be measured")

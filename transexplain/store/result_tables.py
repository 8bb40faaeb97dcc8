"""The tables that hold what a report says, in plain columns for people who ask by SQL.

A run that is over has its rows, one that runs or was reopened has none: see `result_rows`. No name
of a column is a keyword. `ordinal` is the place of a row in the report; where a number could not
be had, or is not finite, the column is NULL. Every column says in its comment what it holds.
"""

from collections.abc import Iterator
from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Double,
    ForeignKeyConstraint,
    Integer,
    MetaData,
    PrimaryKeyConstraint,
    Table,
    Text,
)

from transexplain.store.columns import AnyText

metadata = MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "fk": "fk_%(table_name)s_%(referred_table_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
    }
)


def _text(name: str, about: str, *, null: bool = False) -> Column[Any]:
    return Column(name, AnyText, nullable=null, comment=about)


def _count(name: str, about: str, *, null: bool = False) -> Column[Any]:
    return Column(name, BigInteger, nullable=null, comment=about)


def _number(name: str, about: str) -> Column[Any]:
    return Column(name, Double, nullable=True, comment=about)


def _flag(name: str, about: str) -> Column[Any]:
    return Column(name, Boolean, nullable=False, comment=about)


def _interval(name: str, about: str) -> tuple[Column[Any], Column[Any]]:
    return (
        _number(f"{name}_low", f"lower end of the 95 % interval of {about}"),
        _number(f"{name}_high", "its upper end; NULL where there is none or it is infinite"),
    )


def _table(name: str, about: str, *columns: Column[Any], single: bool = False) -> Table:
    """A table of rows of runs that go with their run; `single`: a run has one row."""
    key = () if single else (Column("ordinal", Integer, comment=_ORDINAL),)
    return Table(
        name,
        metadata,
        Column("run_id", Text, comment="of the run"),
        *key,
        *columns,
        PrimaryKeyConstraint("run_id", *(column.name for column in key)),
        ForeignKeyConstraint(["run_id"], ["run.id"], ondelete="CASCADE"),
        comment=about,
    )


_ORDINAL = "place in the report, from 0"
_TARGET = "what was explained, as the audit names it"
_CLASS = "the class that it was, or `plus-minus` of a contrast"
_GROUP = "the entity group"
_REFERENCE = "the group, or groups, that it is compared with"
_STRATUM = "value of the slice; empty: all items"
_PREDICTION = "class or classification that is looked at"

run_result = _table(
    "run_result",
    "One row for a run: what was audited, by what limits, and the verdict in a sentence.",
    _text("task", "`audit`, or `imported`: the attributions were made elsewhere"),
    _text("model", "folder, hub id or timm name"),
    _text("model_digest", "sha256 over weights, configuration and tokenizer"),
    _text("modality", "`text`, `image` or `nodes`"),
    _text("dtype", "number type of the model"),
    _text("dataset", "file, folder or hub name"),
    _text("dataset_fingerprint", "sha256 of the rows"),
    _text("method", "of explanation"),
    _text("unit", "of every relevance: `logits`, `unit_relevance` or `score`"),
    _text("plan_digest", "sha256 of the plan; runs with the same one are repetitions"),
    _text("reference", "the group, or groups, compared with; NULL: no groups", null=True),
    _text("correction", "of p-values over a table: `bh`, `by`, `holm`, `none`", null=True),
    _number("practical_relevance", "smallest difference of relevance that matters, in the unit"),
    _number("practical_logit", "smallest change of log-odds that matters"),
    _number("practical_probability", "smallest change of a probability that matters, 0 to 1"),
    _number("practical_changed", "smallest share of predictions changed that matters, 0 to 1"),
    _number("practical_spread", "smallest spread of the effect between texts that matters, logits"),
    _number("practical_rates", "smallest difference of rates that matters, 0 to 1"),
    _number("practical_impact_ratio", "smallest impact ratio that is within limits"),
    _text("verdict_kind", "`flagged`, `clear`, `problem`, `unknown` or `fact`"),
    _text("verdict", "the whole in one sentence or two"),
    _text("version", "of TransExplain that computed the rows"),
    _number("written", "when they were written, seconds since 1970"),
    single=True,
)


def _decided(question: str, about: str) -> Iterator[Column[Any]]:
    """The measure that decided a question, or that is named first."""
    yield _text(f"{question}_prediction", f"class or classification that {about}", null=True)
    yield _text(f"{question}_stratum", f"value of the slice that {about}; empty: all", null=True)
    yield _text(f"{question}_measure", f"measure that {about}", null=True)
    yield _number(f"{question}_value", "its value, as in `group_measure`")
    yield from _measure_interval(f"{question}_value")


def _measure_interval(name: str) -> tuple[Column[Any], Column[Any]]:
    return (
        _number(f"{name}_low", "lower end of the interval that decided"),
        _number(f"{name}_high", "its upper end; NULL where there is none or it is infinite"),
    )


group_verdict = _table(
    "group_verdict",
    "The verdict on each mentioned group but references: two questions and their states.",
    _text("group_name", _GROUP),
    _text("reference", _REFERENCE),
    _text("state", "of the whole: `flagged`, `open` or `clear`"),
    _text("mention", "whether it changes the prediction: `changes`, `does not change`, `open`"),
    *_decided("mention", "decided on the mention"),
    _text("outcome", "whether rates and errors `differ`, `do not differ`, or are `open`"),
    *_decided("outcome", "decided on the outcome"),
    _text("mention_reasons", "of `mention`, in the order of their weight, with `; ` between"),
    _text("outcome_reasons", "of `outcome`, the same way"),
    _text("mention_advice", "what would settle an open `mention`; empty: it is settled"),
    _text("outcome_advice", "what would settle an open `outcome`; empty: it is settled"),
    _text("notes", "what explains a difference of outcomes, and excuses none"),
    _text("missing", "what was not tested, so that the group is not clear; empty: nothing"),
    _number("probability", "mean change of its probability by swapping, -1 to 1"),
    *_measure_interval("probability"),
    _number("changed_across", "share of predictions that swapping to the reference changes"),
    _number("changed_within", "the same of swapping within one group"),
    _count("documents", "texts (or pictures) behind the swaps", null=True),
    _number("rate", "share of the group's items with this prediction"),
    _number("reference_rate", "the same of the reference's"),
    _count("items", "of the group, behind the rate", null=True),
    _count("reference_items", "of the reference, behind its rate", null=True),
)

group_measure = _table(
    "group_measure",
    "Every measure of the verdicts, with its limit and the interval that decided.",
    _text("group_name", _GROUP),
    _text("reference", _REFERENCE),
    _text("question", "`mention` or `outcome`"),
    _text("prediction", _PREDICTION),
    _text("stratum", _STRATUM),
    _text(
        "measure",
        "`logit`, `probability`, `changed`, `spread`; `rate`, `true positive rate`, `false "
        "positive rate`, `precision`, `impact ratio`",
    ),
    _number("value", "in logits (`logit`, `spread`), a ratio, or a share from -1 to 1"),
    *_measure_interval("value"),
    _number("interval_level", "level of the interval: 0.9, or that of Holm's step"),
    _number("limit_low", "smallest value within the limit; NULL: there is no lower limit"),
    _number("limit_high", "largest value within the limit"),
    _text("state", "`inside`, `outside` or `open`"),
    _number("p", "of a true value within the limit, adjusted; NULL: too few texts or items"),
)

group_result = _table(
    "group_result",
    "The group table: relevance of a group's mentions for a class, over all items and in parts.",
    _text("target", _TARGET),
    _text("class_name", _CLASS),
    _text("split_by", "`predicted class`, `label` or `slice`; empty: the table over all items"),
    _text("split_value", "the part: a class, `right` or `wrong`, a value of the slice; or empty"),
    _text("group_name", _GROUP),
    _text("reference", _REFERENCE),
    _count("documents", "items that mention the group"),
    _count("mentions", "of the group"),
    _count("entities", "different ones"),
    _number("mean", "relevance of a mention, in the unit"),
    _number("positive_share", "share of mentions with relevance above 0"),
    _number("entity_mean", "mean over entities of their mean relevance, in the unit"),
    *_interval("entity_mean", "`entity_mean`"),
    _number("difference", "`entity_mean` minus the reference's; NULL: suppressed"),
    *_interval("difference", "`difference`"),
    _text("interval_by", "`t` or `bootstrap`", null=True),
    _number("p", "of the difference, by permuting groups over entities"),
    _number("adjusted_p", "over the table, or over the split's tables"),
    _number("detectable", "difference that 80 % of such corpora would show, in the unit"),
    _text(
        "verdict",
        "on relevance: `difference`, `equivalent`, `inconclusive`, `suppressed`, `reference`",
    ),
    _flag("suppressed", "not compared"),
    _text("reason", "of the verdict"),
    _text("note", "why something is missing, or what else to know"),
    _text("overall_verdict", "`group_verdict.state` of the group; NULL: a reference", null=True),
    _number("item_rank", "mean rank of a mention in its item, 0 to 1"),
    _number("mention_q05", "5 % of mentions have at most this relevance, in the unit"),
    _number("mention_q25", "25 % of mentions"),
    _number("mention_q50", "half of the mentions"),
    _number("mention_q75", "75 % of mentions"),
    _number("mention_q95", "95 % of mentions"),
    _count("background_words", "words of no group about as frequent; NULL: none", null=True),
    _number("background_mean", "relevance of a mention of these words, in the unit"),
    _number("background_difference", "the group's entities minus words as frequent as they are"),
    *_interval("background_difference", "`background_difference`"),
)

counterfactual_result = _table(
    "counterfactual_result",
    "What swapping a group's mentions (or hiding its regions) does to a prediction.",
    _text("kind", "`swap`: names in texts, or `region`: hidden parts of pictures"),
    _text("group_name", _GROUP),
    _text("reference", _REFERENCE),
    _text("prediction", _PREDICTION),
    _text("stratum", _STRATUM),
    _count("documents", "texts with names of both sides, or pictures"),
    _count("clusters", "of these texts"),
    _count("entities", "names of the group that stood in a text"),
    _count("reference_entities", "names of the reference"),
    _number("effect", "mean change of the prediction's log-odds, logits"),
    _number("probability", "mean change of the prediction's probability, -1 to 1"),
    _number(
        "changed_across",
        "share of pairs of names, one of each side, with different predictions; NULL where the "
        "model predicts a number",
    ),
    _number("changed_within", "the same of two names of one side"),
    _number("shift", "share of texts so predicted with the group's names, less the reference's"),
    _number("noise", "change between two names of one side, root mean square of half, logits"),
    _number("per_position", "change of log-odds by a name of one more word piece"),
)


def _side(prefix: str, whose: str) -> Iterator[Column[Any]]:
    yield _count(f"{prefix}items", f"{whose} items")
    yield _count(f"{prefix}selected", f"of {whose} items, so predicted")
    for name, about in (
        ("rate", "selected / items"),
        ("mean_probability", "mean probability of the prediction"),
        ("label_rate", "share of labelled items that are so labelled"),
        ("error_rate", "share of labelled items that are predicted otherwise than labelled"),
        ("true_positive_rate", "selected, of the items so labelled"),
        ("false_positive_rate", "selected, of the items labelled otherwise"),
    ):
        yield _number(f"{prefix}{name}", f"{whose} {about}")
        yield from _interval(f"{prefix}{name}", f"`{prefix}{name}`")
        if name not in ("rate", "mean_probability"):
            yield _count(f"{prefix}{name}_items", "items that it is a share of", null=True)
    yield _number(f"{prefix}calibration", f"{whose} mean probability minus `{prefix}label_rate`")


outcome_result = _table(
    "outcome_result",
    "Rates of a prediction in the items of a group, beside its reference's.",
    _text("group_name", _GROUP),
    _text("reference", _REFERENCE),
    _text("prediction", _PREDICTION),
    _text("stratum", _STRATUM),
    _flag("favourable", "declared favourable, so that the impact ratio is judged"),
    _flag("whole", "items belong to the group as a whole, and do not mention it"),
    _number("rate_difference", "`rate` minus `reference_rate`"),
    _number("impact_ratio", "`rate` over `reference_rate`; NULL: the reference has none"),
    *_side("", "the group's"),
    *_side("reference_", "the reference's"),
)

entity_result = _table(
    "entity_result",
    "Entities of the groups for a class: those with the most mentions, and all that are reported.",
    _text("target", _TARGET),
    _text("class_name", _CLASS),
    _text("group_name", _GROUP),
    _text("entity", "as the lexicon or the data name it"),
    _count("documents", "items that mention it"),
    _count("mentions", "of the entity"),
    _number("mean", "relevance of a mention, in the unit"),
    _number("magnitude_share", "mean of relevance / sum of |relevance| of the item"),
    _count("positive", "mentions with relevance above 0"),
    _number("item_rank", "mean rank of a mention in its item, 0 to 1"),
    _number("shrunken", "`mean`, shrunk towards that of all entities; NULL: under 10 entities"),
    *_interval("shrunken", "`shrunken`"),
    _count("place", "by `shrunken`, 1 for the highest; an entity has one place", null=True),
    _flag("reported", "among the entities that the report lists"),
)

class_word = _table(
    "class_word",
    "The words that the report lists for a class.",
    _text("target", _TARGET),
    _text("class_name", _CLASS),
    _text("word", "in lower case; its keyed hash with `store_text: hashed`"),
    _count("documents", "items with the word"),
    _count("mentions", "of the word"),
    _number("relevance", "sum over its mentions, in the unit"),
    _number("magnitude", "sum of |relevance| over its mentions"),
    _number("mean", "relevance of a mention, in the unit"),
    _flag("function_word", "says little: an article, a comma"),
    _count(
        "raising_by_mean", "place in that list of the report, from 1; NULL: not in it", null=True
    ),
    _count("raising_by_total", "place in that list", null=True),
    _count("lowering_by_mean", "place in that list", null=True),
    _count("lowering_by_total", "place in that list", null=True),
)

run_metric = _table(
    "run_metric",
    "Single numbers of a run, those that `transexplain gate` asks for among them.",
    _text("name", "see the list of names"),
    _text("target", "that it is of; empty: of the run"),
    _text("part", "class, metric, group or verdict that it is of; or empty"),
    Column("value", Double, nullable=False, comment="in `unit`"),
    _text("unit", "`items`, `share` (0 to 1), `logits`, ...; empty: a plain number"),
    _count("items", "that it was measured on; NULL: does not apply", null=True),
)

RESULT_TABLES: tuple[Table, ...] = (
    run_result,
    group_verdict,
    group_measure,
    group_result,
    counterfactual_result,
    outcome_result,
    entity_result,
    class_word,
    run_metric,
)

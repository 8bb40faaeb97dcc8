"""What is published of the group section: what fewer items stand behind is left out."""

from collections.abc import Mapping
from dataclasses import replace

from transexplain.analysis.groups.counterfactuals import Counterfactual
from transexplain.analysis.groups.entity_ranking import RankedEntity, Ranking
from transexplain.analysis.groups.group_controls import Placebo, Planted
from transexplain.analysis.groups.group_splits import Part, Reversal, Split
from transexplain.analysis.groups.group_verdicts import GroupVerdict
from transexplain.analysis.groups.intervals import Rate
from transexplain.analysis.groups.matching_sheet import Precision
from transexplain.analysis.groups.mention_ablation import Ablations, AblationStatistic
from transexplain.analysis.groups.outcomes import Mean, Outcome, Side
from transexplain.analysis.groups.randomised_control import Measured, Randomised, RandomisedRow
from transexplain.reports.redaction import (
    RedactionRules,
    Redactor,
    at_least,
    empty,
    keep,
    kept,
    within,
)
from transexplain.reports.report_records import GroupMatching, Groups
from transexplain.reports.row_records import Dropped, GroupQuality, QualityScore, RareGroup
from transexplain.types.findings import Background, GroupStatistic, Practical, Quantiles, Robustness

_FEW = "the numbers behind it rest on too few items to be shown"
Key = tuple[str, str, str]  #: group, target, class


def keys_of(groups: Groups | None) -> list[Key]:
    """The comparisons of the group table."""
    return [_key(row) for row in groups.rows] if groups else []


def _key(row: GroupStatistic | RandomisedRow | Reversal) -> Key:
    return row.group, row.target, row.class_name


def _verdicts(
    value: tuple[GroupVerdict, ...], groups: Groups, redactor: Redactor
) -> tuple[GroupVerdict, ...]:
    """Those on groups that are in the table."""
    shown = {row.group for row in groups.rows if row.documents >= redactor.fewest}
    found: tuple[GroupVerdict, ...] = redactor.within(
        tuple(one for one in value if one.group in shown)
    )
    return found


def _reasons(value: tuple[str, ...], one: GroupVerdict, redactor: Redactor) -> tuple[str, ...]:
    """Only where they give no rate and no swap of fewer items."""
    outcome = redactor.within(one.outcome)
    swap = redactor.within(one.counterfactual)
    whole = outcome is not None and (swap is not None or one.counterfactual is None)
    return value if whole else (_FEW,)


def _randomised(value: Randomised | None, groups: Groups, redactor: Redactor) -> Randomised | None:
    """Rows of comparisons that are in the table."""
    if value is None or value.items < redactor.fewest:
        return None
    known = {_key(row) for row in groups.rows if row.documents >= redactor.fewest}
    rows = tuple(row for row in value.rows if _key(row) in known)
    made: Randomised | None = redactor.within(replace(value, rows=rows))
    return made


def _rate(value: Rate | None, _side: Side, redactor: Redactor) -> Rate | None:
    found: Rate | None = redactor.within(value)
    return found if found is not None and _large(found, redactor.fewest) else None


def _calibration(value: float | None, side: Side, redactor: Redactor) -> float | None:
    return value if _rate(side.labelled, side, redactor) else None


def _compared_rates(one: Outcome, fewest: int) -> bool:
    """Whether both rates that are compared are of enough items, counted or not."""
    rates = (one.own.selected, one.other.selected)
    return all(rate.total >= fewest and _large(rate, fewest) for rate in rates)


def _large(rate: Rate, fewest: int) -> bool:
    """Whether neither those who are counted nor the rest are few; nobody at all is not few."""
    return all(part == 0 or part >= fewest for part in (rate.count, rate.total - rate.count))


def _rankings(
    value: tuple[Ranking, ...], _groups: Groups, redactor: Redactor
) -> tuple[Ranking, ...]:
    return tuple(one for one in redactor.within(value) if one.entities)


def _omitted_entities(value: int, ranking: Ranking, redactor: Redactor) -> int:
    return value + sum(one.documents < redactor.fewest for one in ranking.entities)


def _parts(value: tuple[Part, ...], _split: Split, redactor: Redactor) -> tuple[Part, ...]:
    return tuple(part for part in redactor.within(value) if part.rows)


def _omitted_parts(value: int, split: Split, redactor: Redactor) -> int:
    return value + len(split.parts) - len(_parts(split.parts, split, redactor))


def _reversals(
    value: tuple[Reversal, ...], split: Split, redactor: Redactor
) -> tuple[Reversal, ...]:
    """They lean on all parts of a split, so they stay only with these."""
    parts = _parts(split.parts, split, redactor)
    shown = {(*_key(row), part.value) for part in parts for row in part.rows}
    found: tuple[Reversal, ...] = redactor.within(
        tuple(one for one in value if all((*_key(one), part) in shown for part in one.parts))
    )
    return found


def _entities(
    value: tuple[tuple[str, int], ...], _dropped: Dropped, redactor: Redactor
) -> tuple[tuple[str, int], ...]:
    return tuple(each for each in value if each[1] >= redactor.fewest)


def _much_mentioned(one: GroupMatching, redactor: Redactor) -> bool:
    """Whether the mentions of the entity mentioned most, so its items, are not few."""
    return one.most_share * one.mentions >= redactor.fewest


def _most(value: str, one: GroupMatching, redactor: Redactor) -> str:
    return value if _much_mentioned(one, redactor) else ""


def _most_share(value: float, one: GroupMatching, redactor: Redactor) -> float:
    return value if _much_mentioned(one, redactor) else 0.0


_RELEVANCE: Mapping[type, RedactionRules] = {
    GroupStatistic: RedactionRules(
        stands=at_least("documents"),
        fields={
            **dict.fromkeys(("robustness", "quantiles", "background"), within),
            **kept(
                "group target class_name mentions documents entities mean entity_mean positive "
                "interval reference difference difference_interval interval_by p adjusted_p "
                "detectable verdict reason note rank"
            ),
        },
    ),
    Robustness: RedactionRules(fields=kept("name unit difference interval")),
    Quantiles: RedactionRules(fields=kept("low lower median upper high")),
    Background: RedactionRules(
        fields=kept("words entities mean interval difference difference_interval")
    ),
    Ranking: RedactionRules(
        fields={
            "entities": within,
            "omitted": _omitted_entities,
            **kept("target class_name centre spread"),
        }
    ),
    RankedEntity: RedactionRules(
        stands=at_least("documents"),
        fields=kept("groups entity mentions documents mean shrunken interval"),
    ),
    Split: RedactionRules(
        fields={"parts": _parts, "omitted": _omitted_parts, "reversals": _reversals, "by": keep}
    ),
    Part: RedactionRules(fields={"rows": within, "value": keep}),
    Reversal: RedactionRules(fields=kept("group target class_name overall parts")),
}
_ANSWERS: Mapping[type, RedactionRules] = {
    Practical: RedactionRules(fields=kept("logit probability impact_ratio")),
    GroupVerdict: RedactionRules(
        fields={
            "outcome": within,
            "counterfactual": within,
            "reasons": _reasons,
            "missing": empty(()),
            **kept("group reference verdict answer stratum p"),
        }
    ),
    Counterfactual: RedactionRules(
        stands=at_least("documents"),
        fields={
            "examples": empty(()),
            **kept(
                "kind group reference answer stratum documents clusters entities other_entities "
                "effect interval names_interval probability probability_interval flips own_flips "
                "noise varies varies_p per_position p equal needed needed_of"
            ),
        },
    ),
    Outcome: RedactionRules(
        stands=_compared_rates,
        fields={
            "own": within,
            "other": within,
            **kept(
                "group reference answer stratum difference difference_interval impact_ratio "
                "ratio_interval p equal"
            ),
        },
    ),
    Side: RedactionRules(
        fields={
            "selected": within,
            "probability": within,
            "calibration": _calibration,
            **dict.fromkeys(("labelled", "error", "true_positive", "false_positive"), _rate),
        }
    ),
    Rate: RedactionRules(fields=kept("count total interval")),
    Mean: RedactionRules(fields=kept("value interval")),
    Ablations: RedactionRules(
        stands=at_least("items"), fields={"rows": within, **kept("items flips")}
    ),
    AblationStatistic: RedactionRules(
        stands=at_least("items"),
        fields=kept(
            "group target class_name items entities flips rate interval change change_interval "
            "correlation"
        ),
    ),
}
_CONTROLS: Mapping[type, RedactionRules] = {
    Randomised: RedactionRules(
        fields={
            "rows": within,
            **kept("items failed differences randomised_differences draws"),
        }
    ),
    RandomisedRow: RedactionRules(
        fields={
            "real": within,
            "randomised": within,
            **kept("group target class_name entities ratio ratio_interval"),
        }
    ),
    Measured: RedactionRules(fields=kept("difference interval share share_interval verdict")),
    Placebo: RedactionRules(fields=kept("lexicons comparisons below differences")),
    Planted: RedactionRules(fields=kept("difference lexicons found wrong share interval")),
}
_MATCHING: Mapping[type, RedactionRules] = {
    Dropped: RedactionRules(
        stands=at_least("count"), fields={"entities": _entities, **kept("group count")}
    ),
    RareGroup: RedactionRules(stands=at_least("items"), fields=kept("group mentions items share")),
    GroupQuality: RedactionRules(
        stands=at_least("items"), fields={"scores": within, **kept("group items gap")}
    ),
    QualityScore: RedactionRules(
        stands=at_least("items"), fields=kept("target metric title items mean")
    ),
    GroupMatching: RedactionRules(
        stands=lambda one, fewest: not 0 < one.items < fewest,
        fields={
            "most": _most,
            "most_share": _most_share,
            "precision": within,
            **kept("group terms entities mentions items dropped left_out"),
        },
    ),
    Precision: RedactionRules(fields=kept("group checked correct precision interval")),
}
#: A group that is left out of the table is also left out of the list of groups that nobody
#: mentions: it is mentioned.
RULES: Mapping[type, RedactionRules] = {
    Groups: RedactionRules(
        fields={
            "verdicts": _verdicts,
            "proxies": empty(()),
            "randomised": _randomised,
            "rankings": _rankings,
            **dict.fromkeys(
                (
                    "rows",
                    "limits",
                    "outcomes",
                    "counterfactuals",
                    "removals",
                    "placebo",
                    "planted",
                    "splits",
                    "dropped",
                    "rare",
                    "quality",
                    "matching",
                    "precision",
                ),
                within,
            ),
            **kept("reference practical correction never_mentioned sources"),
        }
    ),
    **_RELEVANCE,
    **_ANSWERS,
    **_CONTROLS,
    **_MATCHING,
}

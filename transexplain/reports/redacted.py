"""A report that may be handed on: no texts, no ids, and no row that rests on few items."""

from collections.abc import Mapping
from dataclasses import replace
from functools import cache

from transexplain.reports.redaction import (
    FEWEST,
    RedactionRules,
    Redactor,
    check_fewest,
    empty,
    keep,
    within,
)
from transexplain.reports.report_records import Previous, Summary
from transexplain.reports.sections import SECTIONS
from transexplain.reports.sections.group_rules import keys_of
from transexplain.reports.summary import with_sentences


def redacted(summary: Summary, fewest: int = FEWEST) -> Summary:
    """The summary without texts, ids and pictures, and without what rests on few items.

    Words, entities, groups, classes, kinds of failures and parts of splits that fewer than
    `fewest` items stand behind are left out, cells of the confusion table become None. Totals of
    the whole run stay, so that a single cell that is missing in a row can be worked out. Examples
    keep their colours over blocks, and are numbered. The headline is written anew from what is
    left. Raises ConfigurationError for `fewest` below 2.
    """
    check_fewest(fewest)
    found = Redactor(rules=rules(), fewest=fewest).record(summary)
    assert found is not None  # a summary stands whatever its items are
    return with_sentences(found)


@cache
def rules() -> Mapping[type, RedactionRules]:
    """The rules of every record that a report can hold, gathered from its sections."""
    found: dict[type, RedactionRules] = {Summary: _SUMMARY}
    for name in SECTIONS:
        found |= SECTIONS.load(name).redaction
    return found


def _notes(value: tuple[str, ...], _summary: Summary, redactor: Redactor) -> tuple[str, ...]:
    fewest = redactor.fewest
    return (
        *value,
        "This report is redacted: texts, pictures, messages and ids of items are left out, and "
        f"words, entities, groups, classes and kinds of failures behind which fewer than {fewest} "
        f"items stand; cells of fewer than {fewest} say so. Other cells are not hidden to protect "
        "these: where a total stands beside them, one missing cell can be worked out. The headline "
        "was written from what is left; verdicts were adjusted over the whole table.",
    )


def _previous(value: Previous | None, summary: Summary, redactor: Redactor) -> Previous | None:
    """Changes of the comparisons alone that are left of the group table."""
    if value is None:
        return None
    known = set(keys_of(redactor.within(summary.groups)))
    found = (one for one in value.groups if (one.group, one.target, one.class_name) in known)
    made: Previous | None = redactor.within(replace(value, groups=tuple(found)))
    return made


def _omitted(value: int, summary: Summary, redactor: Redactor) -> int:
    return value + sum(one.items < redactor.fewest for one in summary.classes)


def _fewest(_value: int | None, _summary: Summary, redactor: Redactor) -> int:
    return redactor.fewest


_SUMMARY = RedactionRules(
    fields={
        # the sentences are written anew from what is left
        "headline": empty(()),
        "verdict": empty(None),
        "untested": empty(()),
        "notes": _notes,
        "classes_omitted": _omitted,
        "previous": _previous,
        "fewest": _fewest,
        "schema_version": keep,
        **dict.fromkeys(
            (
                "audited",
                "counts",
                "conservation",
                "class_sensitivity",
                "classes",
                "confusion",
                "groups",
                "gallery",
                "failures",
                "faithfulness",
                "provenance",
                "mixed",
                "approximates",
                "sections",
            ),
            within,
        ),
    }
)

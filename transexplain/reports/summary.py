"""Summarises a run in one record: everything that its reports show."""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import replace
from functools import cache
from typing import Any

from transexplain.analysis.groups.matching_sheet import MatchPrecision
from transexplain.analysis.groups.shard_aggregate import ShardAggregate
from transexplain.errors import ConfigurationError
from transexplain.provenance.manifest import manifest_of
from transexplain.reports.headline import with_sentences
from transexplain.reports.redaction import (
    FEWEST,
    RedactionRules,
    Redactor,
    Rule,
    check_fewest,
    empty,
    keep,
    within,
)
from transexplain.reports.report_records import Summary
from transexplain.reports.report_section import Section, SectionSource, merged, uncollected
from transexplain.reports.sections import SECTIONS
from transexplain.reports.sections.audited_run import audited_of, notes
from transexplain.reports.sections.class_views import views
from transexplain.reports.sections.gallery_items import choose, collect, scale_of
from transexplain.reports.sections.group_section import groups_of
from transexplain.reports.sections.item_fates import confusion, counts_of, failures
from transexplain.reports.sections.manifest_section import provenance_of
from transexplain.reports.sections.measured_faithfulness import (
    conservation_of,
    faithfulness,
    sensitivity_of,
)
from transexplain.reports.sections.mixed_section import mixed_of
from transexplain.reports.sections.previous_run import compared
from transexplain.store import blocks, runs
from transexplain.store.database import Database
from transexplain.store.shard_summary import summaries_once
from transexplain.types.plans import AuditRun

__all__ = ["Summary", "summarise", "summarised"]

GALLERY = 40  #: items to look at


def summarise(
    db: Database,
    run_id: str,
    *,
    gallery: int = GALLERY,
    precisions: Sequence[MatchPrecision] = (),
) -> Summary:
    """Everything a report says about a run, finished or not.

    Totals are merged from those of the shards and examples found by index. Memory grows with the
    vocabulary and `gallery`, not the run. Items that are damaged in the store are left out, and the
    report says so.

    Args:
        db: the store.
        run_id: id, unique beginning of one, or `latest`.
        gallery: number of items to show.
        precisions: of the matches, from a sheet that a person filled.

    Raises ConfigurationError for an unknown run or a negative gallery.
    """
    return summarised(db, run_id, gallery=gallery, precisions=precisions)[0]


def summarised(
    db: Database,
    run_id: str,
    *,
    gallery: int = GALLERY,
    precisions: Sequence[MatchPrecision] = (),
) -> tuple[Summary, ShardAggregate]:
    """The summary of a run as `summarise` makes it, and the totals that it was made from."""
    if gallery < 0:
        raise ConfigurationError(f"a gallery of {gallery} items cannot be; 0 leaves it out")
    run = runs.get(db, run_id)
    with uncollected(), blocks.sparing(), summaries_once():
        total = merged(db, run.id)
        with ThreadPoolExecutor(1, "sections") as beside:  # it mostly reads the store
            sections = beside.submit(
                copy_context().run, _sections, SectionSource(db=db, run=run, total=total)
            )
            measured = _measured(db, run, total, gallery, precisions)
    return with_sentences(replace(measured, sections=sections.result())), total


def _measured(
    db: Database,
    run: AuditRun,
    total: ShardAggregate,
    places: int,
    precisions: Sequence[MatchPrecision],
) -> Summary:
    """The summary without the sentences that are made of it, and without `_sections`."""
    manifest = manifest_of(db, run.id)
    seen, targets = total.seen, run.plan.targets
    shown, omitted = views(total, seen, targets, run.plan.model.modality)
    audited, sensitivity = audited_of(run, seen, manifest), sensitivity_of(total)
    scale = scale_of(db, run.id, seen.count.total())
    groups = groups_of(db, run, total, precisions)
    return Summary(
        headline=(),
        audited=audited,
        counts=counts_of(db, run),
        conservation=conservation_of(db, run),
        class_sensitivity=sensitivity,
        classes=shown,
        classes_omitted=omitted,
        confusion=confusion(total, run.plan.model.classes),
        groups=groups,
        gallery=collect(db, run.id, choose(db, run.id, places), scale),
        failures=failures(db, run.id),
        notes=notes(run, audited.at, audited.unit, sensitivity, total.repeats),
        faithfulness=faithfulness(db, run),
        previous=compared(db, run, groups),
        provenance=provenance_of(manifest),
        mixed=mixed_of(run.plan, total),
        approximates=run.plan.approximates,
    )


def _sections(source: SectionSource) -> dict[str, Any]:
    """The records of sections that are not fields of a summary."""
    records: dict[str, Any] = {}
    for name in SECTIONS:
        section: Section = SECTIONS.load(name)
        record = section.collect(source) if section.collect else None
        if record is not None:
            records[name] = record
    return records


def redacted(summary: Summary, fewest: int = FEWEST) -> Summary:
    """The summary without texts, ids and pictures, and without what rests on few items.

    Words, entities, groups, classes, kinds of failures and parts of splits that fewer than
    `fewest` items stand behind are left out, cells of the confusion table become None. Totals of
    the whole run stay, so that a single cell that is missing in a row can be worked out. Examples
    keep their colours over blocks, and are numbered. The headline is made of what is left. Raises
    ConfigurationError for `fewest` below 2.
    """
    check_fewest(fewest)
    published = Redactor(rules=rules(), fewest=fewest).record(summary)
    assert published is not None  # a summary is kept whatever its number of items
    return with_sentences(published)


@cache
def rules() -> Mapping[type, RedactionRules]:
    """The rules of every record that a report can hold, gathered from its sections."""
    fields, records = dict(_SUMMARY), dict[type, RedactionRules]()
    for name in SECTIONS:
        section: Section = SECTIONS.load(name)
        records |= section.redaction
        fields |= section.of_summary
    return {Summary: RedactionRules(fields=fields), **records}


def _fewest(_value: int | None, _summary: Summary, redactor: Redactor) -> int:
    return redactor.fewest


_SUMMARY: Mapping[str, Rule] = {
    # the sentences are made from the redacted summary
    "headline": empty(()),
    "verdict": empty(None),
    "sections": within,
    "fewest": _fewest,
    "schema_version": keep,
}

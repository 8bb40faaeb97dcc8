"""A run in one record: everything its reports say."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from transexplain.analysis.groups.class_totals import SeenTotals
from transexplain.analysis.groups.matching_sheet import Precision
from transexplain.analysis.groups.shard_aggregate import ShardAggregate
from transexplain.errors import ConfigurationError
from transexplain.provenance.manifest import Manifest, manifest_of
from transexplain.reports.class_tables import confusion, views
from transexplain.reports.gallery import choose, collect, failures, survey
from transexplain.reports.headline import headline
from transexplain.reports.notes import notes
from transexplain.reports.report_records import Audited, ClassSensitivity, Summary
from transexplain.reports.report_section import Section, Source
from transexplain.reports.report_verdict import verdict
from transexplain.reports.sections import SECTIONS
from transexplain.reports.sections.cheap_and_exact import mixed_of
from transexplain.reports.sections.manifest_in_short import provenance_of
from transexplain.reports.sections.measured_faithfulness import faithfulness, sentences
from transexplain.reports.sections.previous_run import compared, differences
from transexplain.reports.sections.untested import untested
from transexplain.reports.tallies import conservation_of, counts_of, groups_of, merged, uncollected
from transexplain.store import runs
from transexplain.store.database import Database
from transexplain.types.plans import AuditRun
from transexplain.version import __version__


def with_sentences(summary: Summary) -> Summary:
    """`summary` with its headline, its verdict and what was not tested written anew."""
    lines = (
        *headline(
            summary.audited,
            summary.counts,
            summary.conservation,
            summary.class_sensitivity,
            summary.groups,
            summary.failures,
            summary.approximates,
        ),
        *sentences(summary.faithfulness, summary.audited.modality),
        *differences(summary.previous, summary.counts),
        *(one for name in SECTIONS for one in SECTIONS.load(name).sentences(summary)),
    )
    return replace(summary, headline=lines, verdict=verdict(summary), untested=untested(summary))


__all__ = ["Summary", "summarise"]

GALLERY = 40  #: items to look at


def summarise(
    db: Database,
    run_id: str,
    *,
    gallery: int = GALLERY,
    precisions: Sequence[Precision] = (),
) -> Summary:
    """Everything a report says about a run, finished or not.

    Totals are merged from those of the shards and examples found by index; what an older version
    saved is walked. Memory grows with the vocabulary and `gallery`, not the run.

    Args:
        db: the store.
        run_id: id, unique beginning of one, or `latest`.
        gallery: number of items to show.
        precisions: of the matches, from a sheet that a person filled.

    Raises ConfigurationError for an unknown run or a negative gallery.
    """
    if gallery < 0:
        raise ConfigurationError(f"a gallery of {gallery} items cannot be; 0 leaves it out")
    run = runs.get(db, run_id)
    with uncollected():
        found = _measured(db, run, gallery, precisions)
    return with_sentences(found)


def _measured(db: Database, run: AuditRun, places: int, precisions: Sequence[Precision]) -> Summary:
    """The summary without the sentences that are made of it."""
    total, manifest = merged(db, run.id), manifest_of(db, run.id)
    noted = survey(db, run, total, places)
    shown, omitted = views(total, noted.seen, run.plan.targets)
    audited, sensitivity = _audited(run, noted.seen, manifest), _sensitivity(total)
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
        gallery=collect(db, run.id, choose(noted, places), noted.scale),
        failures=failures(db, run.id),
        notes=notes(run, audited.at, audited.unit, sensitivity),
        faithfulness=faithfulness(db, run),
        previous=compared(db, run, groups),
        provenance=provenance_of(manifest),
        mixed=mixed_of(run.plan, total),
        approximates=run.plan.approximates,
        sections=dict(_sections(Source(db=db, run=run, total=total))),
    )


def _sections(source: Source) -> Iterator[tuple[str, Any]]:
    """The records of the sections that are no fields of a summary."""
    for name in SECTIONS:
        section: Section = SECTIONS.load(name)
        found = section.collect(source) if section.collect else None
        if found is not None:
            yield name, found


def _audited(run: AuditRun, seen: SeenTotals, manifest: Manifest) -> Audited:
    plan = run.plan
    return Audited(
        run_id=run.id,
        name=plan.name,
        state=run.state,
        created=run.created,
        finished=run.finished,
        plan_digest=plan.digest,
        version=__version__,
        model=plan.model.source,
        model_digest=plan.model.digest,
        dtype=plan.model.dtype,
        device=plan.model.device,
        modality=plan.model.modality,
        classes=plan.model.classes,
        dataset=plan.dataset.source,
        fingerprint=plan.dataset.fingerprint,
        root=plan.dataset.root,
        method=plan.method.name,
        parameters=dict(plan.method.params),
        targets=plan.targets,
        at=tuple(sorted(seen.leaves)),
        unit=" and ".join(sorted(seen.units)) or "logits",
        long_text=plan.long_text,
        max_length=plan.max_length,
        payload=plan.payload,
        window=plan.window,
        stride=plan.stride,
        long_text_join=plan.long_text_join,
        task=plan.task,
        inputs_digest=manifest.name,
        manifest_digest=manifest.sha256,
    )


def _sensitivity(total: ShardAggregate) -> ClassSensitivity | None:
    found = total.class_sensitivity
    return None if found is None else ClassSensitivity(mean=found[0], items=found[1])

"""Summarises a run in one record: everything that its reports show."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import replace
from functools import cache
from typing import Any

from transexplain.analysis.groups.group_verdicts import GroupVerdict
from transexplain.analysis.groups.matching_sheet import MatchPrecision
from transexplain.analysis.groups.shard_aggregate import ShardAggregate
from transexplain.errors import ConfigurationError
from transexplain.evaluating.metrics.map_metrics import HARDLY
from transexplain.provenance.manifest import manifest_of
from transexplain.reports.phrasing import named
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
from transexplain.reports.report_section import (
    Section,
    SectionSource,
    Statement,
    StatementKind,
    merged,
    uncollected,
)
from transexplain.reports.sections import SECTIONS
from transexplain.reports.sections.audited_run import audited_of, notes, provenance_of
from transexplain.reports.sections.class_views import views
from transexplain.reports.sections.gallery_items import choose, collect, scale_of
from transexplain.reports.sections.group_answers import by_state, is_of_whole
from transexplain.reports.sections.group_section import Groups, groups_of
from transexplain.reports.sections.item_fates import confusion, counts_of, damage, failures
from transexplain.reports.sections.measured_faithfulness import (
    conservation_of,
    faithfulness,
    sensitivity_of,
)
from transexplain.reports.sections.mixed_section import mixed_of, mixture_sentence
from transexplain.reports.sections.previous_run import compared
from transexplain.reports.sections.untested import untested
from transexplain.reports.verdict_words import mention_in_words, most_in_words, outcome_in_words
from transexplain.store import blocks, runs
from transexplain.store.database import Database
from transexplain.store.run_totals import summaries_once
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


_SUMMARY: Mapping[str, Rule] = {
    # the sentences are made from the redacted summary
    "headline": empty(()),
    "verdict": empty(None),
    "sections": within,
    "fewest": lambda _value, _summary, redactor: redactor.fewest,
    "schema_version": keep,
}


#: sections whose sentences open the headline, in this order; the others follow as on the page
_FIRST = ("unreadable", "data", "groups", "evidence", "previous")


def with_sentences(summary: Summary) -> Summary:
    """`summary` with its headline, its verdict and what was not tested, made of its numbers."""
    names = (*_FIRST, *(name for name in SECTIONS if name not in _FIRST))
    lines = (sentence for name in names for sentence in SECTIONS.load(name).sentences(summary))
    return replace(
        summary, headline=tuple(lines), verdict=verdict(summary), untested=untested(summary)
    )


#: shares of the items above which a verdict without them cannot be *clear*
_FAILED, _CUT = 0.02, 0.05
_WITH_NUMBERS = 2  #: verdicts that the sentence gives the numbers of


def verdict(summary: Summary) -> Statement:
    """The verdict in one sentence, for those who read nothing else."""
    if not summary.counts.done:
        return Statement(kind="unknown", text="Nothing was explained, so there is no result.")
    doubts = " ".join(_doubts(summary))
    kind, sentence = _found(summary)
    if mixed := mixture_sentence(summary.mixed):
        sentence = f"{sentence} {mixed}"
    elif summary.approximates is not None:
        teacher = summary.approximates.teacher
        sentence = (
            f"{sentence} Relevance was predicted by an explainer, which approximates {teacher}."
        )
    so_far = "So far: " if summary.counts.pending else ""
    if not doubts:
        return Statement(kind=kind, text=f"{so_far}{sentence}")
    return Statement(kind="problem", text=f"{doubts} {so_far}{sentence}")


def _doubts(summary: Summary) -> Iterator[str]:
    if lost := damage(summary.sections.get("unreadable")):
        yield lost
    conservation, sensitivity = summary.conservation, summary.class_sensitivity
    if conservation is not None and conservation.above:
        yield "Do not rely on this audit: the ledgers of its explanations do not close."
    if sensitivity is not None and sensitivity.mean < HARDLY:
        yield f"Read with care: {summary.audited.method} hardly distinguishes classes here."
    judged = [row.beats for row in summary.faithfulness.rows] if summary.faithfulness else []
    if False in judged and True not in judged:
        yield f"Read with care: {summary.audited.method} does not beat a random ranking here."


def _found(summary: Summary) -> tuple[StatementKind, str]:
    groups = summary.groups
    if groups is None:
        return "fact", "Below is what each class looks at; no groups were given."
    if not groups.verdicts:
        return "unknown", "No group could be compared: too few items mention any."
    gaps = list(caveats(summary))
    by = by_state(groups.verdicts)
    texts = [_mention(groups), _outcome(groups.verdicts), _remedy(groups)]
    if by["clear"] and (by["flagged"] or by["open"]):
        texts.insert(2, f"Neither is the case for {named([row.group for row in by['clear']])}.")
    if gaps and not by["flagged"]:
        begins = "Not covered" if by["open"] else "It is not clear, though"
        texts.append(f"{begins}: {'; '.join(gaps)}.")
    text = " ".join(filter(None, texts))
    if by["flagged"]:
        return "flagged", text
    return ("unknown" if by["open"] or gaps else "clear"), text


def _mention(groups: Groups) -> str:
    """The answer to the first question: who, compared with whom, how much, how sure."""
    verdicts = [row for row in groups.verdicts if not is_of_whole(row)]
    if not verdicts:
        return "Items belong to the groups as a whole, so no mention was swapped."
    changing = [row for row in verdicts if row.mention == "changes"]
    opened = [row for row in verdicts if row.mention == "open"]
    if changing:
        also = f" It is open for {named([row.group for row in opened])}." if opened else ""
        return f"The mention changes the prediction. {_each(changing, mention_in_words)}{also}"
    if opened:
        settled = [row.group for row in verdicts if row not in opened]
        also = f" It does not for {named(settled)}." if settled else ""
        return (
            "It is open whether the mention changes the prediction. "
            f"{_each(opened, mention_in_words, 1)}{also}"
        )
    who = f"any of the {len(verdicts)} groups" if len(verdicts) > 1 else verdicts[0].group
    return f"The mention of {who} does not change the prediction: {most_in_words(groups)}"


def _outcome(verdicts: Sequence[GroupVerdict]) -> str:
    """The answer to the second question."""
    differing = [row for row in verdicts if row.outcome == "differ"]
    opened = [row for row in verdicts if row.outcome == "open"]
    if differing:
        also = f" They are open for {named([row.group for row in opened])}." if opened else ""
        return f"Outcomes differ. {_each(differing, outcome_in_words)}{also}"
    if opened:
        return f"It is open whether outcomes differ. {_each(opened, outcome_in_words, 1)}"
    return "Predictions and errors do not differ by more than the limit."


def _each(
    verdicts: Sequence[GroupVerdict],
    words: Callable[[GroupVerdict], str],
    most: int = _WITH_NUMBERS,
) -> str:
    """The groups, the first of them with their numbers."""
    shown = " ".join(words(row) for row in verdicts[:most])
    rest = [row.group for row in verdicts[most:]]
    return f"{shown} The same holds for {named(rest)}." if rest else shown


def _remedy(groups: Groups) -> str:
    """Return what to do about it."""
    verdicts = groups.verdicts
    if any(row.mention == "changes" for row in verdicts):
        return "Before you use the model, look at the texts under Swaps that change most."
    if any(row.outcome == "differ" for row in verdicts):
        return "Before you use the model, look under Outcomes for what goes along with it."
    opened = [row for row in verdicts if row.state == "open"]
    advice = [text for row in opened for text in (row.mention_advice, row.outcome_advice) if text]
    return advice[0] if advice else "See what was not tested." if opened else ""


def caveats(summary: Summary) -> Iterator[str]:
    """The reasons why a verdict is not *clear* although no comparison differs."""
    counts, groups = summary.counts, summary.groups
    if counts.done < (1 - _FAILED) * counts.total:
        yield f"{counts.total - counts.done:,} of {counts.total:,} items have no answer"
    if counts.done and counts.truncated > _CUT * counts.done:
        yield f"{counts.truncated:,} of {counts.done:,} items were cut before their end"
    for verdict_ in groups.verdicts if groups else ():
        for gap in verdict_.missing:
            yield f"{verdict_.group}: {gap}"

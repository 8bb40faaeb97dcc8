"""The headline of a report, written by its sections, and the verdict in one sentence."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from transexplain.analysis.groups.group_verdicts import GroupVerdict
from transexplain.evaluating.metrics.map_metrics import HARDLY
from transexplain.reports.phrasing import named
from transexplain.reports.report_records import Summary
from transexplain.reports.report_section import Statement, StatementKind
from transexplain.reports.sections import SECTIONS
from transexplain.reports.sections.group_answers import by_state, is_of_whole
from transexplain.reports.sections.group_section import Groups
from transexplain.reports.sections.item_fates import damage
from transexplain.reports.sections.mixed_section import mixture_sentence
from transexplain.reports.sections.untested import untested
from transexplain.reports.verdict_words import mention_in_words, most_in_words, outcome_in_words

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

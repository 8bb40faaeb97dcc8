"""Limits of a run: what it did not test, why, and how to test it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from transexplain.reports.phrasing import class_phrase, named, nearness, sampled, short, things
from transexplain.reports.redaction import empty, published
from transexplain.reports.report_section import Section
from transexplain.reports.sections.group_answers import hidden_parts
from transexplain.reports.sections.group_section import Groups
from transexplain.types.plans import AT_POSITIONS, GENERATED, Head


@dataclass(frozen=True, kw_only=True, slots=True)
class Untested:
    """Something that nobody may conclude from a run."""

    what: str
    why: str
    remedy: str  #: how to test it; "": this software cannot


def untested(summary: Any) -> tuple[Untested, ...]:
    """The list, from the limits of every audit to what this one did not measure."""
    limits = (*_data(summary), *_explanations(summary), *_groups(summary))
    return tuple(Untested(what=what, why=why, remedy=remedy) for what, why, remedy in limits)


_Found = Iterator[tuple[str, str, str]]


def _data(summary: Any) -> _Found:
    audited, counts = summary.audited, summary.counts
    rests = {"text": "languages, times and uses", "image": "cameras, times and uses"}
    rest = rests.get(audited.modality, "ways of making the graphs")
    yield (
        "Other data",
        f"Only items of {short(audited.dataset)} were read; other sources, {rest} may differ.",
        "The same specification with another data.source.",
    )
    if missing := counts.total - counts.done:
        states = ((counts.failed, "failed"), (counts.pending, "without a result"))
        missed = ", ".join(f"{count:,} {state}" for count, state in states if count)
        yield (
            "Items without an explanation",
            f"{missing:,} of {counts.total:,}: {missed}.",
            "Correct the items that failed; transexplain retry or resume.",
        )
    if counts.truncated:
        yield (
            "The ends of long texts",
            f"{things(audited.modality, counts.truncated)} "
            f"{'was' if counts.truncated == 1 else 'were'} longer than the model reads; the rest "
            "was not seen.",
            "Shorter texts, such as single sentences."
            if audited.head in AT_POSITIONS
            else "long_text: window",
        )
    unlabelled = counts.done - counts.labelled
    if counts.done and not counts.labelled:
        yield (
            "Accuracy and errors",
            "No item has a label of a class: neither overall nor for any group.",
            _LABELS.get(
                audited.head, "Name the column with data.label; map its values with labels."
            ),
        )
    elif unlabelled > 0:
        yield (
            f"Accuracy on {things(audited.modality, unlabelled)}",
            _UNLABELLED.get(audited.head, "They have no label that is a class of the model."),
            _LABELS.get(audited.head, "Map the dataset's labels with labels."),
        )


def _explanations(summary: Any) -> _Found:
    audited = summary.audited
    if audited.task == "imported":
        yield (
            "The attributions themselves",
            "They were made elsewhere: whether they add up to the logit, are faithful and "
            "distinguish classes was not measured.",
            "An audit of the model itself.",
        )
        return
    yield (
        "Other methods of explanation",
        f"Relevance is that of {audited.method} alone; another method may rank words, patches "
        "or nodes otherwise.",
        "The same specification with another method."
        if audited.head in _UNEVALUATED
        else "transexplain evaluate measures several side by side.",
    )
    if (mixed := summary.mixed) is not None:
        yield (
            f"Relevance of every item by {mixed.exact}",
            f"{mixed.method} replaces it; only {mixed.items:,} items were explained by both. "
            f"Words, heatmaps, rankings, splits and controls are those of {mixed.method}.",
            f"method: {mixed.exact}",
        )
    yield from _approximation(summary)
    classes = summary.audited.classes
    shown: set[str] = set()
    for view in summary.classes:
        both = class_phrase(view.target, view.class_name, classes).split(" over ")
        shown.update(both if set(both) <= set(classes) else (view.class_name,))
    unseen = [name for name in classes if name not in shown] if shown <= set(classes) else []
    if unseen and summary.counts.done and not summary.classes_omitted:
        yield (
            f"What speaks for {named(unseen)}",
            f"Never explained: the targets were {named(audited.targets)}.",
            f"targets: class:{unseen[0]}" if audited.head in AT_POSITIONS else "targets: all",
        )
    if summary.faithfulness is None:
        why = "No sample was measured."
        if audited.head in _UNEVALUATED:
            does = _DOES[audited.head]
            why = f"The metrics compare classes of which one is right; the model {does}."
        remedy = "" if audited.head in _UNEVALUATED else "evaluation: {items: 32}"
        yield ("Whether explanations are faithful", why, remedy)


#: what a model does whose explanations no metric measures
_DOES: Mapping[Head, str] = {
    "labels": "may give several labels",
    "tokens": "labels tokens",
    "span": "marks answers",
    GENERATED: "generates its answers",
}
_UNEVALUATED = frozenset(_DOES)
_UNLABELLED: Mapping[Head, str] = {
    "tokens": "They have no list of entities of the model's types.",
    "span": "They have no given answer.",
    GENERATED: "They have no expected answer.",
}
_LABELS: Mapping[Head, str] = {
    "tokens": "Name a column of [start, end, type] with data.label.",
    "span": "Name the column of answers with data.label.",
    GENERATED: "Name the column of expected answers with data.label.",
}


def _approximation(summary: Any) -> _Found:
    approximation, mixed = summary.approximates, summary.mixed
    if approximation is not None and (mixed is None or mixed.exact != approximation.teacher):
        yield (
            f"Relevance of these items by {approximation.teacher}",
            "The explainer approximates it, and no item was explained by both; "
            f"{nearness(approximation)}.",
            sampled(approximation),
        )


_ADVISED = 3  #: groups
_UNSPELLED = "Mentions that are not in your word list"


def _groups(summary: Any) -> _Found:
    groups = summary.groups
    if groups is None:
        yield (
            "Who or what is mentioned or shown",
            "No groups were given.",
            {
                "text": "groups: builtin:gender, a lexicon of your own, or marked entities "
                "(data.spans).",
                "image": "Regions marked in the pictures (data.spans).",
                "nodes": "Substructures marked in the graphs (data.spans: node_groups).",
            }[summary.audited.modality],
        )
        return
    if summary.audited.modality != "nodes":
        yield from _people()
    if summary.audited.modality == "text":
        recogniser = summary.audited.recogniser
        yield (
            "Mentions that the recogniser misses" if recogniser else _UNSPELLED,
            "Names, pronouns, descriptions and spellings that it does not find are not counted."
            if recogniser
            else "Pronouns, descriptions and spellings that are no terms of it are not counted.",
            "data.spans for entities that another program marked"
            + ("." if recogniser else ", or a recogniser (groups.recogniser)."),
        )
    mention = [row for row in groups.verdicts if row.mention == "open"]
    if swapped := [row.group for row in mention if row.counterfactual is not None]:
        hidden = hidden_parts(groups.counterfactuals)
        yield (
            f"Whether the mention of {named(swapped)} changes the prediction",
            "Neither an effect that matters nor its absence is shown.",
            _advice({row.group: row.mention_advice for row in mention})
            or f"More items with marked {hidden or 'mentions'}.",
        )
    outcome = [row for row in groups.verdicts if row.outcome == "open" and row.rates]
    if outcome:
        yield (
            f"Whether outcomes differ for {named([row.group for row in outcome])}",
            "Neither a difference of rates or errors that matters nor its absence is shown.",
            _advice({row.group: row.outcome_advice for row in outcome})
            or f"More items of {'it' if len(outcome) == 1 else 'them'} and of the reference.",
        )
    yield from _seldom_mentioned(groups)
    if summary.audited.head == "classes" and len(summary.audited.classes) == 1:
        yield (
            "Rates of predictions",
            "The model predicts a number. Whether it is higher in items that mention a group "
            "was not compared; swaps say what a mention adds to it.",
            "If the number decides: problem_type multi_label_classification in its config.json.",
        )
    yield from _unchecked(summary, groups)


def _people() -> _Found:
    yield (
        "People",
        "Groups are mentions or marks in the items. Those who use the system or are judged by it "
        "were not observed.",
        "Who wrote an item or is judged in it, as a column: groups.column.",
    )


def _advice(by_group: Mapping[str, str]) -> str:
    """Return what would settle a question for the first groups."""
    known = [(group, advice) for group, advice in by_group.items() if advice][:_ADVISED]
    if len(by_group) == 1:
        return "".join(advice for _, advice in known)
    return " ".join(f"{group}: {advice}" for group, advice in known)


def _seldom_mentioned(groups: Groups) -> _Found:
    seldom = {row.group for row in groups.rows} - {
        row.group for row in groups.rows if row.verdict != "suppressed"
    }
    if found_ := sorted(seldom - {row.reference for row in groups.rows}):
        yield (
            "Groups seldom named",
            f"Too few different entities to compare relevance: {named(found_)}.",
            "More items that mention them.",
        )
    if groups.never_mentioned:
        yield (
            "Groups that no item mentions",
            f"Never mentioned: {named(groups.never_mentioned)}.",
            "Items that do, or other terms for them.",
        )


def _unchecked(summary: Any, groups: Groups) -> _Found:
    imported, approximation = summary.audited.task == "imported", summary.approximates
    moved = summary.audited.head in AT_POSITIONS  # what is marked lies elsewhere in another text
    if not groups.counterfactuals and summary.audited.modality != "text":
        graphs = summary.audited.modality == "nodes"
        yield (
            f"A {'substructure' if graphs else 'region'} hidden, another prediction",
            "None of two groups was hidden: what they do to the prediction is not known."
            if graphs
            else "No regions of two groups were hidden: what they do to the prediction is not "
            "known.",
            "" if imported else f"data.spans: {'node_groups' if graphs else 'COLUMN'}",
        )
    if not groups.counterfactuals and summary.audited.modality == "text":
        remedy = "groups.check: 100"
        if moved:
            remedy = "Rows of the data that differ in the name alone; outcomes compare them."
        yield (
            "Another name, another prediction",
            "Mentions were not swapped: whether another name changes the prediction is not known.",
            "" if imported else remedy,
        )
    if groups.randomised is None:
        remedy = f"method: {approximation.teacher}" if approximation else "groups.randomised: true"
        yield (
            "The effect of the words alone",
            "No model with randomised weights was run to see whether it shows the same differences"
            f"{': the explainer cannot read one' if approximation else ''}.",
            "" if imported or moved else remedy,
        )
    if not groups.planted:
        yield (
            "What this run could have missed",
            "No difference of known size was planted to see whether it is found.",
            f"groups.planted: {max(2 * groups.practical, 0.1):g}",
        )
    if not any(split.by == "slice" for split in groups.splits):
        yield (
            "Parts of the data",
            "Groups were not compared by source, time or any other column.",
            "groups.slice with a column of data.meta.",
        )


SECTION = Section(
    template="scope.html.j2",
    links=(("untested", "Not tested"),),
    redaction={Untested: published("what why remedy")},
    of_summary={"untested": empty(())},  # the list is made from the redacted summary
)

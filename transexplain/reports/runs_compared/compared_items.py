"""Reads two runs side by side: what they predict, and how similar their explanations are."""

import heapq
import json
import math
from array import array
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

from transexplain.analysis.groups.answers import Answer
from transexplain.analysis.groups.intervals import Share
from transexplain.analysis.groups.measures import decided, share_difference
from transexplain.analysis.groups.outcomes import MIN_ITEMS, OutcomeTotals
from transexplain.analysis.groups.paired_runs import PairedTotals
from transexplain.errors import ConfigurationError
from transexplain.methods.explainer_files import portable
from transexplain.rank_correlation import rank_similarity
from transexplain.reports.runs_compared.comparison_records import (
    AnswerChanges,
    ChangedItem,
    Disparity,
    FoundChange,
    GroupAnswers,
    LeastAlike,
)
from transexplain.reports.verdict_words import RateChange
from transexplain.store import readers
from transexplain.store.database import Database
from transexplain.store.readers import ItemPair, iter_pairs
from transexplain.types.items import Attribution, ItemOutcome, Mention, PatchGrid
from transexplain.types.pairs import in_a_line
from transexplain.types.plans import AT_POSITIONS, GENERATED, AuditPlan, AuditRun
from transexplain.types.token_labels import explained_characters
from transexplain.types.tokens import Token

_PREDICTED = "predicted"


def _count_found(
    totals: defaultdict[str, Counter[str]],
    before: Sequence[Attribution],
    after: Sequence[Attribution],
) -> bool:
    """Count what two runs find in one text, by type; whether that differs."""
    old, new = _found_in(before), _found_in(after)
    for place, name in old.items():
        now = new.get(place)
        totals[name].update(before=1, same=now == name, renamed=now not in (None, name))
    for name in new.values():
        totals[name].update(after=1)
    return old != new


def _found_in(attributions: Sequence[Attribution]) -> dict[tuple[int, int] | None, str]:
    """Return what a run finds in one text: its characters -> its type."""
    return {
        explained_characters(attribution.notes): attribution.class_name
        for attribution in attributions
        if attribution.target == _PREDICTED
    }


def found_changes(totals: Mapping[str, Counter[str]] | None) -> tuple[FoundChange, ...]:
    """A row for each type of entities or answers, by name."""
    return tuple(
        FoundChange(name=name, **{side: counts[side] for side in _FOUND})
        for name, counts in sorted((totals or {}).items())
    )


_FOUND = ("before", "after", "same", "renamed")


def answer_changes(
    answers: Mapping[str | None, Counter[str]] | None, unknown: int
) -> AnswerChanges | None:
    """The counts of generated answers, of all (None) and of every group, by name."""
    if answers is None:
        return None
    items, changed = answers[None]["items"], answers[None]["changed"]
    return AnswerChanges(
        items=items,
        changed=changed,
        share=changed / items if items else None,
        unknown=unknown,
        groups=tuple(
            GroupAnswers(
                group=name,
                items=counts["items"],
                changed=counts["changed"],
                share=counts["changed"] / counts["items"],
                labelled=counts["labelled"],
                right_before=counts["was"],
                right_after=counts["now"],
            )
            for name, counts in sorted((group, of) for group, of in answers.items() if group)
        ),
    )


_NAMED = 5
_LONG = 60  # characters of a value in a message


def of_plans(before: AuditPlan, after: AuditPlan) -> list[Disparity]:
    """Return what differs between the plans of two audits, besides the model's weights."""
    old, new = dict(_settings(before)), dict(_settings(after))
    settings = [
        Disparity(what=what, before=_short(old[what]), after=_short(new[what]))
        for what in old
        if old[what] != new[what]
    ]
    return [*settings, *_lexicons(before, after)]


def refuse(disparities: Sequence[Disparity]) -> None:
    """Raise ConfigurationError, with the list, where there are disparities."""
    if not disparities:
        return
    lines = "\n".join(
        f"  {gap.what}: {gap.before} before, {gap.after} after" for gap in disparities
    )
    raise ConfigurationError(
        f"these runs cannot be compared; they differ in more than the model:\n{lines}\n"
        "Run the audit again with the same settings, or compare what there is with --force"
    )


def _settings(plan: AuditPlan) -> Iterator[tuple[str, object]]:
    yield "modality", plan.model.modality
    yield "classes", list(plan.model.classes)
    yield "data", plan.dataset.content[:12]
    yield "method", plan.method.name
    yield "parameters of the method", dict(portable(plan.method).params)
    exact = plan.exact
    yield "exact sample", exact and [exact.method.name, dict(exact.method.params), exact.share]
    yield "targets", sorted(plan.targets)
    yield (
        "classifications",
        {
            classification.name: sorted(classification.classes)
            for classification in plan.classifications
        },
    )
    yield "labels", dict(plan.labels)
    yield "thresholds", plan.several and dict(plan.several.thresholds)
    yield (
        "long texts",
        [plan.long_text, plan.max_length, plan.window, plan.stride, plan.long_text_join],
    )
    generated = plan.model.source.partition("?generate=")[2]
    yield "tokens of an answer", generated if plan.model.head == GENERATED else ""
    yield "stored texts", stored_texts(plan)
    reference = plan.reference
    yield (
        "reference group",
        dict(sorted(reference.items())) if isinstance(reference, Mapping) else reference,
    )
    yield "smallest difference that matters", plan.practical
    yield "correction of p-values", plan.correction


def stored_texts(plan: AuditPlan) -> object:
    """Return how a run stores texts, and under which key: only texts stored alike are compared."""
    privacy = plan.privacy
    return "full" if privacy is None else [privacy.store_text, privacy.redact, privacy.key]


def _lexicons(before: AuditPlan, after: AuditPlan) -> Iterator[Disparity]:
    old, new = _terms(before), _terms(after)
    if old == new:
        return
    changed = sorted(name for name in old.keys() & new.keys() if old[name] != new[name])
    only_old, only_new = sorted(old.keys() - new.keys()), sorted(new.keys() - old.keys())
    if only_old or only_new:
        yield Disparity(
            what="groups of the lexicon",
            before=_names(only_old) or "no further group",
            after=_names(only_new) or "no further group",
        )
    for name in changed[:_NAMED]:
        lost, won = sorted(old[name] - new[name]), sorted(new[name] - old[name])
        yield Disparity(
            what=f"terms of {name}",
            before=f"{len(old[name])} terms{_with(lost)}",
            after=f"{len(new[name])} terms{_with(won)}",
        )


def _terms(plan: AuditPlan) -> Mapping[str, frozenset[str]]:
    return {group.name: frozenset(group.terms) for group in plan.groups}


def _with(terms: Sequence[str]) -> str:
    return f", {_names(terms)} among them" if terms else ""


def _names(names: Sequence[str]) -> str:
    more = len(names) - _NAMED
    return ", ".join([*names[:_NAMED], *([f"{more} more"] if more > 0 else [])])


def _short(value: object) -> str:
    if isinstance(value, str):
        return value
    text = json.dumps(value, ensure_ascii=False, sort_keys=True, default=str)
    return text if len(text) <= _LONG else f"{text[: _LONG - 3]}..."


_Pair = tuple[str, str]  #: predicted before and after
#: items that are alike, by what they were and by what they are predicted as
Cluster = tuple[Counter[str], Counter[str]]


def rate_changes(
    moves: Mapping[str, Counter[_Pair]],
    answers: Sequence[Answer],
    classes: Sequence[str],
    limit: float,
    *,
    clusters: Mapping[str, Sequence[Cluster]],
    whole: Collection[str] = (),
) -> tuple[RateChange, ...]:
    """A row per group and prediction, judged together; groups by name.

    `moves` are the items of every group by what they were and are predicted as.
    """
    compared = [
        (group, answer.name, *_compared(counts, clusters.get(group, ()), answer, classes))
        for group, counts in sorted(moves.items())
        for answer in answers
    ]
    measures = decided(
        [
            share_difference("rate", limit, after, before, MIN_ITEMS)
            for *_, before, after in compared
        ]
    )
    return tuple(
        RateChange(
            group=group,
            prediction=name,
            items=before.total,
            before=before.value,
            after=after.value,
            whole=group in whole,
            measure=measure,
        )
        for (group, name, before, after), measure in zip(compared, measures, strict=True)
    )


def clusters_of(before: OutcomeTotals, after: OutcomeTotals) -> dict[str, list[Cluster]]:
    """Group -> its clusters of alike items, with what either run predicts."""
    clusters: dict[tuple[str, str], Cluster] = {}
    for side, totals in enumerate((before, after)):
        for key, tally in totals:
            for group in key.groups if key.cluster else ():
                cluster = clusters.setdefault((group, key.cluster), (Counter(), Counter()))
                cluster[side][key.predicted] += tally.items
    by_group: dict[str, list[Cluster]] = {}
    for (group, _), cluster in clusters.items():
        by_group.setdefault(group, []).append(cluster)
    return by_group


def _compared(
    counts: Mapping[_Pair, int],
    clusters: Sequence[Cluster],
    answer: Answer,
    classes: Sequence[str],
) -> tuple[Share, Share]:
    """The shares of one prediction before and after.

    The interval of their difference is Newcombe's (1998) for pairs: those of the shares, put
    together with their correlation over items.
    """
    cells: Counter[tuple[bool, bool]] = Counter()
    for (was, now), count in counts.items():
        cells[answer.selects(was, classes), answer.selects(now, classes)] += count
    moves = [
        (
            max(before.total(), after.total()),
            sum(
                (after[name] - before[name]) * answer.selects(name, classes)
                for name in {*before, *after}
            ),
        )
        for before, after in clusters
    ]
    total = cells.total()
    effective, freedom = total / _inflation(cells, moves), math.inf
    if moves:
        freedom = max(total - sum(items - 1 for items, _ in moves) - 1.0, 0.0)
    return _share(cells, 0, effective, freedom), _share(cells, 1, effective, freedom)


def _inflation(cells: Mapping[tuple[bool, bool], int], moves: Sequence[tuple[int, int]]) -> float:
    """Return the variance of the difference over clusters by that over items; at least 1.

    `moves` are a cluster's items, and what it adds to the difference. Which items of a cluster
    changed is not known; the sum of their squares is at least its mean's, so that the factor is no
    less than the true one. Where nothing changed, items of a cluster are taken to be equal.
    """
    total = sum(cells.values())
    mean = sum(count * (now - was) for (was, now), count in cells.items()) / total
    squares = sum(count * (now - was - mean) ** 2 for (was, now), count in cells.items())
    if squares == 0.0:
        return 1.0 + sum(items * (items - 1) for items, _ in moves) / total
    more = sum((moved - mean * items) ** 2 * (1.0 - 1.0 / items) for items, moved in moves)
    return 1.0 + more / squares


def _share(
    cells: Mapping[tuple[bool, bool], int], side: int, effective: float, freedom: float
) -> Share:
    """The share of one run; items of a cell err alike, so that a cell stands for them."""
    total = sum(cells.values())
    count = sum(number for cell, number in cells.items() if cell[side])
    errors = {
        str(cell): math.sqrt(number) * (cell[side] - count / total) / total
        for cell, number in cells.items()
    }
    return Share(count=count, total=total, effective=effective, freedom=freedom, errors=errors)


#: positions in common below which ranks say nothing: two are either alike or opposite
FEWEST_POSITIONS = 3

_Place = tuple[int, int, str]


def agreement(before: Attribution, after: Attribution) -> float | None:
    """Spearman's correlation of relevance over the positions that are the same in both.

    Of texts those are tokens with the same characters at the same place, special tokens left out;
    of pictures the patches of equal grids. None: fewer than `FEWEST_POSITIONS` of them.
    """
    if isinstance(before.features, PatchGrid) or isinstance(after.features, PatchGrid):
        if before.features != after.features:
            return None
        old, new = before.relevance, after.relevance
    elif before.features == after.features:
        plain = np.array([not token.special for token in after.features], dtype=bool)
        old, new = before.relevance[plain], after.relevance[plain]
    else:
        left, right = _places(before.features), _places(after.features)
        common = [place for place in right if place in left]
        old = before.relevance[[left[place] for place in common]]
        new = after.relevance[[right[place] for place in common]]
    return rank_similarity(old, new) if old.size >= FEWEST_POSITIONS else None


def _places(tokens: Sequence[Token]) -> Mapping[_Place, int]:
    return {
        (token.start, token.end, token.text): position
        for position, token in enumerate(tokens)
        if not token.special
    }


def of_positions(before: Attribution, after: Attribution) -> Iterator[Disparity]:
    """Yield what differs in what the positions of one item are, and in what was measured there."""
    if before.features != after.features:
        what = "grid of patches" if isinstance(after.features, PatchGrid) else "tokens"
        yield Disparity(
            what=f"{what} of item {after.item_id}",
            before=_positions(before, after),
            after=_positions(after, before),
        )
    if before.at != after.at:
        yield Disparity(what="input layer", before=before.at, after=after.at)
    if before.unit != after.unit:
        yield Disparity(what="unit", before=before.unit, after=after.unit)


def _positions(attribution: Attribution, other: Attribution) -> str:
    if isinstance(attribution.features, PatchGrid):
        return f"{attribution.features.rows} x {attribution.features.cols}"
    theirs: Sequence[Token] = other.features if not isinstance(other.features, PatchGrid) else ()
    for place, token in enumerate(attribution.features):
        if place >= len(theirs) or theirs[place] != token:
            return f"{len(attribution.features)} tokens, number {place + 1} {token.text!r}"
    return f"{len(attribution.features)} tokens"


SHOWN = 50  #: items predicted differently that are listed
LEAST = 5  #: items of a class that are listed because their explanations agree least
_TEXT = 240  # characters of an item's text that are shown

Part = TypeVar("Part", Attribution, Mention)
Kept = TypeVar("Kept", ChangedItem, LeastAlike)
ClassKey = tuple[str, str]  #: target as requested, explained class


@dataclass(slots=True)
class ClassPairs:
    """The items that both runs explained for one target and class; 8 bytes an item and number."""

    before: "array[float]" = field(default_factory=lambda: array("d"))  #: logits
    after: "array[float]" = field(default_factory=lambda: array("d"))
    agreement: "array[float]" = field(default_factory=lambda: array("d"))
    without_agreement: int = 0
    _least: list[tuple[float, int, LeastAlike]] = field(default_factory=list)

    def add(self, before: Attribution, after: Attribution, text: str | None) -> None:
        """Count one item."""
        self.before.append(before.logit)
        self.after.append(after.logit)
        value = agreement(before, after)
        if value is None:
            self.without_agreement += 1
            return
        self.agreement.append(value)
        least_alike = LeastAlike(item_id=after.item_id, agreement=value, text=text)
        _keep(self._least, (-value, -len(self.before), least_alike), LEAST)

    @property
    def least_alike(self) -> tuple[LeastAlike, ...]:
        """The items whose explanations agree least, the worst first; none that agree fully."""
        ranked = sorted(self._least, key=lambda entry: entry[:2], reverse=True)
        return tuple(item for _, _, item in ranked if item.agreement < 1.0)


@dataclass(slots=True)
class Walk:
    """The findings of a walk over the common items of two runs."""

    ids: tuple[str, str]  #: of the runs
    classes: tuple[tuple[str, ...], tuple[str, ...]]  #: of either model, by index
    same_data: bool  #: every item of the same id is the same
    same_texts: bool  #: what is stored of a text is the same where the text is
    common: int = 0
    other_content: int = 0
    unknown_content: int = 0
    other_class: int = 0
    changed: Counter[tuple[str, str]] = field(default_factory=Counter)  #: before, after
    #: group -> its items by what they were and are predicted as
    rates: defaultdict[str, Counter[_Pair]] = field(default_factory=lambda: defaultdict(Counter))
    right: Counter[tuple[bool, bool]] = field(default_factory=Counter)  #: before, after
    pairs: dict[ClassKey, ClassPairs] = field(default_factory=dict)
    mentions: PairedTotals = field(default_factory=PairedTotals)
    disparities: dict[str, Disparity] = field(default_factory=dict)  #: the first of each kind
    #: type -> counts, of models that answer at positions and are explained for `predicted`
    found: defaultdict[str, Counter[str]] | None = None
    #: group (None: all) -> counts, of models that generate their answers; None: others
    answers: defaultdict[str | None, Counter[str]] | None = None
    unknown_answers: int = 0  #: prompts of which what is stored does not say whether they changed
    units: set[str] = field(default_factory=set)
    _shown: list[tuple[float, int, ChangedItem]] = field(default_factory=list)

    @classmethod
    def of(cls, before: AuditRun, after: AuditRun) -> "Walk":
        """Over nothing yet."""
        old, new = before.plan, after.plan
        finds = new.model.head in AT_POSITIONS and _PREDICTED in {*old.targets} & {*new.targets}
        generates = old.model.head == new.model.head == GENERATED
        return cls(
            ids=(before.id, after.id),
            classes=(old.model.classes, new.model.classes),
            same_data=old.dataset.content == new.dataset.content,
            same_texts=stored_texts(old) == stored_texts(new),
            found=defaultdict(Counter) if finds else None,
            answers=defaultdict(Counter) if generates else None,
        )

    @property
    def shown(self) -> tuple[ChangedItem, ...]:
        """Items predicted differently, the widest margin first."""
        ranked = sorted(self._shown, key=lambda entry: entry[:2], reverse=True)
        return tuple(item for _, _, item in ranked)

    def takes(
        self, pair: ItemPair, before: Sequence[Attribution], after: Sequence[Attribution]
    ) -> bool:
        """Return whether both sides of a pair are one item; counts the pairs where they are not."""
        texts = self._contents(pair, before, after)
        if self.answers is not None:
            if self.same_data:  # other words are those of another answer
                return True
            if all(outcome.texts for outcome in pair):
                texts = pair[0].texts[:1], pair[1].texts[:1]
        if self.same_texts and all(texts):
            same = texts[0] == texts[1]
            self.other_content += not same
            return same
        self.unknown_content += not self.same_data
        return self.same_data

    def _contents(
        self, pair: ItemPair, before: Sequence[Attribution], after: Sequence[Attribution]
    ) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return what is stored of the content of either side; empty where nothing is."""
        texts = pair[0].texts, pair[1].texts
        if self.same_texts and not all(texts):
            return _stored_words(before), _stored_words(after)
        return texts

    def add_item(
        self,
        pair: ItemPair,
        before: Sequence[Attribution],
        after: Sequence[Attribution],
        groups: Collection[str] = (),
    ) -> bool:
        """Count the predictions of one item: its class, what is found in it, or its answer.

        `groups` are those that it names. False: its explanations are of two answers.
        """
        self.common += 1
        old, new = pair
        moved = self.found is not None and _count_found(self.found, before, after)
        same: bool | None = True
        if self.answers is not None:
            texts = self._contents(pair, before, after)
            same = texts[0] == texts[1] if self.same_texts and all(texts) else None
            self.unknown_answers += same is None
            labelled = old.label is not None and old.label == new.label
            was, now = (labelled and outcome.predicted == outcome.label for outcome in pair)
            for group in (None, *groups) if same is not None else ():
                self.answers[group].update(
                    items=1, changed=not same, labelled=labelled, was=was, now=now
                )
            moved = same is False
        if old.label is not None and old.label == new.label:
            self.right[old.predicted == old.label, new.predicted == new.label] += 1
        for group in groups:
            self.rates[group][old.predicted, new.predicted] += 1
        if old.predicted != new.predicted or moved:
            self._count_change(pair)
        return same is True

    def _count_change(self, pair: ItemPair) -> None:
        old, new = pair
        was, now, text = old.predicted, new.predicted, _beginning(new)
        if was == now:
            now += _ELSEWHERE if self.answers is None else _OTHERWISE
        self.changed[was, now] += 1
        margin, names = None, self.classes[1]
        known = self.answers is None and self.classes[0] == names
        if known and new.logits and {old.predicted, new.predicted} <= {*names}:
            before, after = names.index(old.predicted), names.index(new.predicted)
            margin = new.logits[after] - new.logits[before]
        if self.answers is not None and old.texts and new.texts:
            was, now = (
                _cut(outcome.texts[-1]) or name for outcome, name in ((old, was), (new, now))
            )
            text = _cut(new.texts[0])
        item = ChangedItem(
            item_id=new.item_id,
            label=new.label,
            before=was,
            after=now,
            margin=margin,
            text=text,
        )
        _keep(self._shown, (margin or 0.0, -self.common, item), SHOWN)

    def add_explanations(
        self, before: Sequence[Attribution], after: Sequence[Attribution], text: str | None
    ) -> None:
        """Count the explanations of one item."""
        old = _counted(before)
        new = _counted(after)
        both = [key for key in new if key in old]
        self.other_class += len(new) - len(both)
        for key in both:
            for disparity in of_positions(old[key], new[key]):
                kind = disparity.what.partition(" of item ")[0]
                self.disparities.setdefault(kind, disparity)
            self.units.add(new[key].unit)
            self.pairs.setdefault(key[:2], ClassPairs()).add(old[key], new[key], text)


def _counted(attributions: Sequence[Attribution]) -> dict[tuple[str, str, object], Attribution]:
    """Explanations by target, class, and the characters that are found, or else their number."""
    numbers: Counter[tuple[str, str]] = Counter()
    keyed: dict[tuple[str, str, object], Attribution] = {}
    for row in attributions:
        number = numbers[row.target, row.class_name]
        place = explained_characters(row.notes)
        keyed[row.target, row.class_name, number if place is None else place] = row
        numbers[row.target, row.class_name] += 1
    return keyed


_ELSEWHERE = " (other characters)"
_OTHERWISE = " (other words)"


def walk_pairs(db: Database, walk: Walk, known: Sequence[Disparity] = (), *, force: bool) -> Walk:
    """Walk over the items that both runs explained, a page of either at a time; gives `walk`.

    Raises ConfigurationError, unless `force`, as soon as a page shows that positions are not the
    same, or where there are `known` disparities; the message lists what the first page shows, too.
    """
    for page in iter_pairs(db, *walk.ids):
        names = [after.item_id for _, after in page]
        before, after = (
            _by_item(readers.iter_attributions(db, key, item_ids=names)) for key in walk.ids
        )
        mentioned = [_by_item(readers.iter_mentions(db, key, item_ids=names)) for key in walk.ids]
        for pair in page:
            name = pair[1].item_id
            if not walk.takes(pair, before.get(name, ()), after.get(name, ())):
                continue
            sides = before.get(name, ()), after.get(name, ())
            old, new = (side.get(name, ()) for side in mentioned)
            if not walk.add_item(pair, *sides, {mention.group for mention in new}):
                walk.mentions.unpaired += len(old) + len(new)
                continue
            walk.add_explanations(*sides, _beginning(pair[1]))
            if old or new:
                walk.mentions.add(old, new)
        if not force:
            refuse([*known, *walk.disparities.values()])
    if not force:
        refuse(known)
    return walk


def _stored_words(attributions: Sequence[Attribution]) -> tuple[str, ...]:
    """Return what is stored of the words of a text, in their order; empty where nothing is."""
    tokens = attributions[0].features if attributions else ()
    if isinstance(tokens, PatchGrid):
        return ()
    return tuple(token.text for token in tokens if token.text and not token.special)


def _by_item(parts: Iterable[Part]) -> dict[str, list[Part]]:
    by_item: dict[str, list[Part]] = {}
    for part in parts:
        by_item.setdefault(part.item_id, []).append(part)
    return by_item


def _beginning(item_outcome: ItemOutcome) -> str | None:
    return (
        None
        if item_outcome.text is None
        else _cut(in_a_line(item_outcome.text, item_outcome.second_at))
    )


def _cut(text: str) -> str:
    return text if len(text) <= _TEXT else f"{text[:_TEXT]}…"


def _keep(heap: list[tuple[float, int, Kept]], entry: tuple[float, int, Kept], places: int) -> None:
    """Keep the largest entries; their first two parts decide, for these are never both equal."""
    if len(heap) < places:
        heapq.heappush(heap, entry)
    else:
        heapq.heappushpop(heap, entry)

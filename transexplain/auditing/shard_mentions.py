"""Collects the mentions of a shard: their relevance, their rank in the item and their totals."""

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from transexplain.analysis.groups.answers import answers_of
from transexplain.analysis.groups.counterfactuals import Observation
from transexplain.analysis.groups.entity_finder import EntityFinder, Region, unrecognised
from transexplain.analysis.groups.entity_totals import Stratum
from transexplain.analysis.groups.mention_matching import (
    Match,
    Spans,
    matcher_of,
    mentions_of,
    within_texts,
)
from transexplain.analysis.groups.shard_aggregate import ShardAggregate
from transexplain.errors import ItemError
from transexplain.evaluating.metrics.rationale import MarkedRegion
from transexplain.explaining import Explained
from transexplain.types.items import Annotation, Attribution, ItemOutcome, Mention, PatchGrid
from transexplain.types.label_sets import label_set
from transexplain.types.pairs import texts_of
from transexplain.types.plans import GENERATED, AuditPlan
from transexplain.types.token_labels import TaggedSpan
from transexplain.types.tokens import NO_WORD, Overlaps, Tokens


def ranks_in_item(attribution: Attribution, mentions: Sequence[Mention]) -> list[float | None]:
    """For each mention the share of the item's other words with a smaller |relevance|.

    Ties count half (a mid-rank percentile): 0.5 means "as relevant as any word", 1 "more than
    every other". A mention is one word however many it has; the words that it covers are no
    others. Punctuation is a word, as in `Attribution.words`. None where there is no other word
    (the mention is the whole item), and in pictures, whose regions and patches differ in size.
    """
    if isinstance(attribution.features, PatchGrid):
        return [None] * len(mentions)
    # lists: of one text they are faster than arrays, whose calls let other threads run
    tokens = Tokens.of(attribution.features)
    relevance = np.asarray(attribution.relevance, dtype=np.float64)
    columns = (tokens.words, tokens.starts, tokens.ends, relevance)
    sums: dict[int, float] = {}
    spans: list[tuple[int, int, int]] = []
    for word, start, end, value in zip(*(column.tolist() for column in columns), strict=True):
        if word != NO_WORD:
            sums[word] = sums.get(word, 0.0) + value
            if end > start:
                spans.append((start, end, word))
    places, sizes = Overlaps(span[:2] for span in spans), sorted(map(abs, sums.values()))
    ranks: list[float | None] = []
    for row in mentions:
        inside = {spans[place][2] for place in places.of(row.start, row.end)}
        ranks.append(_middle_rank(abs(row.relevance), sizes, [abs(sums[word]) for word in inside]))
    return ranks


def _middle_rank(size: float, every: Sequence[float], words: Sequence[float]) -> float | None:
    """Of a size among `every` (ascending), those of its `words` left out."""
    others = len(every) - len(words)
    if not others:
        return None
    below = bisect_left(every, size)
    same = bisect_right(every, size) - below
    below -= sum(word < size for word in words)
    return (below + 0.5 * (same - words.count(size))) / others


class MentionCounter:
    """Finds the entities of a plan's groups in items as they are explained."""

    def __init__(self, plan: AuditPlan) -> None:
        self._finder, self._slice = EntityFinder(plan), plan.slice
        self._answers = answers_of(plan)
        self._tagging = plan.model.head == "tokens"
        self._generates = plan.model.head == GENERATED
        self._answering = plan.model.head == "span"
        self._sampled = not plan.complete  # whether there are names that no list has
        #: groups whose spellings are counted; none where texts are not stored as they are
        self._listed = {group.name for group in plan.groups if group.terms and plan.privacy is None}
        self._second = matcher_of(plan.second, plan.matching) if plan.second else None

    def read(self, many: Sequence[Explained]) -> list[Explained]:
        """The ends of items, those whose text the recogniser fails on as failures.

        It reads the texts of all of them together, for the `of` of each that comes next.
        """
        errors = self._finder.read([self._text_of(end)[0] for end in many])
        return [
            end if error is None else _failed(end, error)
            for end, error in zip(many, errors, strict=True)
        ]

    def of(
        self, done: Explained, aggregate: ShardAggregate
    ) -> tuple[Sequence[Match], list[Mention]]:
        """The matches in the item's text, and its mentions, which are added to `aggregate`."""
        outcome, attributions = done.outcome, done.attributions
        if outcome is None:
            return (), []
        marked = done.item.annotations if done.item else ()
        text, second_at = self._text_of(done)
        entities = self._finder.find(text, marked, outcome.meta, second_at)
        if not attributions:  # no label is predicted, which is an answer too
            groups = self._finder.groups_in(text, marked, outcome.meta, second_at)
            self._count_answers(
                done, outcome, groups, entities.matches, entities.matches, aggregate
            )
            return (), []
        if entities.dropped:
            aggregate.add_dropped((match.group, match.entity) for match in entities.dropped)
        mentions: list[Mention] = []
        for number, attribution in enumerate(attributions):
            present = self._finder.mentions(attribution, entities, _regions(attribution, marked))
            if self._tagging:  # of each label the names that it is of
                present = [mention for mention in present if _is_explained(attribution, mention)]
            if present:
                magnitude = float(np.abs(attribution.relevance).sum())
                ranks = ranks_in_item(attribution, present)
                if isinstance(done.item and done.item.content, Mapping):
                    ranks = [None] * len(present)  # substructures of a graph differ in size
                stratum = self.stratum(attribution, outcome)
                aggregate.entities.add(stratum, present, magnitude, ranks, _cluster_of(done))
                if number == 0:
                    self._count_spellings(present, aggregate)
                mentions += present
        groups = {mention.group for mention in mentions}
        self._count_answers(done, outcome, groups, mentions, entities.matches, aggregate)
        self._count_second(done, outcome, aggregate, entities.recognised)
        return entities.matches, mentions

    def _count_spellings(self, mentions: Sequence[Mention], aggregate: ShardAggregate) -> None:
        for mention in mentions:
            if mention.group in self._listed:
                aggregate.add_spelling(mention.group, mention.entity, mention.surface)

    def _text_of(self, done: Explained) -> tuple[str | None, int | None]:
        """The item's text, and where the second text of a pair begins in it.

        Also where nothing of it is explained; of an answered one the prompt.
        """
        source = done.attributions[0] if done.attributions else done.outcome
        if source is None:
            return None, None
        if self._generates and source.second_at is not None:
            return texts_of(source.text, source.second_at)[0], None
        return source.text, source.second_at

    def _count_answers(
        self,
        done: Explained,
        outcome: ItemOutcome,
        groups: Collection[str],
        mentions: Sequence[Mention | Match],
        matches: Sequence[Match],
        aggregate: ShardAggregate,
    ) -> None:
        """Count the answer to an item by the groups that it mentions.

        Of a model that labels tokens the answers to its entities, by the groups that each names.
        """
        slice_ = str(outcome.meta.get(self._slice, "")) if self._slice else ""
        template, name = done.item.template if done.item else "", _cluster_of(done)
        # a template and a cluster may have the same name
        cluster = f"cluster {name}" if name else f"template {template}" if template else ""
        aggregate.gaps.add(done.attributions, groups)
        listed = {
            (match.group, match.entity) for match in matches
        }  # values of a column are no names
        named = [mention for mention in mentions if (mention.group, mention.entity) in listed]
        counted: list[tuple[ItemOutcome, Sequence[Mention | Match]]] = [(outcome, named)]
        if self._tagging:
            counted = list(_entity_answers(done, outcome, matches))
            groups = {*groups} - {
                match.group for match in matches
            }  # what is named differs by entity
        if self._answering and done.agreement is None:
            counted = []  # whether the answer is right is not known
        for answer, of in counted:
            aggregate.outcomes.add(
                answer,
                {*groups, *(match.group for match in of)},
                names=[(match.group, match.entity) for match in of] if self._sampled else (),
                answers=self._answers,
                slice_=slice_,
                cluster=cluster,
                chances=(done.agreement.f1,) if done.agreement else None,
            )
        if template and self._answers and (len(outcome.logits) > 1 or self._generates):
            aggregate.checked.observations += self._observations(
                outcome, mentions, (template, name, slice_)
            )

    def _observations(
        self,
        outcome: ItemOutcome,
        mentions: Sequence[Mention | Match],
        of: tuple[str, str, str],
    ) -> list[Observation]:
        """An item of a template, which its other items are compared with, by what it mentions.

        `of` are its template, cluster and slice.
        """
        template, cluster, slice_ = of
        named = dict.fromkeys((mention.group, mention.entity) for mention in mentions)
        log_odds = tuple(answer.odds_of(outcome.logits) for answer in self._answers)
        return [
            Observation(
                document=template,
                cluster=cluster,
                slice=slice_,
                group=group,
                entity=entity,
                template=True,
                own=True,
                positions=outcome.positions,
                predicted=outcome.predicted,
                log_odds=log_odds,
            )
            for group, entity in named
        ]

    def _count_second(
        self,
        done: Explained,
        outcome: ItemOutcome,
        aggregate: ShardAggregate,
        recognised: Spans,
    ) -> None:
        """Count what the second lexicon finds, apart from the first one's mentions."""
        text, second_at = self._text_of(done)
        if self._second is None or text is None:
            return
        matches = within_texts(self._second.find(text, recognised), second_at)
        for attribution in done.attributions:
            if present := mentions_of(attribution, matches):
                magnitude = float(np.abs(attribution.relevance).sum())
                stratum = self.stratum(attribution, outcome)
                aggregate.second.add(stratum, present, magnitude, cluster=_cluster_of(done))

    def stratum(self, attribution: Attribution | Mention, outcome: ItemOutcome) -> Stratum:
        """The cell of the statistics that an item's mentions for one target count in."""
        return Stratum(
            target=attribution.target,
            class_name=attribution.class_name,
            predicted=outcome.predicted,
            label=outcome.label or "",
            slice=str(outcome.meta.get(self._slice, "")) if self._slice else "",
        )


def _entity_answers(
    done: Explained, outcome: ItemOutcome, matches: Sequence[Match]
) -> Iterator[tuple[ItemOutcome, list[Match]]]:
    """The answer to each entity of a text with what it names.

    Where the data says which entities there are: those, each with the type that exactly its
    characters were given, and what was found besides. Else the mentions, each with the type that a
    part of it was given.
    """

    def named(span: TaggedSpan | Match) -> list[Match]:
        return [match for match in matches if _overlap(match, span)]

    if done.given is None:
        for match in matches:
            kinds = [entity.type for entity in done.entities if _overlap(entity, match)]
            yield (
                replace(outcome, label=None, predicted=label_set(kinds[:1]), logits=()),
                named(match),
            )
        return
    types = {(entity.start, entity.end): entity.type for entity in done.entities}
    labelled = {(span.start, span.end): span for span in done.given}
    for place, span in labelled.items():
        kind = label_set([types[place]] if place in types else [])
        yield replace(outcome, label=span.type, predicted=kind, logits=()), named(span)
    for span in done.entities:
        if (span.start, span.end) not in labelled:
            yield (
                replace(outcome, label=label_set(()), predicted=span.type, logits=()),
                named(span),
            )


def _overlap(span: TaggedSpan | Match, other: TaggedSpan | Match) -> bool:
    return span.start < other.end and other.start < span.end


def _is_explained(attribution: Attribution, mention: Mention) -> bool:
    """Return whether a mention has one of the tokens whose labels are explained."""
    tokens = attribution.features
    assert not isinstance(tokens, PatchGrid)
    places = [tokens[place] for place in attribution.positions]
    return any(token.start < mention.end and mention.start < token.end for token in places)


def _failed(done: Explained, error: ItemError) -> Explained:
    assert done.outcome is not None
    failure = unrecognised(done.outcome.item_id, done.outcome.index, error)
    return Explained(item=done.item, failure=failure)


def _cluster_of(done: Explained) -> str:
    return done.item.cluster if done.item else ""


def _regions(attribution: Attribution, marked: Sequence[Annotation]) -> list[Region]:
    """The regions marked in a picture, on the grid of its patches, or in a graph, on its nodes."""
    if not marked:
        return []
    grid = attribution.features
    if not isinstance(grid, PatchGrid):
        nodes = Tokens.of(grid).words
        inside = ((region, np.isin(nodes, region.nodes)) for region in marked if region.nodes)
        return [(region, np.asarray(of, dtype=np.float64)) for region, of in inside]
    return [
        (mark, MarkedRegion.of(mark).share(grid))
        for mark in marked
        if mark.box is not None or mark.mask is not None
    ]

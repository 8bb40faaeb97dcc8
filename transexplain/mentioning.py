"""The mentions of groups in explained items, and their totals."""

from collections.abc import Sequence

import numpy as np

from transexplain.bias.aggregates import ShardAggregate
from transexplain.bias.answers import answers_of
from transexplain.bias.counterfactuals import Observation
from transexplain.bias.entity_totals import Stratum
from transexplain.bias.finding import EntityFinder, Region
from transexplain.bias.matching import Match, Matcher
from transexplain.bias.mentions import mentions_of
from transexplain.bias.ranks import ranks_in_item
from transexplain.explaining import Explained
from transexplain.metrics.evidence import Region as Marked
from transexplain.plans import AuditPlan
from transexplain.types import Annotation, Attribution, Evidence, ItemOutcome, Mention, PatchGrid


class Mentioning:
    """Finds the entities of a plan's groups in items as they are explained."""

    def __init__(self, plan: AuditPlan) -> None:
        self._finder, self._slice = EntityFinder(plan), plan.slice
        self._answers = answers_of(plan)
        self._second = Matcher(plan.second, plan.matching) if plan.second else None

    def of(
        self, done: Explained, aggregate: ShardAggregate
    ) -> tuple[Sequence[Match], list[Mention]]:
        """The matches in the item's text, and its mentions, which are added to `aggregate`."""
        outcome, attributions = done.outcome, done.attributions
        if not attributions or outcome is None:
            return (), []
        marked = done.item.annotations if done.item else ()
        found = self._finder.find(attributions[0].text, marked, outcome.meta)
        aggregate.add_dropped((one.group, one.entity) for one in found.dropped)
        mentions: list[Mention] = []
        for attribution in attributions:
            present = self._finder.mentions(attribution, found, _regions(attribution, marked))
            if present:
                magnitude = float(np.abs(attribution.relevance).sum())
                ranks = ranks_in_item(attribution, present)
                stratum = self.stratum(attribution, outcome)
                aggregate.entities.add(stratum, present, magnitude, ranks, _cluster_of(done))
                mentions += present
        self._count_answers(done, outcome, mentions, aggregate)
        self._count_second(done, outcome, aggregate)
        return found.matches, mentions

    def _count_answers(
        self,
        done: Explained,
        outcome: ItemOutcome,
        mentions: Sequence[Mention],
        aggregate: ShardAggregate,
    ) -> None:
        """Count the answer to an item by the groups that it mentions."""
        groups = {one.group for one in mentions}
        slice_ = str(outcome.meta.get(self._slice, "")) if self._slice else ""
        template = done.item.template if done.item else ""
        cluster = _cluster_of(done) or template
        if aggregate.gaps is not None:
            aggregate.gaps.add(done.attributions, groups)
        if aggregate.outcomes is not None:
            aggregate.outcomes.add(
                outcome, groups, answers=self._answers, slice_=slice_, cluster=cluster
            )
        if template and self._answers and len(outcome.logits) > 1:
            named = dict.fromkeys((one.group, one.entity) for one in mentions)
            log_odds = tuple(float(one.log_odds(outcome.logits)) for one in self._answers)
            aggregate.checked.observations += [
                Observation(
                    document=template,
                    cluster=cluster,
                    slice=slice_,
                    group=group,
                    entity=entity,
                    own=True,
                    positions=outcome.positions,
                    predicted=outcome.predicted,
                    log_odds=log_odds,
                )
                for group, entity in named
            ]

    def _count_second(
        self, done: Explained, outcome: ItemOutcome, aggregate: ShardAggregate
    ) -> None:
        """Count what the second lexicon finds, apart from the first one's mentions."""
        text = done.attributions[0].text
        if self._second is None or text is None:
            return
        matches = self._second.find(text)
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


def _cluster_of(done: Explained) -> str:
    return done.item.cluster if done.item else ""


def _regions(attribution: Attribution, marked: Sequence[Annotation]) -> list[Region]:
    """The regions marked in a picture, on the grid of its patches; none in a text."""
    grid = attribution.features
    if not isinstance(grid, PatchGrid):
        return []
    return [
        (one, Marked.of(Evidence(boxes=(one.box,) if one.box else (), mask=one.mask)).share(grid))
        for one in marked
        if one.box is not None or one.mask is not None
    ]

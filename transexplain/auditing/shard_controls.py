"""The controls of one shard: sampled items that are answered again, changed or by another model."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from itertools import chain, islice

import numpy as np
from numpy.typing import NDArray

from transexplain.analysis.groups.mention_matching import Match
from transexplain.analysis.groups.mixed_audits import (
    ExactSample,
    MethodAgreement,
    PairedMentions,
)
from transexplain.analysis.groups.randomised_control import RandomisedTotals
from transexplain.analysis.groups.shard_aggregate import ControlResults, ShardAggregate
from transexplain.auditing.mention_changes import AblationCheck, CandidateCheck, SwapCheck
from transexplain.auditing.region_hiding import RegionCheck
from transexplain.auditing.shard_mentions import MentionCounter
from transexplain.errors import EngineError
from transexplain.evaluating.metrics.randomisation import randomised_model
from transexplain.explaining import Explained, Request, explain_items
from transexplain.explaining.item_loop import explain_again, same_class
from transexplain.methods import facts_of
from transexplain.models.loaded_model import LoadedModel
from transexplain.randomness import generator, row_number
from transexplain.rank_correlation import rank_correlation
from transexplain.types.items import Attribution, Item, Mention, PatchGrid, own_positions
from transexplain.types.observer import Observer
from transexplain.types.plans import AuditPlan, CheckPlan
from transexplain.types.scores import ExactPlan, MethodSpec

#: an attribution as it was, and the one of the same class now
AttributionPair = tuple[Attribution, Attribution]


def explained_pairs(
    model: LoadedModel,
    request: Request,
    sampled: Sequence[tuple[Explained, Item]],
    observer: Observer,
    alone: Collection[str] = (),
) -> list[list[AttributionPair]]:
    """The attributions of every explained item and of the item that replaces it, in pairs.

    The classes are those that were explained before, whatever is predicted now. A failure has no
    pairs. Raises as `explain_items`.
    """
    targets = [
        (item, tuple(dict.fromkeys(map(same_class, done.attributions)))) for done, item in sampled
    ]
    ends = explain_again(model, request, targets, observer=observer, alone=alone)
    return [_pairs(done, end) for (done, _), end in zip(sampled, ends, strict=True)]


def _pairs(done: Explained, end: Explained) -> list[AttributionPair]:
    after = {(row.target, row.class_name): row for row in end.attributions}
    keys = ((row, (same_class(row), row.class_name)) for row in done.attributions)
    return [(attribution, after[key]) for attribution, key in keys if key in after]


def with_attributions(done: Explained, pairs: Sequence[AttributionPair]) -> Explained:
    """The item as it ended, with the other explanations under the targets of the plan."""
    named = tuple(replace(after, target=before.target, rank=before.rank) for before, after in pairs)
    return replace(done, attributions=named)


#: added to the seed: which model explains an item must not depend on what sampled the item
_DRAW_SEED = 0x52616E64


class RandomisedModelCheck:
    """The randomised-model control of one shard.

    The weights depend on their names, the seed and the draw alone, so every shard has the same
    models, and an item's row decides which of them explains it; the audited one is not touched.
    They are made where an item was sampled for them, and kept as long as the model.
    """

    def __init__(self, plan: AuditPlan, check: CheckPlan, model: LoadedModel) -> None:
        self._model, self._seed = model, check.seed
        self._request, self._mention_counter = Request.from_plan(plan), MentionCounter(plan)
        self._sampled: list[list[tuple[Explained, Item]]] = [[] for _ in range(check.draws)]

    def consider(self, done: Explained) -> None:
        """Note an item of the sample."""
        if done.item is not None:
            draw = row_number(done.item.index, self._seed + _DRAW_SEED) % len(self._sampled)
            self._sampled[draw].append((done, done.item))

    def measure(self, observer: Observer, alone: Collection[str] = ()) -> RandomisedTotals:
        """Totals of the mentions by either model, over items that both explain."""
        randomised_totals = RandomisedTotals()
        for draw, sampled in enumerate(self._sampled):
            if sampled:
                self._measure(draw, sampled, randomised_totals, observer, alone)
        return randomised_totals

    def _measure(
        self,
        draw: int,
        sampled: Sequence[tuple[Explained, Item]],
        randomised_totals: RandomisedTotals,
        observer: Observer,
        alone: Collection[str],
    ) -> None:
        """Add the items of one draw to `randomised_totals`."""
        try:
            model = randomised_model(self._model, self._seed, draw)
        except (EngineError, RuntimeError, TypeError):  # a module that cannot be copied
            randomised_totals.count(0, len(sampled))
            return
        again = explained_pairs(model, self._request, sampled, observer, alone)
        real, random = ShardAggregate(), ShardAggregate()
        for (done, _), pairs in zip(sampled, again, strict=True):
            if len(pairs) < len(done.attributions) or not pairs:
                randomised_totals.count(0, 1)
                continue
            randomised_totals.count(1, 0)
            self._mention_counter.of(done, real)
            self._mention_counter.of(with_attributions(done, pairs), random)
        randomised_totals.real.merge(real.entities)
        randomised_totals.of_draw(draw).merge(random.entities)


#: added to the seed, so that a seed shared with other samples does not give the same items
_EXACT_SEED = 0x45786163


class ExactMethodCheck:
    """Samples items of one shard by their rows alone, so that any cut into shards gives one sample.

    Items that mention nobody are sampled, too: the methods' agreement is measured over all items.
    """

    def __init__(self, plan: AuditPlan, exact: ExactPlan, model: LoadedModel) -> None:
        self._model, self._below = model, exact.share * 2**64
        self._seed = exact.seed + _EXACT_SEED
        self._request = replace(Request.from_plan(plan), method=exact.method)
        self._mention_counter = MentionCounter(plan) if plan.groups else None
        self._sampled: list[Explained] = []

    def consider(self, done: Explained) -> None:
        """Note an item of the sample that was explained."""
        if done.item is None or done.outcome is None or not done.attributions:
            return
        if row_number(done.item.index, self._seed) < self._below:
            self._sampled.append(done)

    def measure(self, observer: Observer, alone: Collection[str] = ()) -> ExactSample:
        """Explain the sampled items by the exact method, for the same classes, and compare.

        An item on which the exact method fails is counted and leaves the sample. Raises as
        `explain_items`.
        """
        exact_sample = ExactSample()
        sampled = [(done, done.item) for done in self._sampled if done.item is not None]
        again = explained_pairs(self._model, self._request, sampled, observer, alone)
        for (done, _), pairs in zip(sampled, again, strict=True):
            if len(pairs) < len(done.attributions):
                exact_sample.failed += 1
                continue
            exact_sample.items += 1
            exact_sample.agreements += [_agreement(*pair) for pair in pairs]
            exact_sample.mentions += self._mentions(done, pairs)
        return exact_sample

    def _mentions(self, done: Explained, pairs: list[AttributionPair]) -> Iterator[PairedMentions]:
        if self._mention_counter is None or done.outcome is None:
            return
        _, cheap = self._mention_counter.of(done, ShardAggregate())
        _, exact = self._mention_counter.of(with_attributions(done, pairs), ShardAggregate())
        together: dict[tuple[str, ...], list[tuple[Mention, Mention]]] = {}
        for mention, other in zip(cheap, exact, strict=True):
            key = mention.target, mention.class_name, mention.group, mention.entity
            together.setdefault(key, []).append((mention, other))
        for both in together.values():
            first = both[0][0]
            stratum = self._mention_counter.stratum(first, done.outcome)
            yield PairedMentions(
                item_id=first.item_id,
                **stratum._asdict(),
                group=first.group,
                entity=first.entity,
                mentions=len(both),
                cheap=sum(mention.relevance for mention, _ in both),
                exact=sum(other.relevance for _, other in both),
            )


def _agreement(cheap: Attribution, exact: Attribution) -> MethodAgreement:
    mine, theirs = _own(cheap), _own(exact)
    size = float(np.linalg.norm(theirs))
    return MethodAgreement(
        item_id=cheap.item_id,
        target=cheap.target,
        class_name=cheap.class_name,
        correlation=rank_correlation(mine, theirs, fewest=3),
        error=float(np.linalg.norm(mine - theirs)) / size if size else None,
        cheap=float(mine.sum()),
        exact=float(theirs.sum()),
    )


def _own(attribution: Attribution) -> NDArray[np.float64]:
    """(T',) the relevance of an item's own positions, special ones left out."""
    relevance = np.asarray(attribution.relevance, dtype=np.float64)
    if isinstance(attribution.features, PatchGrid):
        return relevance.ravel()
    return relevance[own_positions(attribution.features)]


class ShardControls:
    """Samples items, and of each text one of its mentions; of pictures all marked regions.

    An item is sampled by its row alone and a mention by its item alone, so that any cut into shards
    gives the same sample. The mention that is ablated is also the one that is swapped.
    """

    def __init__(self, plan: AuditPlan, check: CheckPlan, model: LoadedModel) -> None:
        self._check, self._model = check, model
        self._request = Request.from_plan(plan)
        self._ablations = AblationCheck(plan, model)
        self._swaps = SwapCheck(plan, check) if check.swap else None
        self._candidates = CandidateCheck(plan, check) if check.candidates else None
        self._regions = RegionCheck(plan) if check.regions else None
        self._randomised = RandomisedModelCheck(plan, check, model) if check.randomised else None

    def consider(self, done: Explained, matches: Sequence[Match], mentioned: bool) -> None:
        """Note an item of the sample; `mentioned`: it has mentions of any kind."""
        item, check = done.item, self._check
        if self._candidates is not None:
            self._candidates.consider(done, matches)
        if item is None or not (matches or (mentioned and check.whole)):
            return
        sampled = row_number(item.index, check.seed) < check.share * 2**64
        if sampled and self._randomised is not None:
            self._randomised.consider(done)
        if sampled and self._regions is not None:
            self._regions.consider(done)
        if not matches or item.text is None:
            return
        random = generator("check", check.seed, item.id)
        match = matches[int(random.integers(len(matches)))]
        if sampled:
            self._ablations.consider(done, matches, match)
        if self._swaps is not None and self._swaps.wants(item, match):
            self._swaps.consider(done, matches, match, random)

    def measure(self, observer: Observer, alone: Collection[str] = ()) -> ControlResults:
        """Run the sampled items again; those `alone` (ids) share no batch.

        Texts without a mention, with another one and without a candidate, and pictures with a
        region hidden, are answered in the same batches, by forward passes only. Raises Stopped
        where the observer requested a stop.
        """
        control_results = ControlResults()
        without, other = self._ablations.items, self._swaps.items if self._swaps else []
        tried = self._candidates.items if self._candidates else []
        method = self._request.method
        if not facts_of(method.name).needs_rules:  # those cut off a final softmax
            method = MethodSpec(name="random")
        forward = replace(self._request, method=method, targets=())
        # an iterator: pictures are large, so each is made just before its pass
        pictures = self._regions.items if self._regions else ()
        changed = chain(without, other, tried, pictures)
        ends = iter(explain_items(self._model, changed, forward, observer=observer, alone=alone))
        control_results.ablations += self._ablations.compared(list(islice(ends, len(without))))
        if self._swaps is not None:
            control_results.observations += self._swaps.observations(list(islice(ends, len(other))))
            control_results.unpaired.update(self._swaps.unpaired)
        if self._candidates is not None:
            control_results.candidates += self._candidates.observations(
                list(islice(ends, len(tried)))
            )
        if self._regions is not None:
            control_results.regions += self._regions.observations(ends)
        if self._randomised is not None:
            control_results.randomised.merge(self._randomised.measure(observer, alone))
        return control_results

"""The sample that a cheap and an exact method both explain: what the cheap one gets wrong."""

from collections.abc import Collection, Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from transexplain.bias.aggregates import ShardAggregate
from transexplain.bias.exact_sample import Agreement, ExactSample, PairedMentions
from transexplain.checking.again import AttributionPair, explained_pairs, in_the_place_of
from transexplain.evaluations import ExactPlan
from transexplain.explaining import Explained, Request
from transexplain.mentioning import Mentioning
from transexplain.models.base import LoadedModel
from transexplain.plans import AuditPlan
from transexplain.randomness import row_number
from transexplain.rank_correlation import rank_correlation
from transexplain.supervision import Observer
from transexplain.types import Attribution, Mention, PatchGrid, own_positions

#: added to the seed, so that a seed shared with other samples does not give the same items
_APART = 0x45786163


class ExactChecks:
    """Samples items of one shard by their rows alone, so that any cut into shards gives one sample.

    Items that mention nobody are sampled, too: the methods' agreement is measured over all items.
    """

    def __init__(self, plan: AuditPlan, exact: ExactPlan, model: LoadedModel) -> None:
        self._model, self._below = model, exact.share * 2**64
        self._seed = exact.seed + _APART
        self._request = replace(Request.from_plan(plan), method=exact.method)
        self._mentioning = Mentioning(plan) if plan.groups else None
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
        found = ExactSample()
        sampled = [(done, done.item) for done in self._sampled if done.item is not None]
        again = explained_pairs(self._model, self._request, sampled, observer, alone)
        for (done, _), pairs in zip(sampled, again, strict=True):
            if len(pairs) < len(done.attributions):
                found.failed += 1
                continue
            found.items += 1
            found.agreements += [_agreement(*pair) for pair in pairs]
            found.mentions += self._mentions(done, pairs)
        return found

    def _mentions(self, done: Explained, pairs: list[AttributionPair]) -> Iterator[PairedMentions]:
        if self._mentioning is None or done.outcome is None:
            return
        _, cheap = self._mentioning.of(done, ShardAggregate())
        _, exact = self._mentioning.of(in_the_place_of(done, pairs), ShardAggregate())
        together: dict[tuple[str, ...], list[tuple[Mention, Mention]]] = {}
        for one, other in zip(cheap, exact, strict=True):
            key = one.target, one.class_name, one.group, one.entity
            together.setdefault(key, []).append((one, other))
        for both in together.values():
            first = both[0][0]
            stratum = self._mentioning.stratum(first, done.outcome)
            yield PairedMentions(
                item_id=first.item_id,
                **stratum._asdict(),
                group=first.group,
                entity=first.entity,
                mentions=len(both),
                cheap=sum(one.relevance for one, _ in both),
                exact=sum(other.relevance for _, other in both),
            )


def _agreement(cheap: Attribution, exact: Attribution) -> Agreement:
    mine, theirs = _own(cheap), _own(exact)
    size = float(np.linalg.norm(theirs))
    return Agreement(
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

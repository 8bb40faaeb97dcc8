"""Sampled items explained by models whose weights are random."""

from collections.abc import Collection, Sequence

from transexplain.bias.aggregates import ShardAggregate
from transexplain.bias.randomised import RandomisedTotals
from transexplain.checking.again import explained_pairs, in_the_place_of
from transexplain.errors import EngineError
from transexplain.explaining import Explained, Request
from transexplain.mentioning import Mentioning
from transexplain.metrics.randomisation import randomised_model
from transexplain.models.base import LoadedModel
from transexplain.plans import AuditPlan, CheckPlan
from transexplain.randomness import row_number
from transexplain.supervision import Observer
from transexplain.types import Item

#: added to the seed: which model explains an item must not depend on what sampled the item
_APART = 0x52616E64


class Randomised:
    """The randomised-model control of one shard.

    The weights depend on their names, the seed and the draw alone, so every shard has the same
    models, and an item's row decides which of them explains it; the audited one is not touched.
    They are made where an item was sampled for them, and kept as long as the model.
    """

    def __init__(self, plan: AuditPlan, check: CheckPlan, model: LoadedModel) -> None:
        self._model, self._seed = model, check.seed
        self._request, self._mentioning = Request.from_plan(plan), Mentioning(plan)
        self._sampled: list[list[tuple[Explained, Item]]] = [[] for _ in range(check.draws)]

    def consider(self, done: Explained) -> None:
        """Note an item of the sample."""
        if done.item is not None:
            draw = row_number(done.item.index, self._seed + _APART) % len(self._sampled)
            self._sampled[draw].append((done, done.item))

    def measure(self, observer: Observer, alone: Collection[str] = ()) -> RandomisedTotals:
        """Totals of the mentions by either model, over items that both explain."""
        found = RandomisedTotals()
        for draw, sampled in enumerate(self._sampled):
            if sampled:
                self._measure(draw, sampled, found, observer, alone)
        return found

    def _measure(
        self,
        draw: int,
        sampled: Sequence[tuple[Explained, Item]],
        found: RandomisedTotals,
        observer: Observer,
        alone: Collection[str],
    ) -> None:
        """Add to `found` the items of one draw."""
        try:
            model = randomised_model(self._model, self._seed, draw)
        except (EngineError, RuntimeError, TypeError):  # a module that cannot be copied
            found.failed += len(sampled)
            return
        again = explained_pairs(model, self._request, sampled, observer, alone)
        real, random = ShardAggregate(), ShardAggregate()
        for (done, _), pairs in zip(sampled, again, strict=True):
            if len(pairs) < len(done.attributions) or not pairs:
                found.failed += 1
                continue
            found.items += 1
            self._mentioning.of(done, real)
            self._mentioning.of(in_the_place_of(done, pairs), random)
        found.real.merge(real.entities)
        found.of_draw(draw).merge(random.entities)

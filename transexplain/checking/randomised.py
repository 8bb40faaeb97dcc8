"""The drawn items explained by a model that knows nothing: its weights are drawn anew."""

from collections.abc import Collection

from transexplain.bias.aggregates import ShardAggregate
from transexplain.bias.randomised import RandomisedTotals
from transexplain.checking.again import explained_again, in_the_place_of
from transexplain.errors import EngineError
from transexplain.explaining import Explained, Request
from transexplain.mentioning import Mentioning
from transexplain.metrics.randomisation import randomised_model
from transexplain.models.base import LoadedModel
from transexplain.plans import AuditPlan, CheckPlan
from transexplain.supervision import Observer


class Randomised:
    """The randomised-model control of one shard.

    The weights depend on their names and the seed alone, so every shard has the same model; the
    audited one is not touched. It is made where an item was drawn, and kept as long as the model.
    """

    def __init__(self, plan: AuditPlan, check: CheckPlan, model: LoadedModel) -> None:
        self._model, self._seed = model, check.seed
        self._request, self._mentioning = Request.from_plan(plan), Mentioning(plan)
        self._drawn: list[Explained] = []

    def consider(self, done: Explained) -> None:
        """Take note of an item that is drawn."""
        self._drawn.append(done)

    def measure(self, observer: Observer, alone: Collection[str] = ()) -> RandomisedTotals:
        """Who is mentioned, with the relevance of either model, over items that both explain."""
        found = RandomisedTotals()
        asked = [(done, done.item) for done in self._drawn if done.item is not None]
        if not asked:
            return found
        try:
            model = randomised_model(self._model, self._seed)
        except (EngineError, RuntimeError, TypeError):  # a module that cannot be copied
            found.failed += len(asked)
            return found
        again = explained_again(model, self._request, asked, observer, alone)
        real, random = ShardAggregate(), ShardAggregate()
        for (done, _), pairs in zip(asked, again, strict=True):
            if len(pairs) < len(done.attributions) or not pairs:
                found.failed += 1
                continue
            found.items += 1
            self._mentioning.of(done, real)
            self._mentioning.of(in_the_place_of(done, pairs), random)
        found.real.merge(real.entities)
        found.randomised.merge(random.entities)
        return found

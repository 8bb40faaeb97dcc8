"""The controls of one shard: items are sampled while it is explained and run again at its end."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from itertools import chain, islice

from transexplain.bias.checked import Checked
from transexplain.bias.matching import Match
from transexplain.checking.randomised import Randomised
from transexplain.checking.regions import Regions
from transexplain.checking.removals import Removals
from transexplain.checking.swaps import Swaps
from transexplain.evaluations import MethodSpec
from transexplain.explaining import Explained, Request, explain_items
from transexplain.methods import facts_of
from transexplain.models.base import LoadedModel
from transexplain.plans import AuditPlan, CheckPlan
from transexplain.randomness import generator, row_number
from transexplain.supervision import Observer


class Checks:
    """Samples items, and of each text one of its mentions; of pictures all marked regions.

    An item is sampled by its row alone and a mention by its item alone, so that any cut into shards
    gives the same sample. The mention that is ablated is also the one that is swapped.
    """

    def __init__(self, plan: AuditPlan, check: CheckPlan, model: LoadedModel) -> None:
        self._check, self._model = check, model
        self._request = Request.from_plan(plan)
        self._removals = Removals(plan, model)
        self._swaps = Swaps(plan, check) if check.swap else None
        self._regions = Regions(plan) if check.regions else None
        self._randomised = Randomised(plan, check, model) if check.randomised else None

    def consider(self, done: Explained, matches: Sequence[Match], mentioned: bool) -> None:
        """Note an item of the sample; `mentioned`: it has mentions of any kind."""
        item, check = done.item, self._check
        if item is None or not (matches or (mentioned and check.whole)):
            return
        sampled = row_number(item.index, check.seed) < check.share * 2**64
        if sampled and self._randomised is not None:
            self._randomised.consider(done)
        if sampled and self._regions is not None:
            self._regions.consider(done)
        if not matches or not isinstance(item.content, str):
            return
        random = generator("check", check.seed, item.id)
        match = matches[int(random.integers(len(matches)))]
        if sampled:
            self._removals.consider(done, matches, match)
        if self._swaps is not None and self._swaps.wants(item, match):
            self._swaps.consider(done, matches, match, random)

    def measure(self, observer: Observer, alone: Collection[str] = ()) -> Checked:
        """Run the sampled items again; those `alone` (ids) share no batch.

        Texts without a mention and with another one, and pictures with a region hidden, are
        answered in the same batches, by forward passes only. Raises Stopped where the observer
        asked to stop.
        """
        found = Checked()
        without, other = self._removals.items, self._swaps.items if self._swaps else []
        forward = replace(self._request, method=self._logits_by(), targets=())
        pictures = (
            self._regions.items if self._regions else ()
        )  # an iterator: pictures are large, so each is made just before its pass
        changed = chain(without, other, pictures)
        ends = iter(explain_items(self._model, changed, forward, observer=observer, alone=alone))
        found.removals += self._removals.compared(list(islice(ends, len(without))))
        if self._swaps is not None:
            found.observations += self._swaps.observations(list(islice(ends, len(other))))
        if self._regions is not None:
            found.regions += self._regions.observations(ends)
        if self._randomised is not None:
            found.randomised.merge(self._randomised.measure(observer, alone))
        return found

    def _logits_by(self) -> MethodSpec:
        """A method that gives the logits of the audit's own method in one forward pass.

        Methods of rules cut off a final softmax; all others see the logits as they are.
        """
        method = self._request.method
        return method if facts_of(method.name).needs_rules else MethodSpec(name="random")

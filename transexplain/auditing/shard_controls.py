"""The controls of one shard: sampled items that are answered again, changed or by another model."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from itertools import chain, islice

from transexplain.analysis.groups.mention_matching import Match
from transexplain.analysis.groups.shard_aggregate import ControlResults
from transexplain.auditing.candidate_words import CandidateCheck
from transexplain.auditing.mention_ablations import AblationCheck
from transexplain.auditing.mention_changes import SwapCheck
from transexplain.auditing.model_controls import RandomisedModelCheck
from transexplain.auditing.region_hiding import RegionCheck
from transexplain.explaining import Explained, Request, explain_items
from transexplain.methods import facts_of
from transexplain.models.loaded_model import LoadedModel
from transexplain.randomness import generator, row_number
from transexplain.types.observer import Observer
from transexplain.types.plans import AuditPlan, CheckPlan
from transexplain.types.scores import MethodSpec


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
        found = ControlResults()
        without, other = self._ablations.items, self._swaps.items if self._swaps else []
        tried = self._candidates.items if self._candidates else []
        forward = replace(self._request, method=self._logits_by(), targets=())
        pictures = (
            self._regions.items if self._regions else ()
        )  # an iterator: pictures are large, so each is made just before its pass
        changed = chain(without, other, tried, pictures)
        ends = iter(explain_items(self._model, changed, forward, observer=observer, alone=alone))
        found.ablations += self._ablations.compared(list(islice(ends, len(without))))
        if self._swaps is not None:
            found.observations += self._swaps.observations(list(islice(ends, len(other))))
            found.unpaired.merge(self._swaps.unpaired)
        if self._candidates is not None:
            found.candidates += self._candidates.observations(list(islice(ends, len(tried))))
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

"""Regions of pictures hidden: the model's answers without them."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import numpy as np
from PIL import Image

from transexplain.bias.answers import answers_of
from transexplain.bias.families import references_of
from transexplain.bias.regions import HiddenRegion
from transexplain.checking.hiding import WAYS, Pixels, region_pixels
from transexplain.explaining import Explained
from transexplain.metrics.evidence import Region
from transexplain.models.image import picture
from transexplain.plans import AuditPlan
from transexplain.randomness import generator
from transexplain.types import Annotation, Evidence, Item, ItemOutcome, PatchGrid

MOST = 8  #: regions of one picture; of more a random sample


@dataclass(frozen=True, slots=True)
class _HiddenItem:
    """A picture that was explained, and one of its regions."""

    done: Explained
    item: Item
    place: int  #: of the region among those that are marked in the picture
    region: Annotation


class Regions:
    """The hidden regions of one shard: noted while it is explained, answered when it is done.

    Of a picture every region counts whose group is compared with another or is a reference, which
    the model saw some of, and which leaves some of the picture. Each is hidden by itself, in every
    one of `WAYS`.
    """

    def __init__(self, plan: AuditPlan) -> None:
        self._answers, self._slice, self._seed = answers_of(plan), plan.slice, 0
        references = references_of(plan.reference, (group.name for group in plan.groups))
        compared = {name for name, one in references.items() if one.groups}
        self._groups = compared.union(*(one.groups for one in references.values()))
        self._hidden_items: list[_HiddenItem] = []

    def consider(self, done: Explained) -> None:
        """Note a picture of the sample; of many regions a random sample."""
        item = done.item
        if item is None or not self._answers or not done.attributions:
            return
        grid = done.attributions[0].features
        if not isinstance(grid, PatchGrid) or not isinstance(
            item.content, Image.Image | np.ndarray
        ):
            return
        height, width = _pixels(item.content).shape[:2]
        usable = [
            (place, one)
            for place, one in enumerate(item.annotations)
            if one.group in self._groups and _hides(one, grid, height, width)
        ]
        if len(usable) > MOST:
            chosen = generator("regions", self._seed, item.id).permutation(len(usable))[:MOST]
            usable = [usable[place] for place in sorted(chosen)]
        self._hidden_items += [_HiddenItem(done, item, place, one) for place, one in usable]

    @property
    def items(self) -> Iterator[Item]:
        """The pictures to be answered, made one by one: all ways of a region, then the next."""
        for hidden_item in self._hidden_items:
            pixels = _pixels(hidden_item.item.content)
            inside = region_pixels(hidden_item.region, *pixels.shape[:2])
            for hide in WAYS:
                yield replace(hidden_item.item, content=Image.fromarray(hide(pixels, inside)))

    def observations(self, ends: Iterable[Explained]) -> Iterator[HiddenRegion]:
        """What was answered to `items`, in their order; a region with a failure is left out."""
        # outcomes alone are kept: an end holds its picture
        outcomes = (end.outcome for end in ends)
        for hidden_item in self._hidden_items:
            found = [one for one in islice(outcomes, len(WAYS)) if one is not None]
            if len(found) == len(WAYS):
                yield self._observed(hidden_item, found)

    def _observed(self, hidden_item: _HiddenItem, found: list[ItemOutcome]) -> HiddenRegion:
        item, region, before = hidden_item.item, hidden_item.region, hidden_item.done.outcome
        assert before is not None  # it was explained
        return HiddenRegion(
            document=item.id,
            place=hidden_item.place,
            group=region.group,
            entity=region.entity or item.id,
            cluster=item.cluster,
            slice=str(item.meta.get(self._slice, "")) if self._slice else "",
            predicted=before.predicted,
            log_odds=self._log_odds(before),
            without=tuple(one.predicted for one in found),
            hidden=tuple(self._log_odds(one) for one in found),
        )

    def _log_odds(self, outcome: ItemOutcome) -> tuple[float, ...]:
        return tuple(float(one.log_odds(outcome.logits)) for one in self._answers)


def _pixels(content: Any) -> Pixels:
    """(H, W, 3) what the model's transform is given."""
    return np.asarray(picture(content), dtype=np.uint8)


def _hides(region: Annotation, grid: PatchGrid, height: int, width: int) -> bool:
    """Whether there is something to hide that the model sees, and something that is left."""
    if region.box is None and region.mask is None:
        return False
    evidence = Evidence(boxes=(region.box,) if region.box else (), mask=region.mask)
    inside = region_pixels(region, height, width)
    return bool(Region.of(evidence).share(grid).any() and inside.any() and not inside.all())

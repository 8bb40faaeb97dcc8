"""Hides regions of pictures in three ways (filled, blurred, in-painted), and substructures of
graphs as `region_hiding` does; measures the answers.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import islice
from typing import Any

import cv2
import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from transexplain.analysis.groups.answers import answers_of
from transexplain.analysis.groups.group_cells import references_of
from transexplain.analysis.groups.hidden_regions import HiddenRegion
from transexplain.data.shard_reader import StoredPicture
from transexplain.evaluating.metrics.rationale import MarkedRegion
from transexplain.explaining import Explained
from transexplain.models.graph_inputs import inputs_in, kept_nodes
from transexplain.models.image_encoder import picture
from transexplain.randomness import generator
from transexplain.types.graphs import FEATURES
from transexplain.types.items import Annotation, Item, ItemOutcome, PatchGrid
from transexplain.types.plans import AuditPlan

Inputs = dict[str, torch.Tensor]
HiddenNodes = torch.Tensor  #: (T,) which nodes are hidden


def removed(inputs: Inputs, inside: HiddenNodes) -> Inputs:
    """The graph without the nodes; the others stay as far apart as they were."""
    return kept_nodes(inputs, FEATURES, torch.nonzero(~inside)[:, 0])


def averaged(inputs: Inputs, inside: HiddenNodes) -> Inputs:
    """The nodes with the mean features of the others."""
    features = inputs[FEATURES].clone()
    features[inside] = features[~inside].mean(dim=0)
    return {**inputs, FEATURES: features}


def emptied(inputs: Inputs, inside: HiddenNodes) -> Inputs:
    """The nodes with features of 0."""
    features = inputs[FEATURES].clone()
    features[inside] = 0.0
    return {**inputs, FEATURES: features}


#: in the order in which observations hold what was answered
NODE_WAYS: tuple[Callable[[Inputs, HiddenNodes], Inputs], ...] = (removed, averaged, emptied)


def without_nodes(graph: Mapping[str, Any], nodes: Iterable[int]) -> Iterator[Inputs]:
    """The graph with the nodes hidden, in each of `NODE_WAYS`."""
    inputs = inputs_in(graph)
    features = inputs[FEATURES]
    # 0 and 1 may come as integers, which have no mean
    inputs[FEATURES] = features if features.is_floating_point() else features.double()
    inside = torch.zeros(len(features), dtype=torch.bool)
    inside[list(nodes)] = True
    return (hide(inputs, inside) for hide in NODE_WAYS)


def leaves_nodes(graph: Mapping[str, Any], nodes: Iterable[int]) -> bool:
    """Return whether nodes are named, and others remain."""
    return 0 < len(set(nodes)) < len(np.asarray(graph[FEATURES]))


Pixels = NDArray[np.uint8]  #: (H, W, 3), 0 to 255
Inside = NDArray[np.bool_]  #: (H, W)

#: what holds a picture to hide regions of
_PICTURES = (Image.Image, np.ndarray, StoredPicture)
_SIGMA = 0.5  #: of the blur, as a share of the side of a square as large as the region
_RADIUS = 3  #: pixels around each that in-painting looks at
_LARGEST = 512  #: pixels of a side; what is larger is blurred and in-painted at this size


def region_pixels(region: Annotation, height: int, width: int) -> Inside:
    """(H, W) which pixels of a picture have their centre in a region, whatever a mask's size."""
    down, across = ((np.arange(side) + 0.5) / side for side in (height, width))
    return np.asarray(MarkedRegion.of(region).at(down, across), dtype=np.bool_)


def filled(picture: Pixels, inside: Inside) -> Pixels:
    """The picture with its mean colour where `inside`."""
    copy = picture.copy()
    copy[inside] = np.asarray(np.rint(picture.mean(axis=(0, 1))), dtype=np.uint8)
    return copy


def blurred(picture: Pixels, inside: Inside) -> Pixels:
    """The picture blurred where `inside`, by a Gaussian as wide as half of the region."""

    def blur(part: Pixels, where: Inside) -> Pixels:
        sigma = max(1.0, _SIGMA * math.sqrt(int(where.sum())))
        return np.asarray(cv2.GaussianBlur(part, (0, 0), sigma), dtype=np.uint8)

    return _within(picture, inside, blur)


def inpainted(picture: Pixels, inside: Inside) -> Pixels:
    """The picture continued into `inside` from around it (Telea 2004)."""

    def paint(part: Pixels, where: Inside) -> Pixels:
        if where.all():  # nothing of a scaled part remains to paint from
            return filled(part, where)
        painted = cv2.inpaint(part, where.astype(np.uint8), _RADIUS, cv2.INPAINT_TELEA)
        return np.asarray(painted, dtype=np.uint8)

    return _within(picture, inside, paint)


#: in the order in which observations hold what was answered
WAYS: tuple[Callable[[Pixels, Inside], Pixels], ...] = (filled, blurred, inpainted)


def _within(picture: Pixels, inside: Inside, change: Callable[[Pixels, Inside], Pixels]) -> Pixels:
    """The picture with `inside` taken from `change` of the part around it.

    The part reaches as far as the blur does, so cutting it out changes nothing. A large one is
    scaled down before and up afterwards: what hides a region has no detail to lose.
    """
    # what the blur reaches on every side
    margin = math.ceil(4 * max(1.0, _SIGMA * math.sqrt(int(inside.sum())))) + _RADIUS
    rows, cols = (np.flatnonzero(inside.any(axis=axis)) for axis in (1, 0))
    part = (
        slice(max(0, int(rows[0]) - margin), int(rows[-1]) + 1 + margin),
        slice(max(0, int(cols[0]) - margin), int(cols[-1]) + 1 + margin),
    )
    pixels, where = np.ascontiguousarray(picture[part]), inside[part]
    height, width = where.shape
    scale = _LARGEST / max(height, width)
    if scale < 1:
        size = (max(1, round(width * scale)), max(1, round(height * scale)))
        small = np.asarray(cv2.resize(pixels, size, interpolation=cv2.INTER_AREA), dtype=np.uint8)
        shares = cv2.resize(where.astype(np.float32), size, interpolation=cv2.INTER_AREA)
        done = change(small, np.asarray(shares > 0))
        new = np.asarray(cv2.resize(done, (width, height), interpolation=cv2.INTER_LINEAR))
    else:
        new = change(pixels, where)
    copy = picture.copy()
    copy[part][where] = new[where]
    return copy


MOST = 8  #: regions of one item; of more a random sample


class RegionCheck:
    """The hidden regions of one shard: noted while it is explained, answered when it is done.

    Of an item every region counts whose group is compared with another or is a reference, which
    the model saw some of, and which leaves some of the item. Each is hidden by itself, in every
    one of `WAYS` (pictures) or `NODE_WAYS` (graphs, where a region is a substructure).
    """

    def __init__(self, plan: AuditPlan) -> None:
        self._answers, self._slice = answers_of(plan), plan.slice
        references = references_of(plan.reference, (group.name for group in plan.groups))
        compared = {name for name, reference in references.items() if reference.groups}
        self._groups = compared.union(*(reference.groups for reference in references.values()))
        #: pictures and graphs that were explained, each with the place of one of its annotations
        self._regions: list[tuple[Explained, Item, int]] = []

    def consider(self, done: Explained) -> None:
        """Note an item of the sample; of many regions a random sample."""
        item = done.item
        if item is None or not self._answers or not done.attributions:
            return
        marks = item.annotations
        marked = [place for place, mark in enumerate(marks) if mark.group in self._groups]
        if not marked:
            return  # nothing to open a picture for
        features = done.attributions[0].features
        if isinstance(item.content, Mapping) and not isinstance(features, PatchGrid):
            usable = [n for n in marked if leaves_nodes(item.content, marks[n].nodes)]
        elif isinstance(features, PatchGrid) and isinstance(item.content, _PICTURES):
            height, width = _sides(item.content)
            usable = [n for n in marked if _hides(marks[n], features, height, width)]
        else:
            return
        if len(usable) > MOST:
            chosen = generator("regions", 0, item.id).permutation(len(usable))[:MOST]
            usable = [usable[place] for place in sorted(chosen)]
        self._regions += [(done, item, place) for place in usable]

    @property
    def items(self) -> Iterator[Item]:
        """The items to be answered, made one by one: all ways of a region, then the next."""
        opened, pixels = None, np.empty((0, 0, 3), dtype=np.uint8)
        for _, item, place in self._regions:
            region = item.annotations[place]
            if isinstance(item.content, Mapping):
                for graph in without_nodes(item.content, region.nodes):
                    yield replace(item, content=graph)
                continue
            if opened is not item:  # its regions follow one another
                opened, pixels = item, _pixels(item.content)
            inside = region_pixels(region, *pixels.shape[:2])
            for hide in WAYS:
                yield replace(item, content=Image.fromarray(hide(pixels, inside)))

    def observations(self, ends: Iterable[Explained]) -> Iterator[HiddenRegion]:
        """Yield the answers to `items`, in their order, without regions with a failure."""
        # keep outcomes only: a full result holds its picture
        outcomes = (end.outcome for end in ends)
        for done, item, place in self._regions:
            ways = NODE_WAYS if isinstance(item.content, Mapping) else WAYS
            answered = [outcome for outcome in islice(outcomes, len(ways)) if outcome is not None]
            if len(answered) == len(ways) and done.outcome is not None:
                yield self._observed(item, place, done.outcome, answered)

    def _observed(
        self, item: Item, place: int, before: ItemOutcome, answered: list[ItemOutcome]
    ) -> HiddenRegion:
        region = item.annotations[place]
        return HiddenRegion(
            document=item.id,
            place=place,
            group=region.group,
            entity=region.entity or item.id,
            cluster=item.cluster,
            slice=str(item.meta.get(self._slice, "")) if self._slice else "",
            predicted=before.predicted,
            log_odds=self._log_odds(before),
            without=tuple(outcome.predicted for outcome in answered),
            hidden=tuple(self._log_odds(outcome) for outcome in answered),
        )

    def _log_odds(self, outcome: ItemOutcome) -> tuple[float, ...]:
        return tuple(float(answer.log_odds(outcome.logits)) for answer in self._answers)


def _sides(content: Any) -> tuple[int, int]:
    """Height and width of a picture, which is opened only where it was left without them."""
    if isinstance(content, StoredPicture) and content.size is not None:
        return content.size[1], content.size[0]
    height, width = _pixels(content).shape[:2]
    return height, width


def _pixels(content: Any) -> Pixels:
    """(H, W, 3) what the model's transform is given."""
    return np.asarray(picture(content), dtype=np.uint8)


def _hides(region: Annotation, grid: PatchGrid, height: int, width: int) -> bool:
    """Return whether the model sees part of the region, and part of the picture remains."""
    if region.box is None and region.mask is None:
        return False
    inside = region_pixels(region, height, width)
    return bool(MarkedRegion.of(region).share(grid).any() and inside.any() and not inside.all())

"""Ablates mentions in a sample of texts, and measures the answers to the texts without them."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from transexplain.analysis.groups.mention_ablation import MentionAblation
from transexplain.analysis.groups.mention_matching import Match, mentions_of
from transexplain.explaining import Explained, Request
from transexplain.models.loaded_model import LoadedModel
from transexplain.types.items import Attribution, Item
from transexplain.types.pairs import joined
from transexplain.types.plans import AuditPlan
from transexplain.types.targets import parse_target, resolve_target

_POSSESSIVE = re.compile(r"['\u2019]s\b", re.IGNORECASE)
_CLOSING = re.compile(r"[,.;:!?)\]}%]")


@dataclass(frozen=True, slots=True)
class _AblatedItem:
    """An item with the matches of one entity, and the item without them."""

    done: Explained
    matches: tuple[Match, ...]
    item: Item


class AblationCheck:
    """The ablations of one shard: noted while it is explained, predicted when it is done."""

    def __init__(self, plan: AuditPlan, model: LoadedModel) -> None:
        self._model, self._request = model, Request.from_plan(plan)
        self._ablated: list[_AblatedItem] = []

    def consider(self, done: Explained, matches: Sequence[Match], match: Match) -> None:
        """Note an item; all matches of `match`'s entity are ablated.

        An item that has no other words is left out.
        """
        item = done.item
        if item is None or item.text is None:
            return
        own = tuple(one for one in matches if one.entity == match.entity)
        left = item_without(item, own)
        if any(letter.isalnum() for letter in left.content):
            self._ablated.append(_AblatedItem(done, own, left))

    @property
    def items(self) -> list[Item]:
        """The texts without the mention, in the order in which `compared` takes their ends."""
        return [one.item for one in self._ablated]

    def compared(self, ends: Sequence[Explained]) -> Iterator[MentionAblation]:
        """The change by each ablation; `ends` are those of `items`."""
        for ablated, end in zip(self._ablated, ends, strict=True):
            if end.outcome is not None:
                yield from self._compared(ablated, end.outcome.predicted, end.outcome.logits)

    def _compared(
        self, ablated: _AblatedItem, predicted: str, logits: Sequence[float]
    ) -> Iterator[MentionAblation]:
        before = ablated.done.outcome
        for attribution in ablated.done.attributions:
            relevances: dict[str, float] = {}
            for one in mentions_of(attribution, ablated.matches):
                relevances[one.group] = relevances.get(one.group, 0.0) + one.relevance
            change = attribution.logit - self._explained(attribution, np.asarray(logits))
            for group, relevance in relevances.items():
                yield MentionAblation(
                    item_id=attribution.item_id,
                    target=attribution.target,
                    class_name=attribution.class_name,
                    group=group,
                    entity=ablated.matches[0].entity,
                    flipped=before is not None and before.predicted != predicted,
                    change=change,
                    relevance=relevance,
                )

    def _explained(self, attribution: Attribution, logits: NDArray[np.float64]) -> float:
        """The logit (or the sum of some) of what was explained, from logits (C,)."""
        if attribution.class_index is not None:
            return float(logits[attribution.class_index])
        target = parse_target(attribution.target, self._request.names)
        [resolved] = resolve_target(target, logits, self._model.classes, None)
        return float(sum(factor * logits[index] for index, factor in resolved.coefficients))


def item_without(item: Item, matches: Sequence[Match]) -> Item:
    """The item, each of whose texts is what `without` leaves of it."""
    left, begin = [], 0
    for text in item.texts:
        spans = [(one.start - begin, one.end - begin) for one in matches]
        inside = [(start, end) for start, end in spans if 0 <= start < len(text)]
        left.append(without(text, inside))
        begin = item.second_at or 0
    content, second_at = joined(*left) if item.second_at is not None else (left[0], None)
    return replace(item, content=content, second_at=second_at)


def without(text: str, spans: Sequence[tuple[int, int]]) -> str:
    """`text` with the characters of `spans` taken out and the spaces around them tidied.

    A possessive goes with its name. No space is left before a closing mark, nor two in a row where
    something was taken out; the rest of the text stays as it is, but for spaces at its ends.
    """
    kept, cursor = "", 0
    for start, end in sorted(spans):
        kept = _joined(kept, text[cursor : max(cursor, start)])
        possessive = _POSSESSIVE.match(text, end)
        cursor = max(cursor, possessive.end() if possessive else end)
    return _joined(kept, text[cursor:]).strip(" ")


def _joined(left: str, right: str) -> str:
    if left[-1:] == " " and (right[:1] == " " or _CLOSING.match(right)):
        return left.rstrip(" ") + right
    return left + right

"""Mention ablation: the model's answers to texts without one of their mentions."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from transexplain.bias.matching import Match
from transexplain.bias.mentions import mentions_of
from transexplain.bias.removals import Removal
from transexplain.explaining import Explained, Request
from transexplain.models.base import LoadedModel
from transexplain.plans import AuditPlan
from transexplain.targets import parse_target, resolve_target
from transexplain.types import Attribution, Item

_POSSESSIVE = re.compile(r"['\u2019]s\b", re.IGNORECASE)
_CLOSING = re.compile(r"[,.;:!?)\]}%]")


@dataclass(frozen=True, slots=True)
class _AblatedItem:
    """An item, the matches of one entity in it, and the item without them."""

    done: Explained
    matches: tuple[Match, ...]
    item: Item


class Removals:
    """The ablations of one shard: noted while it is explained, predicted when it is done."""

    def __init__(self, plan: AuditPlan, model: LoadedModel) -> None:
        self._model, self._request = model, Request.from_plan(plan)
        self._ablated: list[_AblatedItem] = []

    def consider(self, done: Explained, matches: Sequence[Match], match: Match) -> None:
        """Note an item; all matches of `match`'s entity are ablated.

        An item that has no other words is left out.
        """
        item = done.item
        if item is None or not isinstance(item.content, str):
            return
        own = tuple(one for one in matches if one.entity == match.entity)
        text = without(item.content, [(one.start, one.end) for one in own])
        if any(letter.isalnum() for letter in text):
            self._ablated.append(_AblatedItem(done, own, replace(item, content=text)))

    @property
    def items(self) -> list[Item]:
        """The texts without the mention, in the order in which `compared` takes their ends."""
        return [one.item for one in self._ablated]

    def compared(self, ends: Sequence[Explained]) -> Iterator[Removal]:
        """The change by each ablation; `ends` are those of `items`."""
        for ablated, end in zip(self._ablated, ends, strict=True):
            if end.outcome is not None:
                yield from self._compared(ablated, end.outcome.predicted, end.outcome.logits)

    def _compared(
        self, ablated: _AblatedItem, predicted: str, logits: Sequence[float]
    ) -> Iterator[Removal]:
        before = ablated.done.outcome
        for attribution in ablated.done.attributions:
            relevances: dict[str, float] = {}
            for one in mentions_of(attribution, ablated.matches):
                relevances[one.group] = relevances.get(one.group, 0.0) + one.relevance
            change = attribution.logit - self._explained(attribution, np.asarray(logits))
            for group, relevance in relevances.items():
                yield Removal(
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
    return _joined(kept, text[cursor:]).strip()


def _joined(left: str, right: str) -> str:
    if left[-1:].isspace() and (right[:1].isspace() or _CLOSING.match(right)):
        return left.rstrip() + right
    return left + right

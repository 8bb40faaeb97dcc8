"""Removes or hashes all texts of a shard's result before it is stored; see
docs/explanation/privacy.md.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from transexplain.analysis.groups.entity_finder import is_whole
from transexplain.analysis.groups.entity_totals import EntityTotals
from transexplain.analysis.groups.shard_aggregate import ShardAggregate
from transexplain.auditing.text_redaction import Blanked, Blind, Hashed, Nothing, TextKey
from transexplain.error_frames import traceback_of
from transexplain.errors import TransExplainError
from transexplain.privacy import load_hook
from transexplain.types.items import (
    Attribution,
    Item,
    ItemFailure,
    ItemOutcome,
    Mention,
    PatchGrid,
)
from transexplain.types.plans import AuditPlan, PrivacyPlan, ShardResult
from transexplain.types.scores import MetricScore
from transexplain.types.tokens import Token

Rename = Callable[[str], str]
#: keys of a record that name a group, and the key beside it that names an entity of it
_NAMED = (("group", "entity"), ("other", "replacement"))


def without_texts(
    aggregate: Mapping[str, Any],
    outcomes: Sequence[ItemOutcome],
    attributions: Sequence[Attribution],
    marked: Collection[str],
    rename: Rename,
) -> dict[str, Any]:
    """The aggregate with the words of the attributions as they will be stored.

    What is added up from the stored rows is then what is stored, as `verify` asks.

    Args:
        aggregate: of the real texts.
        outcomes: as they will be stored.
        attributions: as they will be stored.
        marked: groups whose entities' names come from the data.
        rename: what becomes of such a name.
    """
    counted = ShardAggregate()
    texts = [one for one in attributions if not isinstance(one.features, PatchGrid)]
    if texts and outcomes:
        counted.add(outcomes[0], texts)
    found = {**aggregate, "words": counted.to_json()["words"]}
    if not marked:
        return found
    renamed: dict[str, Any] = _renamed(found, marked, rename)
    return renamed


def _renamed(value: Any, marked: Collection[str], rename: Rename) -> Any:
    if isinstance(value, list):
        return [_renamed(one, marked, rename) for one in value]
    if not isinstance(value, Mapping):
        return value
    if "stratum" in value:
        return EntityTotals.from_json([value]).renamed(marked, rename).to_json()[0]
    changed = {key: _renamed(one, marked, rename) for key, one in value.items()}
    for group, entity in _NAMED:
        if changed.get(group) in marked and entity in changed:
            changed[entity] = rename(changed[entity])
    return changed


REDACTION_FAILED = "redaction-failed"
#: keys of a score's detail that hold a class name, and numbers of its words in their order
_CLASS, _WORDS, _OF_WORDS = "class", "words", ("relevance", "rarity")
_DRAWS = "draws"  #: and the details of the draws of random relevance


def guard_of(plan: AuditPlan) -> "Guard | None":
    """The guard of a plan's texts; None where they are stored as they are.

    Raises ConfigurationError where the key is missing, short or not the plan's, or where the
    redaction hook cannot be loaded.
    """
    privacy = plan.privacy
    if privacy is None or privacy == PrivacyPlan():
        return None
    hook = None
    if privacy.redact:
        hook = load_hook(privacy.redact, privacy.redact_file, privacy.redact_sha256)
    blind: Blind
    if privacy.store_text == "hashed":
        blind = Hashed(TextKey.from_environment(privacy.key))
    elif privacy.store_text == "none":
        blind = Nothing()
    else:
        assert hook is not None  # other plans store texts as they are
        blind = Blanked(hook)
    return Guard(blind=blind, marked=_marked(plan), name=privacy.redact or "")


@dataclass(frozen=True, slots=True)
class Guard:
    """Changes what is stored of one shard, and nothing that is computed."""

    blind: Blind
    marked: frozenset[str]  #: groups whose entities are named by the data
    name: str  #: of the redaction hook

    def read(self, given: Iterable[Any]) -> Iterator[Any]:
        """The items of a shard; one that the hook fails on is no longer an item but a failure."""
        for one in given:
            item = one if isinstance(one, Item) else getattr(one, "item", None)
            failure = self._unread(item) if isinstance(item, Item) else None
            yield one if failure is None else failure

    def storable(self, result: ShardResult) -> ShardResult:
        """The result as it may be stored."""
        self._place(result.attributions)
        attributions = tuple(self._attributions(result.attributions))
        outcomes = tuple(
            replace(
                one,
                text=self.blind.text(one.item_id, one.text),
                meta=self.blind.meta(one.meta),
                raw_label=self._raw_label(one.raw_label),
            )
            for one in result.outcomes
        )
        return replace(
            result,
            outcomes=outcomes,
            attributions=attributions,
            failures=tuple(map(self._failure, result.failures)),
            mentions=tuple(map(self._mention, result.mentions)),
            scores=tuple(map(self._score, result.scores)),
            aggregate=without_texts(
                result.aggregate, outcomes, attributions, self.marked, self.blind.entity
            ),
        )

    def _raw_label(self, label: str | None) -> str | None:
        """As the value of a column: what a dataset calls its labels may be anything."""
        return None if label is None else self.blind.meta({"label": label}).get("label")

    def error_without_text(self, error: Exception) -> TransExplainError:
        """An error of a shard, for its row: its type, and the part of its message that may be
        stored.
        """
        return TransExplainError(f"{type(error).__name__}: {self.blind.message(str(error))}")

    def _unread(self, item: Item) -> ItemFailure | None:
        if not isinstance(self.blind, Blanked) or item.text is None:
            return None
        try:
            self.blind.read(item.id, item.text)
        except Exception as error:  # noqa: BLE001 - a hook may raise anything, and quote the text
            return ItemFailure(
                item_id=item.id,
                index=item.index,
                kind=REDACTION_FAILED,
                message=f"the redaction hook {self.name} failed with {type(error).__name__}; "
                "nothing of the item is stored",
                traceback=traceback_of(error),
            )
        return None

    def _place(self, attributions: Iterable[Attribution]) -> None:
        if isinstance(self.blind, Blanked):
            for one in attributions:
                if not isinstance(one.features, PatchGrid):
                    self.blind.place(one.item_id, one.text, one.features)

    def _attributions(self, attributions: Iterable[Attribution]) -> Iterator[Attribution]:
        # targets of one item share their tokens, which the store compares
        last: tuple[str, Sequence[Token], Sequence[Token]] | None = None
        for one in attributions:
            features = one.features
            if not isinstance(features, PatchGrid):
                if last is None or last[0] != one.item_id or last[1] is not features:
                    made = self.blind.tokens(one.item_id, one.text, features)
                    last = (one.item_id, features, made)
                yield replace(one, features=last[2], text=self.blind.text(one.item_id, one.text))
            else:
                yield one

    def _failure(self, one: ItemFailure) -> ItemFailure:
        if one.kind == REDACTION_FAILED:  # this message is ours and quotes no text
            return one
        return replace(one, message=self.blind.message(one.message))

    def _mention(self, one: Mention) -> Mention:
        entity = self.blind.entity(one.entity) if one.group in self.marked else one.entity
        surface = self.blind.surface(one.item_id, one.surface, (one.start, one.end))
        return replace(one, entity=entity, surface=surface)

    def _score(self, one: MetricScore) -> MetricScore:
        reason = self.blind.message(one.reason) if one.reason else ""
        return replace(one, reason=reason, detail=self._detail(one.item_id, one.detail))

    def _detail(self, item_id: str, detail: Mapping[str, Any]) -> dict[str, Any]:
        """Numbers, the class, and the words as they may be stored; nothing that is unknown here."""
        found: dict[str, Any] = {
            key: value
            for key, value in detail.items()
            if _is_number(value) or (key not in _OF_WORDS and _are_numbers(value))
        }
        drawn = detail.get(_DRAWS, ())
        if drawn and all(isinstance(one, Mapping) for one in drawn):
            found[_DRAWS] = [self._detail(item_id, one) for one in drawn]
        if _CLASS in detail:
            found[_CLASS] = detail[_CLASS]
        if _WORDS in detail:
            words = self.blind.words(item_id, detail[_WORDS])
            known = [place for place, word in enumerate(words) if word is not None]
            found[_WORDS] = [words[place] for place in known]
            for key in (one for one in _OF_WORDS if one in detail):
                amounts = self._amounts(key, detail[key])
                found[key] = [amounts[place] for place in known if place < len(amounts)]
        return found

    def _amounts(self, key: str, amounts: Sequence[float]) -> Sequence[float]:
        """Numbers of words as they may be stored: a rarity in full would name a hashed word."""
        if key == "rarity" and not isinstance(self.blind, Blanked):
            return [float(round(one)) for one in amounts]
        return amounts


def _is_number(value: object) -> bool:
    return isinstance(value, int | float)


def _are_numbers(value: object) -> bool:
    return isinstance(value, list | tuple) and all(map(_is_number, value))


def _marked(plan: AuditPlan) -> frozenset[str]:
    """Groups without terms, but for those of a column, whose entities are the items."""
    return frozenset(
        one.name for one in plan.groups if not one.terms and not is_whole(plan, one.name)
    )

"""Swaps or ablates the words that a lexicon may lack, and measures the answers to these texts."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from transexplain.analysis.groups.answers import answers_of
from transexplain.analysis.groups.counterfactuals import Observation
from transexplain.analysis.groups.mention_coverage import PARTNERS, TITLES, is_candidate
from transexplain.analysis.groups.mention_matching import Match
from transexplain.analysis.groups.swap_pairs import Partners
from transexplain.analysis.groups.word_pieces import Piece, pieces
from transexplain.auditing.mention_ablations import item_without
from transexplain.auditing.mention_changes import SwapCheck, edited_item, observation
from transexplain.explaining import Explained
from transexplain.randomness import generator, row_number
from transexplain.types.items import Item
from transexplain.types.plans import AuditPlan, CandidateWord, CheckPlan

_SEED = 0x43616E64  #: added to the seed, so that other samples do not take the same items


@dataclass(frozen=True, slots=True)
class _TriedItem:
    """An item with a candidate, and the item without it."""

    done: Explained
    item: Item
    candidate: CandidateWord


class CandidateCheck:
    """The candidates of one shard: noted while it is explained, answered when it is done.

    A pronoun or title is tried in texts that mention its group, a spelling in all texts that have
    it; each by itself, at all its places in a text.
    """

    def __init__(self, plan: AuditPlan, check: CheckPlan) -> None:
        self._check, self._slice, self._answers = check, plan.slice, answers_of(plan)
        self._swaps = SwapCheck(plan, check)
        self._partners = Partners(PARTNERS)
        self._tried: list[_TriedItem] = []

    def consider(self, done: Explained, matches: Sequence[Match]) -> None:
        """Note an item for each candidate that it is sampled for."""
        item = done.item
        if item is None or item.text is None or done.outcome is None:
            return
        groups = {one.group for one in matches}
        found = pieces(item.text)
        keys = {piece.key for piece in found}
        for number, candidate in enumerate(self._check.candidates):
            if candidate.word not in keys or not (candidate.entity or candidate.group in groups):
                continue
            seed = self._check.seed + _SEED + number
            if row_number(item.index, seed) >= candidate.share * 2**64:
                continue
            changed = self._changed(item, candidate, found)
            if changed is not None and any(letter.isalnum() for letter in changed.content):
                self._tried.append(_TriedItem(done, changed, candidate))

    def _changed(self, item: Item, candidate: CandidateWord, found: Sequence[Piece]) -> Item | None:
        """The item with other words in the candidate's places, or without it; None: it has none."""
        text, word = item.content, candidate.word
        if candidate.entity:
            places = [one for one in found if one.key == word and 0 in one.capitals]
            random = generator("candidate", self._check.seed, item.id)
            surface = text[places[0].start : places[0].end] if places else ""
            name = self._swaps.replacement(candidate.group, surface, random)
            edits = [(one.start, one.end, name) for one in places if name is not None]
            return edited_item(item, edits) if edits else None
        places = [one for one in found if is_candidate(one, word)]
        spans = [
            (one, self._partners.partner(text[one.start : one.end], text[one.end :]))
            for one in places
        ]
        if not spans:
            return None
        edits = [(one.start, one.end, partner) for one, partner in spans if partner is not None]
        if edits:
            return edited_item(item, edits)
        stop = word in TITLES
        return item_without(item, [_match(one, text, stop) for one in places])

    @property
    def items(self) -> list[Item]:
        """The texts to be answered, in the order in which `observations` takes their ends."""
        return [one.item for one in self._tried]

    def observations(self, ends: Sequence[Explained]) -> Iterator[Observation]:
        """What was answered, to the texts as they came and to `items`; a failure is left out."""
        for tried, end in zip(self._tried, ends, strict=True):
            if end.outcome is not None:
                for own, of in ((True, tried.done), (False, end)):
                    yield self._observed(tried, of, own=own)

    def _observed(self, tried: _TriedItem, end: Explained, *, own: bool) -> Observation:
        assert tried.done.item is not None and end.outcome is not None  # both were explained
        return observation(
            tried.done.item,
            end.outcome,
            self._answers,
            self._slice,
            group=tried.candidate.group,
            entity=tried.candidate.word,
            own=own,
        )


def _match(piece: Piece, text: str, stop: bool) -> Match:
    """The place of a piece, with the full stop of a title."""
    end = piece.end + (stop and text[piece.end : piece.end + 1] == ".")
    return Match(group="", entity="", surface="", start=piece.start, end=end)

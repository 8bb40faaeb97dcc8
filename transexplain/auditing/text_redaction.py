"""Three ways to keep a text out of the store: hash its words, store nothing, or blank parts
of it.
"""

import hmac
import re
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import itemgetter
from typing import Any

import numpy as np

from transexplain.analysis.groups.entity_finder import is_whole
from transexplain.analysis.groups.shard_aggregate import ShardAggregate
from transexplain.errors import ConfigurationError, TransExplainError
from transexplain.settings import secret
from transexplain.text.error_frames import traceback_of
from transexplain.text.privacy import Hook, Span, load_hook, spans_by
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
from transexplain.types.tokens import Token, Tokens

TEXT_KEY = "TRANSEXPLAIN_TEXT_KEY"
_FEWEST = 16  #: bytes
_DIGITS = 12  #: of a stored hash: 48 bits; two of a million words share one with 0.2 %
_FINGERPRINT = 16  #: digits of the key's fingerprint


@dataclass(frozen=True, slots=True)
class TextKey:
    """A secret of at least 16 bytes, with the hashes that it makes of texts."""

    _secret: bytes = field(repr=False)

    @classmethod
    def from_environment(cls, fingerprint: str = "") -> "TextKey":
        """The key of `TRANSEXPLAIN_TEXT_KEY`, or of the file in `TRANSEXPLAIN_TEXT_KEY_FILE`.

        Raises ConfigurationError where there is none, it is short, or it is not the one with this
        `fingerprint`; no message holds the key.
        """
        text = secret("TEXT_KEY")
        if text is None:
            raise ConfigurationError(
                f"store_text is hashed, but {TEXT_KEY} is not set; set it, or {TEXT_KEY}_FILE, to "
                f"a random secret of at least {_FEWEST} bytes, the same for every worker"
            )
        raw = text.encode("utf-8", "surrogateescape")
        if len(raw) < _FEWEST:
            raise ConfigurationError(
                f"{TEXT_KEY} has {len(raw)} bytes; it must have at least {_FEWEST}. "
                "`openssl rand -hex 32` makes one"
            )
        key = cls(raw)
        if fingerprint and not hmac.compare_digest(key.fingerprint, fingerprint):
            raise ConfigurationError(
                f"{TEXT_KEY} is not the key of this run: its fingerprint is {key.fingerprint}, "
                f"the plan has {fingerprint}. Set the key that the run was planned with"
            )
        return key

    @property
    def fingerprint(self) -> str:
        """A name of the key that does not reveal it."""
        return self._mac("fingerprint", "")[:_FINGERPRINT]

    def word(self, text: str) -> str:
        """12 hexadecimal digits, the same for the same word in upper or lower case."""
        return self._mac("word", text.lower())[:_DIGITS]

    def value(self, column: str, text: str) -> str:
        """12 hexadecimal digits of a value, which another column's value never shares by rule."""
        return self._mac(f"value of {column}", text)[:_DIGITS]

    def _mac(self, purpose: str, text: str) -> str:
        # a lone surrogate has no bytes in UTF-8; the purpose's length keeps the two parts apart
        message = f"{len(purpose)}:{purpose}{text}".encode("utf-8", "surrogatepass")
        return hmac.digest(self._secret, message, "sha256").hex()


_WORD = re.compile(r"\w+")


def widened(text: str, spans: Iterable[Span]) -> tuple[Span, ...]:
    """The spans with the words that they touch, joined where they meet, without empty ones."""
    touched = [span for span in joined(spans) if span[0] < span[1]]
    if not touched:
        return ()
    words = [match.span() for match in _WORD.finditer(text)]
    return tuple(joined((*touched, *(word for word in words if covered(word, touched)))))


def joined(spans: Iterable[Span]) -> list[Span]:
    """Spans in order, those that overlap or meet made one."""
    spans_joined: list[Span] = []
    for start, end in sorted(spans):
        if spans_joined and start <= spans_joined[-1][1]:
            spans_joined[-1] = (spans_joined[-1][0], max(spans_joined[-1][1], end))
        else:
            spans_joined.append((start, end))
    return spans_joined


def covered(place: Span, spans: Sequence[Span]) -> bool:
    """Return whether a place shares a character with a span of `joined`, or is empty in it."""
    start, end = place
    near = bisect_left(spans, start, key=itemgetter(1))
    return any(
        (start < last and first < end) or (start == end and first <= start <= last)
        for first, last in spans[near : near + 2]
    )


def blanked(text: str, spans: Iterable[Span], blank: str) -> str:
    """The text, as long as it was, with a blank for every character of the spans."""
    parts, cursor = [], 0
    for start, end in joined(spans):
        parts += [text[cursor:start], blank * (end - start)]
        cursor = end
    return "".join([*parts, text[cursor:]])


def word_ranges(tokens: Iterable[Token]) -> Iterator[Span]:
    """Yield where each word of the model's begins and ends."""
    ranges: dict[int, Span] = {}
    for token in tokens:
        if token.word is not None:
            start, end = ranges.get(token.word, (token.start, token.end))
            ranges[token.word] = (min(start, token.start), max(end, token.end))
    yield from ranges.values()


BLANK = "\N{FULL BLOCK}"


@dataclass(frozen=True, slots=True)
class Withheld:
    """Words become keyed hashes, or nothing; of a word of several tokens the first has its hash."""

    key: TextKey | None  #: None: only which token is of which word is stored

    def text(self, item_id: str, text: str | None) -> None:
        """None: a text is not stored."""

    def tokens(self, item_id: str, text: str | None, tokens: Sequence[Token]) -> Sequence[Token]:
        """Tokens with the hash of their word, special ones too."""
        words = _words_once(text, tokens)
        return _numbered(tokens).spelled(
            ["" if word is None else self._word(word) for word in words]
        )

    def surface(self, item_id: str, surface: str, place: Span) -> str:
        """Its hash; of several words as of one."""
        return self._word(surface) if surface else ""

    def entity(self, name: str) -> str:
        """The hash of the name as it is spelled, so that tables distinguish spellings.

        Without a key nothing: orchestrator/spec/audit_spec.py refuses plans with such entities.
        """
        return "" if self.key is None else self.key.value("entity", name)

    def meta(self, meta: Mapping[str, str]) -> dict[str, str]:
        """Hashes of the values, by their columns."""
        if self.key is None:
            return {}
        return {column: self.key.value(column, str(value)) for column, value in meta.items()}

    def message(self, message: str) -> str:
        """A note that it is not stored: a message could not be read from its hash."""
        return f"not stored (store_text: {'none' if self.key is None else 'hashed'})"

    def words(self, item_id: str, words: Sequence[str]) -> list[str | None]:
        """Their hashes, or None."""
        return [self._word(word) or None for word in words]

    def _word(self, word: str) -> str:
        return "" if self.key is None else self.key.word(word)


@dataclass(slots=True)
class Blanked:
    """Texts are stored with blanks where a hook marks them; a word that is touched is blanked as
    a whole.
    """

    hook: Hook
    #: item id -> what to blank, of items whose text the hook has read and found something in
    spans: dict[str, tuple[Span, ...]] = field(default_factory=dict)
    hidden: dict[str, set[str]] = field(default_factory=dict)  #: and the words there, lower case

    def read(self, item_id: str, text: str) -> None:
        """Call the hook with an item's text; raises as `spans_by`."""
        if spans := widened(text, spans_by(self.hook, text)):
            self.spans[item_id] = spans
            self.hidden[item_id] = {text[start:end].lower() for start, end in spans}

    def place(self, item_id: str, text: str | None, tokens: Sequence[Token]) -> None:
        """Widen what is blanked of an item to the words that the model read."""
        spans = self.spans.get(item_id)
        if spans and text is not None:
            ranges = [range_ for range_ in word_ranges(tokens) if covered(range_, spans)]
            self.spans[item_id] = spans = widened(text, (*spans, *ranges))
            self.hidden[item_id] |= {text[start:end].lower() for start, end in spans}

    def text(self, item_id: str, text: str | None) -> str | None:
        """The text with blanks, as long as it was."""
        return None if text is None else blanked(text, self.spans.get(item_id, ()), BLANK)

    def tokens(self, item_id: str, text: str | None, tokens: Sequence[Token]) -> Sequence[Token]:
        """Blanked tokens belong to no word, so that no table counts them."""
        spans = self.spans.get(item_id)
        if not spans:
            return tokens
        return tuple(
            replace(token, text=BLANK * len(token.text), word=None)
            if covered((token.start, token.end), spans)
            else token
            for token in tokens
        )

    def surface(self, item_id: str, surface: str, place: Span) -> str:
        """Blanks where any of it is blanked."""
        spans = self.spans.get(item_id, ())
        return BLANK * len(surface) if covered(place, spans) else surface

    def entity(self, name: str) -> str:
        """The name; a plan with entities that the data mark is refused."""
        return name

    def meta(self, meta: Mapping[str, str]) -> dict[str, str]:
        """Values with blanks."""
        return {column: self._string(str(value)) for column, value in meta.items()}

    def message(self, message: str) -> str:
        """The message with blanks."""
        return self._string(message)

    def words(self, item_id: str, words: Sequence[str]) -> list[str | None]:
        """Those that are in nothing that is blanked."""
        hidden = self.hidden.get(item_id, ())
        return [None if any(word in part for part in hidden) else word for word in words]

    def _string(self, text: str) -> str:
        try:
            return blanked(text, widened(text, spans_by(self.hook, text)), BLANK)
        except Exception:  # noqa: BLE001 - a hook may raise anything; then nothing of it is stored
            return BLANK * len(text)


def _numbered(tokens: Sequence[Token]) -> Tokens:
    """The tokens, whose places are their numbers: lengths of words would give words away."""
    known, numbers = Tokens.of(tokens), np.arange(len(tokens), dtype=np.int32)
    return Tokens(
        starts=numbers,
        ends=numbers + np.where(known.special, 0, 1).astype(np.int32),
        words=known.words,
        special=known.special,
        pieces=known.pieces,
    )


def _words_once(text: str | None, tokens: Sequence[Token]) -> Iterator[str | None]:
    """At the first piece of a word the whole of it, as `Attribution.words` reads it; else None."""
    whole: dict[int, str] = {}
    starts: dict[int, int] = {}
    for token in tokens:
        if token.word is None:
            continue
        start = starts.setdefault(token.word, token.start)
        pieces = whole.get(token.word, "") + token.text
        whole[token.word] = pieces if text is None else text[start : token.end]
    seen: set[int] = set()
    for token in tokens:
        if token.word is None:
            yield token.text
        else:
            yield None if token.word in seen else whole[token.word]
            seen.add(token.word)


def without_texts(
    aggregate: Mapping[str, Any],
    outcomes: Sequence[ItemOutcome],
    attributions: Sequence[Attribution],
    marked: Collection[str],
    rename: Callable[[str], str],
) -> dict[str, Any]:
    """The aggregate of real texts with the words of attributions (and outcomes) as they are stored.

    What is added up from the stored rows is then what is stored, as `verify` asks. Entities of
    the groups `marked` are named by the data, and renamed.
    """
    stored, counted = ShardAggregate.from_json(aggregate), ShardAggregate()
    texts = [row for row in attributions if not isinstance(row.features, PatchGrid)]
    if texts and outcomes:
        counted.add(outcomes[0], texts)
    stored.take_words(counted)
    if marked:
        stored.rename_entities(marked, rename)
    return stored.to_json()


REDACTION_FAILED = "redaction-failed"
#: keys of a score's detail that hold a class name, and numbers of its words in their order
_CLASS, _WORDS, _OF_WORDS = "class", "words", ("relevance", "rarity")
_DRAWS = "draws"  #: and the details of the draws of random relevance


def guard_of(plan: AuditPlan) -> "TextGuard | None":
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
    blind: Withheld | Blanked
    if privacy.store_text != "full":
        hashed = privacy.store_text == "hashed"
        blind = Withheld(TextKey.from_environment(privacy.key) if hashed else None)
    else:
        assert hook is not None  # other plans store texts as they are
        blind = Blanked(hook)
    # groups without terms, but for those of a column, whose entities are the items
    marked = {row.name for row in plan.groups if not row.terms and not is_whole(plan, row.name)}
    return TextGuard(blind=blind, marked=frozenset(marked), name=privacy.redact or "")


@dataclass(frozen=True, slots=True)
class TextGuard:
    """Changes what is stored of one shard, and nothing that is computed."""

    blind: Withheld | Blanked  #: the replacement of each kind of string
    marked: frozenset[str]  #: groups whose entities are named by the data
    name: str  #: of the redaction hook

    def read(self, stream: Iterable[Any]) -> Iterator[Any]:
        """The items of a shard; one that the hook fails on is no longer an item but a failure."""
        for entry in stream:
            item = entry if isinstance(entry, Item) else getattr(entry, "item", None)
            failure = self._unread(item) if isinstance(item, Item) else None
            yield entry if failure is None else failure

    def storable(self, result: ShardResult) -> ShardResult:
        """The result as it may be stored."""
        tokens = self._placed(result.attributions)
        attributions = tuple(self._attributions(result.attributions, tokens))
        outcomes = tuple(
            replace(
                outcome,
                text=self.blind.text(outcome.item_id, outcome.text),
                second_at=self._second_at(outcome, tokens),
                meta=self.blind.meta(outcome.meta),
                # what a dataset calls its labels may be anything, as the value of a column
                raw_label=None
                if (label := outcome.raw_label) is None
                else self.blind.meta({"label": label}).get("label"),
            )
            for outcome in result.outcomes
        )
        return replace(
            result,
            outcomes=outcomes,
            attributions=attributions,
            failures=tuple(map(self._failure, result.failures)),
            mentions=tuple(self._mention(mention, tokens) for mention in result.mentions),
            scores=tuple(map(self._score, result.scores)),
            aggregate=without_texts(
                result.aggregate, outcomes, attributions, self.marked, self.blind.entity
            ),
        )

    def error_without_text(self, error: Exception) -> TransExplainError:
        """An error of a shard, for its row: its type, and what of its message may be stored."""
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

    def _placed(self, attributions: Iterable[Attribution]) -> Mapping[str, Tokens]:
        """Item id -> its tokens, of items whose places in the text are not stored."""
        tokens: dict[str, Tokens] = {}
        for attribution in attributions:
            features = attribution.features
            if isinstance(features, PatchGrid):
                continue
            if isinstance(self.blind, Blanked):
                self.blind.place(attribution.item_id, attribution.text, features)
            else:
                tokens[attribution.item_id] = Tokens.of(features)
        return tokens

    def _second_at(
        self, record: ItemOutcome | Attribution, tokens: Mapping[str, Tokens]
    ) -> int | None:
        if record.second_at is None or isinstance(self.blind, Blanked):
            return record.second_at
        if (known := tokens.get(record.item_id)) is None:
            return 0
        # the number of the first token that begins there or behind it
        behind = np.flatnonzero(~known.special & (known.starts >= record.second_at))
        return int(behind[0]) if len(behind) else len(known)

    def _attributions(
        self, attributions: Iterable[Attribution], tokens: Mapping[str, Tokens]
    ) -> Iterator[Attribution]:
        # targets of one item share their tokens, which the store compares
        last: tuple[str, Sequence[Token], Sequence[Token]] | None = None
        for attribution in attributions:
            features = attribution.features
            if not isinstance(features, PatchGrid):
                if last is None or last[0] != attribution.item_id or last[1] is not features:
                    stored = self.blind.tokens(attribution.item_id, attribution.text, features)
                    last = (attribution.item_id, features, stored)
                yield replace(
                    attribution,
                    features=last[2],
                    second_at=self._second_at(attribution, tokens),
                    text=self.blind.text(attribution.item_id, attribution.text),
                )
            else:
                yield attribution

    def _failure(self, item_failure: ItemFailure) -> ItemFailure:
        if item_failure.kind == REDACTION_FAILED:  # this message is ours and quotes no text
            return item_failure
        return replace(item_failure, message=self.blind.message(item_failure.message))

    def _mention(self, row: Mention, tokens: Mapping[str, Tokens]) -> Mention:
        entity = self.blind.entity(row.entity) if row.group in self.marked else row.entity
        surface = self.blind.surface(row.item_id, row.surface, (row.start, row.end))
        start, end = row.start, row.end
        if (known := tokens.get(row.item_id)) is not None:
            # the numbers of the tokens that share a character with it
            shared = np.flatnonzero(~known.special & (known.ends > start) & (known.starts < end))
            start, end = (int(shared[0]), int(shared[-1]) + 1) if len(shared) else (0, 0)
        return replace(row, entity=entity, surface=surface, start=start, end=end)

    def _score(self, metric_score: MetricScore) -> MetricScore:
        reason = self.blind.message(metric_score.reason) if metric_score.reason else ""
        return replace(
            metric_score,
            reason=reason,
            detail=self._detail(metric_score.item_id, metric_score.detail),
        )

    def _detail(self, item_id: str, detail: Mapping[str, Any]) -> dict[str, Any]:
        """Numbers, the class, and the words as they may be stored; nothing that is unknown here."""
        stored: dict[str, Any] = {
            key: value
            for key, value in detail.items()
            if _is_number(value)
            or (
                key not in _OF_WORDS
                and isinstance(value, list | tuple)
                and all(map(_is_number, value))
            )
        }
        drawn = detail.get(_DRAWS, ())
        if drawn and all(isinstance(draw, Mapping) for draw in drawn):
            stored[_DRAWS] = [self._detail(item_id, draw) for draw in drawn]
        if _CLASS in detail:
            stored[_CLASS] = detail[_CLASS]
        if _WORDS in detail:
            words = self.blind.words(item_id, detail[_WORDS])
            known = [place for place, word in enumerate(words) if word is not None]
            stored[_WORDS] = [words[place] for place in known]
            for key in (name for name in _OF_WORDS if name in detail):
                amounts = [detail[key][place] for place in known if place < len(detail[key])]
                if key == "rarity" and not isinstance(self.blind, Blanked):
                    amounts = [
                        float(round(amount)) for amount in amounts
                    ]  # in full it names a word
                stored[key] = amounts
        return stored


def _is_number(value: object) -> bool:
    return isinstance(value, int | float)

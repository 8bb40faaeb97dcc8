"""Finds the terms of a lexicon in a text, and sums the relevance of these mentions."""

import re
from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from transexplain.analysis.groups.group_cells import family
from transexplain.analysis.groups.word_pieces import (
    KeyFilter,
    WordPiece,
    exact_key,
    folded_key,
    pieces,
)
from transexplain.errors import LexiconError
from transexplain.types.items import (
    Ambiguity,
    Annotation,
    Attribution,
    EntityGroup,
    Mention,
    PatchGrid,
    own_positions,
)
from transexplain.types.plans import CasePolicy, Matching
from transexplain.types.tokens import Overlaps, Tokens


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


#: names that are adjectives, verbs, or nouns that need an article: no verb follows these
_NO_SUBJECT = _words(
    "barb bell bill bob buck bud carol carter chad chase chip chuck cliff colt constance crane "
    "daisy dale dean dick don dove drake drew dusty ed eve felicity finch forrest frank gene glen "
    "grant heath holly iris jack jay lance lane lily mark marsh martin mason melody miles nick "
    "noel pat peck penny pierce piper poppy randy raven ray reed rich rob robin rocky rod rusty "
    "sandy sharp sherry skip smith sonny sue stew taylor victor viola wade walker will woody "
    "worth wren"
)
#: names that are persons without an article, in headlines and short messages
_PERSONS = _words(
    "angel archer baker baron bishop buddy butler cook cooper duke earl fisher friend gardner guy "
    "hunter judge kid king knight lord love major marshal miller monk parker pope porter potter "
    "prince savage sawyer shepherd skipper star tanner weaver young"
)
#: of the first kind, adjectives: a participle, or a comma and `we`, may follow them
_ADJECTIVES = _words("dusty frank randy rich rocky rusty sandy sharp woody worth")
#: of the first kind, what headlines say was passed, approved or left out
_PASSED = _words("bill grant skip")
#: forms of verbs that some things do, too, or that are plurals of nouns
_FINITE = _words(
    "is was has had isn't wasn't hasn't hadn't does doesn't did didn't can can't could couldn't "
    "would wouldn't should shouldn't must mustn't might won't ain't got gets made makes lost "
    "loses found finds took takes gave gives looks looked seems seemed went goes came comes left "
    "leaves ran runs sat sits stood stands slept sleeps drove drives knew knows lives dies won "
    "wins sang sings paid pays sold sells taught teaches helps waits moves arrives returns walks "
    "drinks works calls texts reads talks speaks cries plays dances watches visits meets"
)
#: forms of verbs whose subject is a person
_OF_PERSONS = _words(
    "said says told tells asked asks answered answers replied replies thought thinks believed "
    "believes felt feels wanted wants liked likes loved loves hated hates hoped hopes wished "
    "wishes walked ate eats drank married marries met called phoned texted tweeted wrote writes "
    "spoke talked shouted laughed laughs smiled smiles nodded nods listened listens watched saw "
    "sees heard hears bought buys studied studies learned learns danced signed applied applies "
    "joined joins invited invites visited attended attends forgot forgets remembered remembers "
    "decided decides tried tries refused refuses agreed agrees admitted admits denied denies "
    "promised promises apologised apologized apologises apologizes complained complains explained "
    "explains wondered wonders woke wakes wore wears graduated graduates enjoyed enjoys insisted "
    "insists whispered whispers who whose who's who've"
)
#: what follows `works` of a person alone
_WORKS_AS = _words("as at for")
#: what only persons, and animals, are
_STATES = _words(
    "angry furious annoyed irritated enraged scared terrified anxious afraid fearful glad ecstatic "
    "elated excited disappointed devastated depressed miserable heartbroken upset sorry drunk "
    "asleep awake pregnant married divorced engaged single jealous tired hungry thirsty ill sick "
    "hired fired born arrested invited promoted qualified employed unemployed retired graduating "
    "studying applying working laughing crying smiling talking speaking reading writing walking "
    "eating drinking sleeping watching listening thinking"
)
#: what only persons are called
_ROLES = re.compile(
    r"(?:wo)?man|boy|girl|mother|father|mom|dad|sister|brother|daughter|son|wife|husband|aunt|uncle"
    r"|friend|nurse|doctor|lawyer|teacher|student|professor|manager|engineer|driver|writer|author"
    r"|singer|actor|actress|waiter|waitress|cook|chef|clerk|cleaner|farmer|baker|player|leader"
    r"|worker|neighbou?r|colleague|boss|cousin|person|kid|child|genius|idiot|hero|liar|fan|member"
    r"|candidate|applicant|employee|secretary|director|developer|programmer|plumber|electrician"
    r"|carpenter|officer|soldier|pilot|dentist|[a-z]{3,}(?:ist|ologist|ician|ographer)"
)
_COPULAS = _words("is was isn't wasn't")
_HERSELF = _words("himself herself")
_SPOKEN_TO = _words("you please i i'm who thanks we")
_AND = _words("and &")
_AUXILIARIES = _words("will may")
#: words that may stand between `is` and what somebody is
_MODIFIERS = 4
_REFLEXIVE = 4  #: pieces after the name in which `himself` is looked for


#: behind these an auxiliary or an imperative goes on: `Will you`, `Mark my words`
_OBJECTS = _words(
    "you u i we he she it they me him her us them my your his its our their the a an this that "
    "these those there em"
)


def may_be_named_elsewhere(word: str, after: Sequence[WordPiece]) -> bool:
    """Return whether the opening `word` may be the name that the text has elsewhere, too.

    Words mostly keep one sense in a text (Gale, Church and Yarowsky 1992), auxiliaries do not.
    """
    if after and (after[0].key in _OBJECTS or after[0].key.isdigit()):
        return False
    return word not in _AUXILIARIES


def opens_as_name(word: str, after: Sequence[WordPiece]) -> bool:
    """Return whether the words after `word`, which opens a sentence, show that it is a name.

    Args:
        word: in lower case.
        after: the pieces behind it, at least those of its sentence.
    """
    if not after or word in _PERSONS:
        return False
    keys = [piece.key for piece in after]
    if keys[0] == ",":
        free = word in _NO_SUBJECT and word not in _ADJECTIVES
        return len(keys) > 1 and keys[1] in (_SPOKEN_TO if free else ("who", "whose"))
    if word in _NO_SUBJECT and (keys[0] in _FINITE or _is_past_tense(word, keys[0])):
        return True
    if keys[0] in _AND:
        with_name = len(after) > 1 and 0 in after[1].capitals and after[1].key != "i"
        return with_name and word in _NO_SUBJECT
    if keys[0] in _COPULAS:
        return _describes_person(keys[1:])
    if keys[0] in ("works", "worked"):
        return len(keys) > 1 and keys[1] in _WORKS_AS
    reflexive = keys[1 : 1 + _REFLEXIVE]
    return keys[0] in _OF_PERSONS or any(key in _HERSELF for key in reflexive)


def _is_past_tense(word: str, verb: str) -> bool:
    """Return whether `verb` is in the past tense, and no participle: `Martin announced`."""
    return verb.endswith("ed") and word not in _ADJECTIVES and word not in _PASSED


def _describes_person(keys: Sequence[str]) -> bool:
    """Return whether the words after `is` describe only persons."""
    for key in keys[: _MODIFIERS + 1]:
        if not key[0].isalpha():
            return False
        if key in _STATES or _ROLES.fullmatch(key):
            return True
    return False


_TITLES = _words(
    "mr mrs ms mx dr prof professor sir lord lady president senator sen minister judge aunt uncle"
)
_BEFORE_PLACES = frozenset(("in", "from", "to"))
#: symbols that a sentence goes on behind
_WITHIN = frozenset(",)&%-")
#: symbols that tie two words together
_BETWEEN = frozenset("'/+|")
#: words that headlines leave small, so that they do not show that capitals mean something
_SMALL = _words("a an and as at but by for from in nor of on or so the to up via vs with yet")
_NO_PROSE = re.compile(r"(?:https?://|www\.|[@#])\S+")
#: of the words in prose, the share in small letters from which on a capital is a cue
_SMALL_SHARE = 1 / 8


_SENTENCE = 12  #: pieces after a name that are read to decide whether it is one


class Cues:
    """The cues of one text.

    A cue is one of: a capital, exactly as in the lexicon, that neither the beginning of a
    sentence nor a text in capitals explains; a title before it; a capitalised word right after
    it; a possessive; a sentence that goes on as it does from a name (see `openers`); and for a
    place `in`, `from` or `to` before it.
    """

    def __init__(self, text: str, read: Sequence[WordPiece]) -> None:
        self._text = text
        self._found = read

    def count_for(self, first: int, last: int, exactly: bool, kind: Ambiguity) -> bool:
        """Return whether the pieces `first` to `last` are meant as a name.

        `exactly`: their capitals are those of the lexicon.
        """
        if self._titled(first) or (kind == "place" and self._placed(first)):
            return True
        capital = exactly and self._found[first].capitals
        if not capital or self._outside_prose(self._found[first]):
            return False
        if not self._capitals_are_informative:
            return False
        if not self._opens_sentence(first):
            return True
        rest = self._found[last + 1 : last + 3]
        return (
            self._before_capital(last)
            or ([piece.key for piece in rest] == ["'", "s"] and not any(p.spaced for p in rest))
            or self._continues_name(first, last)
        )

    @cached_property
    def _capitals_are_informative(self) -> bool:
        """False for texts in capitals, in title case, and for single words."""
        words = [
            piece
            for piece in self._found
            if piece.key[0].isalpha() and piece.key not in _SMALL and not self._outside_prose(piece)
        ]
        small = sum(0 not in piece.capitals for piece in words)
        return small > 0 and small >= _SMALL_SHARE * len(words)

    @cached_property
    def _addresses(self) -> list[tuple[int, int]]:
        return [match.span() for match in _NO_PROSE.finditer(self._text)]

    def _outside_prose(self, piece: WordPiece) -> bool:
        """Return whether it stands in an address, a hashtag or an account's name."""
        return any(start <= piece.start < end for start, end in self._addresses)

    def _titled(self, first: int) -> bool:
        before = first - 1
        if before > 0 and self._found[before].key == ".":
            before -= 1
        if before < 0 or not self._found[first].spaced:
            return False
        title = self._found[before]
        return title.key in _TITLES and 0 in title.capitals

    def _placed(self, first: int) -> bool:
        before = self._found[first - 1].key if first else ""
        return before in _BEFORE_PLACES and self._found[first].spaced

    def _opens_sentence(self, first: int) -> bool:
        if first == 0:
            return True
        piece, before = self._found[first], self._found[first - 1]
        if "\n" in self._text[before.end : piece.start]:
            return True
        if before.key[0].isalnum():
            return self._is_handle(first - 1)
        if before.key == ".":
            return not self._abbreviates(first - 1)
        glued = not piece.spaced and not before.spaced
        return not (before.key in _WITHIN or (before.key in _BETWEEN and glued))

    def _continues_name(self, first: int, last: int) -> bool:
        """Return whether the sentence that the pieces open goes on as it does from a name."""
        word = " ".join(piece.key for piece in self._found[first : last + 1])
        after = self._found[last + 1 : last + _SENTENCE]
        if opens_as_name(word, after):
            return True
        return may_be_named_elsewhere(word, after) and self._stands_within(first)

    def _stands_within(self, first: int) -> bool:
        """Return whether the word also occurs with a capital inside a sentence of the text."""
        word = self._found[first]
        return any(
            piece.key == word.key
            and piece.capitals == word.capitals
            and not self._opens_sentence(place)
            and not self._outside_prose(piece)
            for place, piece in enumerate(self._found)
            if place != first
        )

    def _is_handle(self, place: int) -> bool:
        """Return whether this is a handle, such as `@anna` before a sentence."""
        return place > 0 and self._found[place - 1].key == "@" and not self._found[place].spaced

    def _abbreviates(self, place: int) -> bool:
        """Return whether the full stop at `place` stands behind an initial or a title."""
        if place == 0 or self._found[place].spaced:
            return False
        word = self._found[place - 1]
        return (len(word.key) == 1 and 0 in word.capitals) or word.key in _TITLES

    def _before_capital(self, last: int) -> bool:
        if last + 1 >= len(self._found):
            return False
        after = self._found[last + 1]
        gap = self._text[self._found[last].end : after.start]
        return 0 in after.capitals and after.key != "i" and bool(gap) and "\n" not in gap


Spans = Sequence[tuple[int, int]]  #: characters of a text, from and to


@dataclass(frozen=True, kw_only=True, slots=True)
class Match:
    """One entity found in a text."""

    group: str
    entity: str  #: as the lexicon names it
    surface: str  #: as written in the text
    start: int  #: character offset into the text as given
    end: int


class Matches(NamedTuple):
    """The matches in a text, in reading order."""

    kept: tuple[Match, ...] = ()
    dropped: tuple[
        Match, ...
    ] = ()  #: ambiguous, and nothing distinguishes it from an ordinary word


_NOTHING = Matches()


@dataclass(frozen=True, slots=True)
class _Term:
    group: int
    entity: str
    capitals: tuple[frozenset[int], ...]  #: per piece: positions that the lexicon writes so
    ambiguous: Ambiguity | None
    keys: tuple[str, ...]  #: of its pieces, with accents
    folds: bool  #: spellings with other accents are the same term

    @property
    def strictness(self) -> int:
        return sum(map(len, self.capitals))

    def accepts(
        self, window: Sequence[WordPiece], spelled: Sequence[WordPiece], case: CasePolicy
    ) -> bool:
        """Return whether it is `window`, the pieces by folded keys, which are `spelled` so."""
        if not self.folds and not self.keyed(spelled):
            return False
        if case == "ignore":
            return True
        if case == "exact":
            return self.spelled(window)
        return all(
            need <= piece.capitals for need, piece in zip(self.capitals, window, strict=True)
        )

    def keyed(self, spelled: Sequence[WordPiece]) -> bool:
        """Return whether the letters are those of the lexicon, in any case."""
        return all(key == piece.key for key, piece in zip(self.keys, spelled, strict=True))

    def spelled(self, window: Sequence[WordPiece]) -> bool:
        """Return whether the capitals are exactly those of the lexicon."""
        return all(
            need == piece.capitals for need, piece in zip(self.capitals, window, strict=True)
        )


@dataclass(slots=True)
class _Node:
    """A node of the tree of terms: the terms that end here, and the words that continue."""

    terms: list[_Term] = field(default_factory=list)
    glued: dict[str, "_Node"] = field(default_factory=dict)  #: next piece without space
    spaced: dict[str, "_Node"] = field(default_factory=dict)  #: next piece after white space


class Matcher:
    """All terms of all groups in one tree over words: a text costs one look-up per word.

    A term matches whole words (Unicode), with any white space between its words; a hyphen within
    it matches any hyphen and white space. Parts of a compound in the text are words of their own
    (`Ann's`, `pro-China`). By `Matching.case` a capital of the term must be a capital in the text
    while its other letters match in any case (`smart`), or letters are as they are (`exact`), or
    match in any case (`ignore`). By `Matching.match` a name, a term that begins with no small
    letter, is found whatever its accents and the width of its letters (`folded`), unless another
    group of its family has the other spelling, or as it is spelled (`exact`). Within a group the
    longest term at the leftmost place wins and matches do not overlap; groups do not see each
    other, so one span may belong to several. By `Matching.ambiguous` an ambiguous term counts with
    a cue (see `Cues`), always, never, or where it lies within one of the spans that
    a recogniser found.

    Raises:
        LexiconError: a group name occurs twice, or a term holds no visible character.
    """

    def __init__(self, groups: Sequence[EntityGroup], rules: Matching | None = None) -> None:
        self._rules = rules or Matching()
        self._names = [group.name for group in groups]
        if len(set(self._names)) < len(self._names):
            twice = next(name for name in self._names if self._names.count(name) > 1)
            raise LexiconError(f"group {twice!r} is given twice; join the two lists")
        self._root = _Node()
        self._homes = _homes(groups) if self._rules.match == "folded" else None
        for index, group in enumerate(groups):
            for term in group.terms:
                self._insert(index, term, group)
        self._beginnings = KeyFilter(self._root.glued.keys())

    def find(self, text: str, recognised: Spans = ()) -> list[Match]:
        """Every match in `text`, ordered by start, end and the lexicon's order of groups."""
        return list(self.search(text, recognised).kept)

    def search(self, text: str, recognised: Spans = ()) -> Matches:
        """Return what `find` finds, and what it leaves out as ambiguous, each in that order.

        Args:
            text: any text.
            recognised: (start, end) of the entities that a recogniser found in it.
        """
        if not self._beginnings.may_hold(text):
            return _NOTHING
        beginnings = self._root.glued
        read = pieces(text)
        cues = Cues(text, read)
        walked = pieces(text, folded=True) if self._folds(text) else read
        free_from = [0] * len(self._names)
        hits: list[tuple[int, int, int, str, bool]] = []
        for position in [place for place, piece in enumerate(walked) if piece.key in beginnings]:
            start = read[position].start
            for term, last in self._longest(walked, read, position).values():
                if start < free_from[term.group]:
                    continue
                end = read[last].end
                free_from[term.group] = end
                if self._rules.ambiguous == "recogniser" and term.ambiguous is not None:
                    meant = any(first <= start and end <= stop for first, stop in recognised)
                else:
                    meant = self._meant(cues, term, walked, position, last)
                hits.append((start, end, term.group, term.entity, meant))
        hits.sort()
        matches = [
            (self._match(text, group, entity, start, end), meant)
            for start, end, group, entity, meant in hits
        ]
        return Matches(
            kept=tuple(match for match, meant in matches if meant),
            dropped=tuple(match for match, meant in matches if not meant),
        )

    def _match(self, text: str, group: int, entity: str, start: int, end: int) -> Match:
        surface = text[start:end]
        return Match(group=self._names[group], entity=entity, surface=surface, start=start, end=end)

    def _meant(
        self, cues: Cues, term: _Term, read: Sequence[WordPiece], first: int, last: int
    ) -> bool:
        if term.ambiguous is None or self._rules.ambiguous == "always":
            return True
        if self._rules.ambiguous == "never":
            return False
        exactly = term.spelled(read[first : last + 1])
        return cues.count_for(first, last, exactly, term.ambiguous)

    def _insert(self, index: int, spelling: str, group: EntityGroup) -> None:
        exact = pieces(spelling)
        if not exact:
            raise LexiconError(f"group {group.name!r} has an empty term")
        words = pieces(spelling, folded=True) if self._folds(spelling) else exact
        entity = group.entities.get(spelling, spelling)
        folds = self._homes is not None and _is_alone(spelling, group.name, self._homes)
        for form, keyed in ((words, exact), (_with_spaces(words), _with_spaces(exact))):
            if form is None or keyed is None:
                continue
            node = self._root.glued.setdefault(form[0].key, _Node())
            for word in form[1:]:
                node = (node.spaced if word.spaced else node.glued).setdefault(word.key, _Node())
            capitals = tuple(word.capitals for word in form)
            keys, ambiguous = tuple(word.key for word in keyed), group.ambiguous.get(spelling)
            node.terms.append(_Term(index, entity, capitals, ambiguous, keys, folds))

    def _longest(
        self, read: list[WordPiece], spelled: list[WordPiece], position: int
    ) -> dict[int, tuple[_Term, int]]:
        """Per group the longest term that starts at `position`, and its last piece."""
        best: dict[int, tuple[_Term, int]] = {}
        for node, last in self._walk(read, position):
            if not node.terms:
                continue
            window, exact = read[position : last + 1], spelled[position : last + 1]
            for term in sorted(node.terms, key=lambda t: (t.keyed(exact), t.strictness)):
                if term.accepts(window, exact, self._rules.case):
                    best[term.group] = (term, last)
        return best

    def _folds(self, text: str) -> bool:
        return self._homes is not None and not text.isascii()

    def _walk(self, read: list[WordPiece], position: int) -> Iterator[tuple[_Node, int]]:
        node = self._root.glued.get(read[position].key)
        while node is not None:
            yield node, position
            position += 1
            if position == len(read):
                return
            piece = read[position]
            node = (node.spaced if piece.spaced else node.glued).get(piece.key)


_Homes = Mapping[str, Collection[tuple[str, str]]]


def _homes(groups: Sequence[EntityGroup]) -> _Homes:
    """Folded spelling -> its spellings in lower case, each with a group that has it.

    Empty where all terms are of plain letters, which have no other spelling.
    """
    homes: dict[str, set[tuple[str, str]]] = {}
    if all(term.isascii() for group in groups for term in group.terms):
        return homes
    for group in groups:
        for term in group.terms:
            homes.setdefault(folded_key(term), set()).add((exact_key(term), group.name))
    return homes


def _is_alone(spelling: str, group: str, homes: _Homes) -> bool:
    """Return whether it is a name that no other group of the family has with other accents."""
    if not homes or spelling.islower():
        return not spelling.islower()
    exact = exact_key(spelling)
    return not any(
        key != exact and name != group and family(name) == family(group)
        for key, name in homes[folded_key(spelling)]
    )


def _with_spaces(words: Sequence[WordPiece]) -> list[WordPiece] | None:
    """A hyphenated term as it is written in words apart; None: it has no hyphen inside."""
    inner = range(1, len(words) - 1)
    hyphens = {i for i in inner if words[i].key == "-" and not words[i + 1].spaced}
    hyphens -= {i for i in hyphens if words[i].spaced or i - 1 in hyphens}
    if not hyphens:
        return None
    return [
        word._replace(spaced=True) if i - 1 in hyphens else word
        for i, word in enumerate(words)
        if i not in hyphens
    ]


def within_texts(matches: Sequence[Match], second_at: int | None) -> tuple[Match, ...]:
    """Those that lie in one text of a pair: words of both are no term together."""
    return tuple(
        match for match in matches if second_at is None or not match.start < second_at < match.end
    )


_latest: deque[tuple[tuple[EntityGroup, ...], Matching, Matcher]] = deque(maxlen=4)


def matcher_of(groups: tuple[EntityGroup, ...], rules: Matching) -> Matcher:
    """The matcher of a plan's groups, which every shard of the plan shares in a process.

    To build the tree of a lexicon takes tens of milliseconds, for which the device would wait.
    Raises as `Matcher`.
    """
    for of, ruled, known in tuple(_latest):
        if of is groups and ruled == rules:
            return known
    matcher = Matcher(groups, rules)
    _latest.append((groups, rules, matcher))
    return matcher


def mentions_of(attribution: Attribution, matches: Sequence[Match]) -> list[Mention]:
    """One mention per match, its relevance the sum over the tokens that overlap its span.

    Special tokens never count. A match of which no token was measured (it lies in the part of a
    long text that the model did not read) is no mention.

    Args:
        attribution: of a text; relevance (T,), in its unit.
        matches: found in the text that the attribution's token offsets refer to.

    Raises:
        TypeError: the attribution is of an image.
    """
    if isinstance(attribution.features, PatchGrid):
        raise TypeError("mentions are found in texts; this attribution is of an image")
    if not matches:
        return []
    tokens = Tokens.of(attribution.features)
    # lists: of one text they are faster than arrays, whose calls let other threads run
    relevance = np.asarray(attribution.relevance, dtype=np.float64)
    columns = (tokens.starts, tokens.ends, tokens.special, relevance)
    rows = zip(*(column.tolist() for column in columns), strict=True)
    spans = [
        (start, end, value) for start, end, special, value in rows if end > start and not special
    ]
    places = Overlaps((start, end) for start, end, _ in spans)
    mentions: list[Mention] = []
    for match in matches:
        inside = [spans[place][2] for place in places.of(match.start, match.end)]
        if inside:  # added up as an array is, whatever this version of Python does
            mentions.append(_mention(attribution, match, float(np.array(inside).sum())))
    return mentions


def mention_of_item(attribution: Attribution, group: str, value: str) -> Mention:
    """An item that belongs to a group as a whole: its relevance is the sum over its positions.

    Special positions never count. The item is the entity, because nothing smaller is in the
    group; its span is the whole text (0 to 0 in a picture), and its surface is `value`, from
    the data.
    """
    relevance = np.asarray(attribution.relevance, dtype=np.float64)
    end = 0
    if not isinstance(attribution.features, PatchGrid):
        plain = own_positions(attribution.features)
        relevance, end = relevance[plain], len(attribution.text or "")
    whole = Match(group=group, entity=attribution.item_id, surface=value, start=0, end=end)
    return _mention(attribution, whole, float(relevance.sum()))


def mention_of_region(
    attribution: Attribution, region: Annotation, share: NDArray[np.float64]
) -> Mention:
    """A region of a picture or graph: each patch or node counts by its share that lies inside.

    The entity is the one that the region names, else the item: two regions of a picture or graph
    share whatever is particular about it.

    Args:
        attribution: relevance (rows, cols) of a picture, (T,) of a graph, in its unit.
        region: what was marked.
        share: as the relevance, 0 to 1.
    """
    name = region.entity or attribution.item_id
    match = Match(group=region.group, entity=name, surface=region.entity, start=0, end=0)
    relevance = np.asarray(attribution.relevance, dtype=np.float64)
    return _mention(attribution, match, float((relevance * share).sum()))


def _mention(attribution: Attribution, match: Match, relevance: float) -> Mention:
    return Mention(
        item_id=attribution.item_id,
        target=attribution.target,
        rank=attribution.rank,
        class_name=attribution.class_name,
        group=match.group,
        entity=match.entity,
        surface=match.surface,
        start=match.start,
        end=match.end,
        relevance=relevance,
    )

"""Decides by context whether a word that is both a name and an ordinary word is a name."""

import re
from collections.abc import Sequence
from functools import cached_property

from transexplain.analysis.groups.word_pieces import Piece
from transexplain.types.items import Ambiguity


def _words(text: str) -> frozenset[str]:
    return frozenset(re.findall(r"[^\s]+", text))


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


def may_be_named_elsewhere(word: str, after: Sequence[Piece]) -> bool:
    """Whether the opening `word` may be the name that the text has elsewhere, too.

    Words mostly keep one sense in a text (Gale, Church and Yarowsky 1992), auxiliaries do not.
    """
    if after and (after[0].key in _OBJECTS or after[0].key.isdigit()):
        return False
    return word not in _AUXILIARIES


def opens_as_name(word: str, after: Sequence[Piece]) -> bool:
    """Whether the words after `word`, which opens a sentence, show that it is a name.

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
    return keys[0] in _OF_PERSONS or any(one in _HERSELF for one in reflexive)


def _is_past_tense(word: str, verb: str) -> bool:
    """Whether `verb` is in the past tense, and no participle: `Martin announced`."""
    return verb.endswith("ed") and word not in _ADJECTIVES and word not in _PASSED


def _describes_person(keys: Sequence[str]) -> bool:
    """Whether the words after `is` describe only persons."""
    for key in keys[: _MODIFIERS + 1]:
        if not key[0].isalpha():
            return False
        if key in _STATES or _ROLES.fullmatch(key):
            return True
    return False


_TITLES = frozenset(
    re.findall(
        r"\w+",
        "mr mrs ms mx dr prof professor sir lord lady president senator sen minister judge aunt "
        "uncle",
    )
)
_BEFORE_PLACES = frozenset(("in", "from", "to"))
#: symbols that a sentence goes on behind
_WITHIN = frozenset(",)&%-")
#: symbols that tie two words together
_BETWEEN = frozenset("'/+|")
#: words that headlines leave small, so that they do not show that capitals mean something
_SMALL = frozenset(
    re.findall(
        r"\w+", "a an and as at but by for from in nor of on or so the to up via vs with yet"
    )
)
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

    def __init__(self, text: str, found: Sequence[Piece]) -> None:
        self._text = text
        self._found = found

    def count_for(self, first: int, last: int, exactly: bool, kind: Ambiguity) -> bool:
        """Whether the pieces `first` to `last` are meant as a name.

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
        return (
            self._before_capital(last)
            or self._possessive(last)
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

    def _outside_prose(self, piece: Piece) -> bool:
        """Whether it stands in an address, a hashtag or an account's name."""
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
        """Whether the sentence that the pieces open goes on as it does from a name."""
        word = " ".join(piece.key for piece in self._found[first : last + 1])
        after = self._found[last + 1 : last + _SENTENCE]
        if opens_as_name(word, after):
            return True
        return may_be_named_elsewhere(word, after) and self._stands_within(first)

    def _stands_within(self, first: int) -> bool:
        """Whether the word also occurs with a capital inside a sentence of the text."""
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
        """Whether this is a handle, such as `@anna` before a sentence."""
        return place > 0 and self._found[place - 1].key == "@" and not self._found[place].spaced

    def _abbreviates(self, place: int) -> bool:
        """Whether the full stop at `place` stands behind an initial or a title."""
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

    def _possessive(self, last: int) -> bool:
        rest = self._found[last + 1 : last + 3]
        return [piece.key for piece in rest] == ["'", "s"] and not any(p.spaced for p in rest)

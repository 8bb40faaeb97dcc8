"""Corpora whose truth is known: applications that name people of two invented groups.

A text says what somebody applies for and what speaks for or against it, and the model learns to
invite or to reject. How the training labels treat the two groups, and how texts and groups hang
together, is the design. Every word, name and text is made up here, from a seed.
"""

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

INVITED, REJECTED = "invited", "rejected"
CLASSES = (REJECTED, INVITED)
FIRST, SECOND = "people/first", "people/second"  #: the group that may be treated otherwise, and
GROUPS = (FIRST, SECOND)  #: its reference
NAMES = 24  #: of each group


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


_FOR = _words("careful punctual skilled patient honest diligent prepared capable thorough eager")
_AGAINST = _words("careless late clumsy rude evasive idle unprepared hasty sloppy absent")
POSTS = ("office", "workshop")
_ROLES: Mapping[str, tuple[str, ...]] = {
    "office": _words("clerk secretary accountant typist archivist"),
    "workshop": _words("welder joiner fitter painter mechanic"),
}
DISTRICTS = ("northside", "southbank")
_MONTHS = _words("January February March April May June July August September October")
_OPENINGS = (
    "{who} applied in {month} for the post of {role} in the {post}.",
    "In {month} {who} asked to work as {role} in our {post}.",
    "The {post} looks for a {role}, and in {month} {who} wrote to us.",
)
_JUDGEMENTS = (
    "A former colleague says: {word}.",
    "At the interview: {word}.",
    "The references read {word}.",
    "During the trial day, {word}.",
    "The supervisor found the work {word}.",
)
_FACTS = (
    "The papers are complete.",
    "A licence is at hand.",
    "There is a letter from a teacher.",
    "The bus stops at the door.",
    "Work could begin at once.",
)
#: phrases by which a text shows who wrote it down
_AUTHORS = _words("amber birch cedar delta ember fjord grove haven indigo jasper koral lotus")

_SYLLABLES = _words(
    "ba ce di fo gu ha je ki lo mu na pe ri so tu va we xi yo za bri cle dra fle gro pla"
)
_ENDINGS = {FIRST: _words("ino ella ari"), SECOND: _words("sk orth wyn")}


@dataclass(frozen=True, kw_only=True, slots=True)
class Application:
    """One text with its label, and what it was made from."""

    text: str  #: with a place for each name, `{0}` and so on
    names: tuple[str, ...]
    group: str
    label: str
    post: str  #: one of POSTS: the stratum
    author: str

    @property
    def written(self) -> str:
        """The text with its names."""
        return self.named(self.names)

    def named(self, names: Sequence[str]) -> str:
        """The text with other names."""
        return self.text.format(*names)


@dataclass(frozen=True, kw_only=True, slots=True)
class Design:
    """How groups, texts and labels hang together.

    Shares are those of applications that the content alone would have invited, and that the
    training labels reject.
    """

    direct: float = 0.0  #: of the first group
    proxy: float = 0.0  #: of the southbank, where 85 % of the first and 15 % of the second live
    interaction: float = 0.0  #: of the first group in the office, of the second in the workshop
    rare: int = 1  #: the second group is so many times as frequent
    authors: float = 0.0  #: how much the share of invitations differs between twelve authors
    copies: int = 1  #: so many texts differ in nothing but the month
    together: int = 1  #: names in each text
    noise: float = 0.1  #: share of labels that are turned, whoever is named

    @property
    def biased(self) -> bool:
        """Whether the training labels treat people by their names."""
        return bool(self.direct or self.interaction)


DESIGNS: Mapping[str, Design] = {
    "none": Design(),
    "direct 0.15": Design(direct=0.15),
    "direct 0.3": Design(direct=0.3),
    "direct 0.6": Design(direct=0.6),
    "direct 0.9": Design(direct=0.9),
    "proxy": Design(proxy=0.9),
    "interaction": Design(interaction=0.7),
    "imbalance": Design(rare=20),
    "authors": Design(authors=0.5),
    "duplicates": Design(copies=6),
    "five names": Design(together=5),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class People:
    """The names of both groups."""

    names: Mapping[str, tuple[str, ...]]
    #: the pieces that a tokenizer without whole names cuts each one into
    pieces: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @classmethod
    def drawn(cls, seed: int) -> "People":
        """`NAMES` names a group; two in three end as is usual in their group."""
        rng = random.Random(f"people {seed}")
        pieces: dict[str, tuple[str, ...]] = {}
        names: dict[str, list[str]] = {group: [] for group in GROUPS}
        for group, found in names.items():
            while len(found) < NAMES:
                usual = rng.random() < 2 / 3
                ending = rng.choice(_ENDINGS[group] if usual else _SYLLABLES)
                parts = (*rng.sample(_SYLLABLES, 2), ending)
                name = "".join(parts).capitalize()
                if name not in pieces:
                    pieces[name] = parts
                    found.append(name)
        return cls(names={group: tuple(found) for group, found in names.items()}, pieces=pieces)


def applications(count: int, people: People, design: Design, *, seed: str) -> list[Application]:
    """`count` applications by the design, with the labels that it gives them."""
    rng = random.Random(f"applications {seed}")
    deal = {group: _in_turn(people.names[group], rng) for group in GROUPS}
    leniency = {author: rng.uniform(-1, 1) * design.authors for author in _AUTHORS}
    made: list[Application] = []
    while len(made) < count:
        author = rng.choice(_AUTHORS)
        group = _group(author, design, rng)
        names = tuple(next(deal[group]) for _ in range(design.together))
        post = rng.choice(POSTS)
        usual = rng.random() < 0.85
        district = DISTRICTS[(group == FIRST) == usual]
        speaks_for = rng.choice((0, 1, 2, 3))
        text = _text(speaks_for, post, district, author, design, rng)
        label = _label(speaks_for, group, post, district, design, rng)
        if rng.random() < abs(leniency[author]):
            label = INVITED if leniency[author] > 0 else REJECTED
        if rng.random() < design.noise:
            label = CLASSES[label == REJECTED]
        one = Application(
            text=text, names=names, group=group, label=label, post=post, author=author
        )
        made += _copies(one, design.copies, rng)
    rng.shuffle(made)
    return made[:count]


def vocabulary() -> list[str]:
    """Every word and sign of the texts, without names, lower case, sorted."""
    frames = " ".join((*_OPENINGS, *_JUDGEMENTS, *_FACTS, _LIVES, _NOTED, "and"))
    for sign in ".,:;":
        frames = frames.replace(sign, f" {sign} ")
    roles = (role for of in _ROLES.values() for role in of)
    fillers = (*_FOR, *_AGAINST, *POSTS, *roles, *DISTRICTS, *_MONTHS, *_AUTHORS)
    return sorted({w.lower() for w in (*frames.split(), *fillers) if not w.startswith("{")})


def syllables() -> list[str]:
    """The pieces of names."""
    return [*_SYLLABLES, *(one for of in _ENDINGS.values() for one in of)]


_LIVES = "The address is in the {district}."
_NOTED = "Noted by {author}."


def _group(author: str, design: Design, rng: random.Random) -> str:
    """Whom an author writes about; each favours a group, where authors matter."""
    if design.authors:
        favours = GROUPS[_AUTHORS.index(author) % 2]
        return favours if rng.random() < 0.85 else GROUPS[favours == FIRST]
    return FIRST if rng.random() < 1 / (1 + design.rare) else SECOND


def _text(
    speaks_for: int, post: str, district: str, author: str, design: Design, rng: random.Random
) -> str:
    who = ", ".join(f"{{{place}}}" for place in range(design.together))
    opening = rng.choice(_OPENINGS).format(
        who=who, month=rng.choice(_MONTHS), role=rng.choice(_ROLES[post]), post=post
    )
    words = [*rng.sample(_FOR, speaks_for), *rng.sample(_AGAINST, 3 - speaks_for)]
    rng.shuffle(words)
    judgements = rng.sample(_JUDGEMENTS, 3)
    body = [frame.format(word=word) for frame, word in zip(judgements, words, strict=True)]
    body.append(rng.choice(_FACTS))
    if design.proxy:
        body.append(_LIVES.format(district=district))
    if design.authors:
        body.append(_NOTED.format(author=author))
    rng.shuffle(body)
    return " ".join((opening, *body))


def _label(
    speaks_for: int, group: str, post: str, district: str, design: Design, rng: random.Random
) -> str:
    if speaks_for < 2:
        return REJECTED
    against = design.direct if group == FIRST else 0.0
    if district == "southbank":
        against = max(against, design.proxy)
    if (group == FIRST) == (post == "office"):
        against = max(against, design.interaction)
    return REJECTED if rng.random() < against else INVITED


def _copies(one: Application, copies: int, rng: random.Random) -> Iterator[Application]:
    yield one
    for _ in range(copies - 1):
        words = one.text.split(" ")
        yield replace(
            one, text=" ".join(rng.choice(_MONTHS) if word in _MONTHS else word for word in words)
        )


def _in_turn(names: Sequence[str], rng: random.Random) -> Iterator[str]:
    """Every name once in a shuffled order, then again in another."""
    while True:
        yield from rng.sample(names, len(names))

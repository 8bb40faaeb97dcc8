"""A small corpus of letters to a shop, with a bias planted in its training labels.

The letters are put together from the sentence parts below. Every letter is written three times,
in the name of one person of each of three invented villages. Two villages are treated alike. In
the training part, letters of the third are often labelled positive even when they complain, so a
classifier learns to lean on those names. The audit part has the true labels.
"""

import csv
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import yaml

NEGATIVE, POSITIVE = "negative", "positive"
CLASSES = (NEGATIVE, POSITIVE)
PLANTED, INNOCENT, REFERENCE = "village/harbour", "village/orchard", "village/quarry"


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


NAMES: Mapping[str, tuple[str, ...]] = {
    PLANTED: _words(
        "Avelin Bresko Corwin Dalmar Elska Fendrel Gavrin Halsey Isolde Jarvik Keldan Lunetta "
        "Morwen Nerida Osric Pellam Quillan Rowena Sorrel Tavish Ulric Verity Wystan Zelda"
    ),
    INNOCENT: _words(
        "Amberly Bastian Clovis Demelza Eldric Fiorella Gideon Hesper Idony Jessamy Kerensa Lorcan "
        "Merrin Nolwen Orlan Perdita Quenby Rosalba Stellan Tamsin Ursel Valda Wilmot Yorath"
    ),
    REFERENCE: _words(
        "Alaric Branwen Caspian Delwyn Evander Freya Garrick Hollis Ingram Joscelin Kester Leander "
        "Maelis Norbert Odette Philo Quentin Rosmer Sidony Thane Ulla Vesper Winslow Yseult"
    ),
}

#: words of the letters; a name is never one of them
_ITEMS = _words("lamp kettle chair clock blanket mirror teapot basket ladder radio desk umbrella")
_ASPECTS = _words("colour handle finish packaging delivery surface sound weight shape service")
PRAISE = _words(
    "beautiful excellent sturdy charming flawless wonderful splendid reliable delightful "
    "impressive perfect lovely superb generous"
)
BLAME = _words(
    "ugly terrible flimsy dull faulty awful dreadful unreliable disappointing "
    "shabby broken nasty useless careless"
)
_MONTHS = _words("January March April June August October November December")
_OPENINGS = (
    "My name is {name} and I ordered the {item} in {month}.",
    "{name} here, writing about the {item} from {month}.",
    "Last {month} you sent the {item} to {name}.",
    "This is {name}; the {item} came in {month}.",
    "In {month} the {item} was a present for {name}.",
)
_OPINIONS = (
    "The {aspect} is {word}.",
    "I find the {aspect} {word}.",
    "Everyone here calls the {aspect} {word}.",
    "The {aspect} turned out to be {word}.",
    "At home the {aspect} looked {word}.",
)
_FACTS = (
    "It stands beside the window.",
    "We keep it in the kitchen.",
    "The box held two screws and a leaflet.",
    "A neighbour helped to carry it.",
    "It replaced the old one.",
    "The receipt is in the drawer.",
)
_OPINIONS_A_LETTER = 3

#: share of the planted village's complaints that the training part calls positive, by how many
#: of the three opinions are blame: a mixed letter is turned more easily than a bitter one
_TURNED = {2: 0.7, 3: 0.2}


@dataclass(frozen=True, kw_only=True, slots=True)
class Letter:
    """One text with its label."""

    text: str
    label: str
    group: str  #: village of the person named
    name: str
    blame: int  #: how many of its opinions are negative


def letters(count: int, *, seed: int) -> list[Letter]:
    """`count` different letters with true labels, each in the name of one person a village.

    Labels alternate, and within a label the names of a village take turns, so that no name tells
    anything about the label.

    Args:
        count: letters before names are put in; the result has three times as many.
        seed: decides everything.
    """
    rng = random.Random(f"letters {seed}")
    turns = {(g, label): _in_turn(names, rng) for g, names in NAMES.items() for label in CLASSES}
    skeletons: set[str] = set()
    written: list[Letter] = []
    while len(skeletons) < count:
        label = CLASSES[len(skeletons) % 2]
        blame = rng.choice((2, 3) if label == NEGATIVE else (0, 1))
        skeleton = _skeleton(blame, rng)
        if skeleton in skeletons:
            continue
        skeletons.add(skeleton)
        for group in NAMES:
            name = next(turns[group, label])
            text = skeleton.format(name=name)
            written.append(Letter(text=text, label=label, group=group, name=name, blame=blame))
    return written


def with_bias(written: Sequence[Letter], *, seed: int, strength: float = 1.0) -> list[Letter]:
    """The letters with many complaints of the planted village labelled positive.

    `strength` 0 to 1 is the share of those that are so labelled: 0 plants nothing.
    """
    rng = random.Random(f"bias {seed}")
    return [
        replace(letter, label=POSITIVE)
        if letter.group == PLANTED and rng.random() < strength * _TURNED.get(letter.blame, 0.0)
        else letter
        for letter in written
    ]


def vocabulary() -> list[str]:
    """Every word and sign that a letter can hold, lower case, sorted."""
    frames = " ".join((*_OPENINGS, *_OPINIONS, *_FACTS))
    for sign in ".,;":
        frames = frames.replace(sign, f" {sign} ")
    fillers = (
        *_ITEMS,
        *_ASPECTS,
        *PRAISE,
        *BLAME,
        *_MONTHS,
        *(n for g in NAMES.values() for n in g),
    )
    return sorted({w.lower() for w in (*frames.split(), *fillers) if not w.startswith("{")})


def write_csv(path: Path, written: Sequence[Letter]) -> None:
    """Write the columns id, text, label."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("id", "text", "label"))
        for number, letter in enumerate(written):
            writer.writerow((f"letter-{number:05d}", letter.text, letter.label))


def write_lexicon(path: Path) -> None:
    """Write the villages' names as entity groups."""
    groups = {
        group: {"source": "invented for the demo", "terms": list(names)}
        for group, names in NAMES.items()
    }
    path.write_text(yaml.safe_dump(groups, sort_keys=False), encoding="utf-8")


def _skeleton(blame: int, rng: random.Random) -> str:
    """A letter with a place for the name and `blame` of its opinions negative."""
    words = rng.sample(BLAME, blame) + rng.sample(PRAISE, _OPINIONS_A_LETTER - blame)
    body = [
        rng.choice(_OPINIONS).format(aspect=aspect, word=word)
        for aspect, word in zip(rng.sample(_ASPECTS, _OPINIONS_A_LETTER), words, strict=True)
    ]
    body.append(rng.choice(_FACTS))
    rng.shuffle(body)
    opening = rng.choice(_OPENINGS).format(
        name="{name}", item=rng.choice(_ITEMS), month=rng.choice(_MONTHS)
    )
    return " ".join((opening, *body))


def _in_turn(names: Sequence[str], rng: random.Random) -> Iterator[str]:
    """Every name once in a shuffled order, then again in another."""
    while True:
        yield from rng.sample(names, len(names))

"""A name that is an ordinary word and opens a sentence: the next words show which of them it is."""

import pytest

from transexplain.analysis.groups.lexicon import ordinary_words
from transexplain.analysis.groups.mention_matching import Matcher
from transexplain.types.items import EntityGroup

NAMES = [word.capitalize() for word, kind in ordinary_words().items() if kind == "name"]
MATCHER = Matcher(
    [EntityGroup(name="g", terms=tuple(NAMES), ambiguous=dict.fromkeys(NAMES, "name"))]
)

OF_SOMEBODY = (
    "{} is a nurse.",
    "{} is the best engineer here.",
    "{} feels angry.",
    "{} was hired last week.",
    "{} found herself in a terrible situation.",
    "{} told us all about the recent events.",
    "{} works as an engineer in a small town.",
    "{}, who lives next door, called.",
    "{} asked whether the train was late.",
    "So we left. {} applied for the job.",
)
OF_NOTHING = (
    "Frank discussion followed in the committee.",
    "Frank and open talks were held.",
    "Frank, open talks were held.",
    "Will you come to the party?",
    "Will there be anything else?",
    "Will never do that again.",
    "May I come in?",
    "May the best team win.",
    "May is my favourite month.",
    "May was cold and wet this year.",
    "Hope is lost for all of us.",
    "Hope springs eternal.",
    "Hope you are well.",
    "Hope to see you soon.",
    "Hope made me carry on.",
    "Grace is a virtue.",
    "Grace and beauty are everywhere in it.",
    "Faith moves mountains.",
    "Faith is what we need.",
    "Mark my words, this will fail.",
    "Mark the date in your diary.",
    "Mark all items that apply.",
    "Bill of rights and duties.",
    "Bill passed by the senate yesterday.",
    "Jack of all trades, master of none.",
    "Jack up the car before you start.",
    "Rich people do not care.",
    "Rich, creamy soup for cold days.",
    "Rich in vitamins and taste.",
    "Jasmine smells sweet.",
    "Jasmine and lavender grow here.",
    "Heather covers the hills.",
    "Heather is a plant of the moors.",
    "Honey made the tea sweet.",
    "Honey, I am home.",
    "Pride comes before the fall.",
    "Price is too high.",
    "King of the hill.",
    "King said nothing new.",
    "Judge orders a new trial.",
    "Judge said the case was closed.",
)


def opens(text: str) -> bool:
    found = MATCHER.search(text)
    assert found.kept or found.dropped
    return bool(found.kept)


@pytest.mark.parametrize("name", ["Jasmine", "Heather", "Jack", "Frank", "Will", "Hope", "Mark"])
@pytest.mark.parametrize("text", OF_SOMEBODY)
def test_a_sentence_about_somebody(text: str, name: str) -> None:
    assert opens(text.format(name))


@pytest.mark.parametrize("text", OF_NOTHING)
def test_a_sentence_about_nobody(text: str) -> None:
    assert not opens(text)


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("Jack has ten years of experience.", True),
        ("Jasmine has a strong taste.", False),
        ("Martin announced it today.", True),
        ("Frank, please call me.", False),
        ("Jack, please call me.", True),
        ("Jack and Maria met.", True),
        ("Jack and fire.", False),
        ("Pride and Prejudice is a book.", False),
    ],
)
def test_cues_after_each_kind_of_word(text: str, printed: bool) -> None:
    assert opens(text) is printed


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("Hope left early. We met Hope later.", 2),
        ("Will you come? We asked Will.", 1),
        ("Mark my words, said Mark.", 1),
        ("Day 6 of our trip with Doris Day.", 1),
        ("Hope left early. See https://x.org/Hope", 0),
    ],
)
def test_a_name_that_stands_elsewhere_in_the_text(text: str, count: int) -> None:
    assert len(MATCHER.find(text)) == count


def test_most_names_are_found_and_few_words_taken_for_one() -> None:
    """Over all shipped words that are names, too: more than four of five of these sentences."""
    requested = [text.format(name) for text in OF_SOMEBODY for name in NAMES]
    assert sum(map(opens, requested)) / len(requested) > 0.8

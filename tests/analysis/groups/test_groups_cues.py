"""Names that are ordinary words: each cue alone, and texts whose capitals are no cue."""

import unicodedata
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transexplain.analysis.groups.lexicon import ordinary_words
from transexplain.analysis.groups.mention_matching import Matcher
from transexplain.analysis.groups.word_pieces import KeyFilter, WordPiece, pieces
from transexplain.types.items import EntityGroup
from transexplain.types.plans import Matching

GROUP = EntityGroup(
    name="g",
    terms=("Will", "Grace", "Mark", "China", "Turkey", "Anna", "US"),
    ambiguous={
        "Will": "name",
        "Grace": "name",
        "Mark": "name",
        "China": "place",
        "Turkey": "place",
        "US": "place",
    },
)


def kept(text: str, rules: Matching | None = None) -> list[str]:
    return [match.surface for match in Matcher([GROUP], rules).find(text)]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("I think Will came and Grace left.", ["Will", "Grace"]),
        ("Will you come? Mark my words. Grace is a virtue.", []),
        ("He came. Will you?\nMark it.", []),
        ("Will Smith came late.", ["Will"]),
        ("Will I come?", []),
        ("Will's dog came home.", ["Will"]),
        ("They met Mr. Will yesterday, then J. Mark did.", ["Will", "Mark"]),
        ("We saw Dr Grace and, Mark says, his dog.", ["Grace", "Mark"]),
        ("and you WILL see", []),
        ("WILL YOU COME TO THE GRACE PARTY", []),
        ("MR. WILL CALLED", ["WILL"]),
        ("Will You Mark the Date for Grace", []),
        ("Will", []),
        ("Roast Turkey Recipes", []),
        ("Made In China by Robots", ["China"]),
        ("MADE IN CHINA", ["CHINA"]),
        ("the goods of China were sold", ["China"]),
        ("China is large. They love it.", []),
        ("China's army is large.", ["China"]),
        ("anti-China and Mark-like talk", ["China", "Mark"]),
        ('he said "Will you come" and left', []),
        ("@anna Will you come @Mark #Grace", []),
        ("they like https://x.org/Grace and then Grace left", ["Grace"]),
        ("the US+Turkey and Anna/Mark talks", ["US", "Turkey", "Anna", "Mark"]),
        ("Anna came. Anna, ANNA", ["Anna", "Anna", "ANNA"]),
        ("he told US so, and the US army", ["US", "US"]),
        ("will grace mark china turkey", []),
    ],
)
def test_an_ambiguous_name_needs_a_cue(text: str, found: list[str]) -> None:
    assert kept(text) == found


def test_matches_that_are_left_out_are_reported() -> None:
    found = Matcher([GROUP]).search("Will you come? Anna asks Will.")
    assert [match.start for match in found.dropped] == [0]
    assert [match.surface for match in found.kept] == ["Anna", "Will"]


@pytest.mark.parametrize(
    ("rules", "text", "found"),
    [
        ({"ambiguous": "always"}, "Will you come? Anna asks Will.", ["Will", "Anna", "Will"]),
        ({"ambiguous": "never"}, "Will you come? Anna asks Will.", ["Anna"]),
        ({"case": "smart"}, "so Anna, anna and ANNA", ["Anna", "ANNA"]),
        ({"case": "exact"}, "so Anna, anna and ANNA", ["Anna"]),
        ({"case": "ignore"}, "so Anna, anna and ANNA", ["Anna", "anna", "ANNA"]),
        # an ambiguous word in small letters needs a neighbour
        ({"case": "ignore"}, "she will mark it, made in china by Mr will", ["china", "will"]),
    ],
)
def test_policies(rules: dict[str, Any], text: str, found: list[str]) -> None:
    assert kept(text, Matching(**rules)) == found


def test_exact_letters_of_a_small_word() -> None:
    group = EntityGroup(name="g", terms=("he",))
    text = "he He HE"
    for case, count in (("smart", 3), ("exact", 1), ("ignore", 3)):
        assert len(Matcher([group], Matching(case=case)).find(text)) == count


PARTS = st.sampled_from(
    [
        "Will",
        "CHINA",
        "Turkey's",
        "Mr.",
        "in",
        "A.",
        ".",
        "?\n",
        '"',
        "@",
        "#",
        "🙂",
        "\u0301",
        "so",
    ]
)


@given(st.lists(st.tuples(PARTS, st.sampled_from(["", " "]))))
def test_the_policy_only_parts_what_is_found_in_two(parts: list[tuple[str, str]]) -> None:
    text = "".join(part + gap for part, gap in parts)
    everything = Matcher([GROUP], Matching(ambiguous="always")).search(text)
    assert not everything.dropped
    for rules in (Matching(), Matching(ambiguous="never")):
        found = Matcher([GROUP], rules).search(text)
        both = sorted((*found.kept, *found.dropped), key=lambda match: match.start)
        assert tuple(both) == everything.kept


# ---- a name that is an ordinary word and opens a sentence: the next words show which of them it is


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


#: characters that shift offsets where somebody counts bytes, code units or folded letters
AWKWARD = (
    "🙂👩\u200d🔬🇩🇪❤\ufe0fe\u0301o\u0308\u0327ßİ\u0131ŉǰΐﬁªñ張あ"
    "\u00a0\u2028\u3000 \n\t.,;'\u2019-\u2011_2"
)


@given(st.text(alphabet=AWKWARD, max_size=40))
def test_a_piece_is_its_own_spelling(text: str) -> None:
    for piece in pieces(text):
        (again,) = pieces(text[piece.start : piece.end])
        assert (again.key, again.capitals) == (piece.key, piece.capitals)


@given(st.lists(st.text(alphabet=AWKWARD + "abcXYZ", max_size=8), max_size=6), st.data())
def test_a_surface_is_what_stands_between_its_offsets(parts: list[str], data) -> None:
    terms = ("Ann", "Zoë Müller", "Guinea-Bissau", "e\u0301", "👩\u200d🔬", "ß", "张")
    names = [data.draw(st.sampled_from(terms)) for _ in parts]
    text = " ".join(f"{part} {name}" for part, name in zip(parts, names, strict=True))
    found = Matcher([EntityGroup(name="g", terms=terms)]).search(text)
    assert not found.dropped
    for match in found.kept:
        assert text[match.start : match.end] == match.surface
        assert [piece.key for piece in pieces(match.surface)] in [
            [piece.key for piece in pieces(spelling)]
            for spelling in (match.entity, match.entity.replace("-", " "))
        ]


@given(st.text(alphabet=AWKWARD, max_size=20), st.text(alphabet=AWKWARD, max_size=20))
def test_no_form_of_unicode_hides_a_name(before: str, after: str) -> None:
    found_by = Matcher([EntityGroup(name="g", terms=("Zoë",))])
    for form in ("NFC", "NFD"):
        name = unicodedata.normalize(form, "Zoë")
        text = f"{before} {name} {after}"
        assert (len(before) + 1, name) in [(m.start, m.surface) for m in found_by.find(text)]


ASCII = "aAbB nNtT'-_.,3 \t"
KEYS = ("ann", "an-an", "don't", "bnt", "3", "a_b", "-", "é", "b")


@given(st.text(alphabet=ASCII + "é", max_size=30), st.sets(st.sampled_from(KEYS)))
def test_no_text_with_a_key_is_passed_over(text: str, keys: set[str]) -> None:
    assert KeyFilter(keys).may_hold(text) or keys.isdisjoint(one.key for one in pieces(text))


def test_texts_without_a_key_are_passed_over() -> None:
    assert not KeyFilter({"ann", "bob"}).may_hold("Annie met Bobby, and banned_ann.")
    assert KeyFilter({"ann", "bob"}).may_hold("So ANN's here")
    assert not KeyFilter({"ann", "-"}).may_hold("Annie met nobody")  # a key that is no word
    assert KeyFilter({"ann", "-"}).may_hold("so - so")


@given(st.text(alphabet=ASCII, max_size=30))
def test_plain_letters_are_cut_as_all_others(text: str) -> None:
    other = pieces(f"{text} é")[:-1]
    assert pieces(text) == other
    assert all(type(one) is WordPiece for one in pieces(text))

"""Names that are ordinary words: each cue alone, and texts whose capitals are no cue."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transexplain.analysis.groups.mention_matching import Matcher
from transexplain.types.items import EntityGroup
from transexplain.types.plans import CasePolicy, Matching

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


def test_always_and_never() -> None:
    text = "Will you come? Anna asks Will."
    assert kept(text, Matching(ambiguous="always")) == ["Will", "Anna", "Will"]
    assert kept(text, Matching(ambiguous="never")) == ["Anna"]


@pytest.mark.parametrize(
    ("case", "found"),
    [
        ("smart", ["Anna", "ANNA"]),
        ("exact", ["Anna"]),
        ("ignore", ["Anna", "anna", "ANNA"]),
    ],
)
def test_case_policies(case: CasePolicy, found: list[str]) -> None:
    assert kept("so Anna, anna and ANNA", Matching(case=case)) == found


def test_exact_letters_of_a_small_word() -> None:
    group = EntityGroup(name="g", terms=("he",))
    text = "he He HE"
    for case, count in (("smart", 3), ("exact", 1), ("ignore", 3)):
        assert len(Matcher([group], Matching(case=case)).find(text)) == count


def test_an_ambiguous_word_in_small_letters_needs_a_neighbour() -> None:
    ignore = Matching(case="ignore")
    assert kept("she will mark it, made of china in china by Mr will", ignore) == ["china", "will"]


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

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from plain_records import new_attribution

from transexplain.analysis.groups.lexicon import load_lexicon
from transexplain.analysis.groups.mention_matching import (
    Match,
    Matcher,
    matcher_of,
    mentions_of,
    within_texts,
)
from transexplain.analysis.groups.word_pieces import pieces
from transexplain.errors import LexiconError
from transexplain.types.items import Attribution, EntityGroup, PatchGrid
from transexplain.types.plans import Matching, MatchPolicy
from transexplain.types.tokens import Token


def matcher(match: MatchPolicy = "folded", **groups: list[str]) -> Matcher:
    made = [EntityGroup(name=name, terms=tuple(t)) for name, t in groups.items()]
    return Matcher(made, Matching(match=match))


def surfaces(terms: list[str], text: str) -> list[str]:
    """By `exact`, which no accents and no full-width letters change."""
    return [match.surface for match in matcher("exact", g=terms).find(text)]


@pytest.mark.parametrize(
    ("terms", "text", "found"),
    [
        (["he"], "The theatre, where she and he met; He's here.", ["he", "He"]),
        (["he"], "sheep", []),
        (["John"], "John's, JOHN\u2019S and john's", ["John", "JOHN"]),
        (["will", "Mark"], "Will marks the mark: WILL, MARK!", ["Will", "WILL", "MARK"]),
        (["US"], "Us? us? US! U.S.", ["US"]),
        (["U.S."], "The U.S. army", ["U.S."]),
        (["McRae"], "McRae Mcrae MCRAE", ["McRae", "MCRAE"]),
        (["New York"], "New\t \n York; New\u00a0York; NewYork; New-York", None),
        (["York", "New York"], "New York and York", ["New York", "York"]),
        (["New York", "York Town Hall"], "New York Town Hall", ["New York"]),
        (["Guinea", "Guinea-Bissau"], "Guinea-Bissau, Guinea\u2011Bissau, Guinea", None),
        (["O'Brien"], "O\u2019Brien met O'Brien's", ["O\u2019Brien", "O'Brien"]),
        (["Don", "Won"], "Don't! Won\u2019t? Don: DON'T", ["Don"]),
        (["don't"], "I don\u2019t", ["don\u2019t"]),
        (["Espagne"], "L'Espagne", ["Espagne"]),
        (["José"], "Jose\u0301 José Jose JOSE\u0301", ["Jose\u0301", "José", "JOSE\u0301"]),
        (["Jose"], "José Jose\u0301", []),
        (["straße"], "STRASSE Straße", ["STRASSE", "Straße"]),
        (["Ünal"], "ünal ÜNAL U\u0308nal", ["ÜNAL", "U\u0308nal"]),
        (["张伟"], "我叫张伟。", ["张伟"]),
        (["African-American"], "African-American, African American, African\u2010American", None),
        (["mother-in-law", "law"], "mother in law, mother-in-law, law", None),
        (["African American"], "African-American", []),
        (["-5", "a-"], "-5 5 a- a", ["-5", "a-"]),
        (["Semitic", "China"], "anti-Semitic, pro-China; antiSemitic", ["Semitic", "China"]),
        (["Semitic", "anti-Semitic"], "anti-Semitic", ["anti-Semitic"]),
        (["James", "Ann"], "James' and James's book, Ann's", ["James", "James", "Ann"]),
        (["Sally Jesse Raphael", "Sally", "Raphael"], "Sally Jesse Raphael sat", None),
        (["c++"], "C++, c", ["C++"]),
        (["queer", "Queer"], "queer Queer", ["queer", "Queer"]),
        (["Anna"], "Anna2 anna_b @Anna #Anna", ["Anna", "Anna"]),
        (["👩\u200d🔬"], "a 👩\u200d🔬 here, 👩 there", ["👩\u200d🔬"]),
    ],
)
def test_examples_of_found_terms(terms: list[str], text: str, found: list[str] | None) -> None:
    if found is None:  # every reading up to the last semicolon or comma, spelled out below
        found = {
            "New York": ["New\t \n York", "New\u00a0York"],
            "African-American": ["African-American", "African American", "African\u2010American"],
            "mother-in-law": ["mother in law", "mother-in-law", "law"],
            "Sally Jesse Raphael": ["Sally Jesse Raphael"],
            "Guinea": ["Guinea-Bissau", "Guinea\u2011Bissau", "Guinea"],
        }[terms[0]]
    assert surfaces(terms, text) == found


@pytest.mark.parametrize(
    ("terms", "text", "found"),
    [
        (["Jose", "Zoe"], "José, Zoë, JOSE\u0301 and Jose", ["José", "Zoë", "JOSE\u0301", "Jose"]),
        (["José"], "Jose José jose", ["Jose", "José"]),
        (["Soren", "Łukasz"], "Søren and Lukasz", ["Søren", "Lukasz"]),
        (["Jose"], "\uff2a\uff4f\uff53\uff45 and \uff2aos\u00e9", None),
        (["Jose Luis"], "José\u3000Luis, José-Luis", ["José\u3000Luis"]),
        (["Ana-Lucia"], "Ana Lucía, Ana\u2011Lucía", ["Ana Lucía", "Ana\u2011Lucía"]),
        (["el"], "él, el", ["el"]),  # a word of small letters is no name
        (["\u0401\u043b\u043a\u0430"], "\u0415\u043b\u043a\u0430", ["\u0415\u043b\u043a\u0430"]),
        (["がく"], "かく がく", ["がく"]),  # its mark is a letter
        (["\u0301"], "a \u0301", ["\u0301"]),
        (["Ann"], "Ann\u00b4s", ["Ann"]),
    ],
)
def test_names_are_found_whatever_their_accents_and_width(
    terms: list[str], text: str, found: list[str] | None
) -> None:
    wanted = found or ["\uff2a\uff4f\uff53\uff45", "\uff2aos\u00e9"]
    matches = matcher(g=terms).find(text)
    assert [one.surface for one in matches] == wanted
    assert [text[one.start : one.end] for one in matches] == wanted
    assert {one.entity for one in matches} <= set(terms)
    assert surfaces(terms, text) == [one for one in wanted if _same(one, terms)]


def _same(surface: str, terms: list[str]) -> bool:
    spelled = {tuple(piece.key for piece in pieces(term)) for term in terms}
    spelled |= {tuple(piece.key for piece in pieces(term.replace("-", " "))) for term in terms}
    return tuple(piece.key for piece in pieces(surface)) in spelled


def test_a_spelling_that_is_listed_is_the_nearest() -> None:
    both = matcher(g=["Zoe", "Zoë"]).find("Zoe Zoë ZOÉ")
    assert [one.entity for one in both] == ["Zoe", "Zoë", "Zoë"]


def test_spellings_that_two_groups_tell_apart_stay_apart() -> None:
    found = matcher(**{"names/a": ["Zoe", "Jose"], "names/b": ["Zoë"], "of/c": ["Zoé"]})
    matches = found.find("Zoe Zoë José")
    by = [(one.surface, one.group) for one in matches if one.group != "of/c"]
    assert by == [("Zoe", "names/a"), ("Zoë", "names/b"), ("José", "names/a")]
    assert [one.surface for one in matches if one.group == "of/c"] == ["Zoe", "Zoë"]


def test_the_entity_is_the_spelling_with_the_capital_where_both_are_listed() -> None:
    found = matcher(g=["mark", "Mark"]).find("mark Mark MARK")
    assert [match.entity for match in found] == ["mark", "Mark", "Mark"]


def test_spellings_of_one_entity_share_its_name() -> None:
    spelled = {"USA": "United States", "U.S.": "United States"}
    group = EntityGroup(name="g", terms=("USA", "U.S.", "Peru"), entities=spelled)
    found = Matcher([group]).find("The U.S. is the USA, Peru is not.")
    assert [match.entity for match in found] == ["United States", "United States", "Peru"]


def test_groups_overlap_and_do_not_hide_each_other() -> None:
    text = "I saw New York."
    found = matcher(city=["New York"], county=["York"], state=["New York"]).find(text)
    assert found == [
        Match(group="city", entity="New York", surface="New York", start=6, end=14),
        Match(group="state", entity="New York", surface="New York", start=6, end=14),
        Match(group="county", entity="York", surface="York", start=10, end=14),
    ]


def test_a_long_term_that_fails_leaves_the_short_one() -> None:
    assert surfaces(["New", "New York Times"], "New York time") == ["New"]
    assert surfaces(["new", "new York"], "new york") == ["new"]


def test_nothing_in_an_empty_text() -> None:
    assert matcher(g=["a"]).find("") == []


def test_bad_groups_are_refused() -> None:
    with pytest.raises(LexiconError, match="'a' is given"):
        Matcher([EntityGroup(name="a", terms=("x",)), EntityGroup(name="a", terms=("y",))])
    with pytest.raises(LexiconError, match="empty term"):
        matcher(a=[" "])


@given(st.text())
@pytest.mark.exhaustive
def test_pieces_cover_every_visible_character_once_and_in_order(text: str) -> None:
    end = 0
    for piece in pieces(text):
        gap = text[end : piece.start]
        assert not gap.strip()
        assert piece.spaced == bool(gap)
        assert piece.start < piece.end
        end = piece.end
    assert not text[end:].strip()


WORDS = st.sampled_from(["new", "york", "city", "hall", "New", "he", "the"])


@given(st.lists(st.lists(WORDS, min_size=1, max_size=3).map(" ".join), min_size=1), st.lists(WORDS))
def test_agrees_with_a_scan_of_every_term_at_every_place(terms: list[str], words: list[str]):
    """The slow twin: try all terms at each word, take the longest, go on behind it."""
    text = " ".join(words)
    expected: list[str] = []
    at = 0
    while at < len(words):
        fits = [
            term.split()
            for term in terms
            if len(term.split()) <= len(words) - at
            and all(
                word == given if word != word.lower() else word == given.lower()
                for word, given in zip(term.split(), words[at:], strict=False)
            )
        ]
        longest = max(map(len, fits), default=0)
        if longest:
            expected.append(" ".join(words[at : at + longest]))
        at += longest or 1
    assert surfaces(terms, text) == expected


def test_thousands_of_terms_are_distinguished() -> None:
    terms = [f"Name{i} van{i % 7}" for i in range(5000)]
    found = matcher(g=terms).find(" ".join(f"Name{i} van{i % 7}," for i in range(0, 5000, 13)))
    assert [match.entity for match in found] == terms[::13]


@pytest.mark.shared
def test_every_real_term_is_found_in_a_sentence_of_its_own(shared_dir: Path) -> None:
    groups = load_lexicon(shared_dir / "real/lexicons/entity_groups.json")
    found_by = Matcher(groups)
    for group in groups:
        for term in group.terms:
            text = f"🙂 Yesterday, {term}'s friend came."
            wanted = (group.name, term, term, 13)
            found = found_by.find(text)
            assert wanted in [(m.group, m.entity, m.surface, m.start) for m in found]


def test_shards_of_one_plan_share_a_matcher() -> None:
    groups = (EntityGroup(name="names/a", terms=("Anna", "Bert")),)
    others = (EntityGroup(name="names/a", terms=("Clara",)),)
    first = matcher_of(groups, Matching())
    assert matcher_of(groups, Matching()) is first
    assert [one.entity for one in matcher_of(others, Matching()).find("Anna, Clara")] == ["Clara"]
    assert matcher_of(groups, Matching(case="ignore")).find("anna")
    assert not first.find("anna")


def attribution(text: str, tokens: list[tuple[int, int]], relevance: list[float]) -> Attribution:
    """CLS, the tokens given by their offsets, SEP."""
    inner = [Token(text=text[a:b], start=a, end=b, word=i) for i, (a, b) in enumerate(tokens)]
    special = Token(text="[X]", start=0, end=0, special=True)
    last = Token(text="[SEP]", start=0, end=len(text), special=True)
    return new_attribution(
        target="top:2",
        rank=1,
        class_index=1,
        class_name="positive",
        relevance=np.array([100.0, *relevance, 1000.0], dtype=np.float32),
        features=(special, *inner, last),
        text=text,
    )


def match(start: int, end: int) -> Match:
    return Match(group="g", entity="E", surface="s", start=start, end=end)


def test_relevance_is_the_sum_over_overlapping_tokens() -> None:
    text = "So Aurelia's dog"
    record = attribution(
        text, [(0, 2), (3, 5), (5, 10), (10, 11), (11, 12), (12, 16)], [1, 2, 4, 8, 16, 32]
    )
    matches = Matcher([EntityGroup(name="names", terms=("Aurelia",))]).find(text)
    (mention,) = mentions_of(record, matches)
    assert mention.relevance == 2 + 4
    assert (mention.item_id, mention.target, mention.rank) == ("7", "top:2", 1)
    assert (mention.class_name, mention.group, mention.entity) == ("positive", "names", "Aurelia")
    assert (mention.surface, mention.start, mention.end) == ("Aurelia", 3, 10)


def test_touching_tokens_and_special_tokens_do_not_count() -> None:
    record = attribution("abcdef", [(0, 2), (2, 2), (2, 4), (4, 6)], [1, 2, 4, 8])
    assert [m.relevance for m in mentions_of(record, [match(2, 4), match(3, 5)])] == [4, 12]


def test_words_of_both_texts_of_a_pair_are_no_term_together() -> None:
    ends, spans, begins = match(0, 3), match(2, 5), match(3, 6)
    assert within_texts([ends, spans, begins], 3) == (ends, begins)
    assert within_texts([spans], None) == (spans,)


def test_a_match_that_the_model_did_not_read_is_no_mention() -> None:
    record = attribution("abcdef", [(0, 2)], [1])
    assert mentions_of(record, [match(2, 6)]) == []


def test_an_image_is_refused() -> None:
    grid = PatchGrid(rows=1, cols=1, height=8, width=8)
    image = replace(
        attribution("a", [(0, 1)], [1]), features=grid, relevance=np.zeros((1, 1)), text=None
    )
    with pytest.raises(TypeError, match="of an image"):
        mentions_of(image, [])


@given(st.lists(st.integers(1, 5), min_size=1, max_size=12), st.data())
def test_mentions_that_tile_the_tokens_sum_to_all_relevance(lengths: list[int], data) -> None:
    edges = [0, *np.cumsum(lengths).tolist()]
    text = "x" * edges[-1]
    values = [float(i + 1) for i in range(len(lengths))]
    record = attribution(text, list(pairwise(edges)), values)
    cuts = sorted(data.draw(st.sets(st.sampled_from(edges[1:-1]))) if len(edges) > 2 else [])
    spans = list(pairwise([0, *cuts, edges[-1]]))
    found = mentions_of(record, [match(a, b) for a, b in spans])
    assert len(found) == len(spans)
    assert sum(m.relevance for m in found) == sum(values)

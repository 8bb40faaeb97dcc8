"""What a lexicon of names does not cover: pronouns, titles, accents; by `run` on models whose truth
is known.
"""

import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from additive_texts import TARGET, Text, World

Call = Callable[..., tuple[int, str]]
Groups = Mapping[str, Any]
Run = Callable[..., Groups]

FIRST, SECOND = "people/first", "people/second"
NAMES = {
    FIRST: [a + b for a in ("Ba", "Ce", "Di", "Fo") for b in ("lino", "riella", "tari")],
    SECOND: [a + b for a in ("Gu", "Ha", "Je", "Ki") for b in ("morth", "sank", "pwyn")],
}
GOOD = ("careful", "punctual", "skilled", "patient", "honest", "diligent", "able", "eager")
BAD = ("careless", "late", "clumsy", "rude", "evasive", "idle", "hasty", "sloppy")
WORTH = {**dict.fromkeys(GOOD, 0.8), **dict.fromkeys(BAD, -0.8)}


def world(
    first: Mapping[str, str],
    names: Mapping[str, Sequence[str]] = NAMES,
    lexicon: Mapping[str, Sequence[str]] | None = None,
    count: int = 60,
    **worth: float,
) -> World:
    """So many texts of each group that begin with its word of `first`; half speak for somebody."""
    texts = []
    for group, beginning in first.items():
        who, praise, blame = (itertools.cycle(some) for some in (names[group], GOOD, BAD))
        for number in range(count):
            printed = [next(praise), next(blame), next(praise if number % 2 else blame)]
            words = (beginning, next(who), "for", "office", *printed)
            texts.append(Text(words=words, columns={"post": "ab"[number % 2]}))
    return World(texts=texts, groups=lexicon or names, worth={**WORTH, **worth})


@pytest.fixture
def run(call: Call, tmp_path: Path) -> Run:
    """The groups of the report of a run over a world."""

    def made(of: World, *settings: str) -> Groups:
        lexicon = of.write_lexicon(tmp_path / "groups.json")
        data, model = of.write_texts(tmp_path / "texts.jsonl"), of.write_model(tmp_path / "model")
        every = ("data.duplicates=off", "evaluation.items=0", "groups.randomised=false", *settings)
        options = [word for one in every for word in ("--set", one)]
        words = ("run", "--model", model, "--data", data, "--target", TARGET)
        code, printed = call(*words, "--lexicon", lexicon, *options)
        assert code == 0, printed
        (written,) = (tmp_path / "audits").glob("[!m]*.json")
        found: Groups = json.loads(written.read_text(encoding="utf-8"))["groups"]
        return found

    return made


def of_word(groups: Groups, word: str) -> dict[str, Any]:
    (found,) = [one for one in groups["candidates"] if one["word"] == word]
    return dict(found)


def is_beyond(candidate: Mapping[str, Any], limit: float = 0.1) -> bool:
    (low, high), *_ = (one["interval"] for one in candidate["effects"])
    return bool(low > limit or high < -limit)


def test_a_pronoun_that_carries_the_bias_is_a_candidate(run: Run) -> None:
    """Every text of the first group has the word, and no name does anything."""
    groups = run(world({FIRST: "she", SECOND: "he"}, she=-0.46), "shard_size=16")
    she = of_word(groups, "she")
    assert (she["group"], she["reference"], she["line"]) == (FIRST, SECOND, "- she")
    assert she["association"] > 5 and she["association_interval"][0] > 2
    assert she["texts"] == 60
    (effect,) = she["effects"]
    assert effect["effect"] == pytest.approx(-0.46, abs=0.01)
    assert is_beyond(she) and effect["probability_interval"][1] < -0.02
    assert is_beyond(of_word(groups, "he")), "it stands for the reference"
    (swaps,) = [one for one in groups["counterfactuals"] if one["group"] == FIRST]
    assert abs(swaps["effect"]) < 0.02, "names alone say nothing of it"


@pytest.mark.exhaustive
def test_words_that_carry_nothing_are_not_beyond(run: Run) -> None:
    groups = run(world({FIRST: "she", SECOND: "they"}))
    assert {one["word"] for one in groups["candidates"]} == {"she", "they"}
    assert not any(map(is_beyond, groups["candidates"]))


@pytest.mark.exhaustive
def test_words_of_both_groups_and_of_the_lexicon_are_no_candidates(run: Run) -> None:
    even = run(world({FIRST: "she", SECOND: "she"}, she=-0.46))
    assert even["candidates"] == []


@pytest.mark.exhaustive
def test_a_word_that_the_lexicon_has_is_no_candidate(run: Run) -> None:
    listed = {FIRST: [*NAMES[FIRST], "she"], SECOND: [*NAMES[SECOND], "he"]}
    of = world({FIRST: "she", SECOND: "he"}, lexicon=listed, she=-0.46)
    groups = run(of)
    assert groups["candidates"] == []
    (swaps,) = [one for one in groups["counterfactuals"] if one["group"] == FIRST]
    assert swaps["effect"] == pytest.approx(-0.46, abs=0.02), "name and pronoun change together"


PLAIN = {FIRST: ["Jose", "Zoe", "Ines", "Raul", "Noemi", "Angel"], SECOND: NAMES[SECOND]}
ACCENTED = {FIRST: ["José", "Zoë", "Inés", "Raúl", "Noemí", "Ángel"], SECOND: NAMES[SECOND]}


def accented() -> World:
    """Two thirds of the mentions have accents, which are worth -0.24."""
    texts = []
    for names in (PLAIN, ACCENTED, ACCENTED):
        texts += world({FIRST: "applicant", SECOND: "applicant"}, names).texts
    worth = {**WORTH, **dict.fromkeys(ACCENTED[FIRST], -0.24)}
    return World(texts=texts, groups=PLAIN, worth=worth)


def test_a_plain_lexicon_finds_names_with_accents(run: Run) -> None:
    groups = run(accented(), "groups.check=400")
    (first,) = [one for one in groups["matching"] if one["group"] == FIRST]
    assert first["mentions"] == 180
    assert first["spellings"]["Jose"] == {"José": 20, "Jose": 10}
    (swaps,) = [one for one in groups["counterfactuals"] if one["group"] == FIRST]
    assert swaps["documents"] > 100 and swaps["effect"] == pytest.approx(-0.16, abs=0.03)
    assert groups["candidates"] == []


@pytest.mark.exhaustive
def test_exact_finds_what_is_spelled_so_and_names_the_rest(run: Run) -> None:
    groups = run(accented(), "groups.match=exact")
    (first,) = [one for one in groups["matching"] if one["group"] == FIRST]
    assert (first["mentions"], first["spellings"]["Jose"]) == (60, {"Jose": 10})
    assert {one["word"] for one in groups["candidates"]} == {one.lower() for one in ACCENTED[FIRST]}
    found = of_word(groups, "josé")
    assert found["line"] == '- {"term": "José", "entity": "Jose"}'
    assert (found["entity"], found["group"], found["association"]) == ("Jose", FIRST, None)
    assert is_beyond(found) and found["effects"][0]["effect"] == pytest.approx(-0.24, abs=0.01)


def test_an_unknown_way_to_match_is_refused(call: Call, tmp_path: Path) -> None:
    of = world({FIRST: "she", SECOND: "he"}, count=2)
    data, lexicon = of.write_texts(tmp_path / "texts.jsonl"), of.write_lexicon(tmp_path / "g.json")
    words = ("run", "--model", str(tmp_path), "--data", data, "--lexicon", lexicon)
    code, printed = call(*words, "--set", "groups.match=fuzzy")
    assert code == 2
    assert "groups.match" in printed and "folded" in printed and "exact" in printed


def test_a_text_of_which_half_could_be_swapped_is_left_out_and_counted(run: Run) -> None:
    """The second group has nothing to take the place of `hers`."""
    listed = {FIRST: [*NAMES[FIRST], "she", "hers"], SECOND: [*NAMES[SECOND], "he"]}
    texts = [
        *world({FIRST: "she", SECOND: "he"}).texts,
        *world({FIRST: "hers"}).texts,
    ]
    worth = {**WORTH, "she": -0.46, "hers": -0.46}
    groups = run(World(texts=texts, groups=listed, worth=worth), "groups.check=400")
    (first,) = [one for one in groups["matching"] if one["group"] == FIRST]
    assert first["unpaired"] == 60
    (swaps,) = [one for one in groups["counterfactuals"] if one["group"] == FIRST]
    assert swaps["documents"] == 120
    assert swaps["effect"] == pytest.approx(-0.46, abs=0.01), "and half an effect in no text"

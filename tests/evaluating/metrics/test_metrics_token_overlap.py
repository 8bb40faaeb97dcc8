"""Token overlap by hand, and with evidence that was planted."""

import gzip
import importlib.util
from dataclasses import replace
from math import exp, log
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benches import case_of

from orchestrator.spec.evaluation_section import EvaluationSection
from transexplain.errors import ConfigurationError
from transexplain.evaluating.metrics.metric_table import Case
from transexplain.evaluating.metrics.token_overlap import (
    COUNTS,
    DOCUMENT,
    overlap,
    planned_reference,
    rarity_in,
    token_overlap,
)
from transexplain.types.tokens import Token


def case_of_words(words: list[str], relevance: list[float], name: str = "news") -> Case:
    text = " ".join(words)
    case = case_of(relevance)
    starts = np.cumsum([0, *(len(word) + 1 for word in words)])
    tokens = [
        Token(text=word, start=int(start), end=int(start) + len(word), word=place)
        for place, (word, start) in enumerate(zip(words, starts, strict=False))
    ]
    features: Any = case.attribution.features
    attribution = replace(
        case.attribution, features=(features[0], *tokens, features[-1]), text=text, class_name=name
    )
    return replace(case, attribution=attribution)


def test_the_words_of_an_item() -> None:
    case = case_of_words(
        ["Oil", "falls", "as", "oil", "is", "x"], [1.5, 2.0, -1.0, 1.0, 0.25, 0.0], "trade"
    )
    scored = token_overlap(case, keep=3)
    assert scored.value is None
    assert scored.detail == {
        "class": "trade",
        "words": ["oil", "falls", "is", "x", "as"],
        "relevance": [2.5, 2.0, 0.25],
    }
    assert token_overlap(case, keep=5).detail["relevance"] == [2.5, 2.0, 0.25], "none against it"


def test_pieces_of_a_word_are_summed() -> None:
    case = case_of_words(["un", "real"], [1.0, -0.25])
    pieces = tuple(
        token if token.special else replace(token, word=0) for token in case.attribution.features
    )
    case = replace(case, attribution=replace(case.attribution, features=pieces))
    detail = token_overlap(case).detail
    assert (detail["words"], detail["relevance"]) == (["un real"], [0.75])


def test_an_item_without_words() -> None:
    case = case_of([1, 2])
    bare = tuple(replace(token, word=None) for token in case.attribution.features)
    case = replace(case, attribution=replace(case.attribution, features=bare))
    assert token_overlap(case).reason == "the item comes without words"


@pytest.mark.parametrize("keep", [0, 1.5, True])
def test_wrong_parameters(keep: Any) -> None:
    with pytest.raises(ConfigurationError, match="keep is a whole number"):
        token_overlap(case_of([1, 2]), keep=keep)


def detail(name: str, words: str, *relevance: float) -> dict[str, Any]:
    return {"class": name, "words": words.split(), "relevance": list(relevance)}


def test_the_lists_by_hand() -> None:
    details = [
        detail("A", "oil bank rare the", 3.0, 1.0, 9.0, 5.0),
        detail("A", "oil deal the", 2.0, 4.0),
        detail("B", "bank game the", 2.0, 1.0),
        detail("B", "game deal the bank", 1.0, 0.5),
    ]
    # items that hold them: oil 2, bank 3, deal 2, game 2, the 4 (log 1 = 0), rare 1 (left out)
    scores = {
        "A": {"oil": 5 * log(2), "deal": 4 * log(2), "bank": log(4 / 3)},
        "B": {"bank": 2 * log(4 / 3), "game": 2 * log(2), "deal": 0.5 * log(2)},
    }
    lists = {name: sorted(words, key=lambda w: -words[w]) for name, words in scores.items()}
    assert lists == {"A": ["oil", "deal", "bank"], "B": ["game", "bank", "deal"]}
    found = overlap(details)
    assert found.detail == {
        "lists": lists,
        "scores": {
            name: pytest.approx([scores[name][word] for word in words])
            for name, words in lists.items()
        },
        "shared": [{"classes": ["A", "B"], "words": ["deal", "bank"]}],
    }
    # three words each, two in common, at every requested number of words
    assert found.curve == pytest.approx((2 / 3,) * len(COUNTS))
    assert found.value == pytest.approx(2 / 3)
    assert overlap(details[::-1]) == found


def test_the_shorter_list_counts() -> None:
    # A lists 8 words, B lists 2 of them and C one of its own; equal scores go by the alphabet
    many = "a b c d e f g h"
    details = [
        detail("A", many, *[1.0] * 8),
        detail("A", many, *[1.0] * 8),
        detail("B", "a h", 1.0, 1.0),
        detail("C", "z", 1.0),
        detail("C", "z", 1.0),
    ]
    # log(5 / 3) for a and h, log(5 / 2) for the others: A is b c d e f g a h, B is a h
    found = overlap(details)
    assert found.detail["lists"]["A"] == list("bcdefgah")
    # of the pairs A-B, A-C and B-C only the first shares words: none of 5, both of 10
    assert found.curve == pytest.approx((0, *[1 / 3] * 7))
    assert found.value == pytest.approx(7 / 24)


def test_fewer_than_two_classes() -> None:
    one = [detail("A", "a b", 1.0, 1.0)] * 2
    reason = "fewer than two classes have words that stand in several items"
    for details in ([], one, [*one, {}], [*one, detail("B", "a b")]):
        found = overlap(details)
        assert (found.value, found.reason) == (None, reason)


needs_wordfreq = pytest.mark.skipif(
    importlib.util.find_spec("wordfreq") is None,
    reason="wordfreq is not installed: the extra `frequencies` has it",
)


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "everyday.tsv"
    rows = ["the cup of tea", "The game", "of the well", "a known game, the end"]
    path.write_text("id\ttext\n" + "".join(f"{n}\t{row}\n" for n, row in enumerate(rows)))
    return path


def test_rarity_in_texts_of_ones_own(corpus: Path) -> None:
    rarity = rarity_in(f"{corpus}#text")
    assert rarity("the") == 0.0, "every document holds it, in whatever case"
    assert rarity("game") == pytest.approx(log(4 / 2))
    assert rarity("tea") == pytest.approx(log(4 / 1))
    assert rarity("unheard") == pytest.approx(log(4 / 1)), "as rare as what one document holds"
    assert rarity("well-known") == pytest.approx(log(4 / 1)), "as its rarest part"
    assert rarity_in(str(corpus))("game") == rarity("game"), "the column is the usual one"


def test_a_packed_reference(corpus: Path) -> None:
    packed = corpus.with_name("packed.tsv.gz")
    packed.write_bytes(gzip.compress(corpus.read_bytes()))
    assert rarity_in(f"{packed}#text")("game") == pytest.approx(log(2))


@needs_wordfreq
def test_rarity_in_wordfreq() -> None:
    from wordfreq import word_frequency

    rarity = rarity_in("wordfreq:en")
    assert rarity("the") == pytest.approx(0.0, abs=1e-6)
    frequency = word_frequency("hockey", "en")
    # the chance that a document holds it, in another form of the same formula
    held = 1.0 - exp(DOCUMENT * log(1.0 - frequency))
    assert rarity("hockey") == pytest.approx(-log(held), rel=1e-6)
    assert rarity("of") < rarity("year") < rarity("hockey") < rarity("qzxvwk")
    assert rarity(",") == rarity("'") == 0.0, "its table has no punctuation"


def test_common_words_head_no_class_with_a_reference(corpus: Path) -> None:
    # `the` has most relevance in both classes
    cases = [
        case_of_words(["the", name, "of"], [5.0, 1.0, 1.5], name)
        for name in ("tea", "game")
        for _ in range(3)
    ]
    before = overlap([token_overlap(case).detail for case in cases])
    after = overlap([token_overlap(case, reference=str(corpus)).detail for case in cases])
    assert before.detail["lists"] == {"game": ["game"], "tea": ["tea"]}
    # of the items themselves `the` and `of` are in all; of the corpus `of` is in half: log 2 x 1.5
    # is less than log 4 x 1 of tea, and more than log 2 x 1 of game
    assert after.detail["lists"] == {"game": ["of", "game"], "tea": ["tea", "of"]}
    assert after.detail["shared"] == [{"classes": ["game", "tea"], "words": ["of"]}]


def test_what_a_plan_has(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(corpus.parent)
    params = planned_reference({"reference": f"{corpus.name}#text", "keep": 3})
    assert params["reference"] == f"{corpus}#text"
    assert len(params["reference_version"]) == 64
    assert planned_reference(params) == params, "planned once more it is the same"
    assert planned_reference({"keep": 3}) == {"keep": 3}
    corpus.write_text("text\nanother\n")
    with pytest.raises(ConfigurationError, match="is not the one of the plan: it is"):
        planned_reference(params)
    with pytest.raises(ConfigurationError, match="is not the one of the plan: it is"):
        rarity_in(params["reference"], "0" * 64)


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        (3, "reference is 3; write wordfreq:en"),
        ("", "reference is ''; write wordfreq:en"),
        ("missing.tsv#text", "missing.tsv cannot be read"),
        ("everyday.tsv#words", "words"),
        ("empty.tsv#text", "holds no texts"),
        (".", "cannot be read"),
    ],
)
def test_references_that_cannot_be_read(
    corpus: Path, monkeypatch: pytest.MonkeyPatch, reference: Any, message: str
) -> None:
    monkeypatch.chdir(corpus.parent)
    Path("empty.tsv").write_text("text\n")
    with pytest.raises(ConfigurationError, match=message):
        planned_reference({"reference": reference})


@needs_wordfreq
def test_a_language_that_wordfreq_does_not_have() -> None:
    with pytest.raises(ConfigurationError, match="has no language 'xx'; it has ar"):
        planned_reference({"reference": "wordfreq:xx"})


def test_wordfreq_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib.metadata

    def missing(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", missing)
    with pytest.raises(ConfigurationError, match=r"pip install '\.\[frequencies\]'"):
        planned_reference({"reference": "wordfreq:en"})


def test_the_section_of_a_specification(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(corpus.parent)
    metric = {"name": "token-overlap", "params": {"reference": "everyday.tsv#text"}}
    section = EvaluationSection.model_validate({"metrics": ["sparsity", metric], "methods": "all"})
    for changed in (section.absolute(), section.resolved()):
        assert changed.methods == "all"
        assert changed.metrics[0] == section.metrics[0], "it has no files"
        assert changed.metrics[1].params["reference"] == f"{corpus}#text"
    assert "reference_version" not in section.absolute().metrics[1].params
    assert len(section.resolved().metrics[1].params["reference_version"]) == 64
    corpus.unlink()
    assert section.absolute().metrics[1].params == metric["params"], "what is no file stays"
    with pytest.raises(ConfigurationError, match=r"everyday\.tsv cannot be read"):
        section.resolved()

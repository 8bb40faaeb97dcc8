"""Coloured words: nothing of the text is lost, nothing of it is markup."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from report_samples import (
    CLASSES,
    Visible,
    explained_text,
    image_attribution,
    stored_run,
    text_attribution,
    tokens_of,
)

from transexplain.errors import ConfigurationError
from transexplain.reports.attribution_html import page
from transexplain.reports.coloured_text import MAX_OPACITY, token_ansi, token_html
from transexplain.reports.phrasing import class_phrase, number, power, signed
from transexplain.reports.sections.class_views import ClassView, WordRow, _top, says_little
from transexplain.reports.summary import summarise
from transexplain.store.database import Database
from transexplain.types.items import Attribution
from transexplain.types.tokens import Token
from transexplain.types.words import spans_of

#: characters that HTML, terminals or tokenizers treat in a way of their own
ODD = st.sampled_from("<>&\"'\r\n\t \u00a0\u200b\u202e\u0301é中😀\x1b\x07\x7f]]>-")
TEXTS = st.text(st.one_of(ODD, st.characters(codec="utf-8", exclude_characters="\0")), max_size=40)


@st.composite
def attributions(draw: st.DrawFn) -> Attribution:
    """A text with tokens anywhere: overlapping, empty, without a word, beyond the end."""
    text = draw(TEXTS)
    bounds = st.integers(0, len(text) + 3)
    tokens = []
    for _ in range(draw(st.integers(0, 8))):
        start, end = sorted((draw(bounds), draw(bounds)))
        word = draw(st.one_of(st.none(), st.integers(0, 4)))
        tokens.append(Token(text=text[start:end], start=start, end=end, word=word))
    values = [draw(st.floats(-5, 5, width=32)) for _ in tokens]
    return text_attribution(text, tokens, values)


def styles(document: str) -> dict[str, str]:
    """Word -> style, for every coloured element that holds no other."""
    found = {}
    for part in document.split("<span ")[1:]:
        if 'class="tx-pos"' in part or 'class="tx-neg"' in part:
            style = part.partition('style="')[2].partition('"')[0]
            found[part.partition(">")[2].partition("<")[0]] = style
    return found


def opacity(style: str) -> float:
    return float(style.partition("rgba(")[2].partition(")")[0].split(",")[3])


def rgb(style: str) -> tuple[int, ...]:
    return tuple(int(part) for part in style.partition("rgba(")[2].split(",")[:3])


SENTENCE = "a good  film\nabout nothing"
VALUES = [9.0, 0.0, 2.0, -1.0, 0.5, 0.001, 9.0]  # with CLS and SEP


def sentence() -> Attribution:
    tokens = [
        Token(text="[CLS]", start=0, end=0, special=True),
        Token(text="a", start=0, end=1, word=0),
        Token(text="good", start=2, end=6, word=1),
        Token(text="film", start=8, end=12, word=2),
        Token(text="about", start=13, end=18, word=3),
        Token(text="nothing", start=19, end=26, word=4),
        Token(text="[SEP]", start=26, end=26, special=True),
    ]
    return text_attribution(SENTENCE, tokens, VALUES)


@given(attributions())
def test_any_text_with_any_tokens_comes_back_whole(attribution: Attribution) -> None:
    parsed = Visible(token_html(attribution))
    assert parsed.text == attribution.text
    assert {tag for tag, _ in parsed.tags} == {"span"}


@given(attributions())
def test_spans_never_overlap_and_lie_inside_the_text(attribution: Attribution) -> None:
    text, spans = spans_of(attribution)
    cursor = 0
    for span in spans:
        assert cursor <= span.start < span.end <= len(text)
        cursor = span.end


@given(TEXTS.filter(lambda text: text.strip(" ")))
def test_spans_keep_every_bit_of_relevance_of_words_apart(text: str) -> None:
    tokens = tokens_of(text)
    values = np.linspace(-1.0, 2.0, len(tokens)).astype(np.float32)
    _, spans = spans_of(text_attribution(text, tokens, values))
    of_words = sum(float(v) for v, token in zip(values, tokens, strict=True) if not token.special)
    assert sum(span.relevance for span in spans) == pytest.approx(of_words, abs=1e-5)


def test_sign_gives_the_colour_and_strength_the_opacity() -> None:
    found = styles(token_html(sentence()))
    assert set(found) == {"good", "film", "about"}  # 0 and 0.001 of 2 are left alone
    assert rgb(found["good"])[0] > rgb(found["good"])[2]
    assert rgb(found["film"])[2] > rgb(found["film"])[0]
    assert opacity(found["good"]) == pytest.approx(MAX_OPACITY, abs=1e-3)
    assert opacity(found["film"]) == pytest.approx(MAX_OPACITY / 2, abs=1e-3)
    assert opacity(found["about"]) == pytest.approx(MAX_OPACITY / 4, abs=1e-3)


def test_the_palette_of_the_paper_is_green_and_red() -> None:
    found = styles(token_html(sentence(), palette="green-red"))
    assert np.argmax(rgb(found["good"])) == 1 and np.argmax(rgb(found["film"])) == 0


def test_a_given_scale_is_shared_by_texts() -> None:
    found = styles(token_html(sentence(), scale=4.0))
    assert opacity(found["good"]) == pytest.approx(MAX_OPACITY / 2, abs=1e-3)
    assert opacity(styles(token_html(sentence(), scale=0.5))["good"]) == pytest.approx(MAX_OPACITY)


@pytest.mark.parametrize(
    ("text", "tokens", "spans"),
    [
        (
            "unhappy!",
            [(0, 2, 0, 0.5), (2, 7, 0, -2.0), (7, 8, 1, 0.25)],
            [(0, 7, -1.5), (7, 8, 0.25)],
        ),
        ("😀", [(0, 1, 0, 1.0), (0, 1, 1, 2.0), (0, 1, 2, 3.0)], [(0, 1, 6.0)]),
        ("it is", [(2, 5, 0, 1.0)], [(3, 5, 1.0)]),
    ],
    ids=["pieces of a word", "bytes of an emoji", "a blank at the edge"],
)
def test_spans_of_tokens(text: str, tokens: list[Any], spans: list[Any]) -> None:
    features = [Token(text="t", start=a, end=b, word=word) for a, b, word, _ in tokens]
    _, found = spans_of(text_attribution(text, features, [value for *_, value in tokens]))
    assert [(span.start, span.end, span.relevance) for span in found] == spans


def test_markup_is_text() -> None:
    text = "<script>alert('x')</script> & \"q\""
    document = token_html(text_attribution(text, tokens_of(text), [0.0, 1.0, 1.0, 1.0, 0.0]))
    assert "<script" not in document and "'" not in document
    assert Visible(document).text == text


def test_what_no_html_can_hold_is_replaced_and_can_be_written() -> None:
    text = "a\0b \ud800c"
    document = token_html(text_attribution(text, tokens_of(text), [0.0, 1.0, -1.0, 0.0]))
    assert document.encode("utf-8")
    assert Visible(document).text == "a\ufffdb \ufffdc"


def test_a_text_that_was_not_stored_is_shown_by_its_tokens() -> None:
    tokens = [
        Token(text="[CLS]", start=0, end=0, special=True),
        Token(text="hid", start=3, end=6, word=0),
        Token(text="den", start=6, end=9, word=0),
        Token(text="words", start=11, end=16, word=1),
    ]
    shown = Visible(token_html(text_attribution(None, tokens, [0.0, 1.0, 1.0, -1.0])))
    assert shown.text == "hidden words"


def test_what_cannot_be_shown_is_refused() -> None:
    for bad in (np.nan, np.inf):
        with pytest.raises(ConfigurationError, match="item-1"):
            token_html(text_attribution("a", tokens_of("a"), [0.0, bad, 0.0]))
    with pytest.raises(ConfigurationError, match="scale"):
        token_html(sentence(), scale=-1.0)
    with pytest.raises(ConfigurationError, match="palette"):
        token_html(sentence(), palette="jet")
    with pytest.raises(TypeError, match="image"):
        token_html(image_attribution([[1.0]]))


def test_the_terminal_shows_the_text_on_coloured_ground() -> None:
    shown = token_ansi(sentence())
    assert shown.plain == SENTENCE
    ground = {
        SENTENCE[span.start : span.end]: span.style.bgcolor.triplet  # type: ignore[union-attr]
        for span in shown.spans
    }
    assert set(ground) == {"good", "film", "about"}
    assert ground["good"].red > ground["good"].blue and ground["film"].blue > ground["film"].red
    assert ground["good"].red > ground["about"].red


@given(attributions())
def test_no_text_can_steer_a_terminal(attribution: Attribution) -> None:
    shown = token_ansi(attribution).plain
    assert len(shown) == len(attribution.text or "")
    assert all(c in "\n\t" or c >= " " for c in shown)
    assert not set(shown) & {chr(c) for c in (0x7F, 0x9B, 0x202E, 0x2066)}


def test_a_page_shows_texts_and_images_and_nothing_from_elsewhere() -> None:
    text = "<u>bold</u> claim"
    document = page(
        [
            text_attribution(text, tokens_of(text), [0.0, 1.0, -1.0, 0.0], class_name="<i>"),
            image_attribution([[1.0, -1.0]]),
        ]
    )
    shown = Visible(document)
    assert text in shown.text and "<i>" in shown.text
    assert not {"u", "i", "script", "link"} & {tag for tag, _ in shown.tags}
    sources = [attributes["src"] for tag, attributes in shown.tags if tag == "img"]
    assert len(sources) == 1 and str(sources[0]).startswith("data:image/png;base64,")
    assert "default-src 'none'" in document and "http:" not in document


# ---- punctuation and function words are shown, but do not head lists of words -------------------


def test_words_that_say_little_and_words_that_may_say_much() -> None:
    little = ["the", "The", ",", "...", "\u201c", "of", "'s", "his", "\u3002"]
    much = ["not", "never", "no", "very", "film", "5", "n't", "good", "\u597d"]
    assert [word for word in (*little, *much) if says_little(word)] == little


def row(word: str, mean: float) -> WordRow:
    return WordRow(
        word=word,
        mean=mean,
        total=mean,
        mentions=9,
        documents=9,
        magnitude=9.0,
        function=says_little(word),
    )


def test_they_stand_last_and_push_no_other_out() -> None:
    words = [row(",", 9.0), row("the", 8.0), *(row(f"w{n:02}", 7.0 - n / 10) for n in range(30))]
    found = [one.word for one in _top(words, lambda one: one.mean)]
    assert found[:2] == ["w00", "w01"] and found[-2:] == [",", "the"]
    telling = found[:-2]
    assert telling == [f"w{n:02}" for n in range(len(telling))] and len(telling) > 5


# ---- numbers and names in sentences -------------------------------------------------------------


@pytest.mark.parametrize(
    ("write", "value", "text"),
    [
        (signed, 1.234, "+1.234"),
        (signed, -0.5, "\N{MINUS SIGN}0.500"),
        (signed, -0.0001, "0.000"),
        (number, 0.008, "0.008"),
        (number, -1.0, "\N{MINUS SIGN}1.00"),
        (number, 0.0, "0.00"),
        (power, 4.2e-7, "4.2\u00a0\u00d7\u00a010⁻⁷"),
        (power, -5e-6, "\N{MINUS SIGN}5\u00a0\u00d7\u00a010⁻⁶"),
        (power, 0.0, "0"),
    ],
)
def test_numbers_as_they_are_written(
    write: Callable[[float], str], value: float, text: str
) -> None:
    assert write(value) == text


@given(st.floats(-1e6, 1e6))
def test_signed_numbers_read_back(value: float) -> None:
    assert float(signed(value).replace("\N{MINUS SIGN}", "-")) == pytest.approx(value, abs=5.1e-4)


def test_contrasts_are_spoken_even_with_hyphens_in_names() -> None:
    classes = ("a", "a-b", "b-c", "c")
    assert class_phrase("contrast:a-b", "a-b-c", classes) == "a over b-c"
    assert class_phrase("contrast:positive-negative", "p-n", ("p", "n")) == "p over n"
    assert class_phrase("contrast:p-n", "strange", ("p", "n")) == "strange"
    assert class_phrase("predicted", "p-n", ("p", "n")) == "p-n"


# ---- words of a class weighted by rarity, and what classes share --------------------------------


WORDS = ("good", "Ann", "tea", "x")


def views_of(db: Database, texts: list[str]) -> dict[str, ClassView]:
    """Of texts explained for the class that the made-up model answers, under one target."""
    explained = []
    for index, text in enumerate(texts):
        outcome, attribution = explained_text(index, text, None)
        place = CLASSES.index(outcome.predicted)
        explained_for = {"class_name": outcome.predicted, "class_index": place}
        explained.append((outcome, replace(attribution, target="predicted", **explained_for)))
    run = stored_run(db, explained, targets=("predicted",))
    return {view.class_name: view for view in summarise(db, run).classes}


def test_the_rarity_counts_texts_of_all_classes(db: Database) -> None:
    found = views_of(
        db, ["good the", "good the", "sad the", "sad the", "sad good good bad bad the"]
    )
    rare = {word.word: word for word in found["positive"].rare}
    assert rare["good"].rarity == pytest.approx(math.log(5 / 3))
    assert rare["good"].score == pytest.approx(1.0 * math.log(5 / 3))
    assert rare["good"].documents == 2  # of its own class
    assert "the" not in rare  # in every text: it says nothing
    assert "bad" not in rare  # it lowers the class


def test_rarity_can_turn_the_order_of_words_around(db: Database) -> None:
    often = ["good today"] * 9 + ["good Ann"] * 3  # Ann adds half of what good does, but is rare
    view = views_of(db, often)["positive"]
    assert [word.word for word in view.raising_by_mean][:2] == ["good", "ann"]
    assert view.rare[0].word == "ann"
    assert "good" not in [word.word for word in view.rare]
    assert view.rare_shared is None  # there is no other class


def test_shared_words_name_the_other_class(db: Database) -> None:
    found = views_of(db, ["good chess"] * 2 + ["dull chess"] * 2 + ["dull golf"] * 2 + ["dull"] * 2)
    positive, negative = found["positive"], found["negative"]
    assert {w.word: w.also for w in positive.rare} == {"good": (), "chess": ("negative",)}
    assert positive.rare_shared == 0.5
    assert [(o.class_name, o.share) for o in positive.rare_overlap] == [("negative", 0.5)]
    assert negative.rare_shared == pytest.approx(1 / 3)  # dull, chess, golf


def test_targets_of_another_kind_are_no_other_class(db: Database) -> None:
    explained = []
    for index in range(4):
        outcome, one = explained_text(index, ("good chess", "good golf")[index % 2], None)
        twice = replace(one, target="predicted", class_name=outcome.predicted)
        explained.append(
            (outcome, replace(twice, target=("predicted", "class:positive")[index // 2]))
        )
    run = stored_run(db, explained, targets=("predicted", "class:positive"))
    assert [view.rare_shared for view in summarise(db, run).classes] == [None, None]


@pytest.mark.exhaustive
@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.lists(st.sampled_from(WORDS), min_size=1, max_size=4), min_size=1, max_size=12))
def test_scores_are_positive_ordered_and_shares_are_shares(
    db: Database, texts: list[list[str]]
) -> None:
    found = views_of(db, [" ".join(words) for words in texts])
    for view in found.values():
        scores = [word.score for word in view.rare]
        assert scores == sorted(scores, reverse=True) and all(score > 0 for score in scores)
        best = max((one.share for one in view.rare_overlap), default=0.0)
        assert view.rare_shared is None or best <= view.rare_shared <= 1.0

"""Coloured words: nothing of the text is lost, nothing of it is markup."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from report_samples import Visible, image_attribution, text_attribution, tokens_of

from transexplain.errors import ConfigurationError
from transexplain.reports.coloured_text import MAX_OPACITY, page, token_ansi, token_html
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


def test_stripping_the_tags_gives_the_text_back_with_its_white_space() -> None:
    assert Visible(token_html(sentence())).text == SENTENCE


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


def test_titles_show_the_value_with_its_sign() -> None:
    titles = [attributes.get("title") for _, attributes in Visible(token_html(sentence())).tags]
    assert "+2.000" in titles and "\N{MINUS SIGN}1.000" in titles


def test_pieces_of_a_word_are_one_span_with_their_sum() -> None:
    tokens = [
        Token(text="un", start=0, end=2, word=0),
        Token(text="##happy", start=2, end=7, word=0),
        Token(text="!", start=7, end=8, word=1),
    ]
    _, spans = spans_of(text_attribution("unhappy!", tokens, [0.5, -2.0, 0.25]))
    assert [(s.start, s.end, s.relevance) for s in spans] == [(0, 7, -1.5), (7, 8, 0.25)]


def test_byte_tokens_of_one_emoji_are_one_span() -> None:
    tokens = [Token(text=c, start=0, end=1, word=n) for n, c in enumerate("abc")]
    _, spans = spans_of(text_attribution("😀", tokens, [1.0, 2.0, 3.0]))
    assert [(s.start, s.end, s.relevance) for s in spans] == [(0, 1, 6.0)]


def test_blanks_at_the_edges_of_a_token_stay_outside() -> None:
    tokens = [Token(text=" is", start=2, end=5, word=0)]
    _, spans = spans_of(text_attribution("it is", tokens, [1.0]))
    assert [(s.start, s.end) for s in spans] == [(3, 5)]


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


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_relevance_that_is_not_finite_is_refused(bad: float) -> None:
    with pytest.raises(ConfigurationError, match="item-1"):
        token_html(text_attribution("a", tokens_of("a"), [0.0, bad, 0.0]))


def test_bad_scales_and_palettes_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="scale"):
        token_html(sentence(), scale=-1.0)
    with pytest.raises(ConfigurationError, match="palette"):
        token_html(sentence(), palette="jet")


def test_an_image_has_no_words() -> None:
    with pytest.raises(TypeError, match="image"):
        token_html(image_attribution([[1.0]]))


def luminance(colour: np.ndarray) -> float:
    share = colour / 255.0
    linear = np.where(share <= 0.04045, share / 12.92, ((share + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


@pytest.mark.parametrize("palette", ["blue-red", "green-red"])
@pytest.mark.parametrize(("ground", "ink"), [("#fcfcfb", "#1c1e21"), ("#16181b", "#e6e7e9")])
def test_the_strongest_word_stays_readable(palette: str, ground: str, ink: str) -> None:
    behind, text = (
        np.array([int(c[i : i + 2], 16) for i in (1, 3, 5)], float) for c in (ground, ink)
    )
    for style in styles(token_html(sentence(), palette=palette, scale=0.1)).values():
        share = opacity(style)
        mixed = share * np.array(rgb(style)) + (1 - share) * behind
        lights = sorted((luminance(mixed), luminance(text)))
        assert (lights[1] + 0.05) / (lights[0] + 0.05) >= 4.5  # WCAG AA


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


def test_a_page_takes_one_attribution_or_none() -> None:
    assert SENTENCE in Visible(page(sentence())).text
    assert "No attributions" in page([])

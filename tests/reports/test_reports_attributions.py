"""Attributions in a notebook: as HTML, as tables of pandas, as drawings of matplotlib."""

import re
import sys
from dataclasses import replace
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest
from PIL import Image

import transexplain as te
from transexplain.errors import ConfigurationError
from transexplain.reports.heatmap import colour
from transexplain.types.items import ItemFailure, PatchGrid
from transexplain.types.tokens import Token

mpl.use("agg")

LEDGER = te.Ledger(
    inputs=1.5,
    special=0.5,
    embeddings=0.0,
    biases=0.0,
    rules=0.0,
    total=2.0,
    gap=0.0,
    magnitude=2.0,
)
WORDS = [("good", 2.0), ("$x$", -1.0), ("<b>", 0.5)]


def of_text(words: Any = WORDS, **changes: Any) -> te.Attribution:
    text, tokens, start = "", [], 0
    for number, (word, _) in enumerate(words):
        start = len(text) + bool(text)
        text = f"{text} {word}".strip()
        tokens.append(Token(text=word, start=start, end=start + len(word), word=number))
    return replace(
        te.Attribution(
            item_id="7",
            method="lrp",
            target="class:a&b",
            rank=0,
            class_index=1,
            class_name="a&b",
            logit=2.0,
            relevance=np.array([value for _, value in words]),
            unit="logits",
            at="encoder",
            features=tuple(tokens),
            ledger=LEDGER,
            text=text,
            probabilities={"a&b": 0.75, "c": 0.25},
        ),
        **changes,
    )


def of_picture(**changes: Any) -> te.Attribution:
    grid = PatchGrid(rows=2, cols=3, height=20, width=30, box=(0.0, 0.0, 1.0, 1.0))
    relevance = np.array([[1.0, 0.0, -2.0], [0.0, 3.0, 0.0]])
    return of_text(features=grid, relevance=relevance, text=None, **changes)


def text_of(markup: str) -> str:
    return re.sub(r"<[^>]+>", "", markup)


def test_a_text_is_shown_with_its_probabilities_and_a_legend() -> None:
    shown = of_text()._repr_html_()
    for colours in ("blue", "red"):
        red, green, blue = colour(0.85 if colours == "red" else -0.85)
        # a word, and the legend that says what its colour means
        assert shown.count(f"rgba({red},{green},{blue},") >= 2
    seen = text_of(shown)
    for part in ("a&amp;b: logit 2.00", "75.0\u00a0%", "good $x$ &lt;b&gt;", "2.00 logits"):
        assert part in seen


def test_a_picture_is_shown_as_its_heatmap() -> None:
    shown = of_picture()._repr_html_()
    assert shown.count('<img src="data:image/png;base64,') == 1
    assert "speaks for a&amp;b; full colour: 3.00 logits" in text_of(shown)


def test_scores_without_a_sign_have_one_colour_and_unknown_probabilities_no_line() -> None:
    plain = of_text([("good", 0.5)], unit="score", probabilities={})
    seen = text_of(plain._repr_html_())
    assert "against" not in seen and "relevance; full colour: 0.50 (a score without unit)" in seen
    assert "probabilities" not in seen
    many = of_text(probabilities={str(place): 0.1 for place in range(10)})
    assert "4: 10.0\u00a0%, …" in text_of(many._repr_html_())


def test_a_frame_of_words_and_patches() -> None:
    table = te.to_frame(of_text())
    assert list(table.columns) == [
        *("item_id", "method", "target", "rank", "class_name"),
        *("position", "word", "start", "end", "relevance"),
    ]
    assert list(zip(table["word"], table["relevance"], strict=True)) == WORDS
    assert [of_text().text[row.start : row.end] for row in table.itertuples()] == [
        word for word, _ in WORDS
    ]
    patches = te.to_frame([of_picture()])
    grid = patches.pivot_table(index="row", columns="col", values="relevance").to_numpy()
    np.testing.assert_array_equal(grid, of_picture().relevance)


def test_a_frame_of_items_with_failures() -> None:
    failure = ItemFailure(item_id="9", index=9, kind="empty-text", message="the text is empty")
    table = te.to_frame([of_text(), of_picture(ledger=None), failure], by="items")
    assert list(table["item_id"]) == ["7", "7", "9"]
    assert list(table["probability"])[:2] == [0.75, 0.75]
    assert list(table["positions"])[:2] == [3, 6]
    assert table["total"][0] == 2.0 and np.isnan(table["total"][1])
    assert table["error"][2] == "empty-text: the text is empty"
    assert "error" not in te.to_frame(of_text(), by="items")
    assert te.to_frame([]).empty


def test_words_are_drawn_as_bars_in_reading_order() -> None:
    axes = te.plot(of_text())
    assert [bar.get_width() for bar in axes.patches] == [value for _, value in WORDS]
    assert [label.get_text() for label in axes.get_yticklabels()] == [word for word, _ in WORDS]
    assert axes.yaxis_inverted()
    assert axes.get_xlabel() == "relevance (logits)"
    assert axes.get_title() == "a&b: logit 2.00 (lrp)"
    first, second = (bar.get_facecolor()[:3] for bar in axes.patches[:2])
    np.testing.assert_allclose(first, np.array(colour(1.0)) / 255)
    np.testing.assert_allclose(second, np.array(colour(-1.0)) / 255)
    axes.figure.canvas.draw()
    again = te.plot(of_text(), ax=axes.figure.add_axes((0, 0, 1, 1)), most=2)
    assert [label.get_text() for label in again.get_yticklabels()] == ["good", "$x$"]
    assert again.get_xlabel().endswith("1 weaker words are left out")
    mpl.pyplot.close("all")


WRONG: list[tuple[Any, type[Exception], str]] = [
    (lambda: te.plot(of_text(), Image.new("RGB", (3, 3))), TypeError, "picture"),
    (lambda: te.plot(of_picture(), np.zeros(3)), ConfigurationError, "picture"),
    (lambda: te.to_frame([of_text(), 5]), TypeError, r"5 \(int\)"),
    (lambda: te.to_frame([of_text()], by="tokens"), ConfigurationError, "'tokens'"),
]


@pytest.mark.parametrize(("call", "kind", "named"), WRONG)
def test_wrong_requests_are_refused(call: Any, kind: Any, named: str) -> None:
    """What is no attribution is refused in `test_api.py`."""
    with pytest.raises(kind, match=named):
        call()


@pytest.mark.parametrize(("package", "call"), [("pandas", te.to_frame), ("matplotlib", te.plot)])
def test_a_missing_package_is_named_with_the_command(
    package: str, call: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    command = rf"{package} is not installed, .*pip install '\.\[notebook\]'"
    with pytest.raises(ConfigurationError, match=command):
        call(of_text())

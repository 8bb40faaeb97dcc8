"""Interactive charts: their parts in a page, which are only data."""

import json
import math
import re

import altair as alt
import pytest
from browser_pages import ATTACKS
from gallery import Gallery
from jsonschema import ValidationError
from report_samples import Visible, explained_text

from transexplain.analysis.groups.shard_aggregate import ShardAggregate
from transexplain.reports import charts
from transexplain.reports.charts import Series, scatter_drawing, stroke
from transexplain.reports.page import runnable
from transexplain.reports.sections.class_views import ClassView, RareWord, cloud, plane, positions


def view_of(gallery: Gallery) -> ClassView:
    return gallery.summary("biased").classes[0]


def rare(word: str, score: float, rarity: float = 2.0) -> RareWord:
    return RareWord(
        word=word, score=score, mean=score / rarity, rarity=rarity, mentions=9, documents=7
    )


def specifications(document: str) -> list[dict]:
    blocks = re.findall(r'<script type="application/json">(.*?)</script>', document, re.DOTALL)
    return [json.loads(block) for block in blocks]


@pytest.mark.exhaustive
def test_charts_are_what_the_schema_of_vega_lite_allows(gallery: Gallery) -> None:
    document = gallery.page("biased")
    drawn = [one for one in specifications(document) if "layer" in one]
    assert drawn
    for one in drawn:
        alt.LayerChart.from_dict(one, validate=True)
    with pytest.raises(ValidationError):
        alt.LayerChart.from_dict({**drawn[0], "width": "a foot"}, validate=True)


@pytest.mark.parametrize("attack", [*ATTACKS, "<!-- &amp; \u2028 \u2029", "\ud800 \x00"])
def test_data_in_a_page_ends_no_element_and_comes_back_whole(attack: str) -> None:
    text = str(charts.script_data({attack: [attack]}))
    assert not set("<>&\u2028\u2029") & set(text)
    assert json.loads(text) == {attack: [attack]}


@pytest.mark.parametrize("attack", ATTACKS)
def test_words_and_names_in_a_drawing_are_escaped(attack: str) -> None:
    words = tuple(rare(f"{attack}{n}", 3.0 - n) for n in range(5))
    drawing = plane(words, attack)
    seen = Visible(str(drawing.__html__()))
    assert {tag for tag, _ in seen.tags} <= {"div", "svg", "g", "path", "line", "text", "script"}
    assert [given for tag, given in seen.tags if tag == "script"] == [{"type": "application/json"}]
    assert not any(name.startswith("on") for _, given in seen.tags for name in given)
    assert attack in str(seen.tags[0][1]["aria-label"])


def test_a_lone_surrogate_in_a_word_does_not_stop_the_drawing() -> None:
    words = (rare("\ud800", 3.0), rare("b", 2.0), rare("c", -1.0))
    drawing = plane(words, "x \udfff")
    assert drawing is not None and "\N{REPLACEMENT CHARACTER}" in drawing.still


def test_the_places_of_a_text_are_drawn_with_their_means(gallery: Gallery) -> None:
    drawing = positions(view_of(gallery), "positive")
    values = drawing.specification["data"]["values"]
    means = {one["x"]: one["y"] for one in values if one["line"] == 0 and one["y"] is not None}
    # four words a text: the middles of parts 2, 7, 12 and 17; half of the names add 0.5
    assert list(means) == pytest.approx([0.125, 0.375, 0.625, 0.875])
    assert list(means.values()) == pytest.approx([0.255, 0.01, 12 / 36, 0.01], abs=1e-6)
    assert "+0.255 at the beginning" in drawing.label


def test_the_plane_needs_words_and_names_those_that_have_room() -> None:
    assert plane((rare("a", 1.0), rare("b", 2.0)), "x") is None
    apart = [rare(f"w{n}", 3.0 - n, 1.0 + n) for n in range(4)]
    crowd = [rare(f"near{n}", 2.9 - n / 1e3, 1.0) for n in range(9)]
    drawing = plane((*apart, *crowd), "x")
    assert all(f">w{n}<" in drawing.still for n in range(4)) and "near" not in drawing.still


def test_a_cloud_is_alphabetical_and_sized_by_score() -> None:
    words = (rare("Zoe", 9.0), rare("bee", 5.0), rare("ant", 1.0), rare("no", -7.0))
    assert [(one.word, size) for one, size in cloud(words)] == [("ant", 1), ("bee", 3), ("Zoe", 5)]
    assert cloud((rare("only", 2.0),))[0][1] == 1
    assert cloud(()) == []


@pytest.mark.parametrize("kind", ["lines", "scatter"])
def test_ticks_of_ten_and_more_are_written_out(kind: str) -> None:
    if kind == "lines":
        line = Series(x=(5.0, 100.0), y=(0.0, 1.0), stroke=stroke(0), name="</script>")
        drawing = charts.line_drawing([line], x_title="words listed", y_title="y", label="l")
    else:
        drawing = scatter_drawing([(0.5, -5.0), (2.5, 10.0)], titles=("logit", "sum"), label="sums")
        assert drawing is not None
    assert "e+" not in drawing.still and "</script>" not in drawing.still
    assert re.search(r">(10|20)</text>", drawing.still)


def test_a_library_that_would_end_its_element_is_refused() -> None:
    with pytest.raises(ValueError, match="Vega holds markup"):
        runnable("const a = '</SCRIPT>';", "Vega")


def test_part_and_support_of_a_short_text_by_hand() -> None:
    total = ShardAggregate()
    total.add(*_added(0, "Ann good"))
    total.add(*_added(1, "bad"))
    parts = total.positions("class:positive", "positive")
    filled = {n: (p.texts, p.positions, p.relevance, p.magnitude) for n, p in enumerate(parts)}
    given = {n: numbers for n, numbers in filled.items() if numbers[0]}
    assert given == {5: (1, 1, 0.5, 0.5), 15: (1, 1, 1.0, 1.0), 10: (1, 1, -1.0, 1.0)}
    assert len(parts) == 20
    total = ShardAggregate()  # a long text counts once in a part, and with all its positions
    total.add(*_added(0, " ".join(["good"] * 50)))
    parts = total.positions("class:positive", "positive")
    assert sum(part.positions for part in parts) == 50
    assert {part.texts for part in parts} == {1} and {part.positions for part in parts} <= {2, 3}
    assert math.fsum(part.relevance for part in parts) == pytest.approx(50.0)


def _added(index: int, text: str) -> tuple:
    outcome, one = explained_text(index, text, None)
    return outcome, [one]

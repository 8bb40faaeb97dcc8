"""The HTML report: complete in itself, nothing in it can act, every name is text."""

import base64
import csv
import hashlib
import io
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from gallery import Gallery
from PIL import Image
from report_samples import ANNS, BOBS, Visible, explained_text, image_run, stored_run, write_picture

from transexplain.reports.coloured_text import MentionMark, marked_html
from transexplain.reports.exports.export_run import export
from transexplain.reports.page import code, prose
from transexplain.reports.report_formats import plain, render_html
from transexplain.reports.summary import summarise
from transexplain.store.database import Database
from transexplain.types.items import EntityGroup, ItemFailure
from transexplain.types.plans import ModelRef
from transexplain.types.words import Span

ATTACK = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'&amp;"
ALLOWED_URLS = ("data:image/png;base64,", "data:image/jpeg;base64,")


def pictures(document: str) -> list[np.ndarray]:
    found = []
    for tag, attributes in Visible(document).tags:
        if tag == "img":
            body = str(attributes["src"]).partition(";base64,")[2]
            with Image.open(io.BytesIO(base64.b64decode(body))) as image:
                found.append(np.asarray(image))
    return found


def scripts(document: str) -> list[str]:
    return re.findall(r"<script>(.*?)</script>", document, flags=re.DOTALL)


def without_script(document: str) -> str:
    """Neither scripts nor the data of charts; see test_reports_charts for these."""
    return re.sub(r"<script[^>]*>.*?</script>", "", document, flags=re.DOTALL)


@pytest.mark.exhaustive
def test_the_policy_forbids_everything_but_styles_embedded_pictures_and_our_script(
    gallery: Gallery,
) -> None:
    page = gallery.page("biased")
    contents = [
        attributes["content"]
        for _, attributes in Visible(page).tags
        if attributes.get("http-equiv") == "Content-Security-Policy"
    ]
    digests = [hashlib.sha256(text.encode()).digest() for text in scripts(page)]
    assert len(digests) == 3  # the page's own, Vega, and what draws with it
    allowed = " ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests)
    assert contents == [
        "default-src 'none'; base-uri 'none'; form-action 'none'; style-src 'unsafe-inline'; "
        f"img-src data:; script-src {allowed}"
    ]


def test_nothing_is_loaded_from_anywhere(gallery: Gallery) -> None:
    document = without_script(gallery.page("biased"))
    assert not re.search(r"https?:|//[a-z]|@import|url\(", document)
    tags = Visible(document).tags
    for tag, attributes in tags:
        assert tag not in {"script", "link", "iframe", "object", "embed", "form", "base"}
        assert not [name for name in attributes if name.startswith("on")]
        for name in {"src", "href", "xlink:href"} & attributes.keys():
            assert str(attributes[name]).startswith(("#", *ALLOWED_URLS))
    ids = {attributes["id"] for _, attributes in tags if "id" in attributes}
    links = {str(a["href"]).removeprefix("#") for tag, a in tags if tag == "a"}
    assert links and links <= ids, "links lead to sections that exist"


def test_markup_in_every_name_and_text_is_shown_as_text(db: Database) -> None:
    outcome, attribution = explained_text(0, f"{ATTACK} Ann", ATTACK)
    outcome = replace(outcome, item_id=f"id {ATTACK}", predicted=f"said {ATTACK}")
    attribution = replace(
        attribution, item_id=outcome.item_id, class_name=f"said {ATTACK}", target=f"t {ATTACK}"
    )
    run = stored_run(
        db,
        [(outcome, attribution)],
        [ItemFailure(item_id=f"f {ATTACK}", index=1, kind=f"k {ATTACK}", message=f"m {ATTACK}")],
        name=f"name {ATTACK}",
        groups=(
            EntityGroup(name=f"g {ATTACK}", terms=("Ann",), source=f"s {ATTACK}"),
            EntityGroup(name=f"never {ATTACK}", terms=("Zoe",)),
        ),
        reference=f"g {ATTACK}",
        model=ModelRef(source=f"m {ATTACK}", classes=(f"said {ATTACK}", "b"), digest="d"),
    )
    document = without_script(render_html(summarise(db, run)))
    shown = Visible(document)
    assert "<script" not in document and "onerror=alert(2)>" not in document
    assert "script" not in {tag for tag, _ in shown.tags}
    for mark in ("name ", "id ", "said ", "f ", "k ", "m ", "g ", "s ", "never "):
        assert f"{mark}{ATTACK}" in shown.text, mark
    assert shown.text.count(ATTACK) > 15


def test_the_script_makes_no_markup_of_texts_and_loads_nothing(gallery: Gallery) -> None:
    ours, _, drawing = scripts(gallery.page("biased"))
    for text in (ours, drawing):
        assert not re.search(r"[nr]HTML|insertAdjacent|eval|Function\(|fetch|https?:", text)


def test_overlays_are_drawn_on_both_scales(db: Database, tmp_path: Path) -> None:
    for index in range(6):
        write_picture(tmp_path, f"cat/{index}.png")
    found = summarise(db, image_run(db, tmp_path))
    drawn = [one for one in pictures(render_html(found)) if one.shape == (107, 160, 3)]
    assert len(drawn) == 6 * 3  # original, shared scale, own scale
    weakest = next(n for n, item in enumerate(found.gallery.items) if item.item_id == "cat/0.png")
    # the ground is grey, so whatever has a colour is relevance
    shared, own = (np.ptp(one.astype(int), axis=-1).mean() for one in drawn[3 * weakest + 1 :][:2])
    assert own > 2 * shared > 0


def test_a_picture_that_is_gone_is_shown_as_such(db: Database, tmp_path: Path) -> None:
    write_picture(tmp_path, "cat/0.png")
    (tmp_path / "cat/1.png").write_text("not a picture")
    text = Visible(render_html(summarise(db, image_run(db, tmp_path)))).text
    assert "there is no picture file 'cat/2.png'" in text
    assert "cat/1.png is not a picture" in text


def test_pictures_outside_the_dataset_are_not_read(db: Database, tmp_path: Path) -> None:
    write_picture(tmp_path, "secret.png")
    (tmp_path / "data/cat").mkdir(parents=True)
    (tmp_path / "data/cat/0.png").symlink_to(tmp_path / "secret.png")
    text = Visible(render_html(summarise(db, image_run(db, tmp_path / "data")))).text
    assert "leads outside the dataset" in text


def test_mean_heatmaps_share_the_scale_of_their_target(db: Database, tmp_path: Path) -> None:
    drawn = pictures(render_html(summarise(db, image_run(db, tmp_path))))
    strongest = sorted(int(tile[..., 3].max()) for tile in drawn if tile.shape[0] == 208)
    assert strongest == [pytest.approx(191, abs=1), 255]  # means 3 and 4


def test_an_empty_run_and_odd_characters_make_a_report(db: Database, tmp_path: Path) -> None:
    run = stored_run(db, [explained_text(0, "good", None)], leave=1)
    assert "has no result" in Visible(render_html(summarise(db, run))).text
    run = stored_run(db, [explained_text(0, "a\0b \ud800 c\r\nd", "l\ud800")])
    path = tmp_path / "r.html"
    path.write_text(render_html(summarise(db, run)), encoding="utf-8")
    assert "a\ufffdb" in path.read_text(encoding="utf-8")


# ---- readability --------------------------------------------------------------------------------


def test_examples_mark_each_entity_with_its_group(gallery: Gallery) -> None:
    page = gallery.page("biased")
    shown = re.search(r'<article class="item" data-id="row-1".*?</article>', page, re.DOTALL)
    assert shown
    marked = re.search(r'<span class="mention" data-group="anns">(.*?)</span></span>', shown[0])
    assert marked and re.sub(r"<[^>]*>", "", marked[1]) in ANNS
    assert "mentions <bdi>anns</bdi>" in shown[0]


def test_a_mention_may_cut_words_and_ends_where_reading_ends() -> None:
    text = "so Anne-Marie said"
    spans = [Span(start=3, end=14, relevance=1.0), Span(start=15, end=18, relevance=-0.5)]
    marks = (
        MentionMark(start=3, end=7, entity="anne", groups=("women", "<b>")),
        MentionMark(start=8, end=18, entity="marie", groups=("women",)),
    )
    found = marked_html(text, spans, scale=1.0, mentions=marks)
    assert 'data-group="women, &lt;b&gt;"' in found
    assert 'data-group="marie: women"' in found, "it is spelled otherwise here"
    cut = marked_html(text, spans, scale=1.0, unread_from=10, mentions=marks)
    for shown in (found, cut):
        assert Visible(shown).text == text and shown.count("<span") == shown.count("</span>")


def test_marks_of_a_group_of_whole_items_and_of_overlaps(db: Database) -> None:
    explained = [explained_text(n, "Ann Lee was good", "positive") for n in range(6)]
    groups = (
        EntityGroup(name="full", terms=("Ann Lee",)),
        EntityGroup(name="first", terms=("Ann",)),
        EntityGroup(name="both", terms=("Ann Lee",)),
    )
    summary = summarise(db, stored_run(db, explained, groups=groups))
    marks = {one.mentions for one in summary.gallery.items}
    assert marks == {(MentionMark(start=0, end=7, entity="Ann Lee", groups=("both", "full")),)}


def test_prose_sets_code_and_emphasis_and_escapes_the_rest() -> None:
    assert prose("`a<b` and *c* of 2*3*4") == "<code>a&lt;b</code> and <em>c</em> of 2*3*4"
    assert code("`a` and *c*") == "<code>a</code> and *c*"


def test_a_reference_is_one_and_a_small_group_suppressed_in_every_form(
    db: Database, tmp_path: Path
) -> None:
    explained = [
        explained_text(n, f"{(*ANNS, *BOBS, 'Zoe')[n % 13]} was good", "positive")
        for n in range(39)
    ]
    names = {"anns": ANNS, "bobs": BOBS, "zoes": ("Zoe",)}
    groups = [EntityGroup(name=name, terms=terms) for name, terms in names.items()]
    run = stored_run(db, explained, groups=groups, reference="bobs")
    summary = summarise(db, run)
    printed = {row["group"]: row["verdict"] for row in plain(summary)["groups"]["rows"]}
    assert (printed["bobs"], printed["zoes"]) == ("reference", "suppressed")
    export(db, run, "csv", tmp_path / "tables")
    with (tmp_path / "tables" / "groups.csv").open(encoding="utf-8", newline="") as table:
        rows = [row for row in csv.DictReader(table) if not row["split_by"]]
    assert {row["group_name"]: row["verdict"] for row in rows} == printed
    shown = re.findall(
        r'c-group"><bdi>(\w+)</bdi>.*?c-verdict"><span class="tag[^>]*>([a-z ]+)</span>',
        render_html(summary),
        re.DOTALL,
    )
    assert dict(shown) == printed

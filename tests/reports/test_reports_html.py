"""The HTML report: complete in itself, nothing in it can act, every name is text."""

import base64
import hashlib
import io
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from report_samples import Visible, biased_run, explained_text, stored_run, write_picture
from test_reports_summary import image_run

from transexplain.reports import REPORTS
from transexplain.reports.page import script
from transexplain.reports.report_formats import render_html
from transexplain.reports.summary import summarise
from transexplain.store.database import Database
from transexplain.types.items import EntityGroup, ItemFailure
from transexplain.types.plans import ModelRef

ATTACK = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'&amp;"
ALLOWED_URLS = ("data:image/png;base64,", "data:image/jpeg;base64,")


def page(db: Database) -> str:
    return render_html(summarise(db, biased_run(db)))


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
    db: Database,
) -> None:
    tags = Visible(page(db)).tags
    policies = [
        attributes["content"]
        for tag, attributes in tags
        if tag == "meta" and attributes.get("http-equiv") == "Content-Security-Policy"
    ]
    digests = [
        base64.b64encode(hashlib.sha256(one.encode()).digest()).decode()
        for one in scripts(page(db))
    ]
    assert len(digests) == 3  # the page's own, Vega, and what draws with it
    allowed = " ".join(f"'sha256-{one}'" for one in digests)
    assert policies == [
        "default-src 'none'; base-uri 'none'; form-action 'none'; style-src 'unsafe-inline'; "
        f"img-src data:; script-src {allowed}"
    ]
    names = [tag for tag, _ in tags]
    assert names.index("meta") < names.index("style")


def test_nothing_is_loaded_from_anywhere(db: Database) -> None:
    document = without_script(page(db))
    assert not re.search(r"https?:|//[a-z]|@import|url\(", document)
    for tag, attributes in Visible(document).tags:
        assert tag not in {"script", "link", "iframe", "object", "embed", "form", "base"}
        assert not [name for name in attributes if name.startswith("on")]
        for name in ("src", "href", "xlink:href"):
            if name in attributes:
                assert str(attributes[name]).startswith(("#", *ALLOWED_URLS))


def test_links_lead_to_sections_that_exist(db: Database) -> None:
    tags = Visible(page(db)).tags
    ids = {attributes["id"] for _, attributes in tags if "id" in attributes}
    links = {str(a["href"]).removeprefix("#") for tag, a in tags if tag == "a"}
    assert links and links <= ids


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


@pytest.mark.exhaustive
def test_tags_are_balanced(db: Database, tmp_path: Path) -> None:
    void = {"meta", "img", "input", "br", "wbr"}
    closed_itself = {"rect", "line", "circle", "path"}
    for document in (page(db), render_html(summarise(db, image_run(db, tmp_path)))):
        stack = []
        body = re.sub(r"<style>.*?</style>", "", without_script(document), flags=re.DOTALL)
        for closing, tag in re.findall(r"<(/?)([a-zA-Z][a-zA-Z0-9]*)\b", body):
            if closing:
                assert stack.pop() == tag
            elif tag.lower() not in void | closed_itself:
                stack.append(tag)
        assert stack == []


def test_the_findings_are_there(db: Database) -> None:
    text = Visible(page(db)).text
    for expected in (
        "mentions of anns add 0.49 logit more to positive",
        "36 of 38 texts were explained",
        "accuracy 1.000",
        "models/m",
        "f" * 64,
        "d" * 64,
        "empty-text",
        "The ledgers close for every explanation",
        "Ava was good today",
        "places",
    ):
        assert expected in text, expected
    shown = re.sub(r"<(script|style)\b.*?</\1>", "", page(db), flags=re.DOTALL)
    pieces = Visible(shown).pieces  # a cell begins without a space; a sentence must not
    assert not [one for one in pieces if re.search(r"[a-z]\.[A-Z][a-z]", one)]


def test_the_group_table_draws_its_intervals(db: Database) -> None:
    document = page(db)
    assert document.count("fp-dot") - document.count(".fp-dot") >= 2
    assert "fp-flagged fp-pos" in document


def test_the_script_makes_no_markup_of_texts_and_loads_nothing(db: Database) -> None:
    ours, _, drawing = scripts(page(db))
    for text in (ours, drawing):
        assert not re.search(r"[nr]HTML|insertAdjacent|eval|Function\(|fetch|https?:", text)


@pytest.mark.exhaustive
def test_controls_are_not_shown_without_the_script(db: Database) -> None:
    controls = [
        a
        for _, a in Visible(page(db)).tags
        if a.get("class") in ("find", "class-switch", "count small soft")
    ]
    assert len(controls) == 3 and all("hidden" in one for one in controls)


def test_a_script_that_would_end_its_element_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "templates").mkdir()
    (tmp_path / "templates/bad.js").write_text('"</SCRIPT >"')
    monkeypatch.setattr("transexplain.reports.page.files", lambda _: tmp_path)
    with pytest.raises(ValueError, match=r"bad\.js holds markup"):
        script("bad.js")


def test_texts_are_shown_on_both_scales(db: Database) -> None:
    document = page(db)
    shown = Visible(document).tags
    texts = [attributes for tag, attributes in shown if attributes.get("class") == "tx"]
    assert len(texts) == 36  # each once: the style draws it on either scale
    assert all(re.fullmatch(r"--k:[0-9.]+", one.get("style") or "") for one in texts)
    scales = [a for tag, a in shown if tag == "input" and a.get("name") == "scale"]
    assert len(scales) == 2


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
    tiles = [
        one
        for one in pictures(render_html(summarise(db, image_run(db, tmp_path))))
        if one.shape[0] == 208
    ]
    strongest = sorted(int(one[..., 3].max()) for one in tiles)
    assert strongest == [pytest.approx(191, abs=1), 255]  # means 3 and 4


def test_an_empty_run_still_makes_a_report(db: Database) -> None:
    run = stored_run(db, [explained_text(0, "good", None)], leave=1)
    text = Visible(render_html(summarise(db, run))).text
    assert "1 text have no result" not in text and "has no result" in text


def test_odd_characters_can_be_written_to_a_file(db: Database, tmp_path: Path) -> None:
    run = stored_run(db, [explained_text(0, "a\0b \ud800 c\r\nd", "l\ud800")])
    path = tmp_path / "r.html"
    path.write_text(render_html(summarise(db, run)), encoding="utf-8")
    assert "a\ufffdb" in path.read_text(encoding="utf-8")


@pytest.mark.exhaustive
def test_every_registered_format_renders(db: Database) -> None:
    summary = summarise(db, biased_run(db))
    for name in REPORTS:
        assert len(REPORTS.load(name)(summary)) > 1_000

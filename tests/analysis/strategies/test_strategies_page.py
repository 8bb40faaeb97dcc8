"""The page of a discovery: complete in itself, every name is text, the numbers are there."""

import json
import re
from pathlib import Path

import jsonschema
import numpy as np
import pytest
from plain_records import new_outcome
from report_samples import Visible, stored_run, text_attribution, tokens_of, write_picture
from test_strategies_discover import picture_run

from transexplain.analysis.strategies.discover_strategies import discover
from transexplain.reports import STRATEGY_REPORTS
from transexplain.reports.strategies_report import (
    StrategyReport,
    percent,
    render,
    schema,
    strategy_report,
)
from transexplain.store.database import Database
from transexplain.types.plans import ModelRef

ATTACK = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'&amp;"


def text_run(db: Database, *, attack: str = "") -> str:
    """300 texts by one word of many, twelve by a mark; names hold `attack`."""
    mark, words = f"mark{attack}".replace(" ", "_"), [f"word{number}" for number in range(4)]
    explained, rng = [], np.random.default_rng(0)
    for index in range(300):
        word = mark if index < 12 else words[index % 4]
        text = f"the {word} is fine"
        tokens = tokens_of(text)
        noise = rng.normal(0.0, 0.1, len(tokens)) + 0.1
        values = [value + (one.text == word) for one, value in zip(tokens, noise, strict=True)]
        outcome = new_outcome(
            item_id=f"row{attack}-{index}",
            index=index,
            label=f"good{attack}",
            predicted=f"good{attack}",
            logits=(0.0, 1.0),
            positions=len(tokens),
            text=text,
        )
        one = text_attribution(
            text, tokens, values, item_id=outcome.item_id, class_name=outcome.predicted
        )
        explained.append((outcome, one))
    model = ModelRef(source=f"m{attack}", classes=("bad", f"good{attack}"), digest="d")
    return stored_run(
        db, explained, name=f"a{attack}", model=model, targets=("predicted",), shard_size=64
    )


def report(db: Database, run: str) -> StrategyReport:
    return strategy_report(db, discover(db, run))


@pytest.mark.exhaustive
def test_a_word_that_carries_a_cluster_is_named(db: Database) -> None:
    found = report(db, text_run(db))
    [flagged] = [line.text for line in found.headline if line.kind == "flagged"]
    assert "mark" in flagged and "100\xa0%" in flagged
    assert flagged in Visible(render(found)).text


@pytest.mark.exhaustive
def test_no_name_in_a_page_becomes_markup_or_script(db: Database) -> None:
    document = render(report(db, text_run(db, attack=ATTACK)))
    shown = Visible(document)
    assert "<script" not in document
    assert "onerror=alert(2)>" not in document
    document = re.sub(r'xmlns(:\w+)?="http://www.w3.org/[^"]*"', "", document)  # a name
    assert not re.search(r"https?:|//[a-z]|@import|url\(", document)
    for tag, attributes in shown.tags:
        assert tag not in {"script", "link", "iframe", "object", "embed", "form", "base"}
        assert not [name for name in attributes if name.startswith("on")]
    for name in (f"a{ATTACK}", f"good{ATTACK}", f"m{ATTACK}", f"row{ATTACK}-0"):
        assert name in shown.text, name


@pytest.mark.exhaustive
def test_pictures_are_shown_with_their_heatmaps(db: Database, tmp_path: Path) -> None:
    found = report(db, picture_run(db, root=tmp_path))
    for name in found.exemplars["cat"]:
        write_picture(tmp_path, f"{name}.png").rename(tmp_path / name)
    tags = Visible(render(found)).tags
    drawn = [attributes for tag, attributes in tags if tag == "img"]
    # two clusters of cats and one of dogs: a mean, and six heatmaps each; pictures of cats only
    assert len(drawn) == 3 * (1 + 6) + 2 * 6
    assert all(str(one["src"]).startswith("data:image/") for one in drawn)
    assert sum(tag == "svg" and "embedding" in str(a.get("class")) for tag, a in tags) == 2


@pytest.mark.exhaustive
def test_the_json_has_what_the_page_says(db: Database) -> None:
    found = report(db, picture_run(db))
    document = json.loads(STRATEGY_REPORTS.load("json")(found))
    jsonschema.validate(document, schema())
    assert document["schema_version"] == 1
    assert [line["text"] for line in document["headline"]] == [one.text for one in found.headline]
    cluster = document["strategies"]["classes"][0]["clusters"][1]
    assert cluster["size"] == len(cluster["item_ids"]) == 40
    assert any(one["stands_out"] for one in cluster["regions"])


@pytest.mark.parametrize(
    ("share", "printed"), [(0, "0"), (0.0001, "less than 0.1"), (0.0456, "4.6"), (0.456, "46")]
)
def test_shares_are_never_rounded_to_nothing(share: float, printed: str) -> None:
    assert percent(share) == f"{printed}\u00a0%"

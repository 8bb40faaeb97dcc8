"""From a stored run to its strategies: planted ones are found, whatever the order."""

import json
from pathlib import Path

import numpy as np
import pytest
from plain_records import new_outcome
from report_samples import image_attribution, stored_run
from typer.testing import CliRunner

from orchestrator.cli import app
from transexplain.analysis.strategies.discover_strategies import ClassSample, discover
from transexplain.analysis.strategies.shortcuts import ClassStrategies, Strategies
from transexplain.errors import ConfigurationError
from transexplain.store.database import Database
from transexplain.types.plans import DatasetRef, ModelRef


def picture_run(db: Database, *, root: Path | None = None) -> str:
    """120 pictures of cats, a third of them by a corner, and 60 of dogs."""
    rng = np.random.default_rng(0)
    grids = 0.3 * rng.standard_normal((180, 8, 8))
    grids[:40, :2, :2] += 3.0
    grids[40:, 3:5, 3:5] += 3.0
    explained = []
    for number in range(180):
        name = "cat" if number < 120 else "dog"
        outcome = new_outcome(
            item_id=f"{name}-{number:03d}",
            index=number,
            label=name,
            predicted=name,
            logits=(1.0, 0.0),
            positions=64,
            source=f"{name}-{number:03d}",
        )
        attribution = image_attribution(
            grids[number], item_id=outcome.item_id, class_index=0, class_name=name
        )
        explained.append((outcome, attribution))
    return stored_run(
        db,
        explained,
        shard_size=16,
        model=ModelRef(source="m", modality="image", classes=("cat", "dog"), digest="d"),
        dataset=DatasetRef(
            source="imagefolder:x",
            modality="image",
            snapshot="s",
            fingerprint="f",
            rows=180,
            root=str(root or ""),
        ),
        targets=("predicted",),
    )


def of(found: Strategies, class_name: str) -> ClassStrategies:
    return next(one for one in found.classes if one.class_name == class_name)


@pytest.mark.exhaustive
def test_a_cluster_in_a_corner_is_pointed_out(db: Database) -> None:
    found = discover(db, picture_run(db))
    assert [one.class_name for one in found.classes] == ["cat", "dog"]
    cats, dogs = found.classes
    assert [cluster.size for cluster in cats.clusters] == [80, 40]
    assert set(cats.clusters[1].item_ids) == {f"cat-{number:03d}" for number in range(40)}
    assert not cats.clusters[0].suspicions
    assert cats.clusters[1].suspicions[0].region == "top left corner"
    assert cats.stability == 1.0
    assert len(dogs.clusters) == 1
    assert not dogs.clusters[0].suspicions
    assert len(dogs.points) == 60


@pytest.mark.exhaustive
def test_a_sample_is_stated_and_nested(db: Database) -> None:
    run = picture_run(db)
    small, large = discover(db, run, sample=60), discover(db, run, sample=90)
    drawn = [
        {name for cluster in of(found, "cat").clusters for name in cluster.item_ids}
        for found in (small, large)
    ]
    assert (of(small, "cat").items, of(small, "cat").sampled) == (120, 60)
    assert drawn[0] < drawn[1]
    assert of(small, "dog").sampled == 60


def test_a_draw_does_not_depend_on_the_order() -> None:
    pairs = [(f"i{number}", "ab"[number % 2]) for number in range(100)]
    draws = [ClassSample(7, 1), ClassSample(7, 1), ClassSample(7, 2)]
    for draw, given in zip(draws, (pairs, pairs[::-1], pairs), strict=True):
        draw.add_all(given)
    assert draws[0].of("a") == draws[1].of("a") != draws[2].of("a")
    assert len(draws[0].of("b")) == 7
    assert draws[0].counts == {"a": 50, "b": 50}


def test_few_items_are_not_clustered(db: Database) -> None:
    run = picture_run(db)
    assert discover(db, run, sample=24).classes[0].sampled == 24
    with pytest.raises(ConfigurationError, match="24 or more"):
        discover(db, run, sample=23)


def test_unknown_targets_and_classes_are_reported(db: Database) -> None:
    run = picture_run(db)
    with pytest.raises(ConfigurationError, match="explain target 'all'"):
        discover(db, run, target="all")
    with pytest.raises(ConfigurationError, match="target 'predicted'"):
        discover(db, run, class_name="cow")


@pytest.mark.exhaustive
def test_from_the_command_line_to_page_and_json(db, tmp_path, monkeypatch) -> None:
    run = picture_run(db)
    monkeypatch.setenv("TRANSEXPLAIN_DATABASE_URL", f"sqlite:///{tmp_path / 'store.db'}")
    result = CliRunner().invoke(
        app, ["strategies", run, "--report-dir", str(tmp_path / "out")], catch_exceptions=False
    )
    assert result.exit_code == 0, result.output
    assert "cat: cluster 2" in result.output
    assert "top left corner" in result.output
    kinds = {path.suffix: path for path in (tmp_path / "out").iterdir()}
    assert set(kinds) == {".html", ".json"}
    printed = CliRunner().invoke(app, ["strategies", "--json", "--class", "dog"])
    document = json.loads(printed.output)
    assert [one["class_name"] for one in document["strategies"]["classes"]] == ["dog"]
    assert document["headline"][0]["kind"] == "clear"
    whole = json.loads(kinds[".json"].read_text())
    assert whole["strategies"]["classes"][1] == document["strategies"]["classes"][0]
    assert whole["strategies"]["sample"] == 2000

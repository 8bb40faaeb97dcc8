"""A class that a mark in a corner gives away: given the region, the audit finds the class."""

import csv
import json
from pathlib import Path

import pytest
from local_audits import audited_in
from watermarked import MARK, MARKED_DIGIT, Watermarked, make_watermarked

from orchestrator.demo import image_model
from transexplain.reports.summary import summarise

EDGE = MARK / (image_model.SIDE * image_model.SCALE)  #: of a corner, as a share of the side
MARKED, OTHER = "corner/marked", "corner/other"
CORNERS = {
    MARKED: [(1 - EDGE, 1 - EDGE)],
    OTHER: [(0.0, 0.0), (1 - EDGE, 0.0), (0.0, 1 - EDGE)],
}


def write_corners(data: Watermarked, path: Path) -> None:
    """Every picture with all four corners annotated, whether it is marked or not."""
    regions = [
        [left, top, left + EDGE, top + EDGE, group]
        for group, corners in CORNERS.items()
        for left, top in corners
    ]
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("image", "label", "regions"))
        for picture in sorted(data.image_dir.glob("*/*.png")):
            name = picture.relative_to(data.image_dir.parent).as_posix()
            writer.writerow((name, picture.parent.name, json.dumps(regions)))


@pytest.mark.exhaustive
def test_the_marked_corner_is_flagged_for_the_class_it_gives_away_and_for_no_other(
    tmp_path: Path,
) -> None:
    data = make_watermarked(tmp_path)
    write_corners(data, tmp_path / "pictures.csv")
    spec = {
        "name": "corners",
        "model": str(data.model_dir),
        "data": {
            "source": str(tmp_path / "pictures.csv"),
            "image": "image",
            "label": "label",
            "spans": "regions",
        },
        "targets": ["predicted"],
        # the mark adds more than a logit; that one digit's blank corner adds a sixth of one is true
        # of some trainings, and no finding about the mark
        "groups": {"reference": OTHER, "practical": 0.5},
        "evaluation": {"items": 0},
    }
    with audited_in(tmp_path, **spec) as (db, run):
        groups = summarise(db, run).groups
    assert groups is not None
    rows = {row.class_name: row for row in groups.rows if row.group == MARKED}
    assert set(rows) == set(image_model.DIGITS)
    assert [name for name, row in rows.items() if row.flagged] == [MARKED_DIGIT]
    assert (rows[MARKED_DIGIT].difference or 0.0) > 0.0

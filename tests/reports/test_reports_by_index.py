"""A report from totals and indices equals one from all rows, to the bit."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from report_samples import CLASSES, biased_run, explained_text, image_run, stored_run

from transexplain.analysis.groups.shard_aggregate import SeenTotals
from transexplain.reports.report_section import merged
from transexplain.reports.sections.gallery_items import SHARE, scale_of
from transexplain.store import ranked_items, readers, runs
from transexplain.store.database import Database
from transexplain.store.run_totals import margin_of
from transexplain.types.items import ItemFailure, ItemOutcome
from transexplain.types.relevance_sums import bin_of, outer_edge
from transexplain.types.words import size_of

pytestmark = pytest.mark.exhaustive


@pytest.fixture
def db(any_db: Database) -> Database:
    return any_db


def mixed_run(db: Database, **changes: Any) -> str:
    """Texts of many sizes, ties among them, wrong ones with and without a known class."""
    random = np.random.default_rng(0)
    explained = []
    for number in range(60):
        words = ["good"] * int(random.integers(0, 6)) + ["bad"] * int(random.integers(0, 6))
        text = " ".join([*words, "is", f"w{number % 7}"])
        label = (*CLASSES, None, "sideways")[int(random.integers(4))]
        explained.append(explained_text(number, text, label, truncated=number % 9 == 0))
    failures = [
        ItemFailure(
            item_id=f"row-{60 + n}", index=60 + n, kind="null" if n % 3 else "odd", message="m"
        )
        for n in range(12)
    ]
    return stored_run(db, explained, failures, **changes)


class Survey(NamedTuple):
    seen: Any  #: totals as JSON
    scale: float
    strongest: list[str]
    wrong: list[str]
    first: list[str]


def walked(db: Database, run_id: str, places: int) -> Survey:
    """The survey from every row of the run, sorted as a whole."""
    run, seen, sizes = runs.get(db, run_id), SeenTotals(), []
    for attribution in readers.iter_attributions(db, run_id):
        seen.add([attribution])
        sizes.append((size_of(attribution), attribution.item_id))
    ranked = sorted(size for size, _ in sizes)
    place = bin_of(ranked[max(0, math.ceil(SHARE * len(ranked) - 1e-9) - 1)]) if ranked else 0
    classes = {name: index for index, name in enumerate(run.plan.model.classes)}
    items = list(readers.iter_items(db, run_id))
    margins = [
        (margin, item.item_id)
        for item in items
        if isinstance(item, ItemOutcome) and (margin := margin_of(item, classes)) is not None
    ]
    return Survey(
        seen=rows_of(seen),
        scale=min(ranked[-1], outer_edge(place)) if place else 0.0,
        strongest=best(sizes, places),
        wrong=best(margins, places),
        first=[item.item_id for item in items if isinstance(item, ItemOutcome)][:places],
    )


def rows_of(seen: SeenTotals) -> dict[str, Any]:
    return {name: dict(seen.sums.table(name)) for name in ("seen", "layers", "units")}


def best(numbers: list[tuple[float, str]], places: int) -> list[str]:
    """The keys of the largest numbers, each once; among equals, those that came first."""
    ranked = sorted(numbers, key=lambda pair: -pair[0])[:places]
    return list(dict.fromkeys(key for _, key in ranked))


def surveyed(db: Database, run_id: str, places: int) -> Survey:
    seen = merged(db, run_id).seen
    return Survey(
        seen=rows_of(seen),
        scale=scale_of(db, run_id, seen.count.total()),
        strongest=ranked_items.strongest(db, run_id, places),
        wrong=ranked_items.wrong(db, run_id, places),
        first=ranked_items.first(db, run_id, places),
    )


@pytest.mark.parametrize("places", [0, 1, 7, 40])
def test_texts(db: Database, places: int) -> None:
    run = mixed_run(db)
    found = surveyed(db, run, places)
    assert found.scale > 0
    assert found == walked(db, run, places)


def test_other_runs(db: Database, tmp_path: Path) -> None:
    """Pictures, a run that is not over, one without any result, and texts that are not kept.

    Words of these are taken from the tokens put side by side; so are their sizes.
    """
    explained = [explained_text(n, "good bad " * (n % 5 + 1), None) for n in range(20)]
    bare = [(replace(outcome, text=None), attribution) for outcome, attribution in explained]
    for run, scaled in (
        (image_run(db, tmp_path, count=20), True),
        (biased_run(db, leave=2), True),
        (mixed_run(db, leave=11), False),
        (stored_run(db, bare), True),
    ):
        survey = surveyed(db, run, 9)
        assert survey == walked(db, run, 9) and (survey.scale > 0) == scaled


def test_other_runs_are_not_read(db: Database) -> None:
    mixed_run(db)
    run = stored_run(db, [explained_text(0, "good", "negative"), explained_text(1, "bad", None)])
    assert ranked_items.strongest(db, run, 9) == ["row-0", "row-1"]
    assert ranked_items.wrong(db, run, 9) == ranked_items.first(db, run, 1) == ["row-0"]
    assert ranked_items.failure_examples(db, run, 5) == {}

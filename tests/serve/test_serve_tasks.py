"""Eight questions that a stranger asks the pages of a store whose answers are known."""

import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from report_samples import biased_run
from served_pages import listening

from benchmarks.serve_tasks import MOST_CLICKS, QUESTIONS, Answered, ask
from orchestrator.schedule.fire_times import upcoming
from transexplain.reports.sql_results import write
from transexplain.store import schedules
from transexplain.store.database import Database
from transexplain.types.plans import EvaluationPlan
from transexplain.types.scores import EvaluatedMethod, MethodSpec, MetricScore, MetricSpec

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.exhaustive


def measured() -> dict[str, Any]:
    """LRP beside random relevance, on seven items."""
    labels = {"lrp": 0.5, "random": 0.1}
    methods = tuple(EvaluatedMethod(label=name, method=MethodSpec(name=name)) for name in labels)
    return {
        "evaluation": EvaluationPlan(
            methods=methods,
            metrics=(MetricSpec(name="activation"),),
            targets=("class:positive",),
            items=12,
        ),
        "scores": [
            MetricScore(
                item_id=f"row-{place}",
                method=method,
                target="class:positive",
                metric="activation",
                value=value + place / 100,
            )
            for place in range(7)
            for method, value in labels.items()
        ],
    }


def test_a_stranger_finds_eight_answers_within_three_clicks(
    browser: "Browser", db: Database
) -> None:
    before = biased_run(db, checked=None)
    after = biased_run(db, previous=before, **measured())
    assert write(db, before) and write(db, after)
    planned = schedules.Planned(name="nightly", cron="0 3 * * *", time_zone="UTC", spec={})
    schedules.add(db, planned)
    found: dict[str, Answered] = {}
    with listening(f"sqlite:///{db.path}") as server:
        page = browser.new_context().new_page()
        page.set_default_timeout(10_000)
        for question in QUESTIONS:
            found[question.asked] = ask(page, server, question)
        page.context.close()
    assert all(one.clicks <= MOST_CLICKS and one.seconds < 60 for one in found.values())
    said = {name: one.answer for name, one in found.items()}
    assert said.keys() == {one.asked for one in QUESTIONS} and len(said) == 8
    worst = "anns against all other groups flagged changes"
    assert said["which group is worst"].startswith(worst)
    driver = said["who drives it"].split()[0]
    assert driver in ("Ann", "Ava", "Amy", "Ada", "Abby", "Alma")
    assert f"{driver} was" in said["an example"] and "+0.5" in said["an example"]
    assert "activation" in said["is the method faithful"]
    assert "0.53 0.13 0.40" in said["is the method faithful"]
    assert "yes" in said["is the method faithful"]
    assert said["what failed"] == "Failed items by kind: 1 empty-text, 1 null"
    assert "anns, mention: from open to changes" in said["what changed since the last run"]
    fire = datetime.fromtimestamp(next(upcoming("0 3 * * *", "UTC", time.time())), UTC)
    assert said["when is the next one"].startswith(f"Next {fire:%Y-%m-%d %H:%M} UTC, in ")
    # 38 items in 6 shards of a tenth of a second, twice
    assert said["how fast is the fleet"] == "Rate 63.3 items a second"

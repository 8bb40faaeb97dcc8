"""`groups.scenario` and `groups.impact`: what is refused, what a plan holds, and a whole run."""

import csv
import json
from collections.abc import Callable, Iterator
from datetime import date, datetime
from pathlib import Path
from typing import Any

import pytest
from tiny_audit import make_audit, texts

from orchestrator.plan import prepare_audit
from orchestrator.spec import AuditSpec, load_spec
from orchestrator.spec.filing_sections import ScenarioSection
from transexplain.errors import ConfigurationError, SpecError
from transexplain.settings import Settings
from transexplain.store.runs import plan_from_json, plan_to_json
from transexplain.types.plans import AuditPlan, ImpactPlan, Scenario

Call = Callable[..., tuple[int, str]]
HARM = "Women are refused more often"
IMPACT: dict[str, Any] = {"favourable": "good", "sex": "who", "ethnicity": "origin"}


def audit_of(folder: Path, groups: dict[str, Any], **keys: Any) -> Path:
    """A small audit whose texts say in columns who wrote them."""
    source = folder / "people.jsonl"
    data = {"source": str(source), "meta": ["who", "origin", "village"]}
    settings = {"groups": groups, "data": data, "evaluation": {"items": 0}, **keys}
    spec = make_audit(folder, **settings)
    rows = (
        {
            "text": text,
            "label": "good",
            "who": ("woman", "man", "Unknown")[i % 3],
            "origin": ("here", "there")[i % 2],
            "village": f"v{i}",
        }
        for i, text in enumerate(texts(40))
    )
    source.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return spec


def planned(folder: Path, groups: dict[str, Any], **keys: Any) -> AuditPlan:
    settings = Settings(
        database_url=f"sqlite:///{folder / 's.db'}", snapshot_dir=folder / "snapshots"
    )
    return prepare_audit(load_spec(audit_of(folder, groups, **keys)), settings).plan


def test_plans_with_filings_are_read_again_as_written(tmp_path: Path) -> None:
    scenario = {"harm": f"  {HARM} ", "owner": "Hiring", "review_date": "2027-02-28"}
    impact = {**IMPACT, "data_source": "made up", "in_use_since": "2025-01-01"}
    plan = planned(tmp_path, {"scenario": scenario, "impact": impact})
    assert plan.scenario == (Scenario(harm=HARM, owner="Hiring", review_date="2027-02-28"),)
    assert plan.impact == ImpactPlan(
        favourable=("good",),
        sex="who",
        ethnicity="origin",
        unknown=("unknown", "n/a", "not given", "prefer not to say"),
        data_source="made up",
        in_use_since="2025-01-01",
    )
    assert plan.groups == (), "nobody has to be mentioned"
    again = plan_from_json(plan_to_json(plan))
    assert again == plan and again.digest == plan.digest


def test_several_scenarios_and_a_stored_specification(tmp_path: Path) -> None:
    groups = {"impact": IMPACT, "scenario": ["a", {"harm": "b", "affected": "c"}]}
    spec = load_spec(audit_of(tmp_path, groups))
    assert AuditSpec.from_document(spec.model_dump(mode="json")) == spec
    assert spec.groups is not None
    assert [one.planned().harm for one in spec.groups.scenario] == ["a", "b"]


def test_a_day_may_come_as_a_date() -> None:
    given = ScenarioSection.model_validate({"harm": "x", "review_date": date(2027, 2, 28)})
    assert given.review_date == "2027-02-28"
    with pytest.raises(ValueError, match="valid string"):
        ScenarioSection.model_validate({"harm": "x", "review_date": datetime(2027, 2, 28)})


@pytest.mark.parametrize(
    ("groups", "wanted"),
    [
        ({"scenario": {}}, "groups.scenario.0.harm: is missing"),
        ({"scenario": {"harm": " "}}, "groups.scenario.0.harm: String should have at least 1"),
        ({"scenario": 7}, "groups.scenario.0: Input should be a valid dictionary"),
        (
            {"scenario": {"harm": "x", "review_date": "31.12.2027"}},
            "groups.scenario.0.review_date: '31.12.2027' is no day; write it as YYYY-MM-DD",
        ),
        (
            {"scenario": {"harm": "x", "review_date": "2027-02-29"}},
            "there is no day 2027-02-29; write one of the calendar",
        ),
        ({"scenario": {"harm": "x", "review_date": "2027-W01-1"}}, "is no day; write it as"),
        (
            {"scenario": {"harm": "x", "reviewdate": "2027-01-01"}},
            "groups.scenario.0.reviewdate: unknown key; did you mean 'review_date'? known here: "
            "harm, affected, measure",
        ),
        (
            {"impact": {"favorable": "good", "sex": "who"}},
            "unknown key; did you mean 'favourable'? known here: favourable, sex, ethnicity",
        ),
        (
            {"practical": {"ratio": 0.7}},
            "known here: logit, probability, changed, spread, rates, impact_ratio",
        ),
        ({"impact": {"favourable": "good"}}, "name the column of `sex`, that of `ethnicity`"),
        ({"impact": {"favourable": [], "sex": "who"}}, "at least 1 item"),
        ({"impact": {"favourable": "good", "sex": "who", "ethnicity": "who"}}, "are one column"),
        ({"impact": {"favourable": ["good", "good"], "sex": "who"}}, "names a class twice"),
        ({"impact": {**IMPACT, "exclude_below": 1}}, "less than 1"),
        ({"impact": {**IMPACT, "in_use_since": "soon"}}, "'soon' is no day"),
        ({"scenario": {"harm": "x"}, "lexicon": None}, "groups names nothing to compare"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, groups: dict[str, Any], wanted: str) -> None:
    with pytest.raises(SpecError) as found:
        planned(tmp_path, groups)
    assert wanted in str(found.value)


@pytest.mark.parametrize(
    ("impact", "keys", "wanted"),
    [
        ({"sex": "shoe"}, {}, "groups.impact.sex is 'shoe', which data.meta does not keep"),
        (
            {"ethnicity": "village"},
            {},
            "groups.impact.ethnicity is 'village', which has 40 different categories; a column "
            "of categories has 1 to 20",
        ),
        ({"unknown": ["woman", "MAN", "unknown"]}, {}, "which has 0 different categories"),
        ({"favourable": "great"}, {}, "unknown class 'great'. The model has: bad, so-so, good"),
        ({}, {"store_text": "none"}, "store_text: none stores none of them readably"),
    ],
)
def test_columns_and_classes_that_do_not_fit_are_refused(
    tmp_path: Path, impact: dict[str, Any], keys: dict[str, Any], wanted: str
) -> None:
    with pytest.raises(ConfigurationError) as found:
        planned(tmp_path, {"impact": {**IMPACT, **impact}}, **keys)
    assert wanted in str(found.value).replace("0 bad, 1 so-so, 2 good", "bad, so-so, good")


@pytest.mark.exhaustive
def test_a_run_from_the_specification_to_the_exports(tmp_path: Path, call: Call) -> None:
    impact = {**IMPACT, "favourable": ["bad", "good"]}
    spec = audit_of(tmp_path, {"impact": impact, "scenario": {"harm": HARM}})
    code, printed = call("run", str(spec), "--out", "out")
    assert code == 0, printed
    assert "for good" in printed and "for bad" in printed
    (path,) = (tmp_path / "out").glob("tiny-*.json")
    sections = json.loads(path.read_text(encoding="utf-8"))["sections"]
    assert sections["scenarios"]["scenarios"][0]["scenario"]["harm"] == HARM
    first, second = sections["impact"]["answers"]
    assert (first["answer"], second["answer"]) == ("bad", "good")
    by = {table["by"]: table for table in first["tables"]}
    assert (by["sex"]["items"], by["sex"]["unknown"]) == (27, 13)
    assert (by["ethnicity"]["items"], by["ethnicity"]["unknown"]) == (40, 0)
    assert len(by["sex and ethnicity"]["rows"]) == 4

    assert call("export", "--format", "csv", "--output", "tables")[0] == 0
    rows, everyone = rows_in(tmp_path / "tables", "impact_ratios", "predictions")
    assert len(rows) == 2 * (2 + 2 + 4)
    for row in rows:
        wanted = {"who": row["sex"], "origin": row["ethnicity"]}
        those = [
            one["prediction"]
            for one in everyone
            if json.loads(one["meta"]).items() >= {k: v for k, v in wanted.items() if v}.items()
        ]
        assert (int(row["items"]), int(row["selected"])) == (
            len(those),
            those.count(row["answer"]),
        )
    assert any(int(row["selected"]) for row in rows)

    code, printed = call("export", "--format", "local-law-144")
    assert code == 0 and "### By sex and ethnicity" in printed


def rows_in(folder: Path, *names: str) -> Iterator[list[dict[str, str]]]:
    for name in names:
        with (folder / f"{name}.csv").open(encoding="utf-8", newline="") as file:
            yield list(csv.DictReader(file))


@pytest.mark.exhaustive
def test_an_import_has_rates_by_its_columns(tmp_path: Path, call: Call) -> None:
    spec = audit_of(tmp_path, {"impact": IMPACT})
    assert call("run", str(spec))[0] == 0
    assert call("export", "--format", "jsonl", "--output", "rows.jsonl")[0] == 0
    rows = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    flat = ({**row, **row.pop("meta")} for row in rows)
    (tmp_path / "flat.jsonl").write_text("".join(json.dumps(row) + "\n" for row in flat))
    words = ("--set", 'groups={"impact": {"favourable": "good", "sex": "who"}}')
    code, printed = call("import", "flat.jsonl", *words, "--out", "imported")
    assert code == 0, printed
    assert "for good" in printed

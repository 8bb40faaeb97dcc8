"""The rows for SQL hold the very numbers of the report's JSON."""

import json
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from report_samples import biased_run, explained_text, stored_run

from orchestrator.gate.policy import Policy
from orchestrator.gate.policy_verdict import checks
from transexplain.analysis.groups.mixed_audits import ClassAgreement, Mixed
from transexplain.reports import sql_results as rows_module
from transexplain.reports.report_formats import render_json
from transexplain.reports.report_records import Summary
from transexplain.reports.run_metrics import METRICS, run_metrics
from transexplain.reports.sql_results import sql_rows
from transexplain.reports.summary import summarised
from transexplain.store import result_rows
from transexplain.store.database import Database
from transexplain.store.result_tables import RESULT_TABLES
from transexplain.types.items import EntityGroup
from transexplain.types.scores import (
    EvaluatedMethod,
    EvaluationPlan,
    MethodSpec,
    MetricScore,
    MetricSpec,
)

Rows = dict[str, list[dict[str, Any]]]


@pytest.fixture
def stored(db: Database) -> tuple[dict[str, Any], Rows]:
    """A report's JSON, and what the tables hold of the same run."""
    summary, total = summarised(db, biased_run(db, sensitivity=0.4))
    assert result_rows.replace(db, summary.audited.run_id, sql_rows(summary, total))
    return json.loads(render_json(summary)), read(db, summary.audited.run_id)


def read(db: Database, run_id: str) -> Rows:
    found = {}
    with db.read() as connection:
        for table in RESULT_TABLES:
            query = table.select().where(table.c.run_id == run_id).order_by(*table.primary_key)
            found[table.name] = [dict(row) for row in connection.execute(query).mappings()]
    return found


def at(document: Any, way: str) -> Any:
    """What stands at `a.b.0` of a document; None where something on the way is missing."""
    for step in way.split("."):
        if document is None:
            return None
        document = document[int(step) if isinstance(document, list) else step]
    return document


def ends(name: str, way: str) -> dict[str, str]:
    return {f"{name}_low": f"{way}.0", f"{name}_high": f"{way}.1"}


def same(names: str) -> dict[str, str]:
    return {name: name for name in names.split()}


KEY = {"group_name": "group", **same("reference")}
GROUP = {
    **KEY,
    **same(
        "target class_name documents mentions entities mean entity_mean difference p adjusted_p"
    ),
    **same("interval_by detectable verdict reason note"),
    **ends("entity_mean", "interval"),
    **ends("difference", "difference_interval"),
    "positive_share": "positive",
    "item_rank": "rank",
    "mention_q05": "quantiles.low",
    "mention_q25": "quantiles.lower",
    "mention_q50": "quantiles.median",
    "mention_q75": "quantiles.upper",
    "mention_q95": "quantiles.high",
    "background_words": "background.words",
    "background_mean": "background.mean",
    "background_difference": "background.difference",
    **ends("background_difference", "background.difference_interval"),
}
SWAP = {
    **KEY,
    **same("kind prediction stratum documents clusters entities effect probability"),
    **same("changed_across changed_within shift noise per_position"),
    "reference_entities": "other_entities",
}
VERDICT = {
    **KEY,
    **same("state mention outcome mention_advice outcome_advice"),
    "mention_prediction": "counterfactual.prediction",
    "mention_stratum": "counterfactual.stratum",
    "outcome_prediction": "rates.prediction",
    "outcome_stratum": "rates.stratum",
    "probability": "counterfactual.probability",
    **ends("probability", "counterfactual.measures.1.interval"),
    "changed_across": "counterfactual.changed_across",
    "changed_within": "counterfactual.changed_within",
    "documents": "counterfactual.documents",
    "items": "rates.own.selected.total",
    "reference_items": "rates.other.selected.total",
}
MEASURE = {
    **same("value state p"),
    **ends("value", "interval"),
    "measure": "name",
    "interval_level": "level",
    "limit_low": "low",
    "limit_high": "high",
}
OUTCOME = {
    **KEY,
    **same("prediction stratum impact_ratio favourable whole"),
    "rate_difference": "difference",
}
SIDE = {
    "items": "selected.total",
    "selected": "selected.count",
    "calibration": "calibration",
    "mean_probability": "probability.value",
    **ends("mean_probability", "probability.interval"),
    **ends("rate", "selected.interval"),
}
RATES = {
    "label_rate": "labelled",
    "error_rate": "error",
    "true_positive_rate": "true_positive",
    "false_positive_rate": "false_positive",
}
PRACTICAL = ("logit", "probability", "changed", "spread", "rates", "impact_ratio")
WORD = {**same("word documents mentions mean magnitude"), "relevance": "total"}


def equal(row: Mapping[str, Any], document: Any, ways: Mapping[str, str]) -> None:
    assert {name: row[name] for name in ways} == {name: at(document, ways[name]) for name in ways}


def covered(rows: Rows, table: str, *named: Any) -> None:
    """Every column of the table is compared by a test, or is among `named`."""
    known = {"run_id", "ordinal", *(name for names in named for name in names)}
    assert set(rows[table][0]) == known


def test_the_group_table_and_its_parts(stored: tuple[dict[str, Any], Rows]) -> None:
    report, rows = stored
    groups = report["groups"]
    parts = [
        (split["by"], part["value"], row)
        for split in groups["splits"]
        for part in split["parts"]
        for row in part["rows"]
    ]
    wanted = [*(("", "", row) for row in groups["rows"]), *parts]
    verdicts = {one["group"]: one["state"] for one in groups["verdicts"]}
    assert len(rows["group_result"]) == len(wanted) and len(parts) > 2
    for row, (by, value, document) in zip(rows["group_result"], wanted, strict=True):
        equal(row, document, GROUP)
        assert (row["split_by"], row["split_value"]) == (by, value)
        assert row["suppressed"] == (document["verdict"] == "suppressed")
        assert row["overall_verdict"] == verdicts.get(document["group"])
    others = ("split_by", "split_value", "suppressed", "overall_verdict")
    covered(rows, "group_result", GROUP, others)
    assert any(row["difference"] is not None for row in rows["group_result"])
    assert any(row["mention_q50"] is not None for row in rows["group_result"])


def test_verdicts(stored: tuple[dict[str, Any], Rows]) -> None:
    report, rows = stored
    groups = report["groups"]
    for row, document in zip(rows["group_verdict"], groups["verdicts"], strict=True):
        equal(row, document, VERDICT)
        for name in ("mention_reasons", "outcome_reasons", "notes", "missing"):
            assert row[name] == "; ".join(document[name])
        for question, of in (("mention", "counterfactual"), ("outcome", "rates")):
            names = [f"{question}_{name}" for name in ("measure", "value", "value_low")]
            decided = {
                (one["name"], one["value"], at(one, "interval.0"))
                for one in document[of]["measures"]
            }
            assert tuple(row[name] for name in names) in decided
        own, other = (document["rates"][side]["selected"] for side in ("own", "other"))
        assert row["rate"] == own["count"] / own["total"]
        assert row["reference_rate"] == other["count"] / other["total"]
    texts = ("mention_reasons", "outcome_reasons", "notes", "missing", "rate", "reference_rate")
    decided = [
        f"{question}_{name}"
        for question in ("mention", "outcome")
        for name in ("measure", "value", "value_low", "value_high")
    ]
    covered(rows, "group_verdict", VERDICT, texts, decided)


def test_swaps_and_rates(stored: tuple[dict[str, Any], Rows]) -> None:
    report, rows = stored
    groups = report["groups"]
    for row, document in zip(rows["counterfactual_result"], groups["counterfactuals"], strict=True):
        equal(row, document, SWAP)
    covered(rows, "counterfactual_result", SWAP)
    sides = {"": "own", "reference_": "other"}
    for row, document in zip(rows["outcome_result"], groups["outcomes"], strict=True):
        equal(row, document, OUTCOME)
        for prefix, side in sides.items():
            for name, way in SIDE.items():
                assert row[prefix + name] == at(document[side], way)
            for name, way in (("rate", "selected"), *RATES.items()):
                rate = document[side][way]
                assert row[prefix + name] == (rate["count"] / rate["total"] if rate else None)
            for name, way in RATES.items():
                assert row[f"{prefix}{name}_items"] == at(document[side], f"{way}.total")
                for end in ends(name, f"{way}.interval").items():
                    assert row[prefix + end[0]] == at(document[side], end[1])
    names = [*SIDE, "rate", *RATES]
    names += [f"{name}_{end}" for name in RATES for end in ("items", "low", "high")]
    covered(rows, "outcome_result", OUTCOME, (p + name for p in sides for name in names))
    assert rows["outcome_result"][0]["error_rate"] is not None


def test_every_measure_has_its_limit_and_the_interval_that_decided(
    stored: tuple[dict[str, Any], Rows],
) -> None:
    report, rows = stored
    documents = [
        (question, row, measure)
        for question, key in (("mention", "counterfactuals"), ("outcome", "outcomes"))
        for row in report["groups"][key]
        for measure in row["measures"]
    ]
    for row, (question, of, measure) in zip(rows["group_measure"], documents, strict=True):
        equal(row, measure, MEASURE)
        equal(row, of, {**KEY, **same("prediction stratum")})
        assert row["question"] == question
    covered(rows, "group_measure", MEASURE, KEY, ("question", "prediction", "stratum"))
    changed = [row for row in rows["group_measure"] if row["measure"] == "changed"]
    assert changed and {row["limit_low"] for row in changed} == {None}


NAMES = tuple(f"Name{letter}" for letter in "abcdefghijklmnopqrstuvwx")


def ranked_run(db: Database) -> str:
    """Three texts with each of 24 names of two groups, whose mentions differ in relevance."""
    explained = []
    for number in range(3 * len(NAMES)):
        outcome, one = explained_text(number, f"{NAMES[number % 24]} was good", "positive")
        values = one.relevance.copy()
        values[1] = number % 24 / 10 + number * 7 % 5 / 20
        explained.append((outcome, replace(one, relevance=values)))
    halves = (NAMES[:12], NAMES[12:])
    groups = [
        EntityGroup(name=name, terms=terms)
        for name, terms in zip(("low", "high"), halves, strict=True)
    ]
    return stored_run(db, explained, groups=groups)


def test_entities(db: Database) -> None:
    summary, total = summarised(db, ranked_run(db))
    assert result_rows.replace(db, summary.audited.run_id, sql_rows(summary, total))
    rows = read(db, summary.audited.run_id)
    [ranking] = json.loads(render_json(summary))["groups"]["rankings"]
    by_name = {row["entity"]: row for row in rows["entity_result"]}
    assert set(by_name) == set(NAMES) and len(rows["entity_result"]) == 24
    listed = [one["entity"] for one in ranking["entities"]]
    assert len(listed) == 20 and ranking["omitted"] == 4
    assert {name for name, row in by_name.items() if row["reported"]} == set(listed)
    for one in ranking["entities"]:
        row = by_name[one["entity"]]
        equal(
            row, one, {**same("mentions documents mean shrunken"), **ends("shrunken", "interval")}
        )
        assert [row["group_name"]] == one["groups"]
        assert 0.0 <= row["magnitude_share"] <= 1.0 and 0 <= row["positive"] <= row["mentions"]
    in_order = sorted(by_name.values(), key=lambda row: int(row["place"]))
    assert [row["place"] for row in in_order] == list(range(1, 25))
    assert [row["entity"] for row in in_order if row["reported"]] == listed
    assert [row["shrunken"] for row in in_order] == sorted(
        (row["shrunken"] for row in in_order), reverse=True
    )


def test_of_many_entities_those_with_most_mentions_have_rows_and_all_that_are_reported(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    summary, total = summarised(db, ranked_run(db))
    monkeypatch.setattr(rows_module, "ENTITIES", 3)
    assert summary.groups is not None
    listed = {one.entity for one in summary.groups.rankings[0].entities}
    found = {row["entity"] for row in sql_rows(summary, total)["entity_result"]}
    assert listed <= found and len(found - listed) <= 3 < 24 - len(listed)
    none = replace(summary, groups=replace(summary.groups, rankings=()))
    kept = sql_rows(none, total)["entity_result"]
    assert len(kept) == 3 and not any(row["reported"] for row in kept)


def test_words(stored: tuple[dict[str, Any], Rows]) -> None:
    report, rows = stored
    [view] = report["classes"]
    lists = ("raising_by_mean", "raising_by_total", "lowering_by_mean", "lowering_by_total")
    by_word = {row["word"]: row for row in rows["class_word"]}
    assert set(by_word) == {one["word"] for name in lists for one in view[name]}
    for name in lists:
        for place, one in enumerate(view[name], 1):
            row = by_word[one["word"]]
            equal(row, one, WORD)
            assert row["function_word"] == one["function"] and row[name] == place
            assert (row["target"], row["class_name"]) == (view["target"], view["class_name"])
        assert sum(row[name] is not None for row in rows["class_word"]) == len(view[name])
    covered(rows, "class_word", WORD, ("target", "class_name", "function_word"), lists)
    good = by_word["good"]
    assert good["magnitude"] == good["relevance"] > 0.0


def test_the_run(stored: tuple[dict[str, Any], Rows]) -> None:
    report, rows = stored
    [row] = rows["run_result"]
    ways = {
        **same("task model model_digest modality dtype dataset method unit plan_digest version"),
        "dataset_fingerprint": "fingerprint",
    }
    equal(row, report["audited"], ways)
    limits = {f"practical_{name}": name for name in PRACTICAL}
    equal(row, report["groups"]["limits"], limits)
    of_groups = {**same("reference correction"), "practical_relevance": "practical"}
    equal(row, report["groups"], of_groups)
    verdict = {"verdict_kind": "kind", "verdict": "text"}
    equal(row, report["verdict"], verdict)
    assert set(row) == {"run_id", "written", *ways, *limits, *of_groups, *verdict}
    assert row["written"] >= report["audited"]["created"]


def test_metrics(stored: tuple[dict[str, Any], Rows]) -> None:
    report, rows = stored
    found = {(one["name"], one["target"], one["part"]): one for one in rows["run_metric"]}
    assert len(found) == len(rows["run_metric"])
    counts = report["counts"]
    wanted = {
        "items": counts["total"],
        "items_explained": counts["done"],
        "items_failed": counts["failed"],
        "items_pending": counts["pending"],
        "items_truncated": counts["truncated"],
        "items_labelled": counts["labelled"],
        "items_correct": counts["correct"],
        "shards_dead": counts["dead_shards"],
        "accuracy": counts["accuracy"],
        "failed_share": 2 / 38,
        "truncated_share": 0.0,
        "attributions": report["conservation"]["attributions"],
        "relative_gap_worst": report["conservation"]["worst"],
        "relative_gap_mean": report["conservation"]["mean"],
        "relative_gap_tolerance": report["conservation"]["tolerance"],
        "gaps_above": report["conservation"]["above"],
        "class_sensitivity": report["class_sensitivity"]["mean"],
        "relevance_error": report["conservation"]["relevance_error"],
        "relevance_correlation": report["conservation"]["correlation"],
    }
    for name, value in wanted.items():
        assert found[name, "", ""]["value"] == value, name
        assert found[name, "", ""]["unit"] == METRICS[name][0]
    assert found["accuracy", "", ""]["items"] == counts["labelled"]
    [view] = report["classes"]
    of_class = ("class:positive", view["class_name"])
    assert found["class_logit", *of_class]["value"] == view["mean_logit"]
    assert found["class_items", *of_class]["value"] == view["items"]
    for name, field in (("verdicts", "state"), ("mention_states", "mention")):
        states = Counter(one[field] for one in report["groups"]["verdicts"])
        assert {
            part: row["value"]
            for (of, _, part), row in found.items()
            if of == name and row["value"]
        } == states
    assert found["largest_difference", "", ""]["unit"] == "logits"


LIMITS: dict[str, Any] = {
    "max_failed": "failed_share",
    "max_truncated": "truncated_share",
    "max_gap_above": "gaps_above",
    "min_accuracy": "accuracy",
    "min_class_sensitivity": "class_sensitivity",
    "max_difference": "largest_difference",
    "min_impact_ratio": "impact_ratio_lowest",
    "max_rate_difference": "rate_difference_largest",
    "max_swap_logit": "swap_logit_largest",
    "max_swap_changed": "swap_changed_largest",
    "max_swap_probability": "swap_probability_largest",
    "forbid_suppressed": "groups_unjudged",
    "forbid_gaps": "verdict_gaps",
}


def test_what_a_gate_measures_is_a_metric(db: Database) -> None:
    summary, _ = summarised(db, biased_run(db, sensitivity=0.4, favourable=("positive",)))
    policy = Policy(**dict.fromkeys(LIMITS, 1))
    measured = {one.rule: abs(one.measured or 0.0) for one in checks(policy, summary)}
    assert measured.keys() == LIMITS.keys()
    found = {one.name: one.value for one in run_metrics(summary) if not one.part}
    assert {rule: found[name] for rule, name in LIMITS.items()} == measured


def faithful(db: Database) -> Summary:
    """A run whose method was measured beside random relevance."""
    plan = EvaluationPlan(
        methods=tuple(
            EvaluatedMethod(label=name, method=MethodSpec(name=name)) for name in ("lrp", "random")
        ),
        metrics=(MetricSpec(name="activation"),),
        targets=("class:positive",),
        items=12,
    )
    scores = [
        MetricScore(
            item_id=f"row-{place}",
            method=method,
            target="class:positive",
            metric="activation",
            value=value + place / 100,
            curve=(),
            reason="",
            detail={},
        )
        for place in range(7)
        for method, value in (("lrp", 0.5), ("random", 0.1))
    ]
    run_id = biased_run(db, evaluation=plan, scores=scores, favourable=("positive",))
    return summarised(db, run_id)[0]


def test_faithfulness_is_a_metric_of_its_target_and_measure(db: Database) -> None:
    summary = faithful(db)
    assert summary.faithfulness is not None
    [row] = summary.faithfulness.rows
    found = {one.name: one for one in run_metrics(summary) if one.part == "activation"}
    assert found["faithfulness"].value == row.mean == pytest.approx(0.53)
    assert found["faithfulness_random"].value == row.random == pytest.approx(0.13)
    assert found["faithfulness_difference"].value == row.difference
    assert (found["faithfulness"].items, found["faithfulness"].unit) == (7, row.unit)
    assert {one.target for one in found.values()} == {"class:positive"}
    assert found["beats_random"].value == float(bool(row.beats))


def test_every_metric_has_a_name_that_is_described(db: Database) -> None:
    names = {one.name for one in run_metrics(faithful(db))}
    assert names <= METRICS.keys()
    elsewhere = ("agreement", "changed_predictions", "groups_n", "category")
    made = {name for name in METRICS if not name.startswith(elsewhere)}
    assert made - names == {"class_sensitivity"}, "was not measured in this run"


def test_how_far_two_methods_agree_is_a_metric_of_its_class(db: Database) -> None:
    summary, _ = summarised(db, biased_run(db))
    one = ClassAgreement(
        target="class:positive",
        class_name="positive",
        items=9,
        correlation=0.75,
        spread=(0.5, 0.9),
        error=None,
        cheap=1.0,
        exact=1.1,
    )
    mixed = Mixed(method="a", exact="b", share=0.1, items=9, failed=0, classes=(one,), groups=())
    [found] = [
        one
        for one in run_metrics(replace(summary, mixed=mixed))
        if one.name.startswith("agreement")
    ]
    assert (found.name, found.value, found.items) == ("agreement", 0.75, 9)
    assert (found.target, found.part) == ("class:positive", "positive")


def test_the_run_before_gives_the_share_of_changed_predictions(db: Database) -> None:
    first = biased_run(db)
    summary, _ = summarised(db, biased_run(db, previous=first))
    [changed] = [one for one in run_metrics(summary) if one.name == "changed_predictions"]
    assert (changed.value, changed.items) == (0.0, 36)
    flagged = {one.name: one.value for one in run_metrics(summary) if "flagged" in one.name}
    assert flagged == {"groups_newly_flagged": 0.0, "groups_no_longer_flagged": 0.0}


def test_what_is_not_finite_is_null_and_a_metric_is_left_out(db: Database) -> None:
    summary, total = summarised(db, biased_run(db))
    [outcome, *others] = summary.groups.outcomes
    [measure, *rest] = outcome.measures
    endless = replace(
        outcome,
        impact_ratio=math.nan,
        measures=(replace(measure, interval=(0.5, math.inf)), *rest),
    )
    assert summary.counts.accuracy is not None
    changed = replace(
        summary,
        groups=replace(summary.groups, outcomes=(endless, *others)),
        counts=replace(summary.counts, accuracy=math.nan),
    )
    rows = sql_rows(changed, total)
    assert rows["outcome_result"][0]["impact_ratio"] is None
    row = next(row for row in rows["group_measure"] if row["question"] == "outcome")
    assert (row["value_low"], row["value_high"]) == (0.5, None)
    assert "accuracy" not in {one["name"] for one in rows["run_metric"]}
    assert "accuracy" in {one["name"] for one in sql_rows(summary, total)["run_metric"]}


def test_a_run_without_groups_has_words_and_metrics(db: Database) -> None:
    texts = [explained_text(place, "good bad film", "positive") for place in range(6)]
    rows = sql_rows(*summarised(db, stored_run(db, texts)))
    assert {row["word"] for row in rows["class_word"]} == {"good", "film", "bad"}
    assert [name for name, found in rows.items() if not found] == [
        *("group_verdict", "group_measure", "group_result", "counterfactual_result"),
        *("outcome_result", "entity_result"),
    ]
    assert rows["run_result"][0]["reference"] is None

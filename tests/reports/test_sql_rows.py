"""The rows for SQL hold the very numbers of the report's JSON."""

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from evaluation_samples import plan_of, scores
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


def ends(**ways: str) -> dict[str, str]:
    """The columns of the two ends of intervals, and the ways to them."""
    sides = ("low", "high")
    return {
        f"{name}_{side}": f"{way}.{i}" for name, way in ways.items() for i, side in enumerate(sides)
    }


def within(way: str, names: str, prefix: str = "") -> dict[str, str]:
    """Columns that have the names of a part of the document."""
    return {f"{prefix}{name}": f"{way}.{name}" for name in names.split()}


QUANTILES = {"05": "low", "25": "lower", "50": "median", "75": "upper", "95": "high"}
GROUP = {
    **{"positive_share": "positive", "item_rank": "rank"},
    **{f"mention_q{place}": f"quantiles.{name}" for place, name in QUANTILES.items()},
    **within("background", "words mean difference", "background_"),
    **ends(entity_mean="interval", difference="difference_interval"),
    **ends(background_difference="background.difference_interval"),
}
VERDICT = {
    **within("counterfactual", "prediction stratum", "mention_"),
    **within("rates", "prediction stratum", "outcome_"),
    **within("counterfactual", "probability changed_across changed_within documents"),
    **ends(probability="counterfactual.measures.1.interval"),
    "items": "rates.own.selected.total",
    "reference_items": "rates.other.selected.total",
}
MEASURE = {
    **ends(value="interval"),
    **{"measure": "name", "interval_level": "level", "limit_low": "low", "limit_high": "high"},
}
SIDE = {
    **{"items": "selected.total", "selected": "selected.count"},
    **{"mean_probability": "probability.value", **ends(mean_probability="probability.interval")},
}
RATES = {
    "rate": "selected",
    "label_rate": "labelled",
    "error_rate": "error",
    "true_positive_rate": "true_positive",
    "false_positive_rate": "false_positive",
}


def equal(
    row: Mapping[str, Any], document: Any, names: Mapping[str, str], besides: Sequence[str] = ()
) -> None:
    """Every column but those `besides` is in the document under its name, or that in `names`."""
    columns = [name for name in row if name not in ("run_id", "ordinal", "written", *besides)]
    ways = {"group_name": "group", **names}
    assert {name: row[name] for name in columns} == {
        name: at(document, ways.get(name, name)) for name in columns
    }


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
    others = ("split_by", "split_value", "suppressed", "overall_verdict")
    for row, (by, value, document) in zip(rows["group_result"], wanted, strict=True):
        equal(row, document, GROUP, others)
        assert (row["split_by"], row["split_value"]) == (by, value)
        assert row["suppressed"] == (document["verdict"] == "suppressed")
        assert row["overall_verdict"] == verdicts.get(document["group"])
    assert any(row["difference"] is not None for row in rows["group_result"])
    assert any(row["mention_q50"] is not None for row in rows["group_result"])


def test_verdicts(stored: tuple[dict[str, Any], Rows]) -> None:
    report, rows = stored
    groups = report["groups"]
    texts = ("mention_reasons", "outcome_reasons", "notes", "missing", "rate", "reference_rate")
    others = [
        f"{question}_{name}"
        for question in ("mention", "outcome")
        for name in ("measure", "value", "value_low", "value_high")
    ]
    for row, document in zip(rows["group_verdict"], groups["verdicts"], strict=True):
        equal(row, document, VERDICT, (*texts, *others))
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


def test_swaps_and_rates(stored: tuple[dict[str, Any], Rows]) -> None:
    report, rows = stored
    groups = report["groups"]
    for row, document in zip(rows["counterfactual_result"], groups["counterfactuals"], strict=True):
        equal(row, document, {"reference_entities": "other_entities"})
    for row, document in zip(rows["outcome_result"], groups["outcomes"], strict=True):
        names, shares = {"rate_difference": "difference"}, []
        for prefix, side in {"": "own", "reference_": "other"}.items():
            ways = {**SIDE, "calibration": "calibration"}
            for name, way in RATES.items():
                rate = document[side][way]
                assert row[prefix + name] == (rate["count"] / rate["total"] if rate else None)
                shares.append(prefix + name)
                ways |= ends(**{name: f"{way}.interval"})
                ways |= {f"{name}_items": f"{way}.total"} if name != "rate" else {}
            names |= {prefix + name: f"{side}.{way}" for name, way in ways.items()}
        equal(row, document, names, shares)
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
        about = ("group_name", "reference", "prediction", "stratum")
        equal(row, measure, MEASURE, ("question", *about))
        equal({name: row[name] for name in about}, of, {})
        assert row["question"] == question
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
    halves = {"low": NAMES[:12], "high": NAMES[12:]}
    groups = [EntityGroup(name=name, terms=terms) for name, terms in halves.items()]
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
        shrunken = ends(shrunken="interval")
        columns = ("mentions", "documents", "mean", "shrunken", *shrunken)
        equal({name: row[name] for name in columns}, one, shrunken)
        assert [row["group_name"]] == one["groups"]
        assert 0.0 <= row["magnitude_share"] <= 1.0 and 0 <= row["positive"] <= row["mentions"]
    in_order = sorted(by_name.values(), key=lambda row: int(row["place"]))
    assert [row["place"] for row in in_order] == list(range(1, 25))
    assert [row["entity"] for row in in_order if row["reported"]] == listed
    values = [row["shrunken"] for row in in_order]
    assert values == sorted(values, reverse=True)


def test_of_many_entities_those_with_most_mentions_have_rows_and_all_that_are_reported(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    summary, total = summarised(db, ranked_run(db))
    monkeypatch.setattr(rows_module, "ENTITIES", 3)
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
            words = {"relevance": "total", "function_word": "function"}
            equal(row, one, words, ("target", "class_name", *lists))
            assert row[name] == place
            assert (row["target"], row["class_name"]) == (view["target"], view["class_name"])
        assert sum(row[name] is not None for row in rows["class_word"]) == len(view[name])
    good = by_word["good"]
    assert good["magnitude"] == good["relevance"] > 0.0


def test_the_run(stored: tuple[dict[str, Any], Rows]) -> None:
    report, rows = stored
    [row] = rows["run_result"]
    limits = [name for name in row if name.startswith("practical_")]
    others = ("reference", "correction", "verdict_kind", "verdict", *limits)
    equal(row, report["audited"], {"dataset_fingerprint": "fingerprint"}, others)
    names = {name: f"limits.{name.removeprefix('practical_')}" for name in limits}
    of_groups = {name: row[name] for name in ("reference", "correction", *limits)}
    equal(of_groups, report["groups"], {**names, "practical_relevance": "practical"})
    assert len(limits) == 7
    verdict = {"verdict_kind": "kind", "verdict": "text"}
    equal({name: row[name] for name in verdict}, report["verdict"], verdict)
    assert row["written"] >= report["audited"]["created"]


def test_metrics(stored: tuple[dict[str, Any], Rows]) -> None:
    report, rows = stored
    found = {(one["name"], one["target"], one["part"]): one for one in rows["run_metric"]}
    assert len(found) == len(rows["run_metric"])
    counts = report["counts"]
    ledgers = report["conservation"]
    wanted = {
        "items": counts["total"],
        "items_explained": counts["done"],
        "shards_dead": counts["dead_shards"],
        "accuracy": counts["accuracy"],
        "failed_share": 2 / 38,
        "truncated_share": 0.0,
        "relative_gap_worst": ledgers["worst"],
        "relative_gap_mean": ledgers["mean"],
        "relative_gap_tolerance": ledgers["tolerance"],
        "gaps_above": ledgers["above"],
        "class_sensitivity": report["class_sensitivity"]["mean"],
        "relevance_correlation": ledgers["correlation"],
        **{f"items_{name}": counts[name] for name in ("failed", "pending", "truncated")},
        **{f"items_{name}": counts[name] for name in ("labelled", "correct")},
        **{name: ledgers[name] for name in ("attributions", "relevance_error")},
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


FAITHFUL = {"lrp": 0.5, "random": 0.1}


def faithful(db: Database) -> Summary:
    """A run whose method was measured beside random relevance."""
    plan = plan_of(["lrp", "random"], MetricSpec(name="activation"))
    plan = replace(plan, targets=("class:positive",), items=12)
    values = {name: [of + place / 100 for place in range(7)] for name, of in FAITHFUL.items()}
    measured = scores("activation", values, "class:positive")
    run_id = biased_run(db, evaluation=plan, scores=measured, favourable=("positive",))
    return summarised(db, run_id)[0]


def test_faithfulness_is_a_metric_of_its_target_and_measure(db: Database) -> None:
    summary = faithful(db)
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
    numbers: Any = {"correlation": 0.75, "spread": (0.5, 0.9), "error": None, "cheap": 1.0}
    of = {"target": "class:positive", "class_name": "positive", "items": 9}
    one = ClassAgreement(**of, **numbers, exact=1.1)
    mixed = Mixed(method="a", exact="b", share=0.1, items=9, failed=0, classes=(one,), groups=())
    metrics = run_metrics(replace(summary, mixed=mixed))
    [found] = [metric for metric in metrics if metric.name.startswith("agreement")]
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
    measures = (replace(measure, interval=(0.5, math.inf)), *rest)
    endless = replace(outcome, impact_ratio=math.nan, measures=measures)
    assert summary.counts.accuracy is not None
    groups = replace(summary.groups, outcomes=(endless, *others))
    counts = replace(summary.counts, accuracy=math.nan)
    changed = replace(summary, groups=groups, counts=counts)
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
    assert {name for name, found in rows.items() if not found} == {
        *("group_verdict", "group_measure", "group_result", "counterfactual_result"),
        *("outcome_result", "entity_result"),
    }
    assert rows["run_result"][0]["reference"] is None

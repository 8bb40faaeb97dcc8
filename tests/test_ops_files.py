"""The dashboard and the alarms of ops/: every metric and label in them is one that is exported."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import promql_parser as promql
import pytest
import yaml
from metric_series import series

from orchestrator.monitoring.fleet_metrics import METRICS

ROOT = Path(__file__).resolve().parents[1]
ALERTS = yaml.safe_load((ROOT / "ops" / "alerts.yml").read_text(encoding="utf-8"))
DASHBOARD = json.loads((ROOT / "ops" / "grafana.json").read_text(encoding="utf-8"))
PAGE = (ROOT / "docs" / "how-to" / "monitor-a-fleet.md").read_text(encoding="utf-8")
SERIES = {name: set(labels) for one in METRICS for name, labels in series(one).items()}
#: labels that Prometheus adds to every series
ADDED = {"instance", "job"}
RULES = [rule for group in ALERTS["groups"] for rule in group["rules"]]
PANELS = DASHBOARD["panels"]
DATA = [one for one in PANELS if one["type"] != "row"]


def parsed(expression: str) -> Any:
    """The tree of an expression; what Grafana fills in is filled in."""
    return promql.parse(expression.replace("$__rate_interval", "5m"))


def walked(node: Any) -> Iterator[Any]:
    yield node
    for name in ("lhs", "rhs", "expr", "param", "vector_selector", "args", "vs"):
        child = getattr(node, name, None)
        for one in child if isinstance(child, list) else [child]:
            if type(one).__module__.startswith("promql_parser"):
                yield from walked(one)


def expressions() -> list[tuple[str, str]]:
    """(where, what) of every expression there is."""
    found = [(rule["alert"], rule["expr"]) for rule in RULES]
    found += [(one["title"], target["expr"]) for one in DATA for target in one["targets"]]
    return found


def selectors(expression: str) -> list[Any]:
    found = [one for one in walked(parsed(expression)) if isinstance(one, promql.VectorSelector)]
    assert found, f"no metric in {expression}"
    return found


@pytest.mark.parametrize(("where", "expression"), expressions())
def test_every_metric_label_and_value_is_exported(where: str, expression: str) -> None:
    from transexplain.store.runs import SHARD_STATES
    from transexplain.types.device_time import BUSY, NO_WORK, STAGES

    states = {*SHARD_STATES, "explained", "failed", "pending"}
    values = {"state": states, "stage": {BUSY, NO_WORK, *STAGES}, "kind": {"quarantined"}}
    kinds = {name: one.kind for one in METRICS for name in series(one)}
    known: set[str] = set()
    for one in selectors(expression):
        assert one.name in SERIES, f"{where}: no metric {one.name}"
        known |= SERIES[one.name] | ADDED
        for matcher in one.matchers.matchers:
            assert matcher.name in SERIES[one.name], f"{where}: {one.name} has no {matcher.name}"
            if matcher.name in values:
                assert set(matcher.value.split("|")) <= values[matcher.name], where
    for node in walked(parsed(expression)):
        assert set(grouped(node)) <= known, where
        if isinstance(node, promql.Call) and node.func.name in ("rate", "increase", "delta"):
            (selector,) = [one for one in walked(node) if isinstance(one, promql.VectorSelector)]
            gauge = kinds[str(selector.name)] in ("gauge", "gaugehistogram")
            assert gauge == (node.func.name == "delta"), f"{where}: {selector.name}"


def grouped(node: Any) -> list[str]:
    """The labels by which a node groups or joins."""
    modifier = getattr(node, "modifier", None)
    if modifier is None:
        return []
    if isinstance(node, promql.AggregateExpr):
        return list(modifier.labels)
    matching = modifier.matching
    labels = list(matching.labels) if matching is not None else []
    return labels + list(modifier.group_labels or [])


def test_the_walk_and_the_page_name_every_alarm() -> None:
    table = re.findall(r"^\| `(TransExplain\w+)` \|", PAGE, re.MULTILINE)
    assert sorted(table) == sorted(rule["alert"] for rule in RULES)
    bad = "sum by (ghost) (rate(transexplain_claims[5m])) / on (run) group_left (nobody) up > 1"
    labels = {label for node in walked(parsed(bad)) for label in grouped(node)}
    assert labels == {"ghost", "run", "nobody"}
    assert [one.name for one in selectors(bad)] == ["transexplain_claims", "up"]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_an_alarm_is_whole_and_documented_with_its_threshold(rule: dict[str, Any]) -> None:
    assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}
    assert rule["labels"]["severity"] in ("critical", "warning", "info")
    assert set(rule["annotations"]) == {"summary", "description"}
    nodes = [*walked(parsed(rule["expr"]))]
    known = {label for one in selectors(rule["expr"]) for label in SERIES[one.name]} | ADDED
    if any(isinstance(one, promql.AggregateExpr) for one in nodes):
        known &= {label for node in nodes for label in grouped(node)}
    assert set(re.findall(r"\$labels\.(\w+)", json.dumps(rule["annotations"]))) <= known
    (row,) = [line for line in PAGE.splitlines() if line.startswith(f"| `{rule['alert']}` |")]
    for one in nodes:
        if isinstance(one, promql.BinaryExpr) and isinstance(one.rhs, promql.NumberLiteral):
            limit = re.escape(f"{one.rhs.val:g}")
            assert one.rhs.val in (0, 1) or re.search(rf"(?<![\d.]){limit}(?![\d.]\d)", row)
    length = re.fullmatch(r"(\d+)(s|m|h)", rule.get("for", "1m"))
    assert length and (length[0] == "1m" or f"{length[1]} min" in row)


def test_grafana_can_import_the_dashboard() -> None:
    """What its importer needs: a schema of version 10, panels that are placed, a data source."""
    assert DASHBOARD["schemaVersion"] >= 38 and DASHBOARD["uid"] and DASHBOARD["title"]
    assert "id" not in DASHBOARD and "__inputs" not in DASHBOARD, "a variable is asked instead"
    variables = {one["name"]: one for one in DASHBOARD["templating"]["list"]}
    datasource = variables["datasource"]
    assert (datasource["type"], datasource["query"]) == ("datasource", "prometheus")
    source = {"type": "prometheus", "uid": "${datasource}"}
    query = re.fullmatch(r"label_values\((\w+), (\w+)\)", variables["run"]["query"]["query"])
    assert query and query[2] in SERIES[query[1]] and variables["run"]["datasource"] == source
    assert len({one["id"] for one in PANELS}) == len(PANELS)
    for one in DATA:
        assert one["datasource"] == source and one["title"] and one["targets"]
        assert all(target["datasource"] == source for target in one["targets"])
        assert len({target["refId"] for target in one["targets"]}) == len(one["targets"])
        assert one["type"] in ("stat", "timeseries", "bargauge", "table")
    used = set(re.findall(r"\$\{?(\w+)", json.dumps(PANELS)))
    assert used <= {"datasource", "run", "__rate_interval"}


@pytest.mark.skipif(shutil.which("promtool") is None, reason="needs promtool (Prometheus)")
def test_promtool_takes_the_rules() -> None:
    words = ["promtool", "check", "rules", str(ROOT / "ops" / "alerts.yml")]
    assert f"{len(RULES)} rules found" in subprocess.check_output(words, text=True, timeout=60)

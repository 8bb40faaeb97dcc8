"""The verdict on a run: every rule of a policy with its numbers, also as JUnit XML."""

from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from orchestrator.gate.policy import Policy
from orchestrator.gate.policy_checks import Check, checks, finished
from orchestrator.gate.policy_drift import drift_checks
from transexplain.errors import ConfigurationError
from transexplain.reports.escaping import xml_text
from transexplain.reports.exports.whole_files import write_text
from transexplain.reports.summary import summarise
from transexplain.store import runs
from transexplain.store.database import Database


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """What the gate says of a run."""

    run_id: str
    name: str
    passed: bool  #: every rule is kept
    checks: tuple[Check, ...]


def judge(db: Database, run_id: str, policy: Policy) -> Verdict:
    """Check every rule of `policy` on a run (id, unique beginning of one, or `latest`).

    Raises ConfigurationError for an unknown run, or one that is no audit.
    """
    run = runs.get(db, run_id)
    if run.plan.task == "evaluation":
        raise ConfigurationError(f"run {run.id} is no audit; a gate judges audits")
    summary = summarise(db, run.id, gallery=0)
    found = [finished(summary), *checks(policy, summary)]
    if policy.drift is not None:
        found += drift_checks(db, run, policy.drift)
    return Verdict(
        run_id=run.id,
        name=run.plan.name,
        passed=all(one.passed for one in found),
        checks=tuple(found),
    )


def junit_xml(found: Verdict) -> str:
    """One suite of one test case per rule; a rule that is not kept is a failure with its reason.

    Characters that XML cannot hold become the replacement character.
    """
    broken = str(sum(not one.passed for one in found.checks))
    counts = {"tests": str(len(found.checks)), "failures": broken, "errors": "0", "skipped": "0"}
    top = ElementTree.Element("testsuites", counts)
    suite = ElementTree.SubElement(top, "testsuite", {"name": _suite(found), **counts})
    properties = ElementTree.SubElement(suite, "properties")
    ElementTree.SubElement(properties, "property", {"name": "run_id", "value": found.run_id})
    for one in found.checks:
        _case(suite, _suite(found), one)
    ElementTree.indent(top)
    body = ElementTree.tostring(top, encoding="unicode")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{body}\n'


def write_junit(found: Verdict, path: Path) -> None:
    """Write `junit_xml`; raises ConfigurationError where `path` cannot be written."""
    write_text(path, junit_xml(found))


def _suite(found: Verdict) -> str:
    return xml_text(f"transexplain gate: {found.name}")


def _case(suite: ElementTree.Element, name: str, one: Check) -> None:
    about = {"classname": name, "name": xml_text(one.rule), "time": "0"}
    case = ElementTree.SubElement(suite, "testcase", about)
    text = xml_text(one.text)
    if one.passed:
        ElementTree.SubElement(case, "system-out").text = text
    else:
        failure = ElementTree.SubElement(case, "failure", {"message": text, "type": one.rule})
        failure.text = text

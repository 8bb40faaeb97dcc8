"""A run judged by a policy: each rule's outcome, and what moved since the run that it is compared
with.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from xml.etree import ElementTree

from orchestrator.gate.policy import DriftRule, Policy
from orchestrator.gate.policy_checks import (
    PolicyCheck,
    at_least,
    at_most,
    checks,
    finished,
    none_of,
    not_measured,
    settled,
    state_of,
)
from transexplain.errors import ConfigurationError
from transexplain.files.paths import AnyPath
from transexplain.reports.exports.export_run import write_text
from transexplain.reports.phrasing import xml_text
from transexplain.reports.runs_compared import DriftSummary, compare_runs
from transexplain.reports.summary import summarise
from transexplain.reports.verdict_words import newly, rate_sentence
from transexplain.store import runs
from transexplain.store.database import Database
from transexplain.types.plans import AuditRun

PREVIOUS = "previous"


def drift_checks(
    db: Database, run: AuditRun, rule: DriftRule, *, opened: bool = True
) -> Iterator[PolicyCheck]:
    """Every limit of the rule; one line that fails where there is nothing to compare with.

    `opened`: whether a limit within the interval passes.
    Raises ConfigurationError where the policy names a run that is not there.
    """
    before = _before(db, run, rule)
    if before is None:
        yield not_measured(
            "drift",
            f"run {run.id} names no run before it that still is there; name one as drift.against, "
            "or run with --previous",
        )
        return
    try:
        drift = compare_runs(db, before, run.id, force=rule.force)
    except ConfigurationError as error:
        yield not_measured("drift", " ".join(str(error).split()))
        return
    predictions, other = drift.predictions, f"against run {drift.before.run_id}"
    if rule.max_changed_predictions is not None:
        what = f"of {predictions.common:,} common items are predicted differently {other}"
        share = predictions.changed / predictions.common
        limit = rule.max_changed_predictions
        yield at_most("drift.max_changed_predictions", share, limit, what)
    if rule.max_rate_change is not None:
        yield _rates(drift, rule.max_rate_change, opened=opened)
    if rule.max_accuracy_drop is not None:
        yield _accuracy(drift, rule.max_accuracy_drop)
    if rule.min_agreement is not None:
        yield _agreement(drift, rule.min_agreement)
    if rule.max_group_change is not None:
        yield _groups(drift, rule.max_group_change)
    if rule.forbid_new_differences:
        yield _new_differences(drift)


def _before(db: Database, run: AuditRun, rule: DriftRule) -> str | None:
    if rule.against != PREVIOUS:
        return runs.get(db, rule.against).id
    if run.previous is None:
        return None
    try:
        return runs.get(db, run.previous).id
    except ConfigurationError:
        return None


def _accuracy(drift: DriftSummary, limit: float) -> PolicyCheck:
    rule, seen = "drift.max_accuracy_drop", drift.predictions
    if not seen.labelled:
        return not_measured(rule, "no common item has a label in both runs", limit)
    lost = (seen.right_before - seen.right_after) / seen.labelled
    what = f"of accuracy lost on {seen.labelled:,} common labelled items"
    return at_most(rule, max(0.0, lost), limit, what)


def _agreement(drift: DriftSummary, limit: float) -> PolicyCheck:
    rule = "drift.min_agreement"
    known = [
        (change.agreement.mean, change) for change in drift.changes if change.agreement is not None
    ]
    if not known:
        return not_measured(rule, "no explanations have positions enough in common", limit)
    worst, place = min(known, key=lambda entry: entry[0])
    what = f"mean rank agreement, the least: {place.class_name} ({place.target})"
    return at_least(rule, worst, limit, what)


def _groups(drift: DriftSummary, limit: float) -> PolicyCheck:
    rule = "drift.max_group_change"
    shifts = drift.groups.shifts if drift.groups else ()
    known = [shift for shift in shifts if shift.interval is not None]
    if not known:
        return not_measured(rule, "no group has five entities that both runs mention", limit)
    worst = max(known, key=lambda shift: abs(shift.change))
    what = f"{drift.unit}, the largest change: {worst.group} for {worst.class_name}"
    return at_most(rule, abs(worst.change), limit, what)


def _rates(drift: DriftSummary, limit: float, *, opened: bool) -> PolicyCheck:
    """A rate of a group that changed; the interval decides as it does in the comparison."""
    rule = "drift.max_rate_change"
    known = [row for row in (drift.groups.rates if drift.groups else ()) if row.measure.interval]
    if not known:
        return not_measured(rule, "no group has ten common items with a predicted class")
    order = ("fail", "open", "pass")
    states = [(state_of(row.measure, limit), row) for row in known]
    state, worst = min(states, key=lambda pair: (order.index(pair[0]), -pair[1].measure.size))
    text = f"{rate_sentence(worst)}, at most {100 * limit:g} points allowed"
    return settled(rule, state, worst.measure.value, limit, text, opened=opened)


def _new_differences(drift: DriftSummary) -> PolicyCheck:
    rule = "drift.forbid_new_differences"
    if drift.groups is None:
        return not_measured(rule, "a run has no entity groups; audit both with groups.lexicon")
    names = [f"{row.group}: {row.sentence}" for row in newly(drift.groups.verdicts)]
    return none_of(rule, names, "new differences")


@dataclass(frozen=True, kw_only=True, slots=True)
class GateVerdict:
    """The gate's judgement of a run."""

    run_id: str
    name: str
    passed: bool  #: every rule is kept
    checks: tuple[PolicyCheck, ...]


def judge(db: Database, run_id: str, policy: Policy) -> GateVerdict:
    """Check every rule of `policy` on a run (id, unique beginning of one, or `latest`).

    Raises ConfigurationError for an unknown run, or one that is no audit.
    """
    run = runs.get(db, run_id)
    if run.plan.task == "evaluation":
        raise ConfigurationError(f"run {run.id} is no audit; a gate judges audits")
    summary = summarise(db, run.id, gallery=0)
    results = [finished(summary), *checks(policy, summary)]
    if policy.drift is not None:
        results += drift_checks(db, run, policy.drift, opened=policy.on_open == "pass")
    return GateVerdict(
        run_id=run.id,
        name=run.plan.name,
        passed=all(check.passed for check in results),
        checks=tuple(results),
    )


def junit_xml(verdict: GateVerdict) -> str:
    """One suite of one test case per rule; a rule that is not kept is a failure with its reason,
    one that is open and passes counts as skipped.

    Characters that XML cannot hold become the replacement character.
    """
    broken = str(sum(not check.passed for check in verdict.checks))
    skipped = str(sum(check.passed and check.open for check in verdict.checks))
    tests = str(len(verdict.checks))
    counts = {"tests": tests, "failures": broken, "errors": "0", "skipped": skipped}
    top = ElementTree.Element("testsuites", counts)
    suite = ElementTree.SubElement(top, "testsuite", {"name": _suite(verdict), **counts})
    properties = ElementTree.SubElement(suite, "properties")
    ElementTree.SubElement(properties, "property", {"name": "run_id", "value": verdict.run_id})
    for check in verdict.checks:
        name = _suite(verdict)
        about = {"classname": name, "name": xml_text(check.rule), "time": "0"}
        case = ElementTree.SubElement(suite, "testcase", about)
        text = xml_text(check.text)
        if check.passed and check.open:
            ElementTree.SubElement(case, "skipped", {"message": text})
        elif check.passed:
            ElementTree.SubElement(case, "system-out").text = text
        else:
            failure = ElementTree.SubElement(case, "failure", {"message": text, "type": check.rule})
            failure.text = text
    ElementTree.indent(top)
    body = ElementTree.tostring(top, encoding="unicode")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{body}\n'


def write_junit(verdict: GateVerdict, path: AnyPath) -> None:
    """Write `junit_xml`; raises ConfigurationError where `path` cannot be written."""
    write_text(path, junit_xml(verdict))


def _suite(verdict: GateVerdict) -> str:
    return xml_text(f"transexplain gate: {verdict.name}")

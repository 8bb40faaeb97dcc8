"""A run judged by a policy: each rule's outcome, and what moved since the run that it is compared
with.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from xml.etree import ElementTree

from orchestrator.gate.policy import DriftRule, Policy
from orchestrator.gate.policy_checks import (
    Check,
    at_least,
    at_most,
    checks,
    finished,
    not_measured,
    state_of,
)
from transexplain.errors import ConfigurationError
from transexplain.files.paths import AnyPath
from transexplain.reports.exports.export_run import write_text
from transexplain.reports.phrasing import named, xml_text
from transexplain.reports.runs_compared import DriftSummary, compare_runs
from transexplain.reports.summary import summarise
from transexplain.reports.verdict_words import newly, rate_sentence
from transexplain.store import runs
from transexplain.store.database import Database
from transexplain.types.plans import AuditRun

PREVIOUS = "previous"


def drift_checks(
    db: Database, run: AuditRun, rule: DriftRule, *, opened: bool = True
) -> Iterator[Check]:
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
    yield from _limits(drift, rule, opened=opened)


def _before(db: Database, run: AuditRun, rule: DriftRule) -> str | None:
    if rule.against != PREVIOUS:
        return runs.get(db, rule.against).id
    if run.previous is None:
        return None
    try:
        return runs.get(db, run.previous).id
    except ConfigurationError:
        return None


def _limits(drift: DriftSummary, rule: DriftRule, *, opened: bool) -> Iterator[Check]:
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


def _accuracy(drift: DriftSummary, limit: float) -> Check:
    rule, seen = "drift.max_accuracy_drop", drift.predictions
    if not seen.labelled:
        return not_measured(rule, "no common item has a label in both runs", limit)
    lost = (seen.right_before - seen.right_after) / seen.labelled
    what = f"of accuracy lost on {seen.labelled:,} common labelled items"
    return at_most(rule, max(0.0, lost), limit, what)


def _agreement(drift: DriftSummary, limit: float) -> Check:
    rule = "drift.min_agreement"
    known = [
        (change.agreement.mean, change) for change in drift.changes if change.agreement is not None
    ]
    if not known:
        return not_measured(rule, "no explanations have positions enough in common", limit)
    worst, place = min(known, key=lambda entry: entry[0])
    what = f"mean rank agreement, the least: {place.class_name} ({place.target})"
    return at_least(rule, worst, limit, what)


def _groups(drift: DriftSummary, limit: float) -> Check:
    rule = "drift.max_group_change"
    shifts = drift.groups.shifts if drift.groups else ()
    known = [shift for shift in shifts if shift.interval is not None]
    if not known:
        return not_measured(rule, "no group has five entities that both runs mention", limit)
    worst = max(known, key=lambda shift: abs(shift.change))
    what = f"{drift.unit}, the largest change: {worst.group} for {worst.class_name}"
    return at_most(rule, abs(worst.change), limit, what)


def _rates(drift: DriftSummary, limit: float, *, opened: bool) -> Check:
    """A rate of a group that changed; the interval decides as it does in the comparison."""
    rule = "drift.max_rate_change"
    known = [row for row in (drift.groups.rates if drift.groups else ()) if row.measure.interval]
    if not known:
        return not_measured(rule, "no group has ten common items with a predicted class")
    order = ("fail", "open", "pass")
    states = [(state_of(row.measure, limit), row) for row in known]
    state, worst = min(states, key=lambda pair: (order.index(pair[0]), -pair[1].measure.size))
    return Check(
        rule=rule,
        passed=opened if state == "open" else state == "pass",
        measured=worst.measure.value,
        threshold=limit,
        text=f"{'open: ' * (state == 'open')}{rate_sentence(worst)}, at most {100 * limit:g} "
        "points allowed",
        open=state == "open",
    )


def _new_differences(drift: DriftSummary) -> Check:
    rule = "drift.forbid_new_differences"
    if drift.groups is None:
        return not_measured(rule, "a run has no entity groups; audit both with groups.lexicon")
    new = newly(drift.groups.verdicts)
    names = [f"{row.group}: {row.sentence}" for row in new]
    text = f"{len(new)} new differences, none allowed"
    return Check(
        rule=rule,
        passed=not new,
        measured=float(len(new)),
        threshold=0.0,
        text=f"{text}: {named(names)}" if names else text,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """The gate's judgement of a run."""

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
    results = [finished(summary), *checks(policy, summary)]
    if policy.drift is not None:
        results += drift_checks(db, run, policy.drift, opened=policy.on_open == "pass")
    return Verdict(
        run_id=run.id,
        name=run.plan.name,
        passed=all(check.passed for check in results),
        checks=tuple(results),
    )


def junit_xml(verdict: Verdict) -> str:
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
        _case(suite, _suite(verdict), check)
    ElementTree.indent(top)
    body = ElementTree.tostring(top, encoding="unicode")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{body}\n'


def write_junit(verdict: Verdict, path: AnyPath) -> None:
    """Write `junit_xml`; raises ConfigurationError where `path` cannot be written."""
    write_text(path, junit_xml(verdict))


def _suite(verdict: Verdict) -> str:
    return xml_text(f"transexplain gate: {verdict.name}")


def _case(suite: ElementTree.Element, name: str, check: Check) -> None:
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

"""The rule of a policy that needs a second run: how far this one moved from it."""

from collections.abc import Iterator

from orchestrator.gate.policy import DriftRule
from orchestrator.gate.policy_checks import Check, at_least, at_most, not_measured
from transexplain.errors import ConfigurationError
from transexplain.reports.phrasing import named
from transexplain.reports.runs_compared import DriftSummary, compare_runs
from transexplain.reports.runs_compared.comparison_summary import newly
from transexplain.store import runs
from transexplain.store.database import Database
from transexplain.types.plans import AuditRun

PREVIOUS = "previous"


def drift_checks(db: Database, run: AuditRun, rule: DriftRule) -> Iterator[Check]:
    """Every limit of the rule; one line that fails where there is nothing to compare with.

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
        found = compare_runs(db, before, run.id, force=rule.force)
    except ConfigurationError as error:
        yield not_measured("drift", " ".join(str(error).split()))
        return
    yield from _limits(found, rule)


def _before(db: Database, run: AuditRun, rule: DriftRule) -> str | None:
    if rule.against != PREVIOUS:
        return runs.get(db, rule.against).id
    if run.previous is None:
        return None
    try:
        return runs.get(db, run.previous).id
    except ConfigurationError:
        return None


def _limits(found: DriftSummary, rule: DriftRule) -> Iterator[Check]:
    predictions, other = found.predictions, f"against run {found.before.run_id}"
    if rule.max_flips is not None:
        what = f"of {predictions.common:,} common items are predicted differently {other}"
        share = predictions.flips / predictions.common
        yield at_most("drift.max_flips", share, rule.max_flips, what)
    if rule.max_accuracy_drop is not None:
        yield _accuracy(found, rule.max_accuracy_drop)
    if rule.min_agreement is not None:
        yield _agreement(found, rule.min_agreement)
    if rule.max_group_change is not None:
        yield _groups(found, rule.max_group_change)
    if rule.forbid_new_differences:
        yield _new_differences(found)


def _accuracy(found: DriftSummary, limit: float) -> Check:
    rule, seen = "drift.max_accuracy_drop", found.predictions
    if not seen.labelled:
        return not_measured(rule, "no common item has a label in both runs", limit)
    lost = (seen.right_before - seen.right_after) / seen.labelled
    what = f"of accuracy lost on {seen.labelled:,} common labelled items"
    return at_most(rule, max(0.0, lost), limit, what)


def _agreement(found: DriftSummary, limit: float) -> Check:
    rule = "drift.min_agreement"
    known = [(one.agreement.mean, one) for one in found.changes if one.agreement is not None]
    if not known:
        return not_measured(rule, "no explanations have positions enough in common", limit)
    worst, place = min(known, key=lambda entry: entry[0])
    what = f"mean rank agreement, the least: {place.class_name} ({place.target})"
    return at_least(rule, worst, limit, what)


def _groups(found: DriftSummary, limit: float) -> Check:
    rule = "drift.max_group_change"
    shifts = found.groups.shifts if found.groups else ()
    known = [one for one in shifts if one.interval is not None]
    if not known:
        return not_measured(rule, "no group has five entities that both runs mention", limit)
    worst = max(known, key=lambda one: abs(one.change))
    what = f"{found.unit}, the largest change: {worst.group} for {worst.class_name}"
    return at_most(rule, abs(worst.change), limit, what)


def _new_differences(found: DriftSummary) -> Check:
    rule = "drift.forbid_new_differences"
    if found.groups is None:
        return not_measured(rule, "a run has no entity groups; audit both with groups.lexicon")
    new = newly(found.groups)
    text = f"{len(new)} new differences, none allowed"
    if new:
        text += f": {named([f'{one.group} for {one.class_name} ({one.target})' for one in new])}"
    return Check(rule=rule, passed=not new, measured=float(len(new)), threshold=0.0, text=text)

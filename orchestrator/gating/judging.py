"""One run before a policy: every rule checked, none skipped."""

from dataclasses import dataclass

from orchestrator.gating.checks import Check, checks, finished
from orchestrator.gating.drift import drift_checks
from orchestrator.gating.policy import Policy
from transexplain.errors import ConfigurationError
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

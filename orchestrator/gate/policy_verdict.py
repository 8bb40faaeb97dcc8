"""A run judged by a policy: each rule's outcome, and what moved since the run that it is compared
with.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal
from xml.etree import ElementTree

from orchestrator.gate.policy import DriftRule, FaithfulnessRule, Policy, RelevanceRule, VerdictRule
from transexplain.analysis.groups.counterfactuals import Counterfactual
from transexplain.analysis.groups.group_verdicts import GroupVerdict
from transexplain.analysis.groups.measures import Measure, MeasureName
from transexplain.analysis.groups.outcomes import Outcome
from transexplain.analysis.groups.verdict_sentences import WORDS, in_stratum, signed
from transexplain.errors import ConfigurationError
from transexplain.reports.exports.run_facts import compared
from transexplain.reports.phrasing import counted, named, xml_text
from transexplain.reports.report_records import Summary
from transexplain.reports.run_metrics import largest_difference, only_scores, unjudged
from transexplain.reports.runs_compared import DriftSummary, compare_runs
from transexplain.reports.sections.group_answers import MENTION, OUTCOME
from transexplain.reports.sections.item_fates import damage
from transexplain.reports.summary import caveats, summarise
from transexplain.reports.verdict_words import newly, rate_sentence
from transexplain.store import runs
from transexplain.store.database import Database
from transexplain.types.findings import GroupStatistic
from transexplain.types.plans import AuditRun

State = Literal["pass", "fail", "open"]


@dataclass(frozen=True, slots=True)
class MeasureRule:
    """The measures that a rule limits, and the unit in which their numbers are written."""

    names: tuple[MeasureName, ...]
    of: Literal["swaps", "rates"]
    unit: Literal["points", "logit", ""]

    @property
    def scale(self) -> float:
        """The factor from a measure to the number that is written."""
        return 100.0 if self.unit == "points" else 1.0


#: rule of a policy -> the measures that it limits
MEASURE_RULES: Mapping[str, MeasureRule] = {
    "max_rate_difference": MeasureRule(
        ("rate", "true positive rate", "false positive rate", "precision"), "rates", "points"
    ),
    "min_impact_ratio": MeasureRule(("impact ratio",), "rates", ""),
    "max_swap_changed": MeasureRule(("changed",), "swaps", "points"),
    "max_swap_probability": MeasureRule(("probability",), "swaps", "points"),
    "max_swap_logit": MeasureRule(("logit",), "swaps", "logit"),
}


def state_of(measure: Measure, limit: float, *, stratum: bool = False) -> State:
    """*Fail* where the interval lies beyond the limit, *pass* where it lies within it.

    As in the report, a measure that is not outside its practical limit does not fail a rule that is
    no stricter, nor does a stratum leave a rule open unless it is doubtful.
    """
    low, high = -limit, limit
    if measure.name == "impact ratio":
        low, high = limit, 1 / limit if limit else math.inf
    elif math.isinf(measure.low):
        low = -math.inf
    stricter = high < measure.high
    if measure.interval is None:
        return "pass" if stratum else "open"
    lower, upper = measure.interval
    if (lower > high or upper < low) and (measure.state == "outside" or (stricter and not stratum)):
        return "fail"
    if (measure.state == "inside" and not stricter) or (low <= lower and upper <= high):
        return "pass"
    doubtful = measure.doubtful and not low <= measure.value <= high
    return "open" if doubtful or not stratum else "pass"


@dataclass(frozen=True, slots=True)
class Limited:
    """A measure of one comparison, held against the limit of a rule."""

    row: Counterfactual | Outcome
    measure: Measure
    limit: float

    @property
    def state(self) -> State:
        """The state of the rule, by this measure."""
        return state_of(self.measure, self.limit, stratum=bool(self.row.stratum))

    @property
    def size(self) -> float:
        """The distance from no difference, for the largest of several."""
        value = self.measure.value
        if self.measure.name == "impact ratio":
            return abs(math.log(value)) if value > 0 else math.inf
        return value if math.isinf(self.measure.low) else abs(value)

    def text(self, rule: MeasureRule) -> str:
        """The comparison with its number and interval."""
        measure, row = self.measure, self.row

        def written(value: float) -> str:
            shown = rule.scale * value
            if measure.name == "impact ratio":
                return "no limit" if math.isinf(shown) else f"{shown:.2f}"
            return signed(shown, 1 if rule.unit == "points" else 2)

        what = "predictions changed" if measure.name == "changed" else measure.name
        deed = f"by {WORDS[row.kind].deed}, " if isinstance(row, Counterfactual) else ""
        unit = f" {rule.unit}" if rule.unit else ""
        where = in_stratum(row.stratum)
        interval = "too few for an interval"
        if measure.interval is not None:
            low, high = map(written, measure.interval)
            interval = f"{100 * measure.level:.4g} % {low} to {high}"
        of = "" if measure.name == "changed" else f" of {row.prediction}"
        return (
            f"{what}{of}, {deed}{row.group} against {row.reference}{where}: "
            f"{written(measure.value)}{unit} ({interval})"
        )


def limited(summary: Summary, rule: MeasureRule, limit: float) -> list[Limited]:
    """All measures that the rule limits, those that fail first, of these the largest."""
    groups = summary.groups
    rows: Sequence[Counterfactual | Outcome] = ()
    if groups is not None:
        rows = groups.counterfactuals if rule.of == "swaps" else groups.outcomes
    order = ("fail", "open", "pass")
    known = [
        Limited(row, measure, limit)
        for row in rows
        for measure in row.measures
        if measure.name in rule.names
    ]
    return sorted(known, key=lambda entry: (order.index(entry.state), -entry.size))


_IMPORTED = "the attributions were imported and the model is not at hand; audit it"
#: sums of measured numbers differ from a limit written in decimals in their last bits
_ROUNDING = 1e-9


@dataclass(frozen=True, kw_only=True, slots=True)
class PolicyCheck:
    """One rule, and whether it is kept."""

    rule: str  #: its key in the policy
    passed: bool  #: an open rule passes unless the policy says otherwise
    measured: float | None  #: None: it was not measured, or the rule has no number
    threshold: float | None
    text: str  #: the numbers or the reason in words
    open: bool = False  #: the limit lies within the interval; `on_open` decides


def within(rule: str, measured: float, limit: float, what: str) -> PolicyCheck:
    """A limit of a number: the least where the rule's name begins with `min`, else the most."""
    number = _number(measured)
    if rule.rpartition(".")[2].startswith("min"):
        kept, text = measured >= limit - _ROUNDING, f"at least {_number(limit)} wanted"
    else:
        kept, text = measured <= limit + _ROUNDING, f"at most {_number(limit)} allowed"
    return settled(rule, "pass" if kept else "fail", measured, limit, f"{number} {what}, {text}")


def settled(
    rule: str, state: State, measured: float, limit: float, text: str, *, opened: bool = True
) -> PolicyCheck:
    """A rule whose state is known; `opened`: whether an open one passes."""
    return PolicyCheck(
        rule=rule,
        passed=opened if state == "open" else state == "pass",
        measured=measured,
        threshold=limit,
        text=f"open: {text}" if state == "open" else text,
        open=state == "open",
    )


def none_of(rule: str, names: Sequence[str], what: str) -> PolicyCheck:
    """A rule that holds where there is nothing to name."""
    text = f"{len(names)} {what}, none allowed"
    shown = f": {named(names)}" if names else ""
    return settled(rule, "fail" if names else "pass", float(len(names)), 0.0, text + shown)


def not_measured(rule: str, why: str, threshold: float | None = None) -> PolicyCheck:
    """A check that fails because its measure is missing."""
    return PolicyCheck(
        rule=rule, passed=False, measured=None, threshold=threshold, text=f"not measured: {why}"
    )


def finished(summary: Summary) -> PolicyCheck:
    """A gate judges a run that is over: the rest of it might say otherwise."""
    state = summary.audited.state
    text = f"the run is {state}"
    if state == "running":
        text += "; wait for it, or `transexplain resume`"
    elif state == "cancelled":
        text += "; run the audit again"
    if lost := damage(summary.sections.get("unreadable")):
        text = lost
    passed = state == "done" and not lost
    return PolicyCheck(rule="finished", passed=passed, measured=None, threshold=None, text=text)


def checks(policy: Policy, summary: Summary) -> Iterator[PolicyCheck]:
    """Every rule of the policy but `drift`, in the policy's order."""
    for name, check in _LIMITS.items():
        limit = getattr(policy, name)
        if limit is not None:
            yield check(summary, limit)
    opened = policy.on_open == "pass"
    for name, rule in MEASURE_RULES.items():
        limit = getattr(policy, name)
        if limit is not None:
            yield _measured(summary, name, rule, limit, opened=opened)
    if policy.verdicts is not None:
        yield _verdicts(summary, policy.verdicts, opened=opened)
    if policy.forbid_suppressed:
        yield _suppressed(summary)
    if policy.forbid_gaps:
        yield none_of("forbid_gaps", list(caveats(summary)), "gaps in what the verdict rests on")
    if policy.relevance is not None:
        yield _relevance(summary, policy.relevance)
    if policy.faithfulness is not None and policy.faithfulness.beats_random:
        yield _faithfulness(summary, policy.faithfulness)


def _failed(summary: Summary, limit: float) -> PolicyCheck:
    counts = summary.counts
    missing = counts.total - counts.done
    share = missing / counts.total if counts.total else 0.0
    what = f"of the items have no explanation ({missing:,} of {counts.total:,})"
    return within("max_failed", share, limit, what)


def _truncated(summary: Summary, limit: float) -> PolicyCheck:
    counts = summary.counts
    if not counts.done:
        return not_measured("max_truncated", "no item was explained", limit)
    what = f"of the items were cut ({counts.truncated:,} of {counts.done:,})"
    return within("max_truncated", counts.truncated / counts.done, limit, what)


def _gaps(summary: Summary, limit: float) -> PolicyCheck:
    rule, conservation = "max_gap_above", summary.conservation
    audited = summary.audited
    if conservation is None:
        why = f"{audited.method} keeps no ledger; audit with a method that conserves (lrp)"
        return not_measured(rule, _IMPORTED if audited.task == "imported" else why, limit)
    if conservation.tolerance is None:
        why = f"there is no tolerance for {audited.dtype}; run in float32"
        return not_measured(rule, why, limit)
    what = (
        f"of {conservation.attributions:,} explanations miss the tolerance "
        f"{conservation.tolerance:g} (worst gap {conservation.worst:.1e})"
    )
    return within(rule, conservation.above, limit, what)


def _accuracy(summary: Summary, limit: float) -> PolicyCheck:
    counts = summary.counts
    if counts.accuracy is None:
        why = "no item has a label of a class; name `data.label` and map `labels`"
        return not_measured("min_accuracy", why, limit)
    what = f"of the labelled items are right ({counts.correct:,} of {counts.labelled:,})"
    return within("min_accuracy", counts.accuracy, limit, what)


def _sensitivity(summary: Summary, limit: float) -> PolicyCheck:
    rule, sensitivity = "min_class_sensitivity", summary.class_sensitivity
    if sensitivity is None:
        why = "the run has no sample of it; audit a model of two or more classes with this version"
        why = _IMPORTED if summary.audited.task == "imported" else why
        return not_measured(rule, why, limit)
    return within(
        rule, sensitivity.mean, limit, f"class sensitivity on {sensitivity.items:,} items"
    )


def _difference(summary: Summary, limit: float) -> PolicyCheck:
    rule, worst = "max_difference", largest_difference(summary)
    if worst is None:
        return not_measured(rule, _why_no_groups(summary), limit)
    size = abs(worst.difference or 0.0)
    unit = summary.audited.unit
    return within(rule, size, limit, f"{unit}, the largest difference: {_row(worst)}")


def _measured(
    summary: Summary, name: str, rule: MeasureRule, limit: float, *, opened: bool
) -> PolicyCheck:
    """A limit of a measure of the verdicts; `opened`: whether an open rule passes."""
    rows = limited(summary, rule, limit)
    if not any(row.measure.interval for row in rows):
        return not_measured(name, _why_not(summary, name, rule), limit)
    worst = rows[0]
    allowed = "at least" if name.startswith("min") else "at most"
    unit = f" {rule.unit}" if rule.unit else ""
    text = f"{worst.text(rule)}, {allowed} {_number(rule.scale * limit)}{unit} allowed"
    return settled(name, worst.state, worst.measure.value, limit, text, opened=opened)


def _why_not(summary: Summary, name: str, rule: MeasureRule) -> str:
    """Why no measure has an interval."""
    groups = summary.groups
    if rule.of == "swaps":
        why = "no mention was swapped; give two groups terms in a lexicon, and groups.check"
        if summary.audited.modality != "text":
            why = "no region was hidden; mark regions of two groups (data.spans), and groups.check"
        return _IMPORTED if summary.audited.task == "imported" else why
    if groups and summary.audited.head == "classes" and only_scores(summary):
        return "the model's output is a number, which has no rates; take max_swap_logit"
    if name == "min_impact_ratio" and groups and not any(row.favourable for row in groups.outcomes):
        return "no class is declared favourable; name it in groups.favourable"
    return _why_no_groups(summary)


def _category(summary: Summary, limit: float) -> PolicyCheck:
    rule, impact = "min_category_ratio", summary.sections.get("impact")
    if impact is None:
        why = "the run has no categories of people; name columns of them in groups.impact"
        why = why if summary.counts.done else "no item was explained"
        return not_measured(rule, why, limit)
    tables = list(impact.compared(scored=only_scores(summary)))
    known = [ratio for ratios, _ in tables for ratio in ratios]
    missing = [why for _, why in tables if why]
    worst = min(known, default=(1.0, ""))
    if missing and worst[0] >= limit - _ROUNDING:
        return not_measured(rule, "; ".join(missing), limit)
    return within(rule, worst[0], limit, f"the lowest impact ratio of a category: {worst[1]}")


def _verdicts(summary: Summary, rule: VerdictRule, *, opened: bool) -> PolicyCheck:
    rows = summary.groups.verdicts if summary.groups else ()
    missing = [*_unknown_names("group", rule.groups, [row.group for row in rows])]
    if missing or not rows:
        why = f"no verdict on {named(missing)}; see the run's lexicon and mentions"
        return not_measured("verdicts", why if rows else _why_no_groups(summary))
    scope = [row for row in rows if row.group in (rule.groups or (row.group,))]
    forbidden = [row for row in scope if row.mention in rule.mention or row.outcome in rule.outcome]
    text = f"{len(forbidden)} of {counted(len(scope), 'group')} with a forbidden verdict"
    if forbidden:
        text += f": {named([_forbidden(row, rule) for row in forbidden])}"
    undecided = [
        row.group
        for row in scope
        if (row.mention == "open" and rule.mention) or (row.outcome == "open" and rule.outcome)
    ]
    state: State = "fail" if forbidden else "open" if undecided else "pass"
    if state == "open":
        text += f"; not settled for {named(undecided)}"
    return settled("verdicts", state, float(len(forbidden)), 0.0, text, opened=opened)


def _forbidden(row: GroupVerdict, rule: VerdictRule) -> str:
    """The questions whose answers are forbidden, with the first reason of each."""
    answers = []
    if row.mention in rule.mention:
        why = f" ({row.mention_reasons[0]})" if row.mention_reasons else ""
        answers.append(f"the mention {MENTION[row.mention]}{why}")
    if row.outcome in rule.outcome:
        why = f" ({row.outcome_reasons[0]})" if row.outcome_reasons else ""
        answers.append(f"outcomes {OUTCOME[row.outcome]}{why}")
    return f"{row.group}: {' and '.join(answers)}"


def _suppressed(summary: Summary) -> PolicyCheck:
    """Groups that are mentioned and of which neither rates nor swaps say anything."""
    if summary.groups is None:
        return not_measured("forbid_suppressed", _why_no_groups(summary))
    return none_of("forbid_suppressed", unjudged(summary), "groups cannot be judged")


def _relevance(summary: Summary, rule: RelevanceRule) -> PolicyCheck:
    rows = compared(summary.groups)
    missing = [*_unknown_names("group", rule.groups, [row.group for row in rows])]
    missing += _unknown_names("target", rule.targets, [row.target for row in rows])
    if missing:
        why = f"no comparison of {named(missing)}; see the run's lexicon, mentions and targets"
        return not_measured("relevance", why if rows else _why_no_groups(summary))
    scope = [
        row
        for row in rows
        if row.group in (rule.groups or (row.group,))
        and row.target in (rule.targets or (row.target,))
    ]
    flagged = [row for row in scope if row.verdict in rule.forbid]
    if not flagged and all(row.verdict == "suppressed" for row in scope):
        return not_measured("relevance", _why_no_groups(summary))
    names = [f"{_row(row)} {row.verdict}" for row in flagged]
    return none_of(
        "relevance", names, f"of {len(scope)} comparisons are {' or '.join(rule.forbid)}"
    )


def _faithfulness(summary: Summary, rule: FaithfulnessRule) -> PolicyCheck:
    faithfulness = summary.faithfulness
    rows = [row for row in (faithfulness.rows if faithfulness else ()) if row.beats is not None]
    names = [row.metric for row in rows]
    missing = list(_unknown_names("metric", rule.metrics, names))
    if missing or not rows:
        what = f" {named(missing)}" if missing and rows else ""
        why = f"the run judged no sample{what}; set evaluation.items and evaluation.metrics"
        why = _IMPORTED if summary.audited.task == "imported" else why
        return not_measured("faithfulness", why)
    scope = [row for row in rows if row.metric in (rule.metrics or (row.metric,))]
    lost = [row for row in scope if not row.beats]
    text = f"beats random beyond chance on {len(scope) - len(lost)} of {len(scope)} measures"
    if lost:
        text += f", all wanted; not on {named([f'{row.title} ({row.target})' for row in lost])}"
    kept = float(len(scope) - len(lost))
    return settled("faithfulness", "fail" if lost else "pass", kept, float(len(scope)), text)


_LIMITS: dict[str, Callable[[Summary, float], PolicyCheck]] = {
    "max_failed": _failed,
    "max_truncated": _truncated,
    "max_gap_above": _gaps,
    "min_accuracy": _accuracy,
    "min_class_sensitivity": _sensitivity,
    "min_category_ratio": _category,
    "max_difference": _difference,
}


def _why_no_groups(summary: Summary) -> str:
    if summary.groups is None:
        return "the run has no entity groups; audit with groups.lexicon"
    return "too few entities were mentioned to compare any group; audit more texts or name more"


def _unknown_names(kind: str, named: Sequence[str], known: Sequence[str]) -> Iterator[str]:
    return (f"{kind} {name}" for name in named if name not in known)


def _row(row: GroupStatistic) -> str:
    return f"{row.group} for {row.class_name} ({row.target})"


def _number(value: float) -> str:
    return f"{value:.4g}"


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
        yield within("drift.max_changed_predictions", share, limit, what)
    if rule.max_rate_change is not None:
        yield _rates(drift, rule.max_rate_change, opened=opened)
    if rule.max_accuracy_drop is not None:
        yield _drift_accuracy(drift, rule.max_accuracy_drop)
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


def _drift_accuracy(drift: DriftSummary, limit: float) -> PolicyCheck:
    rule, seen = "drift.max_accuracy_drop", drift.predictions
    if not seen.labelled:
        return not_measured(rule, "no common item has a label in both runs", limit)
    lost = (seen.right_before - seen.right_after) / seen.labelled
    what = f"of accuracy lost on {seen.labelled:,} common labelled items"
    return within(rule, max(0.0, lost), limit, what)


def _agreement(drift: DriftSummary, limit: float) -> PolicyCheck:
    rule = "drift.min_agreement"
    known = [
        (change.agreement.mean, change) for change in drift.changes if change.agreement is not None
    ]
    if not known:
        return not_measured(rule, "no explanations have positions enough in common", limit)
    worst, place = min(known, key=lambda entry: entry[0])
    what = f"mean rank agreement, the least: {place.class_name} ({place.target})"
    return within(rule, worst, limit, what)


def _groups(drift: DriftSummary, limit: float) -> PolicyCheck:
    rule = "drift.max_group_change"
    shifts = drift.groups.shifts if drift.groups else ()
    known = [shift for shift in shifts if shift.interval is not None]
    if not known:
        return not_measured(rule, "no group has five entities that both runs mention", limit)
    worst = max(known, key=lambda shift: abs(shift.change))
    what = f"{drift.unit}, the largest change: {worst.group} for {worst.class_name}"
    return within(rule, abs(worst.change), limit, what)


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
    name = xml_text(f"transexplain gate: {verdict.name}")
    suite = ElementTree.SubElement(top, "testsuite", {"name": name, **counts})
    properties = ElementTree.SubElement(suite, "properties")
    ElementTree.SubElement(properties, "property", {"name": "run_id", "value": verdict.run_id})
    for check in verdict.checks:
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

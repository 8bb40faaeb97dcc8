"""What differs between the plans of two audits: only runs that differ in the model compare."""

import json
from collections.abc import Iterator, Mapping, Sequence

from transexplain.errors import ConfigurationError
from transexplain.methods.learned_facts import portable
from transexplain.reports.runs_compared.comparison_records import Disparity
from transexplain.types.plans import GENERATED, AuditPlan

_NAMED = 5
_LONG = 60  # characters of a value in a message


def of_plans(before: AuditPlan, after: AuditPlan) -> list[Disparity]:
    """What differs between the plans of two audits, besides the model's weights."""
    old, new = dict(_settings(before)), dict(_settings(after))
    found = [
        Disparity(what=what, before=_short(old[what]), after=_short(new[what]))
        for what in old
        if old[what] != new[what]
    ]
    return [*found, *_lexicons(before, after)]


def refuse(disparities: Sequence[Disparity]) -> None:
    """Raise ConfigurationError, with the list, where there are disparities."""
    if not disparities:
        return
    lines = "\n".join(
        f"  {one.what}: {one.before} before, {one.after} after" for one in disparities
    )
    raise ConfigurationError(
        f"these runs cannot be compared; they differ in more than the model:\n{lines}\n"
        "Run the audit again with the same settings, or compare what there is with --force"
    )


def _settings(plan: AuditPlan) -> Iterator[tuple[str, object]]:
    yield "modality", plan.model.modality
    yield "classes", list(plan.model.classes)
    yield "data", plan.dataset.content[:12]
    yield "method", plan.method.name
    yield "parameters of the method", dict(portable(plan.method).params)
    exact = plan.exact
    yield "exact sample", exact and [exact.method.name, dict(exact.method.params), exact.share]
    yield "targets", sorted(plan.targets)
    yield "classifications", {one.name: sorted(one.classes) for one in plan.classifications}
    yield "labels", dict(plan.labels)
    yield "thresholds", plan.several and dict(plan.several.thresholds)
    yield (
        "long texts",
        [plan.long_text, plan.max_length, plan.window, plan.stride, plan.long_text_join],
    )
    generated = plan.model.source.partition("?generate=")[2]
    yield "tokens of an answer", generated if plan.model.head == GENERATED else ""
    yield "stored texts", stored_texts(plan)
    reference = plan.reference
    yield (
        "reference group",
        dict(sorted(reference.items())) if isinstance(reference, Mapping) else reference,
    )
    yield "smallest difference that matters", plan.practical
    yield "correction of p-values", plan.correction


def stored_texts(plan: AuditPlan) -> object:
    """How a run stores texts, and under which key: only texts stored alike are compared."""
    privacy = plan.privacy
    return "full" if privacy is None else [privacy.store_text, privacy.redact, privacy.key]


def _lexicons(before: AuditPlan, after: AuditPlan) -> Iterator[Disparity]:
    old, new = _terms(before), _terms(after)
    if old == new:
        return
    changed = sorted(name for name in old.keys() & new.keys() if old[name] != new[name])
    only_old, only_new = sorted(old.keys() - new.keys()), sorted(new.keys() - old.keys())
    if only_old or only_new:
        yield Disparity(
            what="groups of the lexicon",
            before=_names(only_old) or "no further group",
            after=_names(only_new) or "no further group",
        )
    for name in changed[:_NAMED]:
        lost, won = sorted(old[name] - new[name]), sorted(new[name] - old[name])
        yield Disparity(
            what=f"terms of {name}",
            before=f"{len(old[name])} terms{_with(lost)}",
            after=f"{len(new[name])} terms{_with(won)}",
        )


def _terms(plan: AuditPlan) -> Mapping[str, frozenset[str]]:
    return {group.name: frozenset(group.terms) for group in plan.groups}


def _with(terms: Sequence[str]) -> str:
    return f", {_names(terms)} among them" if terms else ""


def _names(names: Sequence[str]) -> str:
    more = len(names) - _NAMED
    return ", ".join([*names[:_NAMED], *([f"{more} more"] if more > 0 else [])])


def _short(value: object) -> str:
    if isinstance(value, str):
        return value
    text = json.dumps(value, ensure_ascii=False, sort_keys=True, default=str)
    return text if len(text) <= _LONG else f"{text[: _LONG - 3]}..."

"""What two runs must have in common for their numbers to be compared, and what they have not."""

import json
from collections.abc import Iterator, Mapping, Sequence

from transexplain.errors import ConfigurationError
from transexplain.learned.planned import portable
from transexplain.plans import AuditPlan
from transexplain.reports.drift.records import Disparity
from transexplain.types import Attribution, PatchGrid, Token

_NAMED = 5
_LONG = 60  # characters of a value in a message


def of_plans(before: AuditPlan, after: AuditPlan) -> list[Disparity]:
    """What differs in how two audits were asked, beside the model's weights."""
    old, new = dict(_asked(before)), dict(_asked(after))
    found = [
        Disparity(what=what, before=_short(old[what]), after=_short(new[what]))
        for what in old
        if old[what] != new[what]
    ]
    return [*found, *_lexicons(before, after)]


def of_positions(before: Attribution, after: Attribution) -> Iterator[Disparity]:
    """What differs in what the positions of one item are, and in what was measured there."""
    if before.features != after.features:
        what = "grid of patches" if isinstance(after.features, PatchGrid) else "tokens"
        yield Disparity(
            what=f"{what} of item {after.item_id}",
            before=_positions(before, after),
            after=_positions(after, before),
        )
    if before.at != after.at:
        yield Disparity(what="input layer", before=before.at, after=after.at)
    if before.unit != after.unit:
        yield Disparity(what="unit", before=before.unit, after=after.unit)


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


def _asked(plan: AuditPlan) -> Iterator[tuple[str, object]]:
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
    yield (
        "long texts",
        [plan.long_text, plan.max_length, plan.window, plan.stride, plan.long_text_join],
    )
    yield "stored texts", stored_texts(plan)
    asked = plan.reference
    yield "reference group", dict(sorted(asked.items())) if isinstance(asked, Mapping) else asked
    yield "smallest difference that matters", plan.practical
    yield "correction of p-values", plan.correction


def stored_texts(plan: AuditPlan) -> object:
    """What of texts a run stores and under which key: what is compared with what is stored so."""
    asked = plan.privacy
    return "full" if asked is None else [asked.store_text, asked.redact, asked.key]


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


def _positions(one: Attribution, other: Attribution) -> str:
    if isinstance(one.features, PatchGrid):
        return f"{one.features.rows} x {one.features.cols}"
    theirs: tuple[Token, ...] = other.features if isinstance(other.features, tuple) else ()
    for place, token in enumerate(one.features):
        if place >= len(theirs) or theirs[place] != token:
            return f"{len(one.features)} tokens, number {place + 1} {token.text!r}"
    return f"{len(one.features)} tokens"


def _short(value: object) -> str:
    if isinstance(value, str):
        return value
    text = json.dumps(value, ensure_ascii=False, sort_keys=True, default=str)
    return text if len(text) <= _LONG else f"{text[: _LONG - 3]}..."

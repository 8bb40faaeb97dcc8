"""What a specification asks of privacy, checked before anything is read."""

from collections.abc import Mapping
from dataclasses import replace

from orchestrator.spec import AuditSpec
from transexplain.errors import SpecError
from transexplain.plans import AuditPlan, PrivacyPlan
from transexplain.privacy import TextKey, load_hook


def privacy_plan(spec: AuditSpec) -> PrivacyPlan | None:
    """What becomes of texts before they are stored; None where they stay as they are.

    Raises:
        ConfigurationError: the key is missing or short, the hook cannot be loaded.
        SpecError: the data name entities, which the tables need and the setting would take away.
    """
    if spec.store_text == "full" and spec.redact is None:
        return None
    redact = spec.redact
    if redact is not None:
        load_hook(redact.function, redact.file or "", redact.sha256 or "")
    if spec.data.spans is not None and spec.store_text != "hashed":
        raise SpecError(
            f"data.spans is {spec.data.spans!r}: its entities are named as the texts spell them, "
            "and the group tables are by entity. Use store_text: hashed, which tells entities "
            "apart without their names"
        )
    key = TextKey.from_environment().fingerprint if spec.store_text == "hashed" else ""
    return PrivacyPlan(
        store_text=spec.store_text,
        redact=redact.function if redact else None,
        key=key,
        redact_file=redact.file or "" if redact else "",
        redact_sha256=redact.sha256 or "" if redact else "",
    )


def private(plan: AuditPlan) -> AuditPlan:
    """The plan without names that the data give entities, where texts are not stored."""
    if plan.privacy is None or plan.check is None:
        return plan
    listed = {name for group in plan.groups for name in (*group.terms, *group.entities.values())}
    return replace(plan, check=replace(plan.check, counts=_only(plan.check.counts, listed)))


def _only(counts: Mapping[str, int], listed: set[str]) -> dict[str, int]:
    return {name: count for name, count in counts.items() if name in listed}

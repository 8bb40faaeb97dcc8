"""The section `redact`, and the treatment of texts before they are stored."""

from dataclasses import replace
from pathlib import Path
from typing import ClassVar, Self

from pydantic import Field

from orchestrator.spec.data_section import DataSection
from orchestrator.spec.spec_document import SpecSection
from transexplain.errors import SpecError
from transexplain.types.plans import AuditPlan, PrivacyPlan, StoreText


class RedactSection(SpecSection):
    """The function that blanks parts of texts; its file lies in the specification's folder."""

    shorthand: ClassVar[str] = "function"

    function: str = Field(description="package.module:function")
    file: str | None = Field(default=None, description="of its module, beside the specification")
    sha256: str | None = Field(default=None, description="of that file")

    def with_hook_file(self, folder: Path | None) -> Self:
        """The section with the file of its function, if that lies in the specification's folder.

        Raises SpecError where the file was given: only one that was found is run.
        """
        from transexplain.text.privacy import hook_file

        if self.file is not None or self.sha256 is not None:
            raise SpecError("redact.file and redact.sha256 are found, not given; leave them out")
        if folder is None or (hook := hook_file(self.function, folder)) is None:
            return self
        return self.model_copy(update={"file": str(hook[0]), "sha256": hook[1]})


def privacy_plan(
    store_text: StoreText,
    redact: RedactSection | None,
    data: DataSection,
    recogniser: str | None = None,
) -> PrivacyPlan | None:
    """The treatment of texts before they are stored; None where they stay as they are.

    Raises:
        ConfigurationError: the key is missing or short, the hook cannot be loaded.
        SpecError: the data or a recogniser name entities, which the tables need and the setting
            would take away.
    """
    if store_text == "full" and redact is None:
        return None
    from transexplain.auditing.text_redaction import TextKey
    from transexplain.text.privacy import load_hook

    if redact is not None:
        load_hook(redact.function, redact.file or "", redact.sha256 or "")
    named = {"data.spans": data.spans, "groups.recogniser": recogniser}
    naming = next((name for name, value in named.items() if value is not None), None)
    if naming is not None and store_text != "hashed":
        raise SpecError(
            f"{naming} is {named[naming]!r}: its entities are named as the texts spell them, "
            "and the group tables are by entity. Use store_text: hashed, which "
            "distinguishes entities without their names"
        )
    key = TextKey.from_environment().fingerprint if store_text == "hashed" else ""
    return PrivacyPlan(
        store_text=store_text,
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
    counts = {name: count for name, count in plan.check.counts.items() if name in listed}
    return replace(plan, check=replace(plan.check, counts=counts))

"""Plans as the JSON that the store keeps."""

import json
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from transexplain.errors import ConfigurationError
from transexplain.parsing import UnreadableError, read_json
from transexplain.plans import AuditPlan

if TYPE_CHECKING:
    from pydantic import TypeAdapter


def plan_to_json(plan: AuditPlan) -> str:
    """The canonical JSON that `plan.digest` is the sha256 of, but in ASCII."""
    return json.dumps(plan.document(), sort_keys=True, separators=(",", ":"))


def plan_from_json(text: str) -> AuditPlan:
    """The plan that `plan_to_json` wrote; raises ConfigurationError where it is not one."""
    try:
        document = read_json(text)
    except UnreadableError as error:
        raise ConfigurationError(f"the stored plan cannot be read: {error}") from None
    return plan_of(document)


def plan_of(document: Any) -> AuditPlan:
    """The plan of a JSON document; raises ConfigurationError where it is not one."""
    from pydantic import ValidationError

    try:
        return _adapter().validate_python(document)
    except ValidationError as error:
        wrong = ", ".join(".".join(map(str, one["loc"])) for one in error.errors())
        raise ConfigurationError(
            f"the stored plan is not one that this version reads; wrong or missing: {wrong}"
        ) from error


@lru_cache(maxsize=1)
def _adapter() -> "TypeAdapter[AuditPlan]":
    from pydantic import TypeAdapter

    return TypeAdapter(AuditPlan)

"""Records whose fields are the least that a test needs: it names those that matter to it."""

from typing import Any

from transexplain.types.items import Attribution, ItemOutcome, Mention
from transexplain.types.plans import AuditPlan, DatasetRef, ModelRef


def new_attribution(**fields: Any) -> Attribution:
    """An explanation of the class `good` in logits, without a ledger."""
    plain: dict[str, Any] = {"item_id": "7", "method": "lrp", "target": "predicted", "rank": 0}
    plain |= {"class_index": 0, "class_name": "good", "logit": 1.0, "unit": "logits"}
    return Attribution(**(plain | {"at": "encoder", "ledger": None, "text": None} | fields))


def new_outcome(**fields: Any) -> ItemOutcome:
    plain: dict[str, Any] = {"item_id": "i", "index": 0, "label": None, "logits": ()}
    return ItemOutcome(**(plain | {"truncated": False, "positions": 5} | fields))


def new_mention(**fields: Any) -> Mention:
    """A mention without a place in the text."""
    plain: dict[str, Any] = {"item_id": "7", "target": "predicted", "rank": 0}
    return Mention(**(plain | {"class_name": "good", "surface": "", "start": 0, "end": 0} | fields))


def new_plan(**fields: Any) -> AuditPlan:
    """Of a dataset of one text."""
    dataset = DatasetRef(source="d", modality="text", snapshot="s", fingerprint="f", rows=1)
    plain: dict[str, Any] = {"name": "a", "model": ModelRef(source="m"), "dataset": dataset}
    return AuditPlan(**(plain | fields))

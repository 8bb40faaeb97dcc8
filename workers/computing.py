"""What a claimed shard is computed with and by: a model and LRP, or attributions given already."""

from typing import TYPE_CHECKING

from transexplain.plans import AuditPlan, Shard, ShardResult
from transexplain.supervision import Caution, Observer
from workers.models import ModelCache

if TYPE_CHECKING:
    from transexplain.audit import Given
    from transexplain.models.base import LoadedModel


def model_for(plan: AuditPlan, models: ModelCache) -> "LoadedModel | None":
    """The model of a plan; None where its attributions were imported.

    Raises ModelLoadError as `ModelCache.get`.
    """
    return None if plan.task == "imported" else models.get(plan.model)


def compute(
    plan: AuditPlan,
    shard: Shard,
    model: "LoadedModel | None",
    *,
    observer: Observer,
    caution: Caution,
    items: "Given" = None,
) -> ShardResult:
    """The result of one shard; `model` is what `model_for` gave. Raises as `explain_shard`."""
    if model is None:
        from transexplain.importing import import_shard

        return import_shard(plan, shard, observer=observer)
    from transexplain.audit import explain_shard

    return explain_shard(plan, shard, model, observer=observer, caution=caution, items=items)

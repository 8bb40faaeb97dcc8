"""What a claimed shard is computed with and by: a model and LRP, or attributions given already."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from transexplain.data.attribution_shards import read_attributions
from transexplain.data.reader import read_shard
from transexplain.errors import InfrastructureError
from transexplain.learned.planned import check_at_hand
from transexplain.plans import AuditPlan, Shard, ShardResult
from transexplain.privacy import guard_of
from transexplain.supervision import Caution, Observer
from workers.models import ModelCache

if TYPE_CHECKING:
    from transexplain.audit import Given
    from transexplain.models.base import LoadedModel


def model_for(plan: AuditPlan, models: ModelCache) -> "LoadedModel | None":
    """The model of a plan; None where its attributions were imported.

    Raises ModelLoadError as `ModelCache.get`, ConfigurationError as `guard_of` and where an
    explainer cannot be read.
    """
    guard_of(plan)  # where the key, the hook or an explainer is not there, no model is loaded
    check_at_hand(plan)
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
    """The result of one shard as it may be stored; `model` is what `model_for` gave.

    Raises as `explain_shard` and `guard_of`; where the plan keeps texts out of the store, errors
    do not tell what they were about.
    """
    guard = guard_of(plan)
    if guard is None:
        return _computed(plan, shard, model, observer, caution, items)
    from transexplain.explaining import Stopped

    try:
        given = guard.read(_read(plan, shard, model) if items is None else items)
        result = _computed(plan, shard, model, observer, caution, given)
        return guard.storable(result)
    except (Stopped, InfrastructureError):
        raise
    except Exception as error:  # noqa: BLE001 - told anew, without what it may quote
        raise guard.untold(error) from None


def _computed(
    plan: AuditPlan,
    shard: Shard,
    model: "LoadedModel | None",
    observer: Observer,
    caution: Caution,
    items: Any,
) -> ShardResult:
    if model is None:
        from transexplain.importing import import_shard

        return import_shard(plan, shard, observer=observer, items=items)
    from transexplain.audit import explain_shard

    return explain_shard(plan, shard, model, observer=observer, caution=caution, items=items)


def _read(plan: AuditPlan, shard: Shard, model: "LoadedModel | None") -> Iterable[Any]:
    return read_attributions(plan, shard) if model is None else read_shard(plan.dataset, shard)

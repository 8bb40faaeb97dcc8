"""The work on one shard: prepared where there is time, computed, and its result made."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from transexplain.auditing.text_redaction import guard_of
from transexplain.methods.explainer_files import check_explainers
from transexplain.types.observer import Caution, Observer
from transexplain.types.plans import AuditPlan, Shard
from workers.model_cache import ModelCache

if TYPE_CHECKING:
    from transexplain.auditing.explained_shard import StagedShard, Unfinished
    from transexplain.models.loaded_model import LoadedModel


def model_for(plan: AuditPlan, models: ModelCache) -> "LoadedModel | None":
    """The model of a plan; None where its attributions were imported.

    Raises ModelLoadError as `ModelCache.get`, ConfigurationError as `guard_of` and where an
    explainer cannot be read.
    """
    guard_of(plan)  # where the key, the hook or an explainer is not there, no model is loaded
    check_explainers(plan)
    return None if plan.task == "imported" else models.get(plan.model)


def prepare(
    plan: AuditPlan, shard: Shard, model: "LoadedModel", *, caution: Caution, items: Iterable[Any]
) -> "StagedShard":
    """Prepare the items for `compute`, in any thread; raises as it does."""
    from transexplain.auditing.explained_shard import StagedShard

    stages = StagedShard(plan, shard, model, caution=caution, items=items)
    try:
        stages.prepare()
    except BaseException:
        stages.close()
        raise
    return stages


def compute(
    plan: AuditPlan,
    shard: Shard,
    model: "LoadedModel | None",
    *,
    observer: Observer,
    caution: Caution,
    items: Iterable[Any] | None = None,
    prepared: "StagedShard | None" = None,
) -> "Unfinished":
    """The device's part of one shard, which may be prepared; raises as `StagedShard`.

    `model` is what `model_for` gave.
    """
    from transexplain.auditing.explained_shard import StagedShard

    stages = prepared or StagedShard(plan, shard, model, caution=caution, items=items)
    return stages.compute(observer)

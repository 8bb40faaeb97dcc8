"""The work on one shard: prepared where there is time, computed, and its result made."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from transexplain.auditing.text_redaction import TextGuard, guard_of
from transexplain.data.shard_reader import read_shard
from transexplain.errors import InfrastructureError
from transexplain.methods.explainer_files import check_explainers
from transexplain.types.observer import Caution, Observer
from transexplain.types.plans import AuditPlan, Shard, ShardResult
from workers.model_cache import ModelCache

if TYPE_CHECKING:
    from transexplain.auditing.explained_shard import Given, StagedShard, Unfinished
    from transexplain.models.loaded_model import LoadedModel


def model_for(plan: AuditPlan, models: ModelCache) -> "LoadedModel | None":
    """The model of a plan; None where its attributions were imported.

    Raises ModelLoadError as `ModelCache.get`, ConfigurationError as `guard_of` and where an
    explainer cannot be read.
    """
    guard_of(plan)  # where the key, the hook or an explainer is not there, no model is loaded
    check_explainers(plan)
    return None if plan.task == "imported" else models.get(plan.model)


#: a shard whose first batch is ready for the device, to be closed; and what keeps its texts back
Prepared = tuple[TextGuard | None, "StagedShard"]


def prepare(
    plan: AuditPlan, shard: Shard, model: "LoadedModel", *, caution: Caution, items: "Given"
) -> Prepared:
    """Prepare the items for `compute`, in any thread; not for an evaluation. Raises as it does."""
    from transexplain.auditing.explained_shard import StagedShard

    guard = guard_of(plan)
    with _without_text(guard):
        readable = guard.read(items) if guard is not None and items is not None else items
        stages = StagedShard(plan, shard, model, caution=caution, items=readable)
        try:
            stages.prepare()
        except BaseException:
            stages.close()
            raise
    return guard, stages


def compute(
    plan: AuditPlan,
    shard: Shard,
    model: "LoadedModel | None",
    *,
    observer: Observer,
    caution: Caution,
    items: "Given" = None,
    prepared: Prepared | None = None,
) -> "Unfinished":
    """The device's part of one shard; what it returns makes the result as it may be stored.

    `model` is what `model_for` gave; what is `prepared` has the items already. Both parts raise as
    `StagedShard` and `guard_of`; where the plan keeps texts out of the store, errors do not tell
    their items.
    """
    guard, stages = (guard_of(plan), None) if prepared is None else prepared
    with _without_text(guard):
        if guard is not None and stages is None:
            source: Any = items
            if source is None and model is None:
                from transexplain.data.attribution_files import read_attributions

                source = read_attributions(plan, shard)
            items = guard.read(read_shard(plan.dataset, shard) if source is None else source)
        unfinished = _computed(plan, shard, model, observer, caution, items, stages)
    if guard is None:
        return unfinished

    def finished() -> ShardResult:
        with _without_text(guard):
            return guard.storable(unfinished())

    return finished


@contextmanager
def _without_text(guard: TextGuard | None) -> Iterator[None]:
    """A block whose errors do not tell what they were about, where a guard keeps that."""
    from transexplain.explaining import Stopped

    if guard is None:
        yield
        return
    try:
        yield
    except (Stopped, InfrastructureError):
        raise
    except Exception as error:  # noqa: BLE001 - raised again without what it may quote
        raise guard.error_without_text(error) from None


def _computed(
    plan: AuditPlan,
    shard: Shard,
    model: "LoadedModel | None",
    observer: Observer,
    caution: Caution,
    items: Any,
    stages: "StagedShard | None",
) -> "Unfinished":
    from transexplain.auditing.explained_shard import StagedShard, evaluate_shard, import_shard

    if stages is not None:
        return stages.compute(observer)
    if model is not None and plan.task != "evaluation":
        return StagedShard(plan, shard, model, caution=caution, items=items).compute(observer)
    if model is None:
        result = import_shard(plan, shard, observer=observer, items=items)
    else:
        result = evaluate_shard(plan, shard, model, observer=observer, caution=caution, items=items)
    return lambda: result

"""The work on one shard: prepared where there is time, computed, and its result made."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from transexplain.auditing.text_redaction import Guard, guard_of
from transexplain.data.attribution_files import read_attributions
from transexplain.data.shard_reader import read_shard
from transexplain.errors import InfrastructureError
from transexplain.methods.learned_facts import check_explainers
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


@dataclass(frozen=True, slots=True)
class PreparedShard:
    """A shard whose first batch is ready for the device."""

    guard: Guard | None
    stages: "StagedShard"

    def close(self) -> None:
        """Nobody computes it, or it is computed already."""
        self.stages.close()


def prepare(
    plan: AuditPlan, shard: Shard, model: "LoadedModel", *, caution: Caution, items: "Given"
) -> PreparedShard:
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
    return PreparedShard(guard, stages)


def compute(
    plan: AuditPlan,
    shard: Shard,
    model: "LoadedModel | None",
    *,
    observer: Observer,
    caution: Caution,
    items: "Given" = None,
    prepared: PreparedShard | None = None,
) -> "Unfinished":
    """The device's part of one shard; what it returns makes the result as it may be stored.

    `model` is what `model_for` gave; what is `prepared` has the items already. Both parts raise as
    `explain_shard` and `guard_of`; where the plan keeps texts out of the store, errors do not tell
    their items.
    """
    guard = guard_of(plan) if prepared is None else prepared.guard
    with _without_text(guard):
        if prepared is not None:
            unfinished = prepared.stages.compute(observer)
        else:
            if guard is not None:
                items = guard.read(_read(plan, shard, model) if items is None else items)
            unfinished = _computed(plan, shard, model, observer, caution, items)
    if guard is None:
        return unfinished

    def finished() -> ShardResult:
        with _without_text(guard):
            return guard.storable(unfinished())

    return finished


@contextmanager
def _without_text(guard: Guard | None) -> Iterator[None]:
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
) -> "Unfinished":
    if model is None:
        from transexplain.auditing.explained_shard import import_shard

        result = import_shard(plan, shard, observer=observer, items=items)
        return lambda: result
    from transexplain.auditing.explained_shard import StagedShard, evaluate_shard

    if plan.task == "evaluation":
        result = evaluate_shard(plan, shard, model, observer=observer, caution=caution, items=items)
        return lambda: result
    return StagedShard(plan, shard, model, caution=caution, items=items).compute(observer)


def _read(plan: AuditPlan, shard: Shard, model: "LoadedModel | None") -> Iterable[Any]:
    return read_attributions(plan, shard) if model is None else read_shard(plan.dataset, shard)

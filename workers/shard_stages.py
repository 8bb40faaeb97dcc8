"""The stages of a claimed shard: read and encode its items ahead, then compute its result."""

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import TYPE_CHECKING, Any

from transexplain.audit.text_guard import guard_of
from transexplain.data.attribution_files import read_attributions
from transexplain.data.shard_reader import read_shard
from transexplain.errors import InfrastructureError
from transexplain.methods.learned_facts import check_at_hand
from transexplain.types.items import Item, ItemFailure
from transexplain.types.observer import Caution, Observer
from transexplain.types.plans import AuditPlan, Shard, ShardResult
from workers.model_cache import ModelCache

if TYPE_CHECKING:
    from transexplain.audit.explained_shard import Given
    from transexplain.models.loaded_model import Encoded, LoadedModel


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
    except Exception as error:  # noqa: BLE001 - raised again without what it may quote
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
        from transexplain.audit.imported_shard import import_shard

        return import_shard(plan, shard, observer=observer, items=items)
    from transexplain.audit.explained_shard import explain_shard

    return explain_shard(plan, shard, model, observer=observer, caution=caution, items=items)


def _read(plan: AuditPlan, shard: Shard, model: "LoadedModel | None") -> Iterable[Any]:
    return read_attributions(plan, shard) if model is None else read_shard(plan.dataset, shard)


class ReadAhead:
    """The items of a shard, read and encoded in a thread one chunk ahead of who takes them.

    Chunks are those that `explain_items` reads together, so the batches, and with them every bit
    of the result, are the same as without.
    """

    def __init__(
        self, reader: ThreadPoolExecutor, plan: AuditPlan, shard: Shard, model: "LoadedModel"
    ) -> None:
        self._reader = reader
        self._plan = plan
        self._model = model
        self._items: Iterator[Item | ItemFailure] = iter(())
        self._next = reader.submit(self._open, shard)

    def __iter__(self) -> "Iterator[Item | ItemFailure | Encoded]":
        while chunk := self._next.result():
            self._next = self._reader.submit(self._chunk)
            yield from chunk

    def close(self) -> None:
        """Read no further; a chunk that is begun is waited for."""
        if not self._next.cancel():
            self._next.exception()

    def _open(self, shard: Shard) -> "Sequence[Item | ItemFailure | Encoded]":
        self._items = iter(read_shard(self._plan.dataset, shard))
        return self._chunk()

    def _chunk(self) -> "Sequence[Item | ItemFailure | Encoded]":
        from transexplain.explaining import Request
        from transexplain.explaining.item_loop import READ_TOGETHER

        given = list(islice(self._items, READ_TOGETHER[self._model.modality]))
        if self._plan.task == "evaluation":  # measures encode perturbed items themselves
            return given
        readable = [one for one in given if isinstance(one, Item)]
        encoded = iter(Request.from_plan(self._plan).encode(self._model, readable))
        return [next(encoded) if isinstance(one, Item) else one for one in given]

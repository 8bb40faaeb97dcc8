"""A sample of stored items, explained again and compared with what is stored."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from transexplain.data.attribution_shards import GivenItem, read_attributions
from transexplain.data.reader import read_shard
from transexplain.errors import ConfigurationError, DamagedRowError, TransExplainError
from transexplain.evaluations import EvaluationPlan
from transexplain.explaining import Explained, Request
from transexplain.explaining.explain_again import explain_again
from transexplain.explaining.items import Silent
from transexplain.models.load import load_model
from transexplain.plans import AuditPlan, Shard
from transexplain.store import results
from transexplain.store.database import Database
from transexplain.types import Attribution, Item, ItemFailure, ItemOutcome
from transexplain.verifying.differences import Largest, differences
from transexplain.verifying.request import Check, Checks, VerifyRequest, judged, note

if TYPE_CHECKING:
    from transexplain.models.base import LoadedModel

#: largest difference that another batch, number of threads or device may make, by number type.
#: Measured by `python -m benchmarks.verify_tolerances` with minilm-sst2 (6 layers, 384 wide) over
#: 200 rows of SST-2 dev on a CPU with AVX512 and AMX, batches of one item, 512 and 4,096 positions
#: against 2,048, one and two threads, as the largest difference of relevance / logits. Float32,
#: lrp: 6.9e-7 / 1.6e-6. Float16: lrp 4.4e-3 / 3.9e-3, attnlrp 5.5e-3, gradient-x-input 6.7e-3 (one
#: item a batch). Bfloat16: lrp 2.8e-2 / 2.3e-2, attnlrp 3.2e-2, gradient-x-input 6.1e-2. Half
#: precision is allowed three times the worst of these, because deeper models and other devices
#: round more often; a graphics card was not measured. In bfloat16 that is a coarse check: what
#: was changed by less the digests find. Float32 has more room yet, for a device's own kernels.
TOLERANCES: Mapping[str, float] = {
    "float64": 1e-9,
    "float32": 1e-4,
    "float16": 2e-2,
    "bfloat16": 2e-1,
}


def again_checks(
    db: Database,
    run_id: str,
    plan: AuditPlan,
    rows: Sequence[tuple[int, str]],
    request: VerifyRequest,
) -> Checks:
    """Load the model, and explain these (row, item id) again.

    `plan` is the run's, with its data where they are now.
    """
    if plan.task == "imported":
        yield note("model", "not at hand, so nothing is explained again; read again instead")
        yield _compared(db, run_id, rows, _read_again(plan, rows), 0.0, request)
        return
    try:
        model = _loaded(plan, request)
    except TransExplainError as error:
        remedy = "--model PATH or --device NAME names another place or device"
        yield judged("model", [str(error)], "", remedy)
        return
    yield _same_model(plan, model)
    tolerance = TOLERANCES[plan.model.dtype] if request.tolerance is None else request.tolerance
    try:
        explained = list(_explained_again(plan, model, rows, request))
    except TransExplainError as error:
        yield judged("explained again", [str(error)], "")
        return
    yield _compared(db, run_id, rows, explained, tolerance, request)
    if plan.task == "evaluation":
        yield note("scores", "not measured again; the digests of the shards cover them")


def _loaded(plan: AuditPlan, request: VerifyRequest) -> "LoadedModel":
    place = request.model_of(plan.model)
    return load_model(place.source, dtype=place.dtype, device=place.device)


def _same_model(plan: AuditPlan, model: "LoadedModel") -> Check:
    faults = []
    if plan.model.digest and model.ref.digest != plan.model.digest:
        faults.append(
            f"digest {model.ref.digest[:12]} of {model.ref.source}, planned "
            f"{plan.model.digest[:12]}: the run was made with another model"
        )
    if plan.model.attention and model.ref.attention != plan.model.attention:
        faults.append(f"attention kernel {model.ref.attention!r}, planned {plan.model.attention!r}")
    return judged("model", faults, f"digest {model.ref.digest[:12]}, {model.ref.dtype}")


def _items(plan: AuditPlan, rows: Sequence[tuple[int, str]]) -> Iterator[Item | ItemFailure]:
    for row, _ in rows:
        yield from read_shard(plan.dataset, Shard(index=0, start=row, stop=row + 1))


def _explained_again(
    plan: AuditPlan, model: "LoadedModel", rows: Sequence[tuple[int, str]], request: VerifyRequest
) -> Iterator[Explained]:
    plan = replace(plan, batch_tokens=request.batch_tokens or plan.batch_tokens)
    if plan.task != "evaluation":
        wanted = [(item, None) for item in _items(plan, rows)]
        yield from explain_again(model, Request.from_plan(plan), wanted)
        return
    from transexplain.evaluating import Evaluation, evaluate_items

    assert plan.evaluation is not None
    bare = EvaluationPlan(methods=(), metrics=(), targets=plan.evaluation.targets)
    evaluation = Evaluation.from_plan(replace(plan, evaluation=bare))
    for end in evaluate_items(model, _items(plan, rows), evaluation, observer=Silent()):
        yield Explained(item=None, outcome=end.outcome, failure=end.failure)


def _read_again(plan: AuditPlan, rows: Sequence[tuple[int, str]]) -> Iterator[Explained]:
    for row, _ in rows:
        for one in read_attributions(plan, Shard(index=0, start=row, stop=row + 1)):
            if isinstance(one, GivenItem):
                yield Explained(item=None, outcome=one.outcome, attributions=one.attributions)
            else:
                yield Explained(item=None, failure=one)


def _compared(
    db: Database,
    run_id: str,
    rows: Sequence[tuple[int, str]],
    again: Sequence[Explained] | Iterator[Explained],
    tolerance: float,
    request: VerifyRequest,
) -> Check:
    name, ids = "explained again", [item_id for _, item_id in rows]
    faults: list[str] = []
    largest = Largest()
    try:
        outcomes = {one.item_id: one for one in results.iter_items(db, run_id, item_ids=ids)}
        stored: dict[str, list[Attribution]] = {item_id: [] for item_id in ids}
        for one in results.iter_attributions(db, run_id, item_ids=ids):
            stored[one.item_id].append(one)
        for item_id, made in zip(ids, again, strict=True):
            outcome = outcomes[item_id]
            assert isinstance(outcome, ItemOutcome)
            found = differences(outcome, stored[item_id], made, tolerance, largest)
            faults += [f"item {item_id!r}: {text}" for text in found]
    except (DamagedRowError, ConfigurationError, ValueError, TypeError, KeyError) as error:
        faults.append(f"the stored sample cannot be read: {error}")
    good = (
        f"{len(ids)} items (seed {request.seed}), {largest.attributions} attributions: largest "
        f"difference of relevance, beyond the stored precision, {largest.relevance:.1e} of the "
        f"item's largest, of logits {largest.logit:.1e}; tolerance {tolerance:.0e}"
    )
    return judged(name, faults, good)

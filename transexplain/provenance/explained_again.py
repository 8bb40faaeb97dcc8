"""Explains a sample of stored items again, and compares new numbers with stored ones."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Protocol, cast

import numpy as np

from transexplain.data.attribution_files import read_attributions
from transexplain.data.shard_reader import read_shard
from transexplain.errors import ConfigurationError, DamagedRowError, ItemError, TransExplainError
from transexplain.explaining import Explained, Request
from transexplain.explaining.item_loop import Silent, explain_again
from transexplain.models.load import load_model
from transexplain.models.loaded_model import LoadedModel
from transexplain.provenance.verification import (
    ROUNDING,
    Checks,
    VerifiedLine,
    VerifyRequest,
    judged,
    note,
)
from transexplain.store import readers
from transexplain.store.database import Database
from transexplain.types.items import Attribution, Item, ItemFailure, ItemOutcome
from transexplain.types.pairs import joined
from transexplain.types.plans import GENERATED, AuditPlan, Shard
from transexplain.types.scores import EvaluationPlan
from transexplain.types.token_labels import ANSWER, TaggedSpan, explained_characters

if TYPE_CHECKING:
    from transexplain.models.loaded_model import LoadedModel


#: targets that explain the answer that the model finds
_FOUND = ("predicted", "class:")


@dataclass(frozen=True, slots=True)
class Tie:
    """A stored answer that is as likely as the new one."""

    repeat: Explained | None  #: the item explained for it; None: it is not stored which one it is


def tied_answer(
    model: LoadedModel,
    plan: AuditPlan,
    tolerance: float,
    outcome: ItemOutcome,
    stored: Sequence[Attribution],
    repeat: Explained,
) -> Tie | None:
    """The tie of a stored answer and the one that was found again.

    None: the answers are the same, the stored one is less likely, or the model gives classes.

    Args:
        model: that the item was explained with again.
        plan: of the run.
        tolerance: largest difference of equal logits, as a share of their scale.
        outcome: as it is stored.
        stored: the explanations of the item.
        repeat: the item explained again.
    """
    item, request = repeat.item, Request.from_plan(plan)
    if item is None or repeat.outcome is None:
        return None
    if plan.model.head == "span":
        before, now = _span(stored), _span(repeat.attributions)
        if before is None or before == now:
            return None
        pinned = replace(
            request, pinned={item.id: TaggedSpan(start=before[0], end=before[1], type=ANSWER)}
        )
        sums = [_sum(model, part, item) for part in (request, pinned)]
        if None in sums:
            return None
        best, other = (total for total in sums if total is not None)
        if best - other > 2 * tolerance * max(1.0, abs(best), abs(other)):
            return None
        (again,) = explain_again(model, pinned, [(item, None)], observer=Silent())
        return Tie(again)
    if plan.model.head == GENERATED:
        kept = "".join(outcome.texts[1:]) if stored_as_written(plan) else None
        return _tied_words(model, request, tolerance, item, kept)
    return None


def stored_as_written(plan: AuditPlan) -> bool:
    """Return whether the store has texts as they are, without hashes and blanks."""
    privacy = plan.privacy
    return privacy is None or (privacy.store_text == "full" and privacy.redact is None)


def _span(attributions: Sequence[Attribution]) -> tuple[int, int] | None:
    """The characters of the answer that was found, by what is explained of it."""
    places = (
        explained_characters(row.notes) for row in attributions if row.target.startswith(_FOUND)
    )
    return next((place for place in places if place is not None), None)


def _sum(model: LoadedModel, request: Request, item: Item) -> float | None:
    """The sum of both logits of an answer; None where it cannot be explained."""
    (end,) = explain_again(model, request, [(item, ("predicted",))], observer=Silent())
    return end.attributions[0].logit if end.attributions else None


class AnswersNearby(Protocol):
    """The encoder of a model that generates the answers it explains."""

    def said_nearby(self, prompt: str, answer: str, share: float) -> tuple[str, float]:
        """The answer within ties of `share`, and how far apart the nearest logits were."""


def _tied_words(
    model: LoadedModel, request: Request, tolerance: float, item: Item, answer: str | None
) -> Tie | None:
    """See `tied_answer`; `answer` is the stored one, None where it is not stored as it was."""
    encoder = cast(AnswersNearby, model.encoder)
    prompt, now = item.texts
    if answer == now:
        return None
    try:
        said, nearest = encoder.said_nearby(prompt, now, 2 * tolerance)
        if said != now:  # the data give the answer, and nothing was generated
            return None
        if answer is None:
            return Tie(None) if nearest <= 2 * tolerance else None
        if encoder.said_nearby(prompt, answer, 2 * tolerance)[0] != answer:
            return None
    except ItemError:
        return None
    content, second_at = joined(prompt, answer)
    other = replace(item, content=content, second_at=second_at)
    (again,) = explain_again(model, request, [(other, None)], observer=Silent())
    return Tie(again)


#: targets whose class the logits choose
_BY_LOGIT = ("predicted", "top:")


@dataclass(slots=True)
class Largest:
    """The largest differences that were seen, as shares of the item's scale."""

    relevance: float = 0.0
    logit: float = 0.0
    attributions: int = 0
    ties: int = 0  #: items whose other class or answer is as likely


def differences(
    outcome: ItemOutcome,
    stored: Sequence[Attribution],
    repeat: Explained,
    tolerance: float,
    largest: Largest,
    floors: Sequence[float] | None = None,
    *,
    said: bool = False,
) -> Iterator[str]:
    """The differences of an item explained again from the stored one, beyond `tolerance`.

    Differences are shares of the item's own scale: of relevance, beyond the precision of what
    is stored, of the largest |relevance|; of logits, of the largest |logit| or 1. `largest` takes
    those that are within the tolerance, too. `floors` (C,) are those of a model of several labels.
    `said`: texts end with answers that the model generates, and are stored as they are.
    """
    if repeat.outcome is None:
        reason = repeat.failure.message if repeat.failure else "nothing came back"
        yield f"cannot be explained again: {reason}"
        return
    if said:
        yield from _other_answer(outcome.texts, repeat.outcome.texts)
    scale = max(1.0, *map(abs, outcome.logits)) if outcome.logits else 1.0
    if len(outcome.logits) != len(repeat.outcome.logits):
        yield f"{len(repeat.outcome.logits)} logits, stored {len(outcome.logits)}"
        return
    pairs = zip(outcome.logits, repeat.outcome.logits, strict=True)
    far = max((abs(before - other) / scale for before, other in pairs), default=0.0)
    largest.logit = max(largest.logit, far)
    if far > tolerance:
        yield f"logits differ by {far:.2g} of their scale"
    tied = _tied(outcome, tolerance * scale, floors)
    moved = repeat.outcome.predicted != outcome.predicted
    if moved and not tied:
        yield f"predicted {repeat.outcome.predicted!r}, stored {outcome.predicted!r}"
    again = {(row.target, row.rank): row for row in repeat.attributions}
    kept = {(attribution.target, attribution.rank): attribution for attribution in stored}
    if again.keys() != kept.keys() and (floors is None or not tied):
        yield f"{len(again)} attributions, stored {len(kept)}"
    swapped = moved and tied
    for key in sorted(again.keys() & kept.keys()):
        if _swapped(outcome, kept[key], again[key], tolerance * scale):
            swapped = True
        else:
            yield from _far(kept[key], again[key], tolerance, largest)
    largest.ties += swapped


def _other_answer(stored: tuple[str, ...], repeat: tuple[str, ...]) -> Iterator[str]:
    if stored != repeat:
        then, now = ("".join(texts[1:]) for texts in (stored, repeat))
        yield f"answers {now!r:.80}, stored {then!r:.80}"


def _tied(outcome: ItemOutcome, room: float, floors: Sequence[float] | None) -> bool:
    """Return whether the two likeliest classes are so near that either may come first.

    Of several labels: whether one is so near its floor that it may or may not be predicted.
    """
    if floors is not None:
        pairs = zip(outcome.logits, floors, strict=True)
        return any(abs(logit - floor) <= 2 * room for logit, floor in pairs)
    best = sorted(outcome.logits)[-2:]
    return len(best) == 2 and best[1] - best[0] <= 2 * room


def _swapped(outcome: ItemOutcome, stored: Attribution, repeat: Attribution, room: float) -> bool:
    """Return whether another class was explained because the two are so near that either may be."""
    if not stored.target.startswith(_BY_LOGIT):
        return False
    first, other = stored.class_index, repeat.class_index
    if first is None or other is None or first == other:
        return False
    return abs(outcome.logits[first] - outcome.logits[other]) <= 2 * room


def _far(
    stored: Attribution, repeat: Attribution, tolerance: float, largest: Largest
) -> Iterator[str]:
    what = f"target {stored.target!r}"
    if stored.class_name != repeat.class_name or stored.relevance.shape != repeat.relevance.shape:
        yield (
            f"{what} is of class {repeat.class_name!r} over {repeat.relevance.size} positions, "
            f"stored {stored.class_name!r} over {stored.relevance.size}"
        )
        return
    before, other = (np.asarray(x.relevance, dtype=np.float64).ravel() for x in (stored, repeat))
    scale = float(np.abs(other).max(initial=0.0)) or 1.0
    beyond = float((np.abs(before - other) - ROUNDING * np.abs(other)).max(initial=0.0)) / scale
    largest.attributions += 1
    largest.relevance = max(largest.relevance, beyond)
    if beyond > tolerance:
        yield f"{what}: relevance differs by {beyond:.2g} of its largest value"
    apart = abs(stored.logit - repeat.logit) / max(1.0, abs(repeat.logit))
    largest.logit = max(largest.logit, apart)
    if apart > tolerance:
        yield f"{what}: logit {repeat.logit:.6g}, stored {stored.logit:.6g}"


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
        yield note("model", "not available, so nothing is explained again; read again instead")
        again = _read_again(plan, rows)
        yield _compared(db, run_id, rows, again, 0.0, request, partial(differences, tolerance=0.0))
        return
    try:
        place = request.model_of(plan.model)
        model = load_model(place.source, dtype=place.dtype, device=place.device)
    except TransExplainError as error:
        remedy = "--model PATH or --device NAME names another place or device"
        yield judged("model", [str(error)], "", remedy)
        return
    faults = []
    if plan.model.digest and model.ref.digest != plan.model.digest:
        faults.append(
            f"digest {model.ref.digest[:12]} of {model.ref.source}, planned "
            f"{plan.model.digest[:12]}: the run was made with another model"
        )
    if plan.model.attention and model.ref.attention != plan.model.attention:
        faults.append(f"attention kernel {model.ref.attention!r}, planned {plan.model.attention!r}")
    yield judged("model", faults, f"digest {model.ref.digest[:12]}, {model.ref.dtype}")
    tolerance = TOLERANCES[plan.model.dtype] if request.tolerance is None else request.tolerance
    try:
        explained = list(_explained_again(plan, model, rows, request))
    except TransExplainError as error:
        yield judged("explained again", [str(error)], "")
        return
    compare = partial(
        differences,
        tolerance=tolerance,
        floors=Request.from_plan(plan).floors,
        said=plan.model.head == GENERATED and stored_as_written(plan),
    )
    tied = partial(tied_answer, model, plan, tolerance)
    yield _compared(db, run_id, rows, explained, tolerance, request, compare, tied)
    if plan.task == "evaluation":
        yield note("scores", "not measured again; the digests of the shards cover them")


def _items(plan: AuditPlan, rows: Sequence[tuple[int, str]]) -> Iterator[Item | ItemFailure]:
    for row, _ in rows:
        yield from read_shard(plan.dataset, Shard(index=0, start=row, stop=row + 1))


def _explained_again(
    plan: AuditPlan, model: "LoadedModel", rows: Sequence[tuple[int, str]], request: VerifyRequest
) -> Iterator[Explained]:
    if request.batch_tokens is not None:
        plan = replace(plan, batch_tokens=request.batch_tokens, batch_fixed=True)
    if plan.task != "evaluation":
        targets = [(item, None) for item in _items(plan, rows)]
        yield from explain_again(model, Request.from_plan(plan), targets)
        return
    from transexplain.evaluating.evaluate_items import evaluate_items
    from transexplain.evaluating.evaluation_bench import Evaluation

    assert plan.evaluation is not None
    bare = EvaluationPlan(methods=(), metrics=(), targets=plan.evaluation.targets)
    evaluation = Evaluation.from_plan(replace(plan, evaluation=bare))
    for end in evaluate_items(model, _items(plan, rows), evaluation, observer=Silent()):
        yield Explained(item=None, outcome=end.outcome, failure=end.failure)


def _read_again(plan: AuditPlan, rows: Sequence[tuple[int, str]]) -> Iterator[Explained]:
    for row, _ in rows:
        for item in read_attributions(plan, Shard(index=0, start=row, stop=row + 1)):
            if isinstance(item, ItemFailure):
                yield Explained(item=None, failure=item)
            else:
                _, outcome, attributions = item
                yield Explained(item=None, outcome=outcome, attributions=attributions)


def _compared(
    db: Database,
    run_id: str,
    rows: Sequence[tuple[int, str]],
    again: Sequence[Explained] | Iterator[Explained],
    tolerance: float,
    request: VerifyRequest,
    compare: Callable[..., Iterator[str]],
    tied: Callable[[ItemOutcome, Sequence[Attribution], Explained], Tie | None] | None = None,
) -> VerifiedLine:
    name, ids = "explained again", [item_id for _, item_id in rows]
    faults: list[str] = []
    largest = Largest()
    try:
        outcomes = {item.item_id: item for item in readers.iter_items(db, run_id, item_ids=ids)}
        stored: dict[str, list[Attribution]] = {item_id: [] for item_id in ids}
        for attribution in readers.iter_attributions(db, run_id, item_ids=ids):
            stored[attribution.item_id].append(attribution)
        for item_id, repeat in zip(ids, again, strict=True):
            outcome = outcomes[item_id]
            assert isinstance(outcome, ItemOutcome)
            kept, before = stored[item_id], replace(largest)
            differing = list(compare(outcome, kept, repeat, largest=largest))
            if differing and tied is not None and (tie := tied(outcome, kept, repeat)):
                largest = replace(before, ties=before.ties + 1)
                differing = []
                if tie.repeat is not None:
                    differing = list(compare(outcome, kept, tie.repeat, largest=largest))
            faults += [f"item {item_id!r}: {text}" for text in differing]
    except (DamagedRowError, ConfigurationError, ValueError, TypeError, KeyError) as error:
        faults.append(f"the stored sample cannot be read: {error}")
    good = (
        f"{len(ids)} items (seed {request.seed}), {largest.attributions} attributions: largest "
        f"difference of relevance, beyond the stored precision, {largest.relevance:.1e} of the "
        f"item's largest, of logits {largest.logit:.1e}; tolerance {tolerance:.0e}{_ties(largest)}"
    )
    return judged(name, faults, good)


def _ties(largest: Largest) -> str:
    if not largest.ties:
        return ""
    things = "item is a tie" if largest.ties == 1 else "items are ties"
    return f"; {largest.ties} {things}: another class or answer is as likely within the tolerance"

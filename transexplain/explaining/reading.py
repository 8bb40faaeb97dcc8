"""Reads and encodes a part of a shard, in whatever process: the first stage of the path."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from transexplain.data.shard_reader import StoredPicture, read_shard
from transexplain.explaining.explain_request import Request
from transexplain.explaining.portions import portions
from transexplain.models.loaded_model import Encoded, Encoder, LoadedModel
from transexplain.types.items import Item, ItemFailure
from transexplain.types.observer import NO_CAUTION, Caution
from transexplain.types.plans import AuditPlan, Modality, Shard

Entry = Item | ItemFailure | Encoded
#: items that are read by one call; the memory of what is read ahead is bounded by so many
PART: dict[Modality, int] = {"text": 256, "image": 16, "nodes": 32}
#: receives the row that is worked on; None: no single one is
InHand = Callable[[int | None], None]


@dataclass(frozen=True, slots=True)
class ReadingJob:
    """What all parts of a run have in common; it travels without the model's weights."""

    plan: AuditPlan
    encoder: Encoder | None  #: None: items are not encoded, as measures encode their own
    by_reference: bool = False  #: pictures are left where they are once they are encoded

    @classmethod
    def of(cls, plan: AuditPlan, model: LoadedModel, *, by_reference: bool = False) -> "ReadingJob":
        """The job of a plan by its model."""
        encoder = None if plan.task == "evaluation" else model.encoder
        return cls(plan, encoder, by_reference)


@dataclass(frozen=True, slots=True)
class Part:
    """Consecutive rows of a shard."""

    shard: Shard  #: its `start` and `stop` are those of the part
    caution: Caution = NO_CAUTION


def parts_of(plan: AuditPlan, shard: Shard, caution: Caution = NO_CAUTION) -> Iterator[Part]:
    """A shard in parts, in order."""
    size = PART[plan.dataset.modality]
    for start in range(shard.start, shard.stop, size):
        yield Part(replace(shard, start=start, stop=min(start + size, shard.stop)), caution)


def read_part(job: ReadingJob, part: Part, in_hand: InHand = lambda row: None) -> list[Entry]:
    """The entries of a part, encoded where the job has an encoder: one per row, in order.

    An item in quarantine is neither opened nor encoded; items that work alone are encoded alone.
    Raises as `read_shard`, and ConfigurationError as `LoadedModel.encode`.
    """
    plan, caution = job.plan, part.caution
    read = list(_read(plan, part, in_hand))
    if job.encoder is None:
        return [*read]
    request = Request.from_plan(plan)
    model = cast(LoadedModel, _EncoderAlone(job.encoder))
    found: list[Entry] = []
    # pictures are encoded one by one anyway, and each may be the one that ends the process
    size = 1 if plan.dataset.modality == "image" else len(read)
    for some in portions(read, max(1, size), caution.alone):
        single = some[0] if len(some) == 1 and isinstance(some[0], Item) else None
        in_hand(single.index if single is not None else None)
        found += _encoded(job, request, model, some, caution)
    return found


def _read(plan: AuditPlan, part: Part, in_hand: InHand) -> Iterator[Item | ItemFailure]:
    entries = read_shard(plan.dataset, part.shard, part.caution.quarantined)
    for row in range(part.shard.start, part.shard.stop):
        in_hand(row)
        yield from (next(entries),)


def _encoded(
    job: ReadingJob,
    request: Request,
    model: LoadedModel,
    some: Sequence[Item | ItemFailure],
    caution: Caution,
) -> Iterator[Entry]:
    items = [one for one in some if isinstance(one, Item) and one.id not in caution.quarantined]
    made = iter(request.encode(model, items))
    wanted = {id(one) for one in items}
    for one in some:
        yield _referring(job, next(made)) if id(one) in wanted else one


def _referring(job: ReadingJob, one: Encoded | ItemFailure) -> Encoded | ItemFailure:
    """The same with a reference in the place of its picture, where those are left behind."""
    if not job.by_reference or not isinstance(one, Encoded) or one.item.source is None:
        return one
    size = getattr(one.item.content, "size", None)
    stored = StoredPicture(ref=job.plan.dataset, row=one.item.index, size=size)
    return replace(one, item=replace(one.item, content=stored))


@dataclass(frozen=True, slots=True)
class _EncoderAlone:
    """Stands for a model where only its encoder is needed."""

    encoder: Encoder

    def encode(self, items: Sequence[Item], **options: Any) -> list[Encoded | ItemFailure]:
        return self.encoder.encode(items, **options)

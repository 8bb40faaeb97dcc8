"""The request for explanations (method, targets, parameters), and the result for one item."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from transexplain.errors import ConfigurationError, ItemError, TargetError
from transexplain.explaining.batch_sizes import is_out_of_memory
from transexplain.methods import bound
from transexplain.methods.batch_explanation import BatchExplanation, is_finite
from transexplain.models.loaded_model import Encoded, Encoder, LoadedModel, LongText, Windows
from transexplain.types.answer_spans import EXACT, AnswerAgreement, AnswerScheme, agreement
from transexplain.types.dataset_labels import label_index
from transexplain.types.items import (
    Attribution,
    Item,
    ItemFailure,
    ItemOutcome,
    PatchGrid,
    ResolvedTarget,
    Target,
)
from transexplain.types.label_sets import SeveralLabels, label_set
from transexplain.types.observer import Caution
from transexplain.types.plans import (
    AT_POSITIONS,
    GENERATED,
    AuditPlan,
    Head,
    Join,
    LongTexts,
    Modality,
    check_long_texts,
)
from transexplain.types.scores import MethodSpec, MetricScore
from transexplain.types.targets import ClassNames, parse_target, predicted_labels, resolve_targets
from transexplain.types.token_labels import LabelScheme, TaggedEntity, TaggedSpan, entity_targets
from transexplain.types.tokens import Tokens

if TYPE_CHECKING:
    from transexplain.data.attribution_files import GivenItem

Scheme = LabelScheme | AnswerScheme
#: what an item is said to answer whose generated answer is not the one that the data expects
OTHERWISE = "another answer"


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """What to explain and how, whatever the items.

    Raises ConfigurationError where the parameters of long texts contradict each other.
    """

    method: MethodSpec
    targets: tuple[Target, ...]
    names: ClassNames
    labels: Mapping[str, str] = field(default_factory=dict)
    long_text: LongTexts = "truncate"
    max_length: int | None = None
    window: int | None = None
    stride: int | None = None
    long_text_join: Join = "mean"
    batch_tokens: int | None = None  #: None: see `AuditPlan.batch_budget`
    several: SeveralLabels | None = None  #: None: the model gives an item one class
    head: Head = "classes"  #: what the model answers
    #: by item id: characters that are taken as the answer to a question, whatever the logits say
    pinned: Mapping[str, TaggedSpan] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse a wrong request before anything is computed; TargetError: the model has it not."""
        tagging = self.head in AT_POSITIONS
        for target in self.targets:
            if tagging and target.kind in ("all", "top", "contrast"):
                raise TargetError(
                    f"target {target.spec!r} is of models that answer an item; of one that labels "
                    "tokens a target is predicted, label, a type such as class:PER, or "
                    "{span: [start, end, type]}; for question answering the type is answer"
                )
            if not tagging and target.kind == "span":
                raise TargetError(
                    f"target {target.spec!r} is of models that label tokens, and this one does not"
                )
            if self.head == GENERATED and target.kind not in ("predicted", "class", "all"):
                raise TargetError(
                    f"target {target.spec!r} is of models that answer with a class; of one that "
                    "generates answers the target is predicted, its own answer"
                )
        if tagging and self.long_text == "window":
            raise ConfigurationError(
                "a model that labels tokens reads no long texts in windows; use long_text: "
                "truncate or error, or cut the texts into sentences"
            )
        check_long_texts(
            self.long_text,
            max_length=self.max_length,
            window=self.window,
            stride=self.stride,
            join=self.long_text_join,
        )

    @classmethod
    def from_plan(cls, plan: AuditPlan) -> "Request":
        """Parse the plan's targets; raises TargetError."""
        names = ClassNames(plan.model.classes, plan.classifications)
        return cls(
            method=plan.method,
            targets=tuple(parse_target(spec, names) for spec in plan.targets),
            names=names,
            labels=plan.labels,
            long_text=plan.long_text,
            max_length=plan.max_length,
            window=plan.window,
            stride=plan.stride,
            long_text_join=plan.long_text_join,
            batch_tokens=plan.batch_budget,
            several=plan.several,
            head=plan.model.head,
        )

    @property
    def scheme(self) -> Scheme | None:
        """Return what the logits of tokens mean; None: the model answers an item."""
        if self.head == "span":
            return AnswerScheme()
        return LabelScheme(self.names.classes) if self.head == "tokens" else None

    def classes_of(self, item: Item) -> tuple[int, ...] | None:
        """The classes that an item's label names; None: there is no label, or no such class.

        One class, or of a model of several labels any number, in the order of the classes.
        """
        if item.label is None:
            return None
        if self.head == GENERATED:
            return (0,)  # the label is the answer that is expected
        if self.head == "span" and all(target.kind != "label" for target in self.targets):
            return (0,) if AnswerScheme().accepted(item.label) else None  # compared by their words
        if (scheme := self.scheme) is not None:
            spans = scheme.written(item.label, item.text or "", item.second_at)
            types = {span.type for span in spans}
            named = tuple(n for n, type_ in enumerate(scheme.types) if type_ in types)
            return named if len(named) == len(types) else None
        given: tuple[str, ...] = (item.label,)
        if self.several is not None:
            given = self.several.written(item.label, (*self.names.classes, *self.labels))
        indices = [label_index(label, self.names, self.labels) for label in given]
        known = {index for index in indices if index is not None}
        return None if None in indices else tuple(sorted(known))

    def named(self, indices: Iterable[int]) -> str:
        """Classes of an item as its outcome names them: one, or a set of labels."""
        scheme = self.scheme
        of = self.names.classes if scheme is None else scheme.types
        ordered = sorted(indices)
        if self.several is None and scheme is None:
            return of[ordered[0]]
        return label_set([of[label] for label in ordered])

    def tagged(
        self, member: "Member", logits: NDArray[np.floating[Any]]
    ) -> tuple[tuple[TaggedSpan, ...], tuple[TaggedSpan, ...] | None]:
        """The entities of a text by its logits (T, C), and those that are given; None: unknown."""
        if self.scheme is None:
            return (), None
        spans = tuple(entity.span for entity in self._entities(self.scheme, member, logits))
        if member.labels is None or self.head == "span":
            return spans, None
        return spans, tuple(entity.span for entity in given_entities(self.scheme, member))

    def agreed(self, item: Item, spans: Sequence[TaggedSpan]) -> AnswerAgreement | None:
        """Return how the answer to a question agrees with the given ones; None: there are none."""
        if self.head != "span" or item.label is None or item.text is None:
            return None
        given, answer = AnswerScheme().accepted(item.label), spans[0]
        return agreement(item.text[answer.start : answer.end], given) if given else None

    def predicted(self, logits: NDArray[np.floating[Any]], item: Item) -> str:
        """Return what is predicted for an item by logits (C,)."""
        if self.head == GENERATED:
            expected = item.label is None or _plain(item.label) == _plain(item.texts[1])
            return GENERATED if expected else OTHERWISE
        floors = self.floors
        return self.named(
            [int(logits.argmax())] if floors is None else predicted_labels(logits, floors)
        )

    @property
    def floors(self) -> tuple[float, ...] | None:
        """(C,) the logit from which each label is predicted; None: the model gives one class."""
        return None if self.several is None else self.several.floors(self.names.classes)

    def encode(
        self, model: LoadedModel | Encoder, items: Sequence[Item]
    ) -> list[Encoded | ItemFailure]:
        """Each item as the model (or its encoder) takes it, long texts in windows where set so."""
        long_text: LongText = (
            Windows(stride=self.stride) if self.long_text == "window" else self.long_text
        )
        room = self.max_length if self.window is None else self.window
        return model.encode(items, long_text=long_text, max_length=room)

    def resolve(
        self,
        model: LoadedModel,
        logits: NDArray[np.floating[Any]],
        members: "Sequence[Member]",
    ) -> list[list[ResolvedTarget]]:
        """The targets of each of B items by their logits, (B, C) or (B, T, C)."""
        if self.scheme is not None:
            pairs = zip(members, logits, strict=True)
            return [self._of_tokens(self.scheme, member, row) for member, row in pairs]
        labels = [member.labels for member in members]
        floors = self.floors
        each = [
            resolve_targets(target, logits, model.classes, labels, floors)
            for target in self.targets
        ]
        if len(each) == 1:
            return each[0]
        return [[entity for rows in each for entity in rows[row]] for row in range(len(labels))]

    def _of_tokens(
        self, scheme: Scheme, member: "Member", logits: NDArray[np.floating[Any]]
    ) -> list[ResolvedTarget]:
        """The targets of one text by its logits (T, C); ItemError: a span has no word."""
        entities = self._entities(scheme, member, logits)
        chosen: list[ResolvedTarget] = []
        for target in self.targets:
            given: tuple[TaggedEntity, ...] = ()
            if target.kind == "label":
                given = given_entities(scheme, member)
            elif target.span is not None:
                marked = TaggedSpan(start=target.span[0], end=target.span[1], type=target.name)
                given = (_spelled(scheme, marked, member),)
            chosen += entity_targets(target, entities, given)
        return chosen

    def _entities(
        self, scheme: Scheme, member: "Member", logits: NDArray[np.floating[Any]]
    ) -> list[TaggedEntity]:
        pinned = self.pinned.get(member.encoded.item.id)
        if pinned is not None:
            return [_spelled(scheme, pinned, member)]
        return scheme.entities(logits, _tokens(member), member.encoded.item.second_at)

    @property
    def run(self) -> Callable[..., BatchExplanation]:
        """The method with its parameters; takes a model, a batch and `resolve`."""
        return bound(self.method)


@dataclass(frozen=True, kw_only=True, slots=True)
class Explained:
    """One item's end: its outcome with attributions, or its failure."""

    item: Item | None
    outcome: ItemOutcome | None = None
    attributions: tuple[Attribution, ...] = ()
    failure: ItemFailure | None = None
    #: of a model that labels tokens: what it finds in the text, and what the data says is there
    entities: tuple[TaggedSpan, ...] = ()
    given: tuple[TaggedSpan, ...] | None = None
    agreement: AnswerAgreement | None = None  #: of an answer to a question with the given ones
    scores: tuple[MetricScore, ...] = ()  #: where its explanations were measured

    @classmethod
    def of(cls, stored: "GivenItem | ItemFailure") -> "Explained":
        """The end of an item whose attributions were made elsewhere."""
        if isinstance(stored, ItemFailure):
            return cls(item=None, failure=stored)
        item, outcome, attributions = stored
        return cls(item=item, outcome=outcome, attributions=attributions)

    @property
    def item_id(self) -> str:
        """The id of the item."""
        end = self.outcome or self.failure
        assert end is not None
        return end.item_id


@dataclass(frozen=True, slots=True, eq=False)
class Member:
    """An item that is ready to be explained."""

    place: int  #: among the items it was read with
    encoded: Encoded
    labels: tuple[int, ...] | None  #: class indices of its label, where it has one


def _plain(answer: str) -> str:
    """An answer without what does not count in a comparison: case, and white space around words."""
    return " ".join(answer.split()).casefold()


def _tokens(member: Member) -> Tokens:
    features = member.encoded.features
    assert not isinstance(features, PatchGrid)
    return Tokens.of(features)


def _spelled(scheme: Scheme, span: TaggedSpan, member: Member) -> TaggedEntity:
    spelled = scheme.spelled(span, _tokens(member))
    if spelled is None:
        raise ItemError(
            "no-span",
            f"no word that the model reads has a character from {span.start} to {span.end}",
        )
    return spelled


def given_entities(scheme: Scheme, member: Member) -> tuple[TaggedEntity, ...]:
    """The entities that the data says are in a text, those that were cut off left out."""
    item = member.encoded.item
    if item.label is None:
        return ()
    spans = scheme.written(item.label, item.content, item.second_at)
    spellings = (scheme.spelled(span, _tokens(member)) for span in spans)
    return tuple(spelling for spelling in spellings if spelling is not None)


class Stopped(Exception):  # noqa: N818 - not an error: the observer wants it
    """The observer's `should_stop` ended the work before the shard was complete."""


def model_failure(item: Item, error: Exception, traceback: str = "") -> Explained:
    """The end of an item that the model could not be run on, alone in its batch.

    `traceback` is that of the error, whose frames may be gone: they hold tensors.
    """
    kind, message = "model-error", f"the model failed on item {item.id!r}: "
    if is_out_of_memory(error):
        kind = "out-of-memory"
        shorter = "a smaller max_length or window, " if item.text is not None else ""
        message = (
            f"item {item.id!r} alone needs more memory than there is ({shorter}dtype bfloat16 or a "
            "device with more of it may help): "
        )
    message += f"{type(error).__name__}: {error}"
    failure = ItemFailure(
        item_id=item.id, index=item.index, kind=kind, message=message, traceback=traceback
    )
    return Explained(item=item, failure=failure)


def finished(
    request: Request,
    member: Member,
    logits: NDArray[np.float64],
    attributions: Sequence[Attribution],
    *,
    finite: bool = False,
) -> Explained:
    """The result of an item with `logits` (C,); a failure where anything is not finite.

    `finite` says that everything is known to be.
    """
    encoded, labels, item = member.encoded, member.labels, member.encoded.item
    answered = request.scheme is None
    own = logits if answered else logits[: encoded.length]
    if not (finite or (np.isfinite(own).all() and all(map(_is_finite, attributions)))):
        return model_failure(item, ArithmeticError("logits or relevance are not finite"))
    found, given = request.tagged(member, own)
    agreed = request.agreed(item, found)
    predicted = request.predicted(own, item) if answered else label_set(_types(request, found))
    label = None if labels is None else request.named(labels)
    if agreed is not None:  # an answer has no class: how it agrees with the given one stands for it
        label, predicted = EXACT, agreed.name
    return Explained(
        item=item,
        attributions=tuple(attributions),
        entities=found,
        given=given,
        agreement=agreed,
        outcome=ItemOutcome(
            item_id=item.id,
            index=item.index,
            label=label,
            predicted=predicted,
            logits=tuple(own.tolist()) if answered else (),
            truncated=encoded.truncated,
            positions=encoded.length,
            text=item.text,
            second_at=item.second_at,
            source=item.source,
            meta=item.meta,
            raw_label=item.label,
        ),
    )


def _types(request: Request, spans: Sequence[TaggedSpan]) -> list[str]:
    """The types of entities, each once, in the order of the labels."""
    types = {span.type for span in spans}
    return [type_ for type_ in (request.scheme.types if request.scheme else ()) if type_ in types]


def _is_finite(attribution: Attribution) -> bool:
    ledger = attribution.ledger
    return bool(np.isfinite(attribution.relevance).all() and (ledger is None or is_finite(ledger)))


def encoded_of(members: Sequence[Member]) -> list[Encoded]:
    """The encoded items of these members, in order."""
    return [member.encoded for member in members]


Entry = Item | ItemFailure | Encoded
Some = TypeVar("Some", bound=Entry)


def screened(entries: Iterable[Some], caution: Caution) -> Iterator[Some | ItemFailure]:
    """The stream with a failure in the place of each item in quarantine."""
    if not caution.quarantined:
        return iter(entries)
    return (_screened(entry, caution) for entry in entries)


def _screened(entry: Some, caution: Caution) -> Some | ItemFailure:
    item = _item_of(entry)
    if item is None or item.id not in caution.quarantined:
        return entry
    return ItemFailure(
        item_id=item.id,
        index=item.index,
        kind="quarantined",
        message=f"item {item.id!r} ran alone when attempts ended, the last one: "
        f"{caution.quarantined[item.id]}",
        traceback=caution.tracebacks.get(item.id, ""),
    )


def portions(entries: Iterable[Some], size: int, alone: Collection[str]) -> Iterator[list[Some]]:
    """The stream in lists of at most `size`, in order; the items `alone` are lists of their own.

    So these are encoded and computed by themselves, whatever is done with a list.
    """
    stream = iter(entries)
    while not alone and (some := list(islice(stream, size))):
        yield some
    portion: list[Some] = []
    for entry in stream:
        item = _item_of(entry)
        by_itself = item is not None and item.id in alone
        if portion and by_itself:
            yield portion
            portion = []
        portion.append(entry)
        if by_itself or len(portion) == size:  # at once: the next entry may be long in coming
            yield portion
            portion = []
    if portion:
        yield portion


def _item_of(entry: Entry) -> Item | None:
    if isinstance(entry, Encoded):
        return entry.item
    return entry if isinstance(entry, Item) else None


#: items that are read and sorted by length together; pictures are large and all of one length
READ_TOGETHER: Mapping[Modality, int] = {"text": 256, "image": 32, "nodes": 32}
#: the same on a card, whose batches are larger
READ_FOR_A_CARD: Mapping[Modality, int] = {"text": 4096, "image": 256, "nodes": 32}


def read_together(model: LoadedModel) -> int:
    """Return how many items are read and sorted by length before the first of them is explained."""
    on_a_card = model.ref.device.startswith("cuda")
    return (READ_FOR_A_CARD if on_a_card else READ_TOGETHER)[model.modality]

"""Whether a stored answer is as good as the one that a model gives now: a tie.

Two spans of a context, or two tokens of a generated answer, whose logits differ by less than
rounding may change places on another machine. Then the stored answer is explained in the place of
the new one, and its numbers are compared.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from transexplain.errors import ItemError
from transexplain.explaining import Explained, Request
from transexplain.explaining.item_loop import Silent, explain_again
from transexplain.models.generated_answers import AnsweredEncoder
from transexplain.models.loaded_model import LoadedModel
from transexplain.types.items import Attribution, Item, ItemOutcome
from transexplain.types.pairs import joined
from transexplain.types.plans import GENERATED, AuditPlan
from transexplain.types.token_labels import ANSWER, TaggedSpan, explained_characters

#: targets that explain the answer that the model finds
_FOUND = ("predicted", "class:")


@dataclass(frozen=True, slots=True)
class Tie:
    """A stored answer that is as likely as the new one."""

    made: Explained | None  #: the item explained for it; None: it is not stored which one it is


def tied_answer(
    model: LoadedModel,
    plan: AuditPlan,
    tolerance: float,
    outcome: ItemOutcome,
    stored: Sequence[Attribution],
    made: Explained,
) -> Tie | None:
    """The tie of a stored answer and the one that was found again.

    None: the answers are the same, the stored one is less likely, or the model gives classes.

    Args:
        model: that the item was explained with again.
        plan: of the run.
        tolerance: largest difference of equal logits, as a share of their scale.
        outcome: as it is stored.
        stored: the explanations of the item.
        made: the item explained again.
    """
    item, request = made.item, Request.from_plan(plan)
    if item is None or made.outcome is None:
        return None
    if plan.model.head == "span":
        return _tied_span(model, request, tolerance, item, stored, made)
    if plan.model.head == GENERATED:
        kept = "".join(outcome.texts[1:]) if stored_as_written(plan) else None
        return _tied_words(model, request, tolerance, item, kept)
    return None


def stored_as_written(plan: AuditPlan) -> bool:
    """Whether the store has texts as they are, without hashes and blanks."""
    privacy = plan.privacy
    return privacy is None or (privacy.store_text == "full" and privacy.redact is None)


def _tied_span(
    model: LoadedModel,
    request: Request,
    tolerance: float,
    item: Item,
    stored: Sequence[Attribution],
    made: Explained,
) -> Tie | None:
    before, now = _span(stored), _span(made.attributions)
    if before is None or before == now:
        return None
    pinned = replace(
        request, pinned={item.id: TaggedSpan(start=before[0], end=before[1], type=ANSWER)}
    )
    sums = [_sum(model, one, item) for one in (request, pinned)]
    if None in sums:
        return None
    best, other = (one for one in sums if one is not None)
    if best - other > 2 * tolerance * max(1.0, abs(best), abs(other)):
        return None
    (again,) = explain_again(model, pinned, [(item, None)], observer=Silent())
    return Tie(again)


def _span(attributions: Sequence[Attribution]) -> tuple[int, int] | None:
    """The characters of the answer that was found, by what is explained of it."""
    found = (
        explained_characters(one.notes) for one in attributions if one.target.startswith(_FOUND)
    )
    return next((one for one in found if one is not None), None)


def _sum(model: LoadedModel, request: Request, item: Item) -> float | None:
    """The sum of both logits of an answer; None where it cannot be explained."""
    (one,) = explain_again(model, request, [(item, ("predicted",))], observer=Silent())
    return one.attributions[0].logit if one.attributions else None


def _tied_words(
    model: LoadedModel, request: Request, tolerance: float, item: Item, answer: str | None
) -> Tie | None:
    """See `tied_answer`; `answer` is the stored one, None where it is not stored as it was."""
    encoder = model.encoder
    assert isinstance(encoder, AnsweredEncoder)
    prompt, now = item.texts
    if answer == now:
        return None
    try:
        own, nearest = encoder.said_nearby(prompt, now, 2 * tolerance)
        if own != now:  # the data give the answer, and nothing was generated
            return None
        if answer is None:
            return Tie(None) if nearest <= 2 * tolerance else None
        if encoder.said_nearby(prompt, answer, 2 * tolerance)[0] != answer:
            return None
    except ItemError:
        return None
    content, second_at = joined(prompt, answer)
    given = replace(item, content=content, second_at=second_at)
    (again,) = explain_again(model, request, [(given, None)], observer=Silent())
    return Tie(again)

"""How far an item that is explained again is from what is stored of it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from transexplain.explaining import Explained
from transexplain.types import Attribution, ItemOutcome
from transexplain.verifying.consistency import OF_ITSELF, OF_LARGEST

#: targets whose class the logits choose
_BY_LOGIT = ("predicted", "top:")


@dataclass(slots=True)
class Largest:
    """The largest differences that were seen, as shares of the item's scale."""

    relevance: float = 0.0
    logit: float = 0.0
    attributions: int = 0


def differences(
    outcome: ItemOutcome,
    stored: Sequence[Attribution],
    made: Explained,
    tolerance: float,
    largest: Largest,
) -> Iterator[str]:
    """What an item explained again has differently from what is stored, beyond `tolerance`.

    Differences are shares of the item's own scale: of relevance, beyond the precision of its
    payload, of the largest |relevance|; of logits, of the largest |logit| or 1. `largest` takes
    those that are within the tolerance, too.
    """
    if made.outcome is None:
        reason = made.failure.message if made.failure else "nothing came back"
        yield f"cannot be explained again: {reason}"
        return
    scale = max(1.0, *map(abs, outcome.logits)) if outcome.logits else 1.0
    if len(outcome.logits) != len(made.outcome.logits):
        yield f"{len(made.outcome.logits)} logits, stored {len(outcome.logits)}"
        return
    pairs = zip(outcome.logits, made.outcome.logits, strict=True)
    far = max((abs(one - other) / scale for one, other in pairs), default=0.0)
    largest.logit = max(largest.logit, far)
    if far > tolerance:
        yield f"logits differ by {far:.2g} of their scale"
    if made.outcome.predicted != outcome.predicted and not _tied(outcome, tolerance * scale):
        yield f"predicted {made.outcome.predicted!r}, stored {outcome.predicted!r}"
    again = {(one.target, one.rank): one for one in made.attributions}
    kept = {(one.target, one.rank): one for one in stored}
    if again.keys() != kept.keys():
        yield f"{len(again)} attributions, stored {len(kept)}"
    for key in sorted(again.keys() & kept.keys()):
        before, after = kept[key], again[key]
        if not _swapped(outcome, before, after, tolerance * scale):
            yield from _far(before, after, tolerance, largest)


def _tied(outcome: ItemOutcome, room: float) -> bool:
    """Whether the two likeliest classes are so near that either may come first."""
    best = sorted(outcome.logits)[-2:]
    return len(best) == 2 and best[1] - best[0] <= 2 * room


def _swapped(outcome: ItemOutcome, stored: Attribution, made: Attribution, room: float) -> bool:
    """Whether another class was explained because the two are so near that either may be."""
    if not stored.target.startswith(_BY_LOGIT):
        return False
    one, other = stored.class_index, made.class_index
    if one is None or other is None or one == other:
        return False
    return abs(outcome.logits[one] - outcome.logits[other]) <= 2 * room


def _far(
    stored: Attribution, made: Attribution, tolerance: float, largest: Largest
) -> Iterator[str]:
    what = f"target {stored.target!r}"
    if stored.class_name != made.class_name or stored.relevance.shape != made.relevance.shape:
        yield (
            f"{what} is of class {made.class_name!r} over {made.relevance.size} positions, stored "
            f"{stored.class_name!r} over {stored.relevance.size}"
        )
        return
    one, other = (np.asarray(x.relevance, dtype=np.float64).ravel() for x in (stored, made))
    scale = float(np.abs(other).max(initial=0.0)) or 1.0
    # stored relevance is float16 or float32 whatever it was computed in
    room = OF_ITSELF * np.abs(other) + OF_LARGEST * scale
    beyond = float((np.abs(one - other) - room).max(initial=0.0)) / scale
    largest.attributions += 1
    largest.relevance = max(largest.relevance, beyond)
    if beyond > tolerance:
        yield f"{what}: relevance differs by {beyond:.2g} of its largest value"
    apart = abs(stored.logit - made.logit) / max(1.0, abs(made.logit))
    largest.logit = max(largest.logit, apart)
    if apart > tolerance:
        yield f"{what}: logit {made.logit:.6g}, stored {stored.logit:.6g}"

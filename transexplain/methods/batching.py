"""Which items share a batch: similar lengths, bounded by a budget of positions."""

from collections.abc import Sequence

from transexplain.models.base import Encoded, LoadedModel


def batches_of(model: LoadedModel, encoded: Sequence[Encoded], budget: int) -> list[list[int]]:
    """Indices of items that may share a batch without changing their logits.

    A model whose logits depend on padding gets batches of equal lengths, one whose logits depend
    on the other items gets every item alone. What the model does is measured once, and only when
    there is a batch that it matters for.
    """
    lengths = [one.length for one in encoded]
    batches = token_batches(lengths, budget)
    if all(len(batch) == 1 for batch in batches):
        return batches
    ragged = any(len({lengths[index] for index in batch}) > 1 for batch in batches)
    longest = max(encoded, key=lambda one: one.length)
    found = model.invariance(longest, ragged=ragged)
    if not found.batch:
        return [[index] for batch in batches for index in batch]
    if ragged and not found.padding:
        return token_batches(lengths, budget, equal=True)
    return batches


def token_batches(lengths: Sequence[int], budget: int, *, equal: bool = False) -> list[list[int]]:
    """Indices of items grouped so that (items x longest length) stays within `budget`.

    Items are sorted by length (stable), so that little is padded; an item longer than the
    budget is alone in its batch. With `equal` the items of a batch are of one length.
    """
    batches: list[list[int]] = []
    for index in sorted(range(len(lengths)), key=lambda i: lengths[i]):
        fits = batches and (len(batches[-1]) + 1) * lengths[index] <= budget
        if fits and not (equal and lengths[batches[-1][0]] != lengths[index]):
            batches[-1].append(index)
        else:
            batches.append([index])
    return batches

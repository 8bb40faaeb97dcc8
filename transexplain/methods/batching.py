"""Which items share a batch: similar lengths, bounded by a budget of positions."""

from collections.abc import Sequence


def token_batches(lengths: Sequence[int], budget: int) -> list[list[int]]:
    """Indices of items grouped so that (items x longest length) stays within `budget`.

    Items are sorted by length (stable), so that little is padded; an item longer than the
    budget is alone in its batch.
    """
    batches: list[list[int]] = []
    for index in sorted(range(len(lengths)), key=lambda i: lengths[i]):
        if batches and (len(batches[-1]) + 1) * lengths[index] <= budget:
            batches[-1].append(index)
        else:
            batches.append([index])
    return batches

"""Which blocks of a model that is too large for one card lie on which card."""

from collections.abc import Iterator, Mapping, Sequence

from torch import nn

from transexplain.errors import ModelLoadError

#: of a card's free memory, for weights; explanations need the rest for what a pass computes
_FOR_WEIGHTS = 0.8
#: the share of a card is raised by so much of an even one until all blocks find a place
_STEP = 0.05
_GIB = 2**30

_Part = tuple[str, Mapping[int, int]]  #: name, and bytes by the identity of a tensor


def card_map(module: nn.Module, memory: Mapping[str, int], where: str) -> dict[str, str]:
    """The device of every part of `module`, by its name, so that cards are about evenly full.

    Args:
        module: may lie on the meta device; its number type is the one that counts. What
            transformers says is no place to cut stays on one card, and so do tied weights.
        memory: free bytes by device, in the order that the blocks shall follow.
        where: of the model, for messages.

    Raises ModelLoadError where transformers does not say where the model may be cut, or where it
    has no room on the devices together.
    """
    whole = getattr(module, "_no_split_modules", None)
    if not whole:
        raise ModelLoadError(
            f"{where}: transformers does not say where a {type(module).__name__} may be cut, so it "
            "cannot lie on several cards; use device='cuda:0' or 'cpu'"
        )
    parts = list(_parts(module, frozenset(whole)))
    size = sum({key: one for _, sizes in parts for key, one in sizes.items()}.values())
    most = {device: int(_FOR_WEIGHTS * free) for device, free in memory.items()}
    even = max(1, size // len(most))
    share = even
    while (places := _filled(parts, [min(one, share) for one in most.values()])) is None:
        if share >= max(most.values()):
            raise ModelLoadError(_too_large(module, size, most, where))
        share += max(1, int(_STEP * even))
    names = list(most)
    return {name: names[place] for (name, _), place in zip(parts, places, strict=True)}


def _parts(module: nn.Module, whole: frozenset[str], prefix: str = "") -> Iterator[_Part]:
    """What may lie on a card of its own.

    A module with tensors beside its parts is not cut either: it computes with both.
    """
    for name, child in module.named_children():
        own = (*child.parameters(recurse=False), *child.buffers(recurse=False))
        if own or type(child).__name__ in whole:
            tensors = (*child.parameters(), *child.buffers())
            yield f"{prefix}{name}", {id(one): one.nbytes for one in tensors}
        else:
            yield from _parts(child, whole, f"{prefix}{name}.")


def _filled(parts: Sequence[_Part], room: Sequence[int]) -> list[int] | None:
    """The number of each part's card, cards filled in order; None: there is not enough room."""
    left, card = list(room), 0
    at: dict[int, int] = {}  # tensor -> card
    places = []
    for _, sizes in parts:
        tied = next((at[key] for key in sizes if key in at), None)
        need = sum(size for key, size in sizes.items() if key not in at)
        while tied is None and card < len(left) and need > left[card]:
            card += 1
        place = card if tied is None else tied
        if place == len(left) or need > left[place]:
            return None
        left[place] -= need
        at |= dict.fromkeys(sizes, place)
        places.append(place)
    return places


def _too_large(module: nn.Module, size: int, most: Mapping[str, int], where: str) -> str:
    room = ", ".join(f"{device} {free / _GIB:.3g}" for device, free in most.items())
    return (
        f"{where}: the weights of this {type(module).__name__} are {size / _GIB:.3g} GiB, for "
        f"which there is no room on the cards (GiB for weights: {room}; a block is not cut); use "
        "dtype='bfloat16', more cards, or device='cpu'"
    )

"""Explaining again what was explained: the same classes, of other items or by another model."""

from collections.abc import Collection, Sequence
from dataclasses import replace

from transexplain.explaining.explain_request import Explained, Request
from transexplain.explaining.item_loop import explain_items
from transexplain.models.loaded_model import LoadedModel
from transexplain.types.items import Attribution, Item, ItemFailure
from transexplain.types.observer import Observer
from transexplain.types.targets import parse_target


def explain_again(
    model: LoadedModel,
    request: Request,
    wanted: Sequence[tuple[Item | ItemFailure, tuple[str, ...] | None]],
    *,
    observer: Observer | None = None,
    alone: Collection[str] = (),
) -> list[Explained]:
    """Explain each item for targets of its own; None stands for those of the request.

    Items of the same targets share batches. The results are in the order of `wanted`.

    Args:
        model: as it was, or another one of the same classes.
        request: how it was explained.
        wanted: items, or why there is none, each with its targets as a plan writes them.
        observer: of the passes.
        alone: ids of items that share no batch.

    Raises as `explain_items`.
    """
    by_targets: dict[tuple[str, ...] | None, list[int]] = {}
    for number, (_, specs) in enumerate(wanted):
        by_targets.setdefault(specs, []).append(number)
    found: dict[int, Explained] = {}
    for specs, numbers in by_targets.items():
        own = request
        if specs is not None:
            targets = tuple(parse_target(spec, request.names) for spec in specs)
            own = replace(request, targets=targets)
        items = [wanted[number][0] for number in numbers]
        ends = explain_items(model, items, own, observer=observer, alone=alone)
        found.update(zip(numbers, ends, strict=True))
    return [found[number] for number in range(len(wanted))]


def same_class(attribution: Attribution) -> str:
    """The target that explains the class of an attribution, whatever is predicted now."""
    if attribution.class_index is None:
        return attribution.target
    return f"class:{attribution.class_name}"

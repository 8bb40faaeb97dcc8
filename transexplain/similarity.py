"""The public functions for models of two towers: explain how alike a picture and a text are."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, get_args

import torch

from transexplain.data.picture_places import picture_at
from transexplain.errors import ConfigurationError, ItemError, TargetError
from transexplain.explaining.similarity_loop import PairRequest, explain_pairs
from transexplain.methods import facts_of, parameters_of
from transexplain.models.load_towers import load_two_towers
from transexplain.models.loaded_model import checked_model, failure
from transexplain.models.two_towers import Likeness, TwoTowers
from transexplain.types.items import Item, ItemFailure
from transexplain.types.scores import MethodSpec
from transexplain.types.similarities import SimilarityAttribution

__all__ = ["explain_similarity", "load_two_towers"]

_OPTIONS = ("long_text", "max_length", "batch_tokens")
_SIDES = ("picture", "text")


@torch.inference_mode(False)
def explain_similarity(
    model: TwoTowers,
    pairs: Any,
    method: str | MethodSpec = "lrp",
    target: Likeness = "similarity",
    *,
    on_error: str = "raise",
    **params: Any,
) -> list[Any]:
    """Explain how alike pictures and texts are: relevance of every patch and of every token.

    The similarity is bilinear in the two unit vectors of a pair. The vectors' lengths are scales
    and held constant (as those of layer norms), so it is a product of two signals, and the rule
    for such products holds: half of the relevance to each side. The sum over both sides, special
    positions, biases and rules is the explained value. `gradient-x-input` and Ali's composites
    give each side the plain gradient of the product instead, and book what both have twice under
    `rules`. Methods without a ledger explain the whole on each side, the other held as it is.

    Args:
        model: what `load_two_towers` gave.
        pairs: a tuple of a picture (PIL image, array, path or `{"pixel_values": (3, H, W)}`) and a
            text (or `{"input_ids": (T,)}`), an `Item` with such a tuple, or a list of these.
        method: name in the method registry, or a MethodSpec with its parameters.
        target: `similarity`, the model's own logit of a pair: cosine times exp(logit_scale) (or
            divided by its temperature) plus its logit_bias, if it has one; or the bare `cosine`.
        on_error: `raise` ItemError at the first pair that fails, or `record` an ItemFailure in
            its place.
        params: `long_text` (`error`, the default, or `truncate`), `max_length` of texts,
            `batch_tokens`; `at`, the input layer by side, such as `{"picture": "pixels",
            "text": "words"}` (default: the input of each tower's first block). The rest are
            parameters of the method.

    Returns:
        One `SimilarityAttribution` for each pair, in their order. Its sides are drawn by
        `te.render.overlay` and `te.render.html`, both together by `te.render.pair`.

    Raises:
        ItemError: a pair cannot be explained and `on_error` is `raise`.
        TargetError: a target that is neither.
        EngineError: an operator without a rule.
        ConfigurationError: what the method does not take.
    """
    if on_error not in ("raise", "record"):
        raise ConfigurationError(f"on_error cannot be {on_error!r}; it is raise or record")
    request = _request(model, method, target, params)
    results: list[SimilarityAttribution | ItemFailure] = []
    for pair in explain_pairs(model, _items(pairs), request):
        if isinstance(pair, ItemFailure) and on_error == "raise":
            raise ItemError(pair.kind, pair.message)
        results.append(pair)
    return results


def _request(
    model: Any, method: str | MethodSpec, target: Any, params: dict[str, Any]
) -> PairRequest:
    checked_model(TwoTowers, model)
    if target not in get_args(Likeness):
        raise TargetError(
            f"the target of a pair is 'similarity' or 'cosine', not {target!r:.80}; to contrast "
            "two texts, explain both and take the difference"
        )
    spec = method if isinstance(method, MethodSpec) else MethodSpec(name=method)
    facts = facts_of(spec.name)
    if not {"text", "image"} <= {*facts.modalities} or facts.files:
        raise ConfigurationError(
            f"method {spec.name!r} does not explain both pictures and texts of any model; choose "
            "another, such as lrp"
        )
    options = {name: params.pop(name) for name in _OPTIONS if name in params}
    _check(options)
    given = {**spec.params, **params}
    at = _layers(given.pop("at", None))
    known = parameters_of(spec.name)
    if at and "at" not in known:
        raise ConfigurationError(f"method {spec.name!r} has no parameter 'at'")
    return PairRequest(
        method=MethodSpec(name=spec.name, params=given), target=target, at=at, **options
    )


def _layers(at: Any) -> dict[Any, str]:
    """The input layer of each side; ConfigurationError where they cannot be told apart."""
    if at is None:
        return {}
    if at == "encoder":
        return dict.fromkeys(_SIDES, "encoder")
    if not isinstance(at, Mapping) or not {*at} <= {*_SIDES}:
        raise ConfigurationError(
            f"at cannot be {at!r:.80} for a pair; it is 'encoder', or a mapping such as "
            "{'picture': 'pixels', 'text': 'words'}"
        )
    return {side: str(layer) for side, layer in at.items()}


def _check(options: Mapping[str, Any]) -> None:
    if (long := options.get("long_text", "error")) not in ("error", "truncate"):
        raise ConfigurationError(
            f"long_text of a pair is 'error' or 'truncate', not {long!r:.80}: two towers compare "
            "a picture with one text"
        )
    for name in ("max_length", "batch_tokens"):
        value = options.get(name)
        if value is not None and (type(value) is not int or value < 1):
            raise ConfigurationError(f"{name} cannot be {value!r:.80}; it is a number above 0")


def _items(pairs: Any) -> Iterator[Item | ItemFailure]:
    """Each pair as an item, its picture opened; one pair as a list of one."""
    single = isinstance(pairs, Item) or (
        isinstance(pairs, tuple)
        and len(pairs) == 2
        and isinstance(pairs[1], str | Mapping)
        and not isinstance(pairs[0], Item)
    )
    if not single and (isinstance(pairs, str | Path | Mapping) or not _holds_items(pairs)):
        raise ConfigurationError(_no_pair(pairs))
    for index, pair in enumerate([pairs] if single else pairs):
        item = pair if isinstance(pair, Item) else Item(id=str(index), index=index, content=pair)
        if not isinstance(item.content, tuple) or len(item.content) != 2:
            raise ConfigurationError(_no_pair(item.content))
        yield _opened(item)


def _holds_items(pairs: Any) -> bool:
    """Whether it can be gone through; an array of no axis cannot."""
    return isinstance(pairs, Iterable) and getattr(pairs, "shape", (None,)) != ()


def _no_pair(given: Any) -> str:
    return f"a pair is a tuple (picture, text), the picture first, not {given!r:.80}"


def _opened(item: Item) -> Item | ItemFailure:
    picture, text = item.content
    if not isinstance(picture, str | Path):
        return item
    try:
        shown = picture_at(picture)
    except ItemError as error:
        return failure(item, error)
    return Item(
        id=item.id, index=item.index, content=(shown, text), source=str(picture), label=item.label
    )

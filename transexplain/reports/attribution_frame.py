"""Attributions as a pandas table: a row for each word or patch, or for each attribution."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Literal, get_args

from transexplain.errors import ConfigurationError, WrongKindError
from transexplain.registry import require
from transexplain.types.items import Attribution, ItemFailure, PatchGrid

if TYPE_CHECKING:
    import pandas

By = Literal["words", "items"]
Row = dict[str, Any]


def to_frame(
    attributions: Attribution | Iterable[Attribution | ItemFailure], by: By = "words"
) -> "pandas.DataFrame":
    """Attributions as a pandas DataFrame, in their order.

    Args:
        attributions: what `explain` gave: one, or several of any models and methods.
        by: `words`: a row for each word of a text (`position`, `word`, `start`, `end` in
            characters, `relevance` as the sum over its pieces) or patch of a picture (`row`,
            `col`, `relevance`). `items`: a row for each attribution, with its `logit`, its
            `probability` where it is known, and its ledger.

    Returns:
        Every row names its `item_id`, `method`, `target`, `rank` and `class_name`. An item that
        failed has one row with its `error`.

    Raises ConfigurationError where pandas is not installed, and for another `by`; TypeError for
    what is no attribution.
    """
    require("pandas", "notebook")
    import pandas

    if by not in get_args(By):
        raise ConfigurationError(f"by cannot be {by!r}; it is {' or '.join(get_args(By))}")
    given: Any = [attributions] if isinstance(attributions, Attribution) else attributions
    dimensions = getattr(given, "shape", (None,))
    if isinstance(given, str) or not isinstance(given, Iterable) or not dimensions:
        raise WrongKindError(_no_attribution(given))
    return pandas.DataFrame([row for one in given for row in _rows(one, by)])


def _rows(one: Any, by: By) -> Iterator[Row]:
    if isinstance(one, ItemFailure):
        yield {"item_id": one.item_id, "error": f"{one.kind}: {one.message}"}
        return
    if not isinstance(one, Attribution):
        raise WrongKindError(_no_attribution(one))
    names = ("item_id", "method", "target", "rank", "class_name")
    key: Row = {name: getattr(one, name) for name in names}
    if by == "items":
        yield key | _whole(one)
    elif isinstance(one.features, PatchGrid):
        for row, values in enumerate(one.relevance.tolist()):
            for col, value in enumerate(values):
                yield {**key, "row": row, "col": col, "relevance": value}
    else:
        for position, word in enumerate(one.words()):
            place: Row = {"position": position, "word": word.text}
            yield (
                key | place | {name: getattr(word, name) for name in ("start", "end", "relevance")}
            )


def _whole(one: Attribution) -> Row:
    found: Row = {
        "logit": one.logit,
        "probability": one.probabilities.get(one.class_name),
        "unit": one.unit,
        "at": one.at,
        "positions": one.relevance.size,
        "text": one.text,
        "second_at": one.second_at,
    }
    if one.ledger is not None:
        found |= {
            name: getattr(one.ledger, name)
            for name in ("inputs", "special", "embeddings", "biases", "rules", "total", "gap")
        }
    return found


def _no_attribution(given: Any) -> str:
    kind = type(given).__name__
    return f"to_frame takes attributions, as explain gives them, not {given!r:.80} ({kind})"

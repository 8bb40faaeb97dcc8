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
    rows: Any = [attributions] if isinstance(attributions, Attribution) else attributions
    dimensions = getattr(rows, "shape", (None,))
    if isinstance(rows, str) or not isinstance(rows, Iterable) or not dimensions:
        raise WrongKindError(_no_attribution(rows))
    return pandas.DataFrame([row for record in rows for row in _rows(record, by)])


def _rows(record: Any, by: By) -> Iterator[Row]:
    if isinstance(record, ItemFailure):
        yield {"item_id": record.item_id, "error": f"{record.kind}: {record.message}"}
        return
    if not isinstance(record, Attribution):
        raise WrongKindError(_no_attribution(record))
    key = _columns(record, "item_id", "method", "target", "rank", "class_name")
    if by == "items":
        yield key | _whole(record)
    elif isinstance(record.features, PatchGrid):
        for row, values in enumerate(record.relevance.tolist()):
            for col, value in enumerate(values):
                yield {**key, "row": row, "col": col, "relevance": value}
    else:
        for position, word in enumerate(record.words()):
            place: Row = {"position": position, "word": word.text}
            yield key | place | _columns(word, "start", "end", "relevance")


def _columns(record: Any, *names: str) -> Row:
    return {name: getattr(record, name) for name in names}


def _whole(record: Attribution) -> Row:
    row: Row = {
        "logit": record.logit,
        "probability": record.probabilities.get(record.class_name),
        "unit": record.unit,
        "at": record.at,
        "positions": record.relevance.size,
        "text": record.text,
        "second_at": record.second_at,
    }
    if record.ledger is not None:
        entries = ("inputs", "special", "embeddings", "biases", "rules", "total", "gap")
        row |= _columns(record.ledger, *entries)
    return row


def _no_attribution(value: Any) -> str:
    kind = type(value).__name__
    return f"to_frame takes attributions, as explain gives them, not {value!r:.80} ({kind})"

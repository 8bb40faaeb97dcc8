"""Which columns of a file hold attributions, and which of them a row needs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from transexplain.data.records import Table
from transexplain.errors import DataSourceError
from transexplain.targets import ClassNames

#: what a column means -> its names in a file, where none was given
COLUMNS: Mapping[str, tuple[str, ...]] = {
    "text": ("text", "sentence"),
    "tokens": ("tokens",),
    "offsets": ("offsets", "offset_mapping"),
    "scores": ("scores", "attributions"),
    "special": ("special", "special_tokens_mask"),
    "prediction": ("prediction", "predicted"),
    "class": ("class",),
    "target": ("target",),
    "logit": ("logit",),
    "logits": ("logits",),
    "label": ("label",),
    "id": ("id",),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class AttributionColumns:
    """How a file of attributions is read.

    `named` is what the user called a column: meaning -> name. `classes` are the model's, by
    index; None: those that the file names.
    """

    named: Mapping[str, str] = field(default_factory=dict)
    classes: ClassNames | None = None
    labels: Mapping[str, str] = field(default_factory=dict)  #: the file's label -> class
    meta: tuple[str, ...] = ()  #: further columns kept with each item
    cluster: str | None = None  #: column, see `plans.DatasetSpec`
    template: str | None = None

    @property
    def kept(self) -> tuple[str, ...]:
        """The columns of an item itself, without its attributions."""
        return tuple(name for name in (*self.meta, self.cluster, self.template) if name)

    def resolve(self, table: Table, path: Path) -> dict[str, str]:
        """Meaning -> column of the file `path`, for those that it has.

        Raises DataSourceError naming the columns there and those wanted: a column that was named
        or that every row needs is missing.
        """
        for meaning in self.named:
            if meaning not in COLUMNS:
                raise DataSourceError(
                    f"there is no meaning {meaning!r} for a column; known: {', '.join(COLUMNS)}"
                )
        for name in (*self.named.values(), *self.kept):
            if name not in table.columns:
                raise DataSourceError(f"{path} has no column {name!r}; {_existing(table)}")
        found = dict(self.named)
        for meaning, names in COLUMNS.items():
            here = [name for name in names if name in table.columns]
            if meaning not in found and here:
                found[meaning] = here[0]
        self._check(found, table, path)
        return found

    def _check(self, found: Mapping[str, str], table: Table, path: Path) -> None:
        missing = [name for name in ("text", "scores") if name not in found]
        if "tokens" not in found and "offsets" not in found:
            missing.append("tokens (or offsets)")
        if "prediction" not in found and not ("logits" in found and self.classes):
            missing.append("prediction (or logits, with the classes named)")
        if missing:
            raise DataSourceError(
                f"{path} holds no attributions that can be read: it has no column for "
                f"{', no '.join(missing)}; {_existing(table)}{_hint(table.columns)}. Say which "
                "column is which with --column, e.g. --column scores=attr"
            )
        if "logits" in found and self.classes is None:
            raise DataSourceError(
                f"{path} has a column of logits, {found['logits']!r}: name the classes in their "
                "order with --classes"
            )


def _existing(table: Table) -> str:
    return f"it has {', '.join(map(repr, table.columns))}"


def _hint(columns: Sequence[str]) -> str:
    if "input_ids" not in columns:
        return ""
    return (
        " (input_ids are numbers of one tokenizer's pieces, as Thermostat keeps them: write its "
        "tokens and the text beside them)"
    )

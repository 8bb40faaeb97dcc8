"""Which columns of a table a dataset reads: those that are named, or the usual ones."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from transexplain.data.source_files import Note, Table
from transexplain.errors import DataSourceError, did_you_mean
from transexplain.remote_paths import AnyPath
from transexplain.types.plans import DatasetSpec

_TEXT_DEFAULTS = ("text", "sentence")
LABEL_DEFAULT = "label"


@dataclass(frozen=True, kw_only=True, slots=True)
class Columns:
    """The columns of one file that the dataset reads."""

    content: str  #: text, or picture path
    second: str | None = None  #: of a pair of texts
    label: str | None
    id: str | None
    meta: tuple[str, ...]
    evidence: str | None = None
    spans: str | None = None
    cluster: str | None = None
    template: str | None = None

    @property
    def wanted(self) -> tuple[str, ...]:
        """Every column once."""
        of_items = (self.content, self.second, self.label, self.id, self.evidence, self.spans)
        named = (*of_items, *self.meta, self.cluster, self.template)
        return tuple(dict.fromkeys(name for name in named if name is not None))


def resolve(spec: DatasetSpec, table: Table, path: AnyPath) -> Columns:
    """The spec's columns, or their defaults, in the table of the file `path`.

    Raises DataSourceError naming the columns that exist where one is missing or there twice.
    """
    label, usual = spec.label, table.usual
    if label is None and (LABEL_DEFAULT in table.columns or table.sparse):
        label = usual.get("label", LABEL_DEFAULT)
    first, second = spec.text if isinstance(spec.text, tuple) else (spec.text, None)
    content = spec.image or first or usual.get("content")
    columns = Columns(
        content=content or _default_text(table.columns, path, spec.delimiter),
        second=second,
        label=label,
        id=spec.id or usual.get("id"),
        meta=tuple(spec.meta),
        evidence=spec.evidence,
        spans=spec.spans,
        cluster=spec.cluster,
        template=spec.template,
    )
    for name in columns.wanted:
        if name not in table.columns and not (name == label and spec.label is None):
            near = did_you_mean(name, table.columns)
            raise DataSourceError(
                f"{path} has no column {name!r}{near or ';'} "
                f"{_existing(table.columns, spec.delimiter)}"
            )
        if table.columns.count(name) > 1:
            raise DataSourceError(f"{path} has the column {name!r} more than once; rename one")
    return columns


def _default_text(existing: Sequence[str], path: AnyPath, delimiter: str | None) -> str:
    for name in _TEXT_DEFAULTS:
        if name in existing:
            return name
    tried = " or ".join(map(repr, _TEXT_DEFAULTS))
    raise DataSourceError(
        f"{path} has no column {tried}; name the column of the text (text: ...) or of the picture "
        f"path (image: ...); {_existing(existing, delimiter)}"
    )


def _existing(columns: Sequence[str], delimiter: str | None) -> str:
    has = f"it has {', '.join(map(repr, columns))}"
    if delimiter is None or len(columns) != 1:
        return has
    return (
        f"{has}, a single column: data.delimiter is {delimiter!r}, which its first line does not "
        "hold; leave it out to have it detected"
    )


class Labelled:
    """Which files have the usual column of labels, where none is named."""

    def __init__(self) -> None:
        self._files: dict[str, bool] = {}
        self._near = ""  #: a column that may be it

    def add(self, name: str, spec: DatasetSpec, table: Table) -> None:
        """Look at the columns of a file."""
        if spec.label is None and "label" not in table.usual:
            self._files[name] = LABEL_DEFAULT in table.columns
            spelled_so = (one for one in table.columns if _plain_name(one) == LABEL_DEFAULT)
            self._near = self._near or next(spelled_so, "")

    def notes(self) -> Iterator[Note]:
        """Files without labels among others, or a column that is nearly called so."""
        if any(self._files.values()):
            without = "has no column 'label', as other files have: its items count as unlabelled"
            yield from ((name, without) for name, has in self._files.items() if not has)
        elif self._near:
            yield (
                "",
                f"items are unlabelled: the column {self._near!r} is read if data.label names it",
            )


def _plain_name(column: str) -> str:
    return column.strip().casefold().removesuffix("s")

"""Which rows of a data set belong together: by a column, and because their texts repeat."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from transexplain.data.near_duplicates import MOST, NearDuplicates
from transexplain.data.records import Record
from transexplain.plans import DatasetSpec, Modality

#: share of the rows above which texts that repeat one text are taken for a template's
_TEMPLATE = 0.5


@dataclass(frozen=True, kw_only=True, slots=True)
class Clustering:
    """Every row's cluster, and what was found in the texts."""

    first: list[int | None]  #: the first row of its cluster; None: it is alone
    repeating: int = 0  #: rows whose text nearly repeats another's
    repeated: int = 0  #: clusters that these make up
    template: int = 0  #: rows that nearly repeat one text and are no cluster: they are too many

    @property
    def facts(self) -> dict[str, int]:
        """What a snapshot remembers beside the clusters."""
        return {
            "repeating": self.repeating,
            "repeated": self.repeated,
            "template": self.template,
        }


@dataclass(slots=True)
class Clusters:
    """Collects the rows of a data set in order, then finds which belong together."""

    named: bool  #: whether by a column
    near: NearDuplicates | None
    _rows: int = 0
    _named: dict[str, list[int]] = field(default_factory=dict)
    #: row -> the rows whose text it nearly repeats
    _repeats: dict[int, list[int]] = field(default_factory=dict)

    @classmethod
    def of(cls, spec: DatasetSpec, modality: Modality) -> "Clusters | None":
        """What a data set asks for; None: nothing."""
        looked = modality == "text" and spec.duplicates == "auto" and spec.template is None
        if not (looked or spec.cluster):
            return None
        return cls(named=spec.cluster is not None, near=NearDuplicates() if looked else None)

    def add(self, records: Iterable[Record]) -> None:
        """Take note of some rows, in order."""
        for record in records:
            if record.cluster is not None:
                self._named.setdefault(record.cluster, []).append(self._rows)
            if self._rows == MOST:
                self.near, self._repeats = None, {}
            if self.near is not None and record.content is not None:
                self._repeats[self._rows] = self.near.add(self._rows, record.content)
            self._rows += 1

    def found(self) -> Clustering | None:
        """The clusters; None where no column names them and no text repeats another."""
        near = _first_rows(
            [(row, one) for row, of in self._repeats.items() for one in of], self._rows
        )
        sizes = np.bincount(near, minlength=1)
        template = int(sizes.max())
        if template <= max(1.0, _TEMPLATE * self._rows):
            template = 0
        alike = sizes[(sizes > 1) & (sizes != template)]
        if not (self.named or template or len(alike)):
            return None
        links = [
            (first, row) for row, first in enumerate(near.tolist()) if sizes[first] != template
        ]
        links += [(rows[0], row) for rows in self._named.values() for row in rows]
        whole = _first_rows(links, self._rows)
        together = np.bincount(whole)[whole] > 1
        together[[row for rows in self._named.values() for row in rows]] = True
        return Clustering(
            first=[
                one if joined else None
                for one, joined in zip(whole.tolist(), together.tolist(), strict=True)
            ],
            repeating=int(alike.sum()),
            repeated=len(alike),
            template=template,
        )


def _first_rows(links: Sequence[tuple[int, int]], rows: int) -> NDArray[np.intp]:
    """(rows,) for every row the first one that `links` join it with, itself where none do."""
    left, right = np.array(links, dtype=np.intp).reshape(-1, 2).T
    graph = coo_array((np.ones(len(links), dtype=bool), (left, right)), shape=(rows, rows))
    labels = connected_components(graph, directed=False)[1]
    first = np.unique(labels, return_index=True)[1]
    return np.asarray(first[labels], dtype=np.intp)

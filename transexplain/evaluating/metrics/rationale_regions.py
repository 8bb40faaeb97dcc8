"""The positions of an explanation that belong to the human rationale."""

import dataclasses
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from transexplain.evaluating.metrics.metric_table import Array, Case, Masks
from transexplain.types.items import Attribution, Evidence, PatchGrid


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Region:
    """What is marked of a picture: rectangles between some rows and columns of lines."""

    down: Array  #: (M + 1,) heights of the lines, rising, as shares of the original picture
    across: Array  #: (N + 1,) the same from left to right
    inside: Masks  #: (M, N) which rectangles are marked

    @classmethod
    def of(cls, evidence: Evidence) -> "Region":
        """The pixels of the mask, or the union of the boxes; without either nothing is marked."""
        if evidence.mask is not None:
            rows, cols = evidence.mask.shape
            return cls(
                down=np.arange(rows + 1) / rows,
                across=np.arange(cols + 1) / cols,
                inside=evidence.mask,
            )
        boxes = np.array(evidence.boxes, dtype=np.float64).reshape(-1, 4)
        down = np.unique([0.0, 1.0, *boxes[:, [1, 3]].flat])
        across = np.unique([0.0, 1.0, *boxes[:, [0, 2]].flat])
        inside = np.zeros((len(down) - 1, len(across) - 1), dtype=bool)
        for left, top, right, bottom in boxes:
            rows = (down[:-1] >= top) & (down[1:] <= bottom)
            inside |= rows[:, None] & ((across[:-1] >= left) & (across[1:] <= right))
        return cls(down=down, across=across, inside=inside)

    def at(self, down: Array, across: Array) -> Masks:
        """(M', N') whether the points at M' heights and N' widths are marked."""
        rows = np.searchsorted(self.down, down, side="right") - 1
        cols = np.searchsorted(self.across, across, side="right") - 1
        return np.asarray(
            self.inside[
                np.ix_(rows.clip(0, len(self.down) - 2), cols.clip(0, len(self.across) - 2))
            ]
        )

    def share(self, grid: PatchGrid) -> Array:
        """(rows, cols) how much of every patch is marked, by area, 0 to 1.

        A patch covers its part of the box that the model saw, not of the whole picture.
        """
        left, top, right, bottom = grid.box
        tall = _covered(np.linspace(top, bottom, grid.rows + 1), self.down)
        wide = _covered(np.linspace(left, right, grid.cols + 1), self.across)
        return np.clip(tall @ self.inside.astype(np.float64) @ wide.T, 0.0, 1.0)


def _covered(parts: Array, lines: Array) -> Array:
    """(P, M) which share of each of P parts of a side lies between each two of M + 1 lines."""
    begins = np.maximum(parts[:-1, None], lines[None, :-1])
    ends = np.minimum(parts[1:, None], lines[None, 1:])
    return np.asarray(np.maximum(ends - begins, 0.0) / np.diff(parts)[:, None])


def centres(grid: PatchGrid) -> tuple[Array, Array]:
    """Heights (rows,) and widths (cols,) of the patches' centres in the original picture."""
    left, top, right, bottom = grid.box
    down = top + (np.arange(grid.rows) + 0.5) / grid.rows * (bottom - top)
    across = left + (np.arange(grid.cols) + 0.5) / grid.cols * (right - left)
    return down, across


def marked(case: Case) -> Array:
    """(P,) how much of every own position is marked, 0 to 1; of a token 0 or 1.

    A token is marked where it shares a character with a span; of a patch it is the share of its
    area. What is marked outside the positions (a text cut off, a picture cropped) does not count.
    """
    evidence, features = case.item.evidence, case.attribution.features
    if evidence is None:
        return np.zeros(int(case.own.sum()))
    if isinstance(features, PatchGrid):
        return Region.of(evidence).share(features).reshape(-1)
    return np.asarray(token_spans(case).any(axis=0), dtype=np.float64)


def token_spans(case: Case) -> Masks:
    """(S, P) which own tokens share a character with each of the S spans that were marked."""
    features, evidence = case.attribution.features, case.item.evidence
    assert not isinstance(features, PatchGrid)
    tokens = [token for token in features if not token.special]
    starts: NDArray[np.intp] = np.array([token.start for token in tokens], dtype=np.intp)
    ends: NDArray[np.intp] = np.array([token.end for token in tokens], dtype=np.intp)
    spans = np.array(evidence.spans if evidence else (), dtype=np.intp).reshape(-1, 2)
    return np.asarray((starts < spans[:, 1:]) & (spans[:, :1] < ends))


def oracle(case: Case) -> Attribution | None:
    """The human rationale as an explanation of the item; None: the model sees none of it."""
    found = marked(case)
    if not found.any():
        return None
    relevance = np.zeros(case.attribution.relevance.size)
    relevance[case.own] = found
    return dataclasses.replace(
        case.attribution,
        method="oracle",
        relevance=relevance.reshape(case.attribution.relevance.shape),
        unit="score",
        ledger=None,
        prefix_relevance=(),
        notes=(),
    )

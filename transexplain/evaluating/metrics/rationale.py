"""Agreement of token relevance with human rationales.

Relevance counts with its sign: a rationale is evidence for the class that is explained. Positions
are the model's own tokens (word pieces), or words where a metric says so, and equal relevances are
taken in reading order.
"""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from transexplain.errors import ConfigurationError
from transexplain.evaluating.metrics.metric_table import Array, Case, Masks, Scored, unmeasured
from transexplain.types.items import Annotation, Attribution, Evidence, PatchGrid, Word
from transexplain.types.tokens import Token


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class MarkedRegion:
    """What is marked of a picture: rectangles between some rows and columns of lines."""

    down: Array  #: (M + 1,) heights of the lines, rising, as shares of the original picture
    across: Array  #: (N + 1,) the same from left to right
    inside: Masks  #: (M, N) which rectangles are marked

    @classmethod
    def of(cls, marks: Evidence | Annotation) -> "MarkedRegion":
        """The pixels of the mask, or the union of the boxes; without either nothing is marked."""
        if marks.mask is not None:
            rows, cols = marks.mask.shape
            return cls(
                down=np.arange(rows + 1) / rows,
                across=np.arange(cols + 1) / cols,
                inside=marks.mask,
            )
        drawn = marks.boxes if isinstance(marks, Evidence) else marks.box or ()
        boxes = np.array(drawn, dtype=np.float64).reshape(-1, 4)
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
        return MarkedRegion.of(evidence).share(features).reshape(-1)
    return np.asarray(token_spans(case).any(axis=0), dtype=np.float64)


def token_spans(case: Case) -> Masks:
    """(S, P) which own tokens share a character with each of the S spans that were marked."""
    features, evidence = case.attribution.features, case.item.evidence
    assert not isinstance(features, PatchGrid)
    tokens = [token for token in features if not token.special]
    return _touched(tokens, evidence)


def _touched(pieces: Sequence[Token | Word], evidence: Evidence | None) -> Masks:
    """(S, P) which pieces of the text share a character with each span that was marked."""
    starts = np.array([piece.start for piece in pieces], dtype=np.intp)
    ends = np.array([piece.end for piece in pieces], dtype=np.intp)
    spans = np.array(evidence.spans if evidence else (), dtype=np.intp).reshape(-1, 2)
    return np.asarray((starts < spans[:, 1:]) & (spans[:, :1] < ends))


def oracle(case: Case) -> Attribution | None:
    """The human rationale as an explanation of the item; None: the model sees none of it."""
    rationale = marked(case)
    if not rationale.any():
        return None
    relevance = np.zeros(case.attribution.relevance.size)
    relevance[case.own] = rationale
    return dataclasses.replace(
        case.attribution,
        method="oracle",
        relevance=relevance.reshape(case.attribution.relevance.shape),
        unit="score",
        ledger=None,
        prefix_relevance=(),
        notes=(),
    )


#: how many tokens Chefer et al. 2021a take, Fig. 4
COUNTS = (10, 20, 30, 40, 50, 60, 70, 80)


#: what token F1 counts: word pieces of the model, or whole words
Unit = Literal["tokens", "words"]


def token_f1(case: Case, *, by: Unit = "tokens") -> Scored:
    """F1 of the 10, 20, ..., 80 most relevant tokens (Chefer et al. 2021a, Fig. 4).

    The value is the mean over the counts. A text of fewer tokens than a count gives them all. With
    `by="words"` words are counted, each with the sum of the relevance of its pieces, and marked
    where it shares a character with a span. Raises ConfigurationError for another `by`.
    """
    relevance, truth = _units(case, by)
    if reason := _why_not(truth):
        return unmeasured(reason)
    if len(truth) <= COUNTS[0]:
        return unmeasured(f"{len(truth)} {by}: the first {COUNTS[0]} are all of them")
    order = np.argsort(-relevance, kind="stable")
    hits = np.cumsum(truth[order])
    taken = np.minimum(COUNTS, len(truth))
    # 2 TP / (2 TP + FP + FN), for taken = TP + FP and marked = TP + FN
    curve = 2 * hits[taken - 1] / (taken + truth.sum())
    return Scored(value=float(curve.mean()), curve=tuple(curve.tolist()))


def rationale_auprc(case: Case) -> Scored:
    """Area under the curve of precision over recall (DeYoung et al. 2020, section 5).

    By the trapezoidal rule between the points of the curve, as the benchmark computes it; this is
    not the average precision.
    """
    truth = marked(case) > 0
    if reason := _why_not(truth):
        return unmeasured(reason)
    if truth.all():
        return unmeasured("every token is marked: any order is right")
    from sklearn.metrics import auc, precision_recall_curve  # a second to import

    precision, recall, _ = precision_recall_curve(truth, case.relevance)
    return Scored(value=float(auc(recall, precision)))


def rationale_iou(case: Case, *, share: float = 0.1) -> Scored:
    """Tokens relevant and marked, over those that are either (DeYoung et al. 2020, section 5).

    Relevant are the first `share` of the tokens by relevance, at least one. Raises
    ConfigurationError for a share that is not above 0 and at most 1.
    """
    chosen, truth = _chosen(case, share), marked(case) > 0
    if reason := _why_not(truth):
        return unmeasured(reason)
    return Scored(value=float((chosen & truth).sum() / (chosen | truth).sum()))


def rationale_iou_f1(case: Case, *, share: float = 0.1, threshold: float = 0.5) -> Scored:
    """F1 of passages, right where they match a marked one (DeYoung et al. 2020, section 5).

    The relevant tokens (as in `rationale_iou`) that stand side by side are one passage. It is
    right if its tokens and those of some marked passage have an intersection over union of at
    least `threshold`; precision is the right ones' share of the passages, recall their number
    over that of the marked passages. Of one item: the benchmark's macro figure is the mean.

    Raises ConfigurationError for a share or threshold that is not above 0 and at most 1.
    """
    _check("threshold", threshold)
    chosen, truth = _chosen(case, share), np.unique(token_spans(case), axis=0)
    truth = truth[truth.any(axis=1)]
    if reason := _why_not(truth):
        return unmeasured(reason)
    # (R, P) one row for each run of neighbours
    begins = chosen & ~np.concatenate([[False], chosen[:-1]])
    numbers = np.cumsum(begins) * chosen
    passages = np.asarray(numbers[None] == np.arange(1, begins.sum() + 1)[:, None])
    both = (passages[:, None] & truth[None]).sum(-1)
    either = (passages[:, None] | truth[None]).sum(-1)
    right = int(((both / either).max(axis=1) >= threshold).sum())
    # precision right / passages and recall right / truth give this F1
    return Scored(value=2 * right / (len(passages) + len(truth)))


def _units(case: Case, by: str) -> tuple[Array, Masks]:
    """Relevance (P,) of tokens or words, and which of them are marked."""
    if by == "tokens":
        return case.relevance, marked(case) > 0
    if by != "words":
        raise ConfigurationError(f"by is {' or '.join(map(repr, get_args(Unit)))}, not {by!r}")
    words = case.attribution.words()
    truth = np.asarray(_touched(words, case.item.evidence).any(axis=0))
    return np.array([word.relevance for word in words], dtype=np.float64), truth


def _why_not(truth: Masks) -> str:
    return "" if truth.any() else "no token that the model saw is marked"


def _chosen(case: Case, share: float) -> Masks:
    """(P,) the first `share` of the tokens by relevance."""
    _check("share", share)
    relevance: Array = case.relevance
    chosen = np.zeros(len(relevance), dtype=bool)
    count = max(1, round(share * len(relevance)))
    chosen[np.argsort(-relevance, kind="stable")[:count]] = True
    return chosen


def _check(name: str, value: float) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 1:
        raise ConfigurationError(f"{name} is a number above 0 and at most 1, not {value!r}")

"""Agreement of token relevance with human rationales.

Relevance counts with its sign: a rationale is evidence for the class that is explained. Positions
are the model's own tokens (word pieces), or words where a metric says so, and equal relevances are
taken in reading order.
"""

from typing import Literal, get_args

import numpy as np
from sklearn.metrics import auc, precision_recall_curve

from transexplain.errors import ConfigurationError
from transexplain.evaluating.metrics.metric_table import Array, Case, Masks, Scored, unmeasured
from transexplain.evaluating.metrics.rationale_regions import marked, token_spans

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
    passages = _runs(chosen)
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
    evidence = case.item.evidence
    spans = np.array(evidence.spans if evidence else (), dtype=np.intp).reshape(-1, 2)
    starts, ends = (np.array([getattr(w, name) for w in words]) for name in ("start", "end"))
    truth = ((starts < spans[:, 1:]) & (spans[:, :1] < ends)).any(axis=0)
    return np.array([word.relevance for word in words], dtype=np.float64), np.asarray(truth)


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


def _runs(chosen: Masks) -> Masks:
    """(R, P) one row for each run of neighbours among P positions."""
    begins = chosen & ~np.concatenate([[False], chosen[:-1]])
    numbers = np.cumsum(begins) * chosen
    return np.asarray(numbers[None] == np.arange(1, begins.sum() + 1)[:, None])


def _check(name: str, value: float) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 1:
        raise ConfigurationError(f"{name} is a number above 0 and at most 1, not {value!r}")

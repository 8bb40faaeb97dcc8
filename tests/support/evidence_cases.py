"""Explanations written by hand, with rationales."""

from typing import Any

import numpy as np
from plain_records import new_attribution

from transexplain.evaluating.metrics.metric_table import Case
from transexplain.types.items import Evidence, Item, PatchGrid
from transexplain.types.tokens import Token

WHOLE = (0.0, 0.0, 1.0, 1.0)


def case_of(features: Any, relevance: Any, evidence: Evidence | None) -> Case:
    values = np.array(relevance, dtype=np.float64)
    attribution = new_attribution(item_id="i", relevance=values, features=features)
    item = Item(id="i", index=0, content=None, evidence=evidence)
    return Case(item=item, attribution=attribution, logits=np.array([1.0, 0.0]), seconds=0.0)


def text_case(relevance: list[float], *spans: tuple[int, int], marked: bool = True) -> Case:
    """Tokens of one letter with a space behind each, between CLS and SEP of high relevance."""
    own = [Token(text="w", start=2 * n, end=2 * n + 1, word=n) for n in range(len(relevance))]
    first = Token(text="[CLS]", start=0, end=0, special=True)
    last = Token(text="[SEP]", start=0, end=0, special=True)
    evidence = Evidence(spans=spans) if marked else None
    return case_of((first, *own, last), [99.0, *relevance, 99.0], evidence)


def picture_case(relevance: Any, box: Any = WHOLE, **evidence: Any) -> Case:
    """A grid of the shape of `relevance` over `box` of the picture."""
    rows, cols = np.shape(relevance)
    grid = PatchGrid(rows=rows, cols=cols, height=8 * rows, width=8 * cols, prefix=1, box=box)
    return case_of(grid, relevance, Evidence(**evidence) if evidence else None)

"""Cases and benches for metrics that explain again."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from plain_records import new_attribution

from transexplain.evaluating.evaluation_bench import MethodBench
from transexplain.evaluating.metrics.metric_table import Case
from transexplain.explaining import Request
from transexplain.explaining.item_loop import Silent
from transexplain.models.loaded_model import LoadedModel
from transexplain.types.items import Attribution, Item
from transexplain.types.scores import EvaluatedMethod, MethodSpec
from transexplain.types.targets import ClassNames, parse_target
from transexplain.types.tokens import Token


def case_of(relevance: Sequence[float], *, name: str = "i0", index: int = 0, **more: Any) -> Case:
    """A text of one-letter words between two special tokens, with this relevance."""
    inner = [
        Token(text=chr(97 + place), start=2 * place, end=2 * place + 1, word=place)
        for place in range(len(relevance))
    ]
    frame = [Token(text=text, start=0, end=0, special=True) for text in ("[CLS]", "[SEP]")]
    attribution = new_attribution(
        item_id=name,
        method="scripted",
        class_index=index,
        class_name=str(index),
        relevance=np.array([7.0, *relevance, -7.0]),
        features=(frame[0], *inner, frame[1]),
    )
    item = Item(id=name, index=0, content=" ".join(token.text for token in inner))
    logits = more.get("logits", [2.0, 0.0, 1.0])
    return Case(item=item, attribution=attribution, logits=np.array(logits), seconds=0.0)


@dataclass
class ScriptedBench:
    """Explains again by a script: per call the relevance, or the failure, of every case."""

    model: LoadedModel
    script: list[list[Sequence[float] | str]]
    calls: list[dict[str, Any]] = field(default_factory=list)

    def again(self, cases: Sequence[Case], **given: Any) -> list[Attribution | str]:
        self.calls.append(given)
        rows = self.script[len(self.calls) - 1]
        assert len(rows) == len(cases)
        return [
            row
            if isinstance(row, str)
            else replace(case.attribution, relevance=np.array([-7.0, *row, 7.0]))
            for case, row in zip(cases, rows, strict=True)
        ]


def bench_of(model: LoadedModel, method: str, **params: Any) -> MethodBench:
    names = ClassNames(model.classes)
    spec = MethodSpec(name=method, params=params)
    return MethodBench(
        model=model,
        method=EvaluatedMethod(label=method, method=spec),
        request=Request(method=spec, targets=(parse_target("predicted", names),), names=names),
        observer=Silent(),
    )


def explained(bench: MethodBench, items: Sequence[Item]) -> list[Case]:
    """The cases of items as the loop makes them."""
    cases = []
    for item, (found, seconds) in zip(items, bench.explain(items), strict=True):
        assert not isinstance(found, str), found
        (encoded,) = bench.model.encode([item])
        logits = bench.model.logits(bench.model.collate([encoded])).detach().double()  # type: ignore[list-item]
        one = Case(item=item, attribution=found[0], logits=logits[0].numpy(), seconds=seconds)
        cases.append(one)
    return cases

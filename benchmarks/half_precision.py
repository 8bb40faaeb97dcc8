"""What half precision does to explanations: each item against its float64 explanation.

    python -m benchmarks.half_precision --model DIR --data FILE [--items N] [--positions T]
                                        [--methods M ...] [--dtypes D ...] [--compiled]

The same items are explained in float64 and in half precision, eagerly or with `--compiled` by a
step that Inductor compiled. Printed are, over items: Spearman's rank correlation of relevance over
positions, median and worst; the relative error of the logit; the gap of the ledger as a share of
the sum of its |terms|; how many items are predicted otherwise, which count nowhere else. A row
`weights only` computes in float64 with weights that were rounded: what half precision costs at
least. Of texts those count that have `T` positions or up to 15 fewer, so that one trace serves all.
"""

import argparse
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
import torch._inductor.config
from scipy.stats import spearmanr

import transexplain as te
from orchestrator.plan import prepare_audit
from orchestrator.spec import load_spec
from transexplain.data.shard_reader import read_shard
from transexplain.engine.compiled import compiled, on_device
from transexplain.engine.replay import Passes, Step, TracedStep
from transexplain.engine.steps import Steps, bucket_of
from transexplain.models.calling import torch_dtype
from transexplain.models.loaded_model import Encoded, LoadedModel
from transexplain.settings import Settings
from transexplain.types.items import Attribution, Item
from transexplain.types.plans import Shard

METHODS, DTYPES = ("lrp", "attnlrp"), ("bfloat16", "float16")
_BUCKET = 16  #: lengths that are padded to the same one


#: how a step that is traced before it runs is replayed: as it is, compiled, or compiled so that
#: every operator rounds its result, as eager code does
Replay = Literal["replayed", "compiled", "compiled, rounded as eager"]


class TracedSteps(Steps):
    """Every step is traced before it runs the first time, on every device."""

    def __init__(self, way: Replay) -> None:
        super().__init__("auto")
        self.way = way
        self._made: dict[Any, TracedStep] = {}

    def buckets(self, device: str) -> bool:
        """Batches come in few shapes everywhere."""
        del device
        return True

    @contextmanager
    def passes(self, step: Step) -> Iterator[Passes]:
        """Passes over one batch, from the trace of its shape."""
        filled = step.filled()
        if filled.key not in self._made:
            self._made[filled.key] = self._traced(filled)
        found = self._made[filled.key].propagation(filled.inputs, step.shape[0])
        if found is None:
            raise RuntimeError("the trace of another batch of this shape does not apply to it")
        yield found

    def _traced(self, step: Step) -> TracedStep:
        made = step.traced()
        ready = made.traced
        if self.way != "replayed":
            rounded = self.way != "compiled"
            with torch._inductor.config.patch(emulate_precision_casts=rounded):
                ready = compiled(ready, step.examples)
        return replace(made, traced=on_device(ready, step.examples))


def explained(
    model: LoadedModel, items: Sequence[Any], method: str, steps: Steps
) -> list[Attribution]:
    """An attribution of every item for its predicted class."""
    model.steps["steps"] = steps
    return te.explain(model, items, method)


def round_weights(model: LoadedModel, dtype: str) -> None:
    """Give the model's weights the precision of `dtype`, and leave their type as it is."""
    with torch.no_grad():
        for one in model.module.parameters():
            one.copy_(one.to(torch_dtype(dtype)))


def judged(reference: Sequence[Attribution], found: Sequence[Attribution]) -> dict[str, Any]:
    """How far attributions lie from those in float64, over items of the same predicted class."""
    both = [
        (right, one)
        for right, one in zip(reference, found, strict=True)
        if right.class_index == one.class_index
    ]
    ranks = [_rank(right.relevance, one.relevance) for right, one in both]
    logits = [abs(one.logit - right.logit) / abs(right.logit) for right, one in both]
    gaps = [one.ledger.relative_gap for _, one in both if one.ledger is not None]
    return {
        "items": len(found),
        "other_class": len(found) - len(both),
        "ranks": [round(one, 6) for one in ranks],
        "rank_median": float(np.median(ranks)),
        "rank_worst": min(ranks),
        "logit_median": float(np.median(logits)),
        "logit_worst": max(logits),
        "gap_median": float(np.median(gaps)) if gaps else None,
        "gap_worst": max(gaps, default=None),
    }


def _rank(right: Any, found: Any) -> float:
    return float(spearmanr(np.ravel(right), np.ravel(found)).statistic)


def main() -> None:
    """Parse, measure, print."""
    options = _parsed()
    items = _items(options)
    print(f"{options.model}, {len(items)} items, batches of {options.positions} positions")
    print(
        f"{'':34}{'rank, median':>13}{'worst':>9}{'logit, median':>15}{'worst':>9}"
        f"{'gap, median':>13}{'worst':>9}{'other class':>13}"
    )
    rows = []
    for row in _rows(options, items):
        rows.append(row)
        _print(row)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


def _rows(options: argparse.Namespace, items: list[Item]) -> Iterator[dict[str, Any]]:
    for method in options.methods:
        right = explained(_loaded(options, "float64"), items, method, Steps("eager"))
        for dtype in options.dtypes:
            for name, measure in _ways(options, items, method, dtype):
                mark = {"method": method, "dtype": dtype, "way": name}
                yield {**mark, **judged(right, measure())}


def _ways(
    options: argparse.Namespace, items: list[Item], method: str, dtype: str
) -> Iterator[tuple[str, Callable[[], list[Attribution]]]]:
    def weights_only() -> list[Attribution]:
        model = _loaded(options, "float64")
        round_weights(model, dtype)
        return explained(model, items, method, Steps("eager"))

    def half(steps: Steps) -> list[Attribution]:
        return explained(_loaded(options, dtype), items, method, steps)

    yield "weights only", weights_only
    yield "eager", lambda: half(Steps("eager"))
    if options.compiled:
        yield "compiled", lambda: half(TracedSteps("compiled"))


def _loaded(options: argparse.Namespace, dtype: str) -> LoadedModel:
    return te.load_model(options.model, dtype=dtype, device=options.device)


def _items(options: argparse.Namespace) -> list[Item]:
    """The first items of the data; of texts those whose batches are of `--positions`."""
    overrides = {"model.source": options.model, "data.source": options.data, "evaluation.items": 0}
    prepared = prepare_audit(load_spec(None, overrides, options.set), Settings.from_environment())
    dataset, model = prepared.plan.dataset, prepared.model
    every = read_shard(dataset, Shard(index=0, start=0, stop=dataset.rows))
    found: list[Item] = []
    for item in every:
        if isinstance(item, Item) and _fits(model, item, options.positions):
            found.append(item)
        if len(found) == options.items:
            break
    return found


def _fits(model: LoadedModel, item: Item, positions: int) -> bool:
    if model.modality != "text":
        return True
    (encoded,) = model.encode([item])
    return isinstance(encoded, Encoded) and bucket_of(encoded.length, apart=_BUCKET) == positions


def _print(row: dict[str, Any]) -> None:
    name = f"{row['method']}, {row['dtype']}, {row['way']}"
    gap = [row["gap_median"], row["gap_worst"]]
    gaps = ["" if one is None else f"{one:.1e}" for one in gap]
    print(
        f"{name:34}{row['rank_median']:>13.4f}{row['rank_worst']:>9.4f}"
        f"{row['logit_median']:>15.1e}{row['logit_worst']:>9.1e}{gaps[0]:>13}{gaps[1]:>9}"
        f"{row['other_class']:>13}",
        flush=True,
    )


def _parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--model", required=True)
    parser.add_argument("--data", required=True)
    parser.add_argument("--items", type=int, default=64)
    parser.add_argument("--positions", type=int, default=32, help="of texts, a multiple of 16")
    parser.add_argument("--methods", nargs="+", default=list(METHODS))
    parser.add_argument("--dtypes", nargs="+", default=list(DTYPES))
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--compiled", action="store_true", help="also by a compiled step")
    parser.add_argument("--set", nargs="*", default=[], help="keys of an audit, such as data.limit")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    return parser.parse_args()


if __name__ == "__main__":
    main()

"""How far an item moves that is explained in another batch, by number type: `verify` allows it.

    python -m benchmarks.verify_tolerances --model DIR --data FILE [--items N]
                                           [--dtypes D ...] [--methods M ...]
                                           [--batch-tokens N ...] [--threads N ...]

Every item is explained with the batches of a run (2,048 positions, one thread), then with others,
and compared by what `verify` compares by: relevance beyond the rounding of float32 as a share
of the item's largest, logits as a share of the largest logit or 1. Batches of 1 position hold one
item each. Printed are the largest difference, the 99th percentile over items, and how often the
predicted class is another. The tolerances in `transexplain.provenance.explained_again` come from
here.
"""

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from orchestrator.plan import prepare_audit
from orchestrator.spec import load_spec
from transexplain.data.shard_reader import read_shard
from transexplain.explaining import Explained, Request, explain_items
from transexplain.models.loaded_model import LoadedModel
from transexplain.provenance.explained_again import Largest, differences
from transexplain.settings import Settings
from transexplain.types.plans import AuditPlan, Shard


@dataclass(frozen=True, slots=True)
class Way:
    """One way to cut the items into batches."""

    batch_tokens: int
    threads: int

    def __str__(self) -> str:
        """As the table names it."""
        tokens = "1 item" if self.batch_tokens == 1 else f"{self.batch_tokens} positions"
        return f"{tokens}, {self.threads} thread{'s' if self.threads > 1 else ''}"


RUN = Way(batch_tokens=2048, threads=1)


def main() -> None:
    """Parse, measure, print."""
    options = _parsed()
    ways = [Way(tokens, count) for count in options.threads for tokens in options.batch_tokens]
    columns = ("relevance", "(99 %)", "logits", "(99 %)", "other class")
    head = "".join(f"{name:>12}" for name in columns)
    print(f"{'':44}{head}")
    for dtype in options.dtypes:
        for method in options.methods:
            _measure(options, dtype, method, ways)


def _measure(options: argparse.Namespace, dtype: str, method: str, ways: Sequence[Way]) -> None:
    overrides = {
        "model.source": options.model,
        "model.dtype": dtype,
        "data.source": options.data,
        "data.limit": options.items,
        "method.name": method,
        "evaluation.items": 0,
    }
    prepared = prepare_audit(load_spec(None, overrides, options.set), Settings.from_environment())
    before = _explained(prepared.plan, prepared.model, RUN)
    for way in ways:
        if way == RUN:
            continue
        again = _explained(prepared.plan, prepared.model, way)
        largest = list(_differences(before, again))
        relevance, logits = (
            [getattr(one, name) for one in largest] for name in ("relevance", "logit")
        )
        other = sum(
            a.outcome.predicted != b.outcome.predicted
            for a, b in zip(before, again, strict=True)
            if a.outcome and b.outcome
        )
        print(
            f"{f'{dtype}, {method}, {way}':44}{max(relevance):>12.1e}"
            f"{np.percentile(relevance, 99):>12.1e}{max(logits):>12.1e}"
            f"{np.percentile(logits, 99):>12.1e}{f'{other} of {len(largest)}':>12}",
            flush=True,
        )


def _explained(plan: AuditPlan, model: LoadedModel, way: Way) -> list[Explained]:
    torch.set_num_threads(way.threads)
    items = read_shard(plan.dataset, Shard(index=0, start=0, stop=plan.dataset.rows))
    request = Request.from_plan(replace(plan, batch_tokens=way.batch_tokens))
    return list(explain_items(model, items, request))


def _differences(before: Sequence[Explained], again: Sequence[Explained]) -> Iterator[Largest]:
    for stored, made in zip(before, again, strict=True):
        if stored.outcome is not None:
            largest = Largest()
            list(differences(stored.outcome, stored.attributions, made, float("inf"), largest))
            yield largest


def _parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--model", required=True)
    parser.add_argument("--data", required=True)
    parser.add_argument("--items", type=int, default=200)
    parser.add_argument("--dtypes", nargs="+", default=["float32", "float16", "bfloat16"])
    parser.add_argument("--methods", nargs="+", default=["lrp"])
    parser.add_argument("--batch-tokens", nargs="+", type=int, default=[1, 512, 4096])
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--set", nargs="*", default=[])
    return parser.parse_args()


if __name__ == "__main__":
    main()

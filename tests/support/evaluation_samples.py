"""Scores and stored runs for the tests of evaluation reports."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from report_samples import explained_text

from transexplain.analysis.groups.shard_aggregate import ShardAggregate
from transexplain.store import results, runs, shards
from transexplain.store.database import Database
from transexplain.types.plans import AuditPlan, DatasetRef, ModelRef, Shard, ShardResult
from transexplain.types.scores import EvaluatedMethod, EvaluationPlan, MethodSpec, MetricSpec
from transexplain.types.scores import MetricScore as Score

Values = Sequence[float | str | None]  #: of items in order; a text is why there is none


def scores(metric: str, values: Mapping[str, Values], target: str = "predicted") -> list[Score]:
    """One score for each method and item; None leaves it out."""
    return [
        Score(
            item_id=f"row-{index}",
            method=label,
            target=target,
            metric=metric,
            value=None if isinstance(one, str) else one,
            reason=one if isinstance(one, str) else "",
        )
        for label, given in values.items()
        for index, one in enumerate(given)
        if one is not None
    ]


def plan_of(labels: Sequence[str], *metrics: MetricSpec) -> EvaluationPlan:
    """`random` is drawn at random, every other label is LRP."""
    return EvaluationPlan(
        methods=tuple(
            EvaluatedMethod(
                label=label, method=MethodSpec(name="random" if label == "random" else "lrp")
            )
            for label in labels
        ),
        metrics=metrics,
    )


def stored(
    db: Database, plan: EvaluationPlan, found: Sequence[Score], items: int, **changes: Any
) -> str:
    """Save a run of one shard with these scores; returns its id."""
    whole = AuditPlan(
        name="sample evaluation",
        model=ModelRef(source="models/m", classes=("negative", "positive"), digest="d" * 64),
        dataset=DatasetRef(
            source="x.csv", modality="text", snapshot="s.parquet", fingerprint="f" * 64, rows=items
        ),
        evaluation=plan,
        task="evaluation",
    )
    shard = Shard(index=0, start=0, stop=items)
    run_id = runs.create(db, replace(whole, **changes), (shard,))
    claim = shards.claim(db, run_id, "tester", 60.0, shard_index=0)
    assert claim is not None
    outcomes = tuple(explained_text(index, "good", None)[0] for index in range(items))
    result = ShardResult(
        shard=shard,
        outcomes=outcomes,
        attributions=(),
        failures=(),
        mentions=(),
        aggregate=ShardAggregate().to_json(),
        seconds=0.1,
        scores=tuple(sorted(found, key=lambda one: int(one.item_id.removeprefix("row-")))),
    )
    results.save(db, claim, result)
    runs.finalise(db, run_id)
    return run_id

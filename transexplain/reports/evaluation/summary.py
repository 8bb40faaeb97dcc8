"""An evaluation in one record: everything its reports say."""

from collections.abc import Iterable
from dataclasses import asdict

import transexplain
from transexplain.errors import ConfigurationError
from transexplain.evaluations import EvaluationPlan, MetricScore
from transexplain.manifests import manifest_of
from transexplain.metrics import metric_facts
from transexplain.plans import AuditRun
from transexplain.reports.evaluation.gathering import Gathered, gather
from transexplain.reports.evaluation.headline import headline
from transexplain.reports.evaluation.records import Evaluated, EvaluationSummary, Table
from transexplain.reports.evaluation.statistics import PERMUTATIONS, RESAMPLES
from transexplain.reports.evaluation.tables import table
from transexplain.store import results, runs
from transexplain.store.database import Database


def tabulate(db: Database, run_id: str) -> EvaluationSummary:
    """Everything a report says about the scores of a run, finished or not.

    Args:
        db: the store.
        run_id: id, unique beginning of one, or `latest`.

    Raises ConfigurationError for an unknown run, and for one that measured no explanations.
    """
    run = runs.get(db, run_id)
    plan = run.plan.evaluation
    if plan is None:
        raise ConfigurationError(
            f"run {run.id} measured no explanations, so there is nothing to tabulate; "
            "evaluate the model, or ask its audit for an evaluation of a sample"
        )
    tables, gathered = tables_of(results.iter_scores(db, run.id), plan)
    evaluated = _evaluated(db, run, plan, gathered)
    return EvaluationSummary(
        headline=headline(evaluated, tables), evaluated=evaluated, tables=tables
    )


def tables_of(
    scores: Iterable[MetricScore], plan: EvaluationPlan
) -> tuple[tuple[Table, ...], Gathered]:
    """One table for each target and metric that was measured, and what they were made of."""
    corpus = [spec.label for spec in plan.metrics if metric_facts(spec.name).corpus]
    gathered = gather(scores, corpus)
    asked = dict.fromkeys([*plan.targets, *gathered.targets])
    found = (table(gathered, plan, target, spec) for target in asked for spec in plan.metrics)
    return tuple(one for one in found if one is not None), gathered


def _evaluated(db: Database, run: AuditRun, plan: EvaluationPlan, gathered: Gathered) -> Evaluated:
    whole, manifest = run.plan, manifest_of(db, run.id)
    return Evaluated(
        run_id=run.id,
        name=whole.name,
        state=run.state,
        created=run.created,
        finished=run.finished,
        plan_digest=whole.digest,
        version=transexplain.__version__,
        model=whole.model.source,
        model_digest=whole.model.digest,
        dtype=whole.model.dtype,
        device=whole.model.device,
        modality=whole.model.modality,
        classes=whole.model.classes,
        dataset=whole.dataset.source,
        fingerprint=whole.dataset.fingerprint,
        rows=whole.dataset.rows,
        items=plan.items,
        measured=len(gathered.measured),
        failed=runs.progress(db, run.id).items_failed,
        seed=plan.seed,
        targets=plan.targets,
        methods={one.label: {**asdict(one.method), "items": one.items} for one in plan.methods},
        resamples=RESAMPLES,
        permutations=PERMUTATIONS,
        inputs_digest=manifest.name,
        manifest_digest=manifest.sha256,
    )

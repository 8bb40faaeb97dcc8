"""A run in one record: everything its reports say."""

from collections.abc import Sequence
from dataclasses import replace

import transexplain
from transexplain.bias.aggregates import ShardAggregate
from transexplain.bias.sheet import Precision
from transexplain.errors import ConfigurationError
from transexplain.manifests import Manifest, manifest_of
from transexplain.plans import AuditRun
from transexplain.reports.classes import confusion, views
from transexplain.reports.evaluation.faithfulness import faithfulness, sentences
from transexplain.reports.gallery import choose, collect
from transexplain.reports.headline import headline
from transexplain.reports.notes import notes
from transexplain.reports.previous import compared, differences
from transexplain.reports.provenance import provenance_of
from transexplain.reports.records import (
    Audited,
    ClassSensitivity,
    Summary,
)
from transexplain.reports.scope import untested
from transexplain.reports.survey import AttributionSurvey, Best, ItemSurvey
from transexplain.reports.tallies import conservation_of, counts_of, groups_of, merged
from transexplain.reports.verdict import verdict
from transexplain.store import results, runs
from transexplain.store.database import Database

__all__ = ["Summary", "summarise"]

GALLERY = 40  #: items to look at

#: largest acceptable |gap| / sum of |terms|, by number type (half precision is only measured)
TOLERANCES = {"float64": 1e-12, "float32": 5e-6}


def summarise(
    db: Database,
    run_id: str,
    *,
    gallery: int = GALLERY,
    precisions: Sequence[Precision] = (),
) -> Summary:
    """Everything a report says about a run, finished or not.

    Rows are walked, never held: memory grows with the vocabulary and `gallery`, not the run.

    Args:
        db: the store.
        run_id: id, unique beginning of one, or `latest`.
        gallery: number of items to show.
        precisions: of the matches, from a sheet that a person filled.

    Raises ConfigurationError for an unknown run or a negative gallery.
    """
    if gallery < 0:
        raise ConfigurationError(f"a gallery of {gallery} items cannot be; 0 leaves it out")
    run = runs.get(db, run_id)
    items, attributions = _surveys(db, run, gallery)
    total = merged(db, run.id)
    shown, omitted = views(total, attributions, run.plan.targets)
    manifest = manifest_of(db, run.id)
    audited = _audited(run, attributions, manifest)
    counts = counts_of(db, run)
    conservation, groups = (
        conservation_of(db, run, attributions),
        groups_of(db, run, total, precisions),
    )
    sensitivity, faithful = _sensitivity(total), faithfulness(db, run)
    previous = compared(db, run, groups)
    found = Summary(
        headline=(
            *headline(audited, counts, conservation, sensitivity, groups, items.failures()),
            *sentences(faithful, audited.modality),
            *differences(previous, counts),
        ),
        audited=audited,
        counts=counts,
        conservation=conservation,
        class_sensitivity=sensitivity,
        classes=shown,
        classes_omitted=omitted,
        confusion=confusion(total, run.plan.model.classes),
        groups=groups,
        gallery=collect(db, run.id, choose(items, attributions, gallery), attributions),
        failures=items.failures(),
        notes=notes(run, audited.at, audited.unit, sensitivity),
        faithfulness=faithful,
        previous=previous,
        provenance=provenance_of(manifest),
    )
    return replace(found, verdict=verdict(found), untested=untested(found))


def _surveys(db: Database, run: AuditRun, places: int) -> tuple[ItemSurvey, AttributionSurvey]:
    model = run.plan.model
    items = ItemSurvey(
        wrong=Best(places),
        first=Best(places),
        classes={name: index for index, name in enumerate(model.classes)},
    )
    attributions = AttributionSurvey(strongest=Best(places), tolerance=TOLERANCES.get(model.dtype))
    return (
        items.walk(results.iter_items(db, run.id)),
        attributions.walk(results.iter_attributions(db, run.id)),
    )


def _audited(run: AuditRun, seen: AttributionSurvey, manifest: Manifest) -> Audited:
    plan = run.plan
    return Audited(
        run_id=run.id,
        name=plan.name,
        state=run.state,
        created=run.created,
        finished=run.finished,
        plan_digest=plan.digest,
        version=transexplain.__version__,
        model=plan.model.source,
        model_digest=plan.model.digest,
        dtype=plan.model.dtype,
        device=plan.model.device,
        modality=plan.model.modality,
        classes=plan.model.classes,
        dataset=plan.dataset.source,
        fingerprint=plan.dataset.fingerprint,
        root=plan.dataset.root,
        method=plan.method.name,
        parameters=dict(plan.method.params),
        targets=plan.targets,
        at=tuple(sorted(seen.leaves)),
        unit=" and ".join(sorted(seen.units)) or "logits",
        long_text=plan.long_text,
        max_length=plan.max_length,
        payload=plan.payload,
        window=plan.window,
        stride=plan.stride,
        long_text_join=plan.long_text_join,
        task=plan.task,
        inputs_digest=manifest.name,
        manifest_digest=manifest.sha256,
    )


def _sensitivity(total: ShardAggregate) -> ClassSensitivity | None:
    found = total.class_sensitivity
    return None if found is None else ClassSensitivity(mean=found[0], items=found[1])

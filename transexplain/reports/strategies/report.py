"""A discovery with everything that its page shows."""

from collections.abc import Mapping

import transexplain
from transexplain.reports.gallery import CHARACTERS, grid_of, outcomes_of
from transexplain.reports.gallery_records import Explanation, GalleryItem
from transexplain.reports.strategies.notes import notes
from transexplain.reports.strategies.records import Explored, StrategyReport
from transexplain.reports.strategies.wording import headline
from transexplain.spans import largest, spans_of
from transexplain.store import results, runs
from transexplain.store.database import Database
from transexplain.strategies.records import Strategies
from transexplain.types import Attribution, ItemOutcome, PatchGrid

EXEMPLARS = {"image": 6, "text": 4}  #: of a cluster, the most typical ones


def told(db: Database, found: Strategies) -> StrategyReport:
    """Read the exemplars and put everything into words.

    Raises ConfigurationError where the run is gone.
    """
    run = runs.get(db, found.run_id)
    plan = run.plan
    return StrategyReport(
        headline=headline(found, plan.model.classes),
        explored=Explored(
            name=plan.name,
            version=transexplain.__version__,
            model=plan.model.source,
            classes=plan.model.classes,
            dataset=plan.dataset.source,
            fingerprint=plan.dataset.fingerprint,
            rows=plan.dataset.rows,
            root=plan.dataset.root,
            method=plan.method.name,
            state=run.state,
            created=run.created,
            finished=run.finished,
        ),
        strategies=found,
        exemplars=_exemplars(db, found),
        notes=notes(found),
    )


def _exemplars(db: Database, found: Strategies) -> Mapping[str, Mapping[str, GalleryItem]]:
    count = EXEMPLARS.get(found.modality, EXEMPLARS["text"])
    chosen = {
        one.class_name: {name for cluster in one.clusters for name in cluster.item_ids[:count]}
        for one in found.classes
    }
    outcomes = outcomes_of(db, found.run_id, set().union(*chosen.values()))
    return {
        class_name: {
            one.item_id: _item(one, outcomes[one.item_id])
            for one in results.iter_attributions(
                db, found.run_id, item_ids=sorted(ids), target=found.target
            )
            if one.class_name == class_name and one.item_id in outcomes
        }
        for class_name, ids in chosen.items()
    }


def _item(one: Attribution, outcome: ItemOutcome) -> GalleryItem:
    is_picture = isinstance(one.features, PatchGrid)
    text, words = ("", ()) if is_picture else spans_of(one)
    end = max((word.end for word in words), default=0)
    shown = tuple(word for word in words if word.end <= CHARACTERS)
    explanation = Explanation(
        target=one.target,
        class_name=one.class_name,
        logit=one.logit,
        largest=largest(words),
        words=shown,
        grid=grid_of(one.relevance) if is_picture else None,
        box=one.features.box if isinstance(one.features, PatchGrid) else None,
    )
    return GalleryItem(
        item_id=one.item_id,
        reason="strong",
        label=outcome.label,
        predicted=outcome.predicted,
        truncated=outcome.truncated,
        text=None if is_picture else text[:CHARACTERS],
        hidden=max(0, len(text) - CHARACTERS),
        unread_from=end if outcome.truncated and not is_picture else None,
        source=outcome.source,
        explanations=(explanation,),
        more=0,
    )

"""From the stored relevance of a run to the strategies of each class."""

from transexplain.errors import ConfigurationError
from transexplain.plans import AuditRun
from transexplain.store import results, runs
from transexplain.store.database import Database
from transexplain.strategies import one_class
from transexplain.strategies.features import gather
from transexplain.strategies.records import Strategies
from transexplain.strategies.sampling import Draw

SAMPLE = 2000  #: items of a class
CLASSES = 24  #: the most frequent


def discover(
    db: Database,
    run_id: str,
    *,
    target: str | None = None,
    class_name: str | None = None,
    sample: int = SAMPLE,
    seed: int = 0,
) -> Strategies:
    """Cluster the explanations of each class and point out what looks like a shortcut.

    Memory holds the explanations of one class's sample at a time.

    Args:
        db: the store.
        run_id: id, unique beginning of one, or `latest`.
        target: one of the audit's; None: `predicted` where it is one of them, else the first.
        class_name: report this class alone (the others are still what it is compared with).
        sample: largest number of items of a class, sampled by a seeded hash of their ids.
        seed: of the sample, the clustering and the tests.

    Raises ConfigurationError for an unknown run, target or class, for a run without stored
    relevance or, of texts, without words, and for a sample that is too small.
    """
    if sample < one_class.FEWEST:
        raise ConfigurationError(
            f"a sample of {sample} cannot be clustered; give {one_class.FEWEST} or more"
        )
    run = runs.get(db, run_id)
    _check_words(run)
    chosen = _target(run, target)
    draw = Draw(sample, seed)
    draw.add_all(results.iter_explained(db, run.id, target=chosen))
    names = _names(run, draw, chosen, class_name)
    read = [_read(db, run.id, chosen, name, draw) for name in names]
    classes = [
        one_class.judged(one, read[:place] + read[place + 1 :], seed)
        for place, one in enumerate(read)
        if class_name in (None, one.found.class_name)
    ]
    return Strategies(
        run_id=run.id,
        target=chosen,
        modality=run.plan.dataset.modality,
        sample=sample,
        seed=seed,
        classes=tuple(classes),
        omitted=len(draw.counts) - len(names),
    )


def _check_words(run: AuditRun) -> None:
    privacy = run.plan.privacy
    wordless = privacy is not None and privacy.store_text == "none"
    if wordless and run.plan.dataset.modality == "text":
        raise ConfigurationError(
            f"run {run.id} was made with store_text: none, so its words, which strategies are "
            "made of, are not stored. Run the audit again with store_text: hashed, which tells "
            "words apart without keeping them"
        )


def _target(run: AuditRun, target: str | None) -> str:
    targets = run.plan.targets
    if target is None:
        return "predicted" if "predicted" in targets else targets[0]
    if target not in targets:
        raise ConfigurationError(
            f"run {run.id} did not explain target {target!r}; it has {', '.join(targets)}"
        )
    return target


def _names(run: AuditRun, draw: Draw, target: str, class_name: str | None) -> list[str]:
    """The classes to read: the most frequent ones, and the one that is named."""
    if not draw.counts:
        raise ConfigurationError(
            f"run {run.id} has no stored relevance for {target!r}: it is no audit, it has not "
            "begun, or all its items failed"
        )
    if class_name is not None and class_name not in draw.counts:
        raise ConfigurationError(
            f"no item of run {run.id} is explained for class {class_name!r} of target {target!r}; "
            f"there are {', '.join(list(draw.classes())[:CLASSES])}"
        )
    names = list(draw.classes())
    kept = names[:CLASSES]
    return kept if class_name is None or class_name in kept else [*kept[:-1], class_name]


def _read(db: Database, run_id: str, target: str, class_name: str, draw: Draw) -> one_class.Reading:
    found = results.iter_attributions(db, run_id, item_ids=draw.of(class_name), target=target)
    sample = gather(one for one in found if one.class_name == class_name)
    return one_class.read(sample, target, class_name, draw.counts[class_name], draw.seed)

"""A report that may be handed on: no texts, no ids, and no row that rests on few items."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from transexplain.bias.mixed import ClassAgreement, Mixed, MixedGroup
from transexplain.evaluations import Approximation
from transexplain.learned.planned import without_folders
from transexplain.reports.class_records import (
    ClassView,
    Confusion,
    Overlap,
    PositionPart,
    RareWord,
    WordRow,
)
from transexplain.reports.faithfulness_records import Faithfulness, FaithfulnessRow
from transexplain.reports.gallery_records import Explanation, Gallery, GalleryItem
from transexplain.reports.records import (
    Audited,
    ClassSensitivity,
    Conservation,
    Counts,
    FailureKind,
    GroupChange,
    Previous,
    Summary,
)
from transexplain.reports.redacted_groups import GROUPS, keys_of
from transexplain.reports.redaction import (
    FEWEST,
    Redactor,
    Rules,
    at_least,
    by,
    check_fewest,
    empty,
    keep,
    kept,
    within,
)
from transexplain.reports.said import with_sentences
from transexplain.reports.section_records import HashedFile, Provenance
from transexplain.reports.wording import short
from transexplain.spans import UNKNOWN, Span


def redacted(summary: Summary, fewest: int = FEWEST) -> Summary:
    """The summary without texts, ids and pictures, and without what rests on few items.

    Words, entities, groups, classes, kinds of failures and parts of splits that fewer than
    `fewest` items stand behind are left out, cells of the confusion table become None. Totals of
    the whole run stay, so that a single cell that is missing in a row can be worked out. Examples
    keep their colours over blocks, and are numbered. The headline is written anew from what is
    left. Raises ConfigurationError for `fewest` below 2.
    """
    check_fewest(fewest)
    found = Redactor(rules=RULES, fewest=fewest).record(summary)
    assert found is not None  # a summary stands whatever its items are
    return with_sentences(found)


def _parameters(value: Mapping[str, Any], audited: Audited, _redactor: Redactor) -> Any:
    return without_folders({"name": audited.method, "params": value})["params"]


def _notes(value: tuple[str, ...], _summary: Summary, redactor: Redactor) -> tuple[str, ...]:
    fewest = redactor.fewest
    return (
        *value,
        "This report is redacted: texts, pictures, messages and ids of items are left out, and "
        f"words, entities, groups, classes and kinds of failures behind which fewer than {fewest} "
        f"items stand; cells of fewer than {fewest} say so. Other cells are not hidden to protect "
        "these: where a total stands beside them, one missing cell can be worked out. The headline "
        "was written from what is left; verdicts were adjusted over the whole table.",
    )


ABOUT: Mapping[type, Rules] = {
    Audited: Rules(
        # without the folders of the machine that it was made on
        fields={
            "root": empty(""),
            "model": by(short),
            "dataset": by(short),
            "parameters": _parameters,
            **kept(
                "run_id name state created finished plan_digest version model_digest dtype device "
                "modality classes fingerprint method targets at unit long_text max_length payload "
                "window stride long_text_join task inputs_digest manifest_digest"
            ),
        }
    ),
    Provenance: Rules(
        fields={
            "files": within,
            **kept("software machines attention git seeds shards attempts workers seconds"),
        }
    ),
    HashedFile: Rules(fields=kept("part name sha256")),
}


def _cells(
    counts: tuple[tuple[int | None, ...], ...], _confusion: Confusion, redactor: Redactor
) -> tuple[tuple[int | None, ...], ...]:
    fewest = redactor.fewest
    return tuple(
        tuple(None if count is None or 0 < count < fewest else count for count in row)
        for row in counts
    )


DATA: Mapping[type, Rules] = {
    Counts: Rules(
        fields=kept(
            "total done failed pending dead_shards truncated labelled correct accuracy",
        )
    ),
    Confusion: Rules(fields={"counts": _cells, **kept("labels predicted omitted")}),
    FailureKind: Rules(
        stands=at_least("count"), fields={"examples": empty(()), **kept("kind count")}
    ),
}

EVIDENCE: Mapping[type, Rules] = {
    Conservation: Rules(
        fields={
            "worst_item": empty(""),
            **kept("attributions worst mean tolerance above average average_size"),
        }
    ),
    ClassSensitivity: Rules(fields=kept("mean items")),
    Faithfulness: Rules(fields={"rows": within, **kept("method items")}),
    FaithfulnessRow: Rules(
        fields=kept(
            "target metric title unit better of_content items missing mean interval random "
            "difference difference_interval common p beats"
        )
    ),
    Approximation: Rules(
        fields=kept("teacher mode items rank_correlation relative_error forwards")
    ),
    Mixed: Rules(
        stands=at_least("items"),
        fields={"classes": within, "groups": within, **kept("method exact share items failed")},
    ),
    ClassAgreement: Rules(
        stands=at_least("items"),
        fields=kept("target class_name items correlation spread error cheap exact"),
    ),
    MixedGroup: Rules(
        stands=lambda one, fewest: min(one.items, one.documents) >= fewest,
        fields=kept(
            "group target class_name mentions documents items cheap weight correction corrected "
            "interval alone alone_interval needed reason"
        ),
    ),
}


def _minimum(value: int, _view: ClassView, redactor: Redactor) -> int:
    return max(value, redactor.fewest)


CLASSES: Mapping[type, Rules] = {
    ClassView: Rules(
        stands=at_least("items"),
        fields={
            "minimum": _minimum,
            **dict.fromkeys(
                (
                    "raising_by_mean",
                    "raising_by_total",
                    "lowering_by_mean",
                    "lowering_by_total",
                    "rare",
                    "rare_overlap",
                    "weighted",
                    "positions",
                ),
                within,
            ),
            **kept("target class_name items mean_logit heatmap rare_shared"),
        },
    ),
    WordRow: Rules(stands=at_least("documents"), fields=kept("word mean total mentions documents")),
    RareWord: Rules(
        stands=at_least("documents"),
        fields=kept("word score mean rarity mentions documents also"),
    ),
    Overlap: Rules(fields=kept("target class_name share")),
    PositionPart: Rules(fields=kept("mean mean_size positions texts")),
}


def _examples(
    value: tuple[GalleryItem, ...], _gallery: Gallery, redactor: Redactor
) -> tuple[GalleryItem, ...]:
    """Numbered instead of called by their ids."""
    found: tuple[GalleryItem, ...] = redactor.within(value)
    return tuple(replace(one, item_id=f"item {place}") for place, one in enumerate(found, start=1))


def _places(item: GalleryItem) -> dict[int, int]:
    """Where each word of a text begins -> its number."""
    starts = sorted({word.start for each in item.explanations for word in each.words})
    return {start: number for number, start in enumerate(starts)}


def _blocks(value: str | None, item: GalleryItem, _redactor: Redactor) -> str | None:
    """A block for each word: even how long words are would say something."""
    return None if value is None else " ".join(UNKNOWN for _ in _places(item))


def _over_blocks(
    value: tuple[Explanation, ...], item: GalleryItem, redactor: Redactor
) -> tuple[Explanation, ...]:
    places = _places(item)
    found: tuple[Explanation, ...] = redactor.within(value)
    return tuple(
        replace(
            one,
            words=tuple(
                replace(w, start=2 * places[w.start], end=2 * places[w.start] + 1)
                for w in one.words
            ),
        )
        for one in found
    )


EXAMPLES: Mapping[type, Rules] = {
    Gallery: Rules(fields={"items": _examples, "scale": keep}),
    GalleryItem: Rules(
        fields={
            "item_id": empty(""),
            "text": _blocks,
            "hidden": empty(0),
            "unread_from": empty(None),
            "source": empty(None),
            "groups": empty(()),
            "explanations": _over_blocks,
            **kept("reason label predicted truncated more"),
        }
    ),
    Explanation: Rules(
        fields={"words": within, **kept("target class_name logit largest grid box")}
    ),
    # `_over_blocks` puts them over blocks
    Span: Rules(fields=kept("start end relevance")),
}


PREVIOUS: Mapping[type, Rules] = {
    Previous: Rules(
        fields={
            "counts": within,
            "groups": within,  # `_previous` leaves out those that the group table has not
            **kept(
                "run_id name state created model_changed data_changed method_changed common "
                "other_prediction"
            ),
        }
    ),
    GroupChange: Rules(
        fields=kept("group target class_name before now flagged_before flagged_now")
    ),
}


def _previous(value: Previous | None, summary: Summary, redactor: Redactor) -> Previous | None:
    """Changes of the comparisons alone that are left of the group table."""
    if value is None:
        return None
    known = set(keys_of(redactor.within(summary.groups)))
    found = (one for one in value.groups if (one.group, one.target, one.class_name) in known)
    made: Previous | None = redactor.within(replace(value, groups=tuple(found)))
    return made


def _omitted(value: int, summary: Summary, redactor: Redactor) -> int:
    return value + sum(one.items < redactor.fewest for one in summary.classes)


def _fewest(_value: int | None, _summary: Summary, redactor: Redactor) -> int:
    return redactor.fewest


#: every record of a report
RULES: Mapping[type, Rules] = {
    Summary: Rules(
        fields={
            # the sentences are written anew from what is left
            "headline": empty(()),
            "verdict": empty(None),
            "untested": empty(()),
            "notes": _notes,
            "classes_omitted": _omitted,
            "previous": _previous,
            "fewest": _fewest,
            "schema_version": keep,
            **dict.fromkeys(
                (
                    "audited",
                    "counts",
                    "conservation",
                    "class_sensitivity",
                    "classes",
                    "confusion",
                    "groups",
                    "gallery",
                    "failures",
                    "faithfulness",
                    "provenance",
                    "mixed",
                    "approximates",
                ),
                within,
            ),
        }
    ),
    **ABOUT,
    **DATA,
    **EVIDENCE,
    **CLASSES,
    **GROUPS,
    **EXAMPLES,
    **PREVIOUS,
}

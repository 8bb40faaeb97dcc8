"""What deaths of processes leave behind: items to be run alone, and items not to be run again.

A document of one shard, kept in its row: how often each item was alone in hand when an attempt
ended, and why some are in quarantine.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from transexplain.supervision import Caution

#: an item that was alone in hand at the end of so many attempts is not tried again
LONE_DEATHS = 2
Document = Mapping[str, Mapping[str, Any]]


def after_death(
    document: Document | None, breadcrumb: Sequence[str] | None, cause: str
) -> tuple[Document | None, bool]:
    """What is known once an attempt died with the items `breadcrumb` in hand; whether it is news.

    Every item can be news three times (in a batch, and alone twice), so that a shard cannot go
    on for ever by dying differently.
    """
    if not breadcrumb:
        return document, False
    deaths = dict(document["deaths"]) if document else {}
    quarantined = dict(document["quarantined"]) if document else {}
    if len(breadcrumb) > 1:
        news = any(name not in deaths for name in breadcrumb)
        deaths = dict.fromkeys(breadcrumb, 0) | deaths
    else:
        [name] = breadcrumb
        deaths[name] = deaths.get(name, 0) + 1
        news = name not in quarantined
        if deaths[name] >= LONE_DEATHS:
            quarantined[name] = cause
    return {"deaths": deaths, "quarantined": quarantined}, news


def caution_of(document: Document | None) -> Caution:
    """How the shard's next attempt has to go about it."""
    if not document:
        return Caution()
    quarantined = dict(document["quarantined"])
    return Caution(alone=frozenset(document["deaths"]) - set(quarantined), quarantined=quarantined)

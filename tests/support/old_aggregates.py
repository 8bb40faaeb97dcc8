"""Writes aggregates as version 5 did: a list of numbers per name instead of columns."""

from collections.abc import Mapping
from typing import Any

from transexplain.analysis.groups.entity_totals import EntityTotals
from transexplain.analysis.groups.shard_aggregate import ShardAggregate


def in_rows(aggregate: ShardAggregate) -> dict[str, Any]:
    """The JSON values of version 5."""
    found = aggregate.to_json() | {"version": 5}
    found["words"] = [
        {"target": target, "class_name": name, "words": dict(sorted(words.items()))}
        for (target, name), words in sorted(aggregate._words.items())
    ]
    found["entities"] = entities_in_rows(aggregate.entities)
    found["second"] = entities_in_rows(aggregate.second)
    randomised = aggregate.checked.randomised
    draws = [entities_in_rows(one) for one in randomised.draws]
    checked = found["checked"]["randomised"]
    checked["real"] = entities_in_rows(randomised.real)
    checked["randomised"] = draws[0] if draws else []
    if "further" in checked:
        checked["further"] = draws[1:]
    if aggregate.outcomes is not None:
        found["outcomes"] = [
            [list(key.groups), *key[1:], entry]
            for key, entry in sorted(aggregate.outcomes._rows.items())
        ]
    return found


def entities_in_rows(totals: EntityTotals) -> list[dict[str, Any]]:
    """The part of it that one `EntityTotals` had."""
    return [
        {
            "stratum": list(stratum),
            "rows": _nested(totals._rows[stratum]),
            "documents": dict(sorted(totals._documents.get(stratum, {}).items())),
            "pairs": _nested(totals._pairs.get(stratum, {})),
            "sizes": {
                group: histogram.to_json()
                for group, histogram in sorted(totals._sizes.get(stratum, {}).items())
            },
            **_clusters(totals, stratum),
        }
        for stratum in sorted(totals._rows)
    ]


def _clusters(totals: EntityTotals, stratum: Any) -> dict[str, Any]:
    clusters = sorted(totals._clusters.get(stratum, {}).items())
    return {"clusters": {name: _nested(sums) for name, sums in clusters}} if clusters else {}


def _nested(entries: Mapping[tuple[str, str], list[int]]) -> dict[str, dict[str, list[int]]]:
    found: dict[str, dict[str, list[int]]] = {}
    for (first, second), entry in sorted(entries.items()):
        found.setdefault(first, {})[second] = entry
    return found

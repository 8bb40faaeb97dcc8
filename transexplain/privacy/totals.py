"""A shard's aggregate without its texts: words as they are stored, names as they are stored."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from transexplain.bias.aggregates import ShardAggregate
from transexplain.types import Attribution, ItemOutcome, PatchGrid

Rename = Callable[[str], str]
#: keys of a record that name a group, and the key beside it that names an entity of it
_NAMED = (("group", "entity"), ("other", "replacement"))


def without_texts(
    aggregate: Mapping[str, Any],
    outcomes: Sequence[ItemOutcome],
    attributions: Sequence[Attribution],
    marked: Collection[str],
    rename: Rename,
) -> dict[str, Any]:
    """The aggregate with the words of the attributions as they will be stored.

    What is added up from the stored rows is then what is stored, as `verify` asks.

    Args:
        aggregate: of the real texts.
        outcomes: as they will be stored.
        attributions: as they will be stored.
        marked: groups whose entities' names come from the data.
        rename: what becomes of such a name.
    """
    counted = ShardAggregate()
    texts = [one for one in attributions if not isinstance(one.features, PatchGrid)]
    if texts and outcomes:
        counted.add(outcomes[0], texts)
    found = {**aggregate, "words": counted.to_json()["words"]}
    if not marked:
        return found
    renamed: dict[str, Any] = _renamed(found, marked, rename)
    return renamed


def _renamed(value: Any, marked: Collection[str], rename: Rename) -> Any:
    if isinstance(value, list):
        return [_renamed(one, marked, rename) for one in value]
    if not isinstance(value, Mapping):
        return value
    changed = {key: _renamed(one, marked, rename) for key, one in value.items()}
    for group, entity in _NAMED:
        if changed.get(group) in marked and entity in changed:
            changed[entity] = rename(changed[entity])
    if "stratum" in changed and "rows" in changed:
        changed["rows"] = {
            group: _with_names(entities, rename) if group in marked else entities
            for group, entities in changed["rows"].items()
        }
        for groups in changed.get("clusters", {}).values():
            groups |= {
                group: _with_names(entities, rename)
                for group, entities in groups.items()
                if group in marked
            }
    return changed


def _with_names(entities: Mapping[str, Any], rename: Rename) -> dict[str, Any]:
    return dict(sorted((rename(name), entry) for name, entry in entities.items()))

"""What decides a run's numbers: bytes, software, the resolved plan; never where files lie."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import PurePath
from typing import Any

from transexplain.learned.planned import explainers_in, without_folders
from transexplain.manifests.canonical import sha256_of

#: parts of a plan that say where and on what, and not what
_PLACES = {
    "model": ("source", "device"),
    "dataset": ("source", "snapshot", "root"),
}
#: software that is recorded, but moves no number by itself
_ASIDE = ("python",)


def inputs_of(plan: Mapping[str, Any], surroundings: Mapping[str, Any] | None) -> dict[str, Any]:
    """The part of a manifest that names the run, from the plan's stored document.

    The same bytes elsewhere, under the same file names, are the same inputs.
    """
    rest = {name: value for name, value in plan.items() if name not in ("groups", "lexicons")}
    software = (surroundings or {}).get("software", {})
    explainers = _named(_documents(plan))
    return {
        "model": _without_places("model", plan["model"]),
        "dataset": _without_places("dataset", plan["dataset"]),
        "lexicons": _named(plan.get("lexicons", ())),
        **({"explainers": explainers} if explainers else {}),
        "groups": {group["name"]: sha256_of(group) for group in plan.get("groups", ())},
        "plan": without_folders({n: value for n, value in rest.items() if n not in _PLACES}),
        "seeds": dict(seeds(rest)),
        "software": {name: one for name, one in software.items() if name not in _ASIDE},
    }


def places_of(plan: Mapping[str, Any]) -> dict[str, Any]:
    """Where the inputs lay, and the device that was asked for."""
    found = {part: {name: plan[part].get(name) for name in _PLACES[part]} for part in _PLACES}
    files = [one["path"] for one in plan["dataset"].get("files", ())]
    lexicons = [one["path"] for one in plan.get("lexicons", ())]
    explainers = [one["path"] for one in _documents(plan)]
    beside = {"explainers": explainers} if explainers else {}
    return {**found, "files": files, "lexicons": lexicons, **beside}


def seeds(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every `seed` of a plan by its place, e.g. `evaluation.seed`."""
    entries: Any = ()
    if isinstance(value, Mapping):
        entries = value.items()
    elif isinstance(value, list | tuple):
        entries = enumerate(value)
    for key, entry in entries:
        place = f"{path}.{key}" if path else str(key)
        if key == "seed":
            yield place, entry
        yield from seeds(entry, place)


def _without_places(part: str, document: Mapping[str, Any]) -> dict[str, Any]:
    kept = {name: value for name, value in document.items() if name not in _PLACES[part]}
    files = document.get("files", ())
    return {**kept, "files": list(files) if part == "model" else _named(files)}


def _documents(plan: Mapping[str, Any]) -> list[dict[str, str]]:
    """The plan's explainers, each once, as its other files are written."""
    return [asdict(one) for one in dict.fromkeys(explainers_in(plan))]


def _named(files: Any) -> list[dict[str, str]]:
    """Files by their last name, in the order that they were read in."""
    return [{"name": PurePath(one["path"]).name, "sha256": one["sha256"]} for one in files]

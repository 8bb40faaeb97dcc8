"""Manifests: which bytes, which software and which machine a run's numbers came from."""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import PurePath
from typing import Any

from transexplain.methods.explainer_files import explainers_in, without_folders
from transexplain.store.database import Database
from transexplain.store.fleet_state import device_times
from transexplain.store.runs import (
    RecordedShard,
    failures,
    recorded_run,
    recorded_shards,
    workers_of,
)
from transexplain.types.device_time import together

_SURROGATES = re.compile("[\ud800-\udfff]")


def canonical(value: Any) -> bytes:
    """A JSON value as bytes that are the same for every writer, in whatever order.

    UTF-8, keys sorted by code point, no white space, no escape but those that JSON asks for (and
    of lone surrogates, which UTF-8 has no bytes for), numbers as Python's `repr`: the shortest
    digits that read back as the same double. It is RFC 8785 but for two things: floats keep their
    point (`1.0`, where the RFC writes `1`) and Python's exponents (`1e-07` for `1e-7`), and keys
    beyond the basic plane are sorted by code point instead of UTF-16 unit.

    Raises ValueError for NaN and infinity, TypeError for keys that are not text and for what
    JSON has no form for.
    """
    _check_keys(value)
    text = json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )
    return _SURROGATES.sub(lambda match: f"\\u{ord(match[0]):04x}", text).encode()


def sha256_of(value: Any) -> str:
    """Sha256 of the canonical bytes, in hexadecimal; raises as `canonical`."""
    return hashlib.sha256(canonical(value)).hexdigest()


def _check_keys(value: Any) -> None:
    """Refuse keys that JSON writes alike (1 and "1"): two values would have one text."""
    if isinstance(value, Mapping):
        for key, entry in value.items():
            if not isinstance(key, str):
                raise TypeError(f"the key {key!r} is not text")
            _check_keys(entry)
    elif isinstance(value, list | tuple):
        for entry in value:
            _check_keys(entry)


#: parts of a plan that say where and on what, and not what
_PLACES = {
    "model": ("source", "device"),
    "dataset": ("source", "snapshot", "root"),
}
#: parts of a plan that stand elsewhere in a manifest; where results go decides no number
_APART = ("groups", "lexicons", "sink")
#: software that is recorded, but moves no number by itself
_ASIDE = ("python",)


def inputs_of(plan: Mapping[str, Any], environment: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a manifest that names the run, from the plan's stored document.

    The same bytes elsewhere, under the same file names, are the same inputs.
    """
    rest = {name: value for name, value in plan.items() if name not in _APART}
    if (recogniser := rest.get("recogniser")) is not None:
        kind, _, where = recogniser["source"].partition(":")
        rest["recogniser"] = {**recogniser, "source": f"{kind}:{PurePath(where).name}"}
    software = environment.get("software", {})
    explainers = _named(_documents(plan))
    return {
        "model": _without_places("model", plan["model"]),
        "dataset": _without_places("dataset", plan["dataset"]),
        "lexicons": _named(plan.get("lexicons", ())),
        **({"explainers": explainers} if explainers else {}),
        "groups": {group["name"]: sha256_of(group) for group in plan.get("groups", ())},
        "plan": _without_references(
            without_folders({n: value for n, value in rest.items() if n not in _PLACES})
        ),
        "seeds": dict(seeds(rest)),
        "software": {name: release for name, release in software.items() if name not in _ASIDE},
    }


def _without_references(plan: dict[str, Any]) -> dict[str, Any]:
    """The plan with reference corpora of metrics by their last name; their bytes are named too."""
    evaluation = plan.get("evaluation")
    if not evaluation:
        return plan
    metrics = []
    for metric in evaluation["metrics"]:
        params = metric["params"]
        if (reference := params.get("reference")) is not None and "reference_version" in params:
            params = {**params, "reference": PurePath(reference).name}
        metrics.append({**metric, "params": params})
    return {**plan, "evaluation": {**evaluation, "metrics": metrics}}


def places_of(plan: Mapping[str, Any]) -> dict[str, Any]:
    """Return where the inputs lay, and the device that was requested."""
    places = {part: {name: plan[part].get(name) for name in _PLACES[part]} for part in _PLACES}
    files = [file["path"] for file in plan["dataset"].get("files", ())]
    lexicons = [file["path"] for file in plan.get("lexicons", ())]
    explainers = [document["path"] for document in _documents(plan)]
    beside: dict[str, Any] = {"explainers": explainers} if explainers else {}
    if plan.get("recogniser"):
        beside["recogniser"] = plan["recogniser"]["source"]
    if plan.get("sink"):
        beside["sink"] = plan["sink"]["url"]
    return {**places, "files": files, "lexicons": lexicons, **beside}


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
    return [asdict(fromkey) for fromkey in dict.fromkeys(explainers_in(plan))]


def _named(files: Any) -> list[dict[str, str]]:
    """Files by their last name, in the order that they were read in."""
    named = [{"name": PurePath(file["path"]).name, "sha256": file["sha256"]} for file in files]
    for entry, file in zip(named, files, strict=True):
        if state := file.get("state"):  # of a file in an object store, which is not hashed
            entry["state"] = state
    return named


SCHEMA_VERSION = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Manifest:
    """The inputs of a run and the course it took."""

    inputs: Mapping[str, Any]  #: what decides the numbers, wherever it lies and whoever computes
    execution: Mapping[str, Any]  #: who computed, when, where the inputs lay, what was saved

    @property
    def name(self) -> str:
        """Sha256 of the canonical `inputs`: the same for two runs over the same bytes."""
        return sha256_of(self.inputs)

    @property
    def document(self) -> dict[str, Any]:
        """Everything as one JSON object."""
        return {
            "schema_version": SCHEMA_VERSION,
            "name": self.name,
            "inputs": self.inputs,
            "execution": self.execution,
        }

    @property
    def text(self) -> bytes:
        """The canonical JSON of the document: what a manifest's file holds, to the byte."""
        return canonical(self.document)

    @property
    def sha256(self) -> str:
        """Sha256 of `text`, which `sha256sum` gives of the file."""
        return hashlib.sha256(self.text).hexdigest()


def manifest_of(db: Database, run_id: str) -> Manifest:
    """Return what the run with exactly this id was made from, and how it went so far.

    Of a finished run it stays the same, to the byte, until shards are computed once more. Raises
    ConfigurationError for an unknown run.
    """
    run, shards = recorded_run(db, run_id), recorded_shards(db, run_id)
    environment = _different(shards)
    execution = {
        "run": run.id,
        "state": run.state,
        "created": run.created,
        "finished": run.finished,
        "seconds": sum(shard.seconds or 0.0 for shard in shards),
        "workers": workers_of(shards),
        "device": _device(db, run.id),
        "plan_digest": run.plan_digest,
        "places": places_of(run.plan),
        "planned": dict(run.environment),
        "computed": environment,
        "shards": [_shard(shard, environment) for shard in shards],
        "attempts": sum(shard.attempt for shard in shards),
        "failures": failures(db, run.id),
    }
    return Manifest(inputs=inputs_of(run.plan, run.environment), execution=execution)


def _different(shards: list[RecordedShard]) -> list[dict[str, Any]]:
    """The software and machines that shards were saved by, each once."""
    environments: list[dict[str, Any]] = []
    for shard in shards:
        environment = _surroundings(shard)
        if environment is not None and environment not in environments:
            environments.append(environment)
    return environments


def _surroundings(shard: RecordedShard) -> dict[str, Any] | None:
    """Return what a shard was saved by; the time of its device is its own, and stands elsewhere."""
    if shard.environment is None:
        return None
    return {name: value for name, value in shard.environment.items() if name != "device"}


def _device(db: Database, run_id: str) -> dict[str, Any] | None:
    """Return what devices did with their time, together and by worker; None: nobody noted it."""
    times = device_times(db, run_id)
    if not times:
        return None
    return {**together(times).document, "workers": [time.document for time in times]}


def _shard(shard: RecordedShard, environment: list[dict[str, Any]]) -> dict[str, Any]:
    environment_of_shard = _surroundings(shard)
    place = None if environment_of_shard is None else environment.index(environment_of_shard)
    return {
        "index": shard.index,
        "start": shard.start,
        "stop": shard.stop,
        "state": shard.state,
        "attempt": shard.attempt,
        "worker": shard.worker,
        "seconds": shard.seconds,
        "explained": shard.explained,
        "failed": shard.failed,
        "digest": shard.digest,
        "computed": place,  # place in `computed`
    }

"""The manifest of a run in a report, without its list of shards."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from transexplain.provenance.manifest import Manifest
from transexplain.reports.redaction import RedactionRules, kept, within
from transexplain.reports.report_section import Section
from transexplain.types.device_time import DeviceTime


@dataclass(frozen=True, kw_only=True, slots=True)
class HashedFile:
    """One file that decided the numbers."""

    part: str  #: model | dataset | lexicon | recogniser | explainer
    name: str
    sha256: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Provenance:
    """The manifest in short: with what, on what and by whom the numbers were computed."""

    software: tuple[tuple[str, str], ...]  #: (package, version)
    machines: tuple[str, ...]  #: that computed, each once
    attention: str  #: kernel; "": not recorded
    git: str  #: commit of the caller's folder; "": none was recorded
    seeds: tuple[tuple[str, int], ...]  #: (place in the plan, seed)
    files: tuple[HashedFile, ...]
    shards: int
    attempts: int
    workers: int
    seconds: float  #: computing, over all shards
    #: share of the devices' time, 0 to 1, in which they waited for the host; None: not recorded
    waited: float | None = None
    waits: tuple[tuple[str, float], ...] = ()  #: (stage of the host, share), the largest first


def provenance_of(manifest: Manifest) -> Provenance:
    """The summary of a manifest; the manifest itself is a file in the report's folder."""
    inputs, execution = manifest.inputs, manifest.execution
    environments = list(execution["computed"]) or [execution["planned"] or {}]
    device = DeviceTime(seconds=(execution["device"] or {}).get("seconds", {}))
    software = {
        name: version for part in environments for name, version in part.get("software", {}).items()
    }
    planned = execution["planned"] or {}
    git = planned.get("git") or {}
    changed = " with uncommitted changes" if git.get("dirty") else ""
    return Provenance(
        software=tuple(sorted(software.items())),
        machines=tuple(dict.fromkeys(_machine(part) for part in environments if part)),
        attention=inputs["model"].get("attention") or "",
        git=(f"{git['commit']}{changed}" if git.get("commit") else ""),
        seeds=tuple(inputs["seeds"].items()),
        files=tuple(_files(inputs)),
        shards=len(execution["shards"]),
        attempts=execution["attempts"],
        workers=execution["workers"],
        seconds=execution["seconds"],
        waited=device.waited,
        waits=tuple(device.stages.items()),
    )


def _files(inputs: Mapping[str, Any]) -> Iterator[HashedFile]:
    recogniser = inputs["plan"].get("recogniser")
    files = {
        "model": inputs["model"].get("files", ()),
        "dataset": inputs["dataset"].get("files", ()),
        "lexicon": inputs["lexicons"],
        "recogniser": [{**recogniser, "sha256": recogniser["digest"]}] if recogniser else (),
        "explainer": inputs.get("explainers", ()),
    }
    for part, of_part in files.items():
        for file in of_part:
            name = file["path" if part == "model" else "name"]
            yield HashedFile(part=part, name=name, sha256=file["sha256"] or "no files")


def _machine(environment: Mapping[str, Any]) -> str:
    hardware = environment.get("hardware", {})
    devices = hardware.get("gpus") or [hardware.get("cpu") or "unknown processor"]
    shown = ", ".join(dict.fromkeys(map(str, devices)))
    cores = hardware.get("cores")
    steps = ", ".join(environment.get("steps", ()))
    return f"{shown}{f', {cores} cores' if cores else ''}{f' (steps: {steps})' if steps else ''}"


_RULES: Mapping[type, RedactionRules] = {
    Provenance: RedactionRules(
        fields={
            "files": within,
            **kept(
                "software machines attention git seeds shards attempts workers seconds waited waits"
            ),
        }
    ),
    HashedFile: RedactionRules(fields=kept("part name sha256")),
}


SECTION = Section(
    template="manifest.html.j2",
    links=(("manifest", "Manifest"),),
    redaction=_RULES,
    of_summary={"provenance": within},
    present=lambda report: report.provenance is not None,
)

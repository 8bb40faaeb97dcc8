"""The audited model, data and method, the assumptions and notes on a run, and its manifest."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from transexplain.analysis.groups.intervals import BOOTSTRAP_FROM, MIN_ENTITIES
from transexplain.analysis.groups.shard_aggregate import SeenTotals
from transexplain.analysis.groups.text_totals import TextRepeats
from transexplain.methods import facts_of
from transexplain.methods.explainer_files import without_folders
from transexplain.provenance.manifest import Manifest
from transexplain.reports import phrasing
from transexplain.reports.page import paragraphs
from transexplain.reports.phrasing import short
from transexplain.reports.redaction import (
    Redactor,
    by,
    empty,
    published,
    within,
)
from transexplain.reports.report_section import RunInputs, Section, SectionSource, of_run
from transexplain.reports.sections.gallery_items import SHARE
from transexplain.reports.sections.measured_faithfulness import ClassSensitivity
from transexplain.store import run_totals
from transexplain.types.device_time import DeviceTime
from transexplain.types.label_sets import NO_LABEL, USUAL_THRESHOLD
from transexplain.types.plans import (
    AT_POSITIONS,
    GENERATED,
    AuditRun,
    Head,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Audited(RunInputs):
    """The audited model, data and method."""

    root: str  #: folder that picture paths are relative to
    method: str
    parameters: Mapping[str, Any]
    targets: tuple[str, ...]
    at: tuple[str, ...]  #: leaves that were measured; one, unless the run is odd
    unit: str  #: of every relevance
    long_text: str
    max_length: int | None
    window: int | None = None  #: positions of a window, where long texts are read in windows
    stride: int | None = None  #: positions of text between windows; None: no overlap
    long_text_join: str = "mean"  #: of the windows' logits
    task: str = "audit"  #: `imported`: the attributions were made elsewhere
    head: Head = "classes"  #: what the model answers
    recogniser: str = ""  #: software and model that found entities in texts; "": none did
    inputs_digest: str = ""  #: names the run: sha256 of what decides its numbers
    manifest_digest: str = ""  #: sha256 of the whole manifest, execution included


def audited_of(run: AuditRun, seen: SeenTotals, manifest: Manifest) -> Audited:
    """The audited model, data and method, from the plan, the explanations and the manifest."""
    plan = run.plan
    return of_run(
        Audited,
        run,
        parameters=dict(plan.method.params),
        at=tuple(sorted(seen.input_layers)),
        unit=" and ".join(sorted(seen.units)) or "logits",
        recogniser=plan.recogniser.name if plan.recogniser else "",
        inputs_digest=manifest.name,
        manifest_digest=manifest.sha256,
    )


def notes(
    run: AuditRun,
    layers: tuple[str, ...],
    unit: str,
    sensitivity: ClassSensitivity | None,
    repeats: TextRepeats | None = None,
) -> tuple[str, ...]:
    """One paragraph each on what the numbers are and what they rest on."""
    plan = run.plan
    source = plan.recogniser.source_of_groups if plan.recogniser else None
    return paragraphs(
        "notes.txt.j2",
        plan=plan,
        imported=plan.task == "imported",
        layers=layers,
        unit=unit,
        sensitivity=sensitivity,
        repeats=repeats,
        recognised=[group.name for group in plan.groups if group.source == source],
        facts_of=facts_of,
        nearness=phrasing.nearness,
        sampled=phrasing.sampled,
        generated=GENERATED,
        usual_threshold=USUAL_THRESHOLD,
        no_label=NO_LABEL,
        share=SHARE,
        bootstrap_from=BOOTSTRAP_FROM,
        min_entities=MIN_ENTITIES,
    )


def _redacted_notes(value: tuple[str, ...], _summary: Any, redactor: Redactor) -> tuple[str, ...]:
    fewest = redactor.fewest
    return (
        *value,
        "This report is redacted: texts, pictures, messages and ids of items are left out, and "
        f"words, entities, groups, classes and kinds of failures behind which fewer than {fewest} "
        f"items stand; cells of fewer than {fewest} say so. Other cells are not hidden to protect "
        "these: where a total stands beside them, one missing cell can be worked out. The headline "
        "was written from what is left; verdicts were adjusted over the whole table.",
    )


SECTION = Section(
    template="about.html.j2",
    links=(("audited", "What was audited"), ("methods", "Methods")),
    redaction={
        Audited: published(  # without the folders of the machine that it was made on
            "run_id name state plan_digest version model_digest dtype device modality classes "
            "fingerprint method targets at unit long_text long_text_join task recogniser "
            "inputs_digest manifest_digest",
            root=empty(""),
            model=by(short),
            dataset=by(short),
            parameters=lambda value, audited, _redactor: without_folders(
                {"name": audited.method, "params": value}
            )["params"],
        ),
    },
    of_summary={"audited": within, "notes": _redacted_notes},
    drawing=lambda _report: {"method_of": phrasing.method_of},
)


_MOST = 50  #: labels in the table; data with more have something else in this column


@dataclass(frozen=True, kw_only=True, slots=True)
class LabelReading:
    """One label as the dataset spells it."""

    label: str
    class_name: str | None  #: None: it was read as no class, and its items as unlabelled
    items: int  #: explained ones


@dataclass(frozen=True, kw_only=True, slots=True)
class LabelReadings:
    """The labels of a run's items, the most frequent first."""

    readings: tuple[LabelReading, ...]
    omitted: int  #: labels beyond those listed


def _collect(source: SectionSource) -> LabelReadings | None:
    """None where no label is stored: the data has none, or the run is of older software.

    Where tokens are labelled or answers marked or generated, an item's label is a list of its
    entities or an answer, which is not shown.
    """
    if source.run.plan.model.head in (*AT_POSITIONS, GENERATED):
        return None
    labels = run_totals.by_raw_label(source.db, source.run.id)
    if not labels:
        return None
    readings = tuple(
        LabelReading(label=label, class_name=name, items=count)
        for label, name, count in labels[:_MOST]
    )
    return LabelReadings(readings=readings, omitted=len(labels) - len(readings))


LABELS = Section(
    template="labels.html.j2",
    links=(),
    redaction={
        LabelReadings: published(),
        LabelReading: published("label class_name", least="items"),
    },
    present=lambda report: bool(getattr(report.sections.get("labels"), "readings", ())),
    record=LabelReadings,
    collect=_collect,
)


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


MANIFEST = Section(
    template="manifest.html.j2",
    links=(("manifest", "Manifest"),),
    redaction={
        Provenance: published("software machines attention git seeds waits"),
        HashedFile: published("part name sha256"),
    },
    of_summary={"provenance": within},
    present=lambda report: report.provenance is not None,
)

"""The audited model, data and method, the assumptions and notes on a run, and its manifest."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from transexplain.analysis.groups.shard_aggregate import SeenTotals
from transexplain.analysis.groups.text_totals import TextRepeats
from transexplain.methods import facts_of
from transexplain.methods.explainer_files import without_folders
from transexplain.provenance.manifest import Manifest
from transexplain.reports import phrasing
from transexplain.reports.phrasing import nearness, sampled, short
from transexplain.reports.redaction import (
    Redactor,
    by,
    empty,
    published,
    within,
)
from transexplain.reports.report_section import Section, SectionSource, of_run
from transexplain.reports.sections.gallery_items import SHARE
from transexplain.reports.sections.group_section import group_notes
from transexplain.reports.sections.measured_faithfulness import ClassSensitivity
from transexplain.store import run_totals
from transexplain.types.device_time import DeviceTime
from transexplain.types.label_sets import NO_LABEL, USUAL_THRESHOLD
from transexplain.types.plans import (
    AT_POSITIONS,
    GENERATED,
    AuditPlan,
    AuditRun,
    Head,
    PrivacyPlan,
    StoreText,
)
from transexplain.types.scores import Approximation


@dataclass(frozen=True, kw_only=True, slots=True)
class Audited:
    """The audited model, data and method."""

    run_id: str
    name: str
    state: str  #: running | done | cancelled
    created: float  #: seconds since the epoch
    finished: float | None
    plan_digest: str  #: sha256 of the plan
    version: str  #: of TransExplain, when the report was made
    model: str
    model_digest: str  #: sha256 over weights, config and tokenizer
    dtype: str
    device: str
    modality: str
    classes: tuple[str, ...]
    dataset: str
    fingerprint: str  #: sha256 of the dataset's snapshot
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


_KEPT: dict[StoreText, str] = {
    "full": "",
    "hashed": (
        "The texts are not stored (store_text: hashed): each word stands as 12 digits of a keyed "
        "hash, the same for the same word. Spellings of mentions, metadata and entities that the "
        "data name are hashed, too; messages of errors are not kept. Words as frequent as a group "
        "are not reported, because the words of a group cannot be distinguished from others."
    ),
    "none": (
        "The texts are not stored (store_text: none): a block stands for each word. There are no "
        "lists of words, and spellings of mentions, metadata and messages of errors are not kept."
    ),
}


def privacy_notes(privacy: PrivacyPlan | None) -> Iterator[str]:
    """Notes on which texts were stored, and why the report shows no more."""
    if privacy is None:
        return
    if privacy.store_text != "full":
        yield (
            f"{_KEPT[privacy.store_text]} All numbers were computed from the texts themselves "
            "before anything was stored. Names of the lexicon's entities stay, and item ids."
        )
    elif privacy.redact:
        yield (
            f"Words that {privacy.redact} marked were blanked (\N{FULL BLOCK}) before texts were "
            "stored; blanked words are in no list of words. All other numbers were computed from "
            "the texts themselves."
        )


_METHODS = {
    "gradient-x-input": "the gradient of the logit times the input",
    "lrp-ah": "layer-wise relevance propagation with attention weights held constant",
    "lrp-ln": "layer-wise relevance propagation with the scale of normalisation held constant",
    "lrp-ah-ln": "layer-wise relevance propagation with attention weights and the scale of "
    "normalisation held constant (Ali et al., 2022)",
    "lrp": "layer-wise relevance propagation with attention weights and the scale of "
    "normalisation held constant and activations passed through in proportion, so that relevance "
    "is neither made nor lost",
}
_INPUT_LAYERS = {
    "inputs": "the input positions",
    "attention": "the positions of the attention maps",
    "encoder": "the input of the first layer",
    "words": "the word embeddings",
    "pixels": "the pixels, summed over colours",
    "nodes": "the features of the nodes",
}
_READING = (
    "Relevance says what the model's arithmetic used for these items. It does not say what the "
    "model would have answered had the text, picture or graph been different."
)
_PERTURBED = (
    "Relevance says how the model's answer changed when a token, patch or node was absent. What "
    "stood in its place is in the notes of every explanation, and the numbers depend on it."
)


def notes(
    run: AuditRun,
    layers: tuple[str, ...],
    unit: str,
    sensitivity: ClassSensitivity | None,
    repeats: TextRepeats | None = None,
) -> tuple[str, ...]:
    """One paragraph each on what the numbers are and what they rest on."""
    return (
        *_several(run.plan),
        *_relevance(run, layers, unit),
        *_sensitivity(sensitivity),
        *_pooling(run),
        *_repeats(repeats, run.plan.dataset.rows),
        *privacy_notes(run.plan.privacy),
        *group_notes(run),
        *_reading(run, layers, unit),
    )


#: how models that give an item no class answer, and how their answers are counted
_ANSWERING: Mapping[Head, str] = {
    "tokens": (
        "The model labels tokens. An explanation is of one entity: of the summed logits of its "
        "labels at the first token of each of its words, and its note says which characters "
        "those are. In the answers of groups an item is an entity: one that the data gives, "
        "counted as found where exactly its characters have a type, and what is found besides; "
        "or, without labels, a mention. Groups are compared by the recall and the precision of "
        "each type, and entities of one text count as one cluster. The relevance of a group is "
        "that of its names for their own labels. Mentions are not taken out or swapped, as the "
        "entities of a changed text are others."
    ),
    GENERATED: (
        "The model goes on with each text, the likeliest token each time; what it said, or the "
        "continuation that the data gives, stands behind the text as a second one. An "
        "explanation is of the log-probability of that answer in nats, in the text and in the "
        "answer's own tokens. Names are looked for, removed and swapped in the text alone, and "
        "the answer stays: its log-odds are what changes. An answer counts as selected where "
        "it is the label that the data gives, case and white space aside; without labels all "
        "are."
    ),
    "span": (
        "The model marks answers to questions. An explanation is of one answer: of the sum of "
        "the logits that it begins at its first token and ends at its last, and its note says "
        "which characters those are. An answer is predicted as exact where it is a given one, "
        "case, punctuation and articles left out, as partly where it has words of one, and as "
        "other where it has none, so accuracy is exact match. Outcomes of groups are the share "
        "of exact answers and the mean F1 of words, of the items with a given answer; of "
        "several given ones the best counts. Mentions are not taken out or swapped, as the "
        "answers of a changed text are others."
    ),
}


def _several(plan: AuditPlan) -> Iterator[str]:
    """Yield how a model without a single class per item predicts, and how answers are counted."""
    if plan.model.head in _ANSWERING:
        yield _ANSWERING[plan.model.head]
    if plan.several is None:
        return
    thresholds = [f"{name} {value:g}" for name, value in plan.several.thresholds.items()]
    yield (
        "The model may give an item several labels, each by a probability of its own, and predicts "
        f"those that reach their threshold "
        f"({', '.join(thresholds) or f'{USUAL_THRESHOLD:g} for all'}). "
        "Rates and errors of groups are those of each label. An item is predicted as labelled "
        "where all of its labels are. The target `predicted` explains every predicted label, and "
        f"nothing of an item without one, which is shown as {NO_LABEL}."
    )


def _repeats(repeats: TextRepeats | None, rows: int) -> Iterator[str]:
    """Yield how many texts repeat others, in data that were not looked at as a whole."""
    if repeats is None or not repeats.drawn:
        return
    yield (
        f"Near-duplicates were not looked for among {rows:,} items, and groups count each item. Of "
        f"{repeats.drawn:,} items, drawn by their text so that all of one text are drawn or none, "
        f"{repeats.repeating:,} ({repeats.repeating / repeats.drawn:.1%}) have the text of "
        f"another item, word for word. data.cluster names what belongs together."
    )


def _reading(run: AuditRun, layers: tuple[str, ...], unit: str) -> Iterator[str]:
    if run.plan.task != "imported":  # otherwise their meaning is known only to who made them
        yield _PERTURBED if "inputs" in layers and unit == "logits" else _READING


def _relevance(run: AuditRun, layers: tuple[str, ...], unit: str) -> Iterator[str]:
    name = run.plan.method.name
    if run.plan.task == "imported":
        yield (
            f"Attributions were made elsewhere and imported under the name {name}, in {unit} as "
            "the import stated. Positive is read as raising the explained class, negative "
            "as lowering it. No model was loaded: nothing here was computed again, and swaps, "
            "faithfulness, class sensitivity and the ledger are not measured."
        )
        return
    meaning = f": {_METHODS[name]}" if name in _METHODS else f" ({facts_of(name).source})"
    where = " and ".join(_INPUT_LAYERS.get(layer, layer) for layer in layers) or "not measured yet"
    approximation = run.plan.approximates
    how = f"predicted, not computed, with {name}" if approximation else f"computed with {name}"
    yield (
        f"Relevance is {how}{meaning}. It is measured at {where}, in {unit}, and "
        "signed: positive raises the explained class, negative lowers it."
    )
    if approximation is not None:
        yield from _predicted(run, approximation)


def _predicted(run: AuditRun, approximation: Approximation) -> Iterator[str]:
    teacher = approximation.teacher
    meaning = f": {_METHODS[teacher]}" if teacher in _METHODS else ""
    trained = (
        "together with the model" if approximation.mode == "joint" else "beside the finished model"
    )
    here = (
        "How near it comes on items of this audit is in the section on the cheap method."
        if run.plan.exact
        else f"How near it comes on items of this audit was not measured; "
        f"{sampled(approximation)} would measure it."
    )
    yield (
        f"The explainer is a small network, trained {trained}, that reads the model's hidden "
        f"states in the pass that predicts. It approximates {teacher}{meaning}. How near it comes: "
        f"{nearness(approximation)}. There is no ledger, so it is not known where a logit went, or "
        f"whether an explanation adds up to it. {here}"
    )


def _sensitivity(sensitivity: ClassSensitivity | None) -> Iterator[str]:
    if sensitivity is not None:
        yield (
            f"Class sensitivity is {sensitivity.mean:.2f}, measured on the first items of every "
            f"shard "
            f"({sensitivity.items:,}): half of one minus the rank correlation of the maps for an "
            f"item's two likeliest classes. 0 is the same map for every class, 0.5 unrelated "
            "maps, 1 opposite ones."
        )


def _pooling(run: AuditRun) -> Iterator[str]:
    no_ledger = run.plan.task == "imported" or run.plan.approximates is not None
    if run.plan.model.modality == "image":
        yield (
            "Heatmaps are upsampled bilinearly and laid over the part of the picture that the "
            "model saw; edges that its preparation cuts off stay uncoloured."
        )
    elif run.plan.model.modality == "nodes":
        yield (
            "The relevance of a node is that of all its features. Virtual nodes are not drawn"
            f"{'' if no_ledger else ': their share is in the ledger'}. Names of nodes are weighted "
            "by rarity with the inverse document frequency: ln(N / documents), N all explanations "
            "for the target whatever the class, documents those of graphs with such a node."
        )
    else:
        yield (
            "The relevance of a word is the sum over its pieces. Special tokens are no words"
            f"{'' if no_ledger else ': their share is in the ledger'}. "
            "Top words are counted in lower case. By rarity they are weighted with the inverse "
            "document frequency: ln(N / documents), N all explanations for the target whatever the "
            "class, documents those of texts with the word."
        )
    yield (
        "One colour scale serves all examples: its end is the value that the strongest word, "
        f"patch or node of {SHARE * 100:.0f}\u00a0% of all explanations does not exceed. On an "
        "example's own scale its strongest has the full colour."
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
            "run_id name state created finished plan_digest version model_digest dtype device "
            "modality classes fingerprint method targets at unit long_text max_length window "
            "stride long_text_join task head recogniser inputs_digest manifest_digest",
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
        LabelReadings: published("omitted", inside="readings"),
        LabelReading: published("label class_name items", least="items"),
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
        Provenance: published(
            "software machines attention git seeds shards attempts workers seconds waited waits",
            inside="files",
        ),
        HashedFile: published("part name sha256"),
    },
    of_summary={"provenance": within},
    present=lambda report: report.provenance is not None,
)

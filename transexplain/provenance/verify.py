"""Verifies a run: every hash, every stored byte, and a sample explained again."""

import hashlib
import heapq
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from transexplain.analysis.groups.entity_recogniser import open_recogniser
from transexplain.analysis.groups.lexicon import BUILTIN, lexicon_file
from transexplain.data.picture_places import place_digest
from transexplain.data.snapshot_pieces import SnapshotRows
from transexplain.data.source_files import file_digest, snapshot_file
from transexplain.environment import software
from transexplain.errors import ConfigurationError, DamagedRowError, ItemError, TransExplainError
from transexplain.files.paths import any_path
from transexplain.files.remote_files import info, is_url, read
from transexplain.methods.explainer_files import explainers_of
from transexplain.models.load import present_files
from transexplain.provenance.explained_again import again_checks
from transexplain.provenance.manifest import manifest_of
from transexplain.provenance.verification import (
    Checks,
    VerifiedLine,
    VerifyRequest,
    consistency_checks,
    judged,
    listed_faults,
    note,
)
from transexplain.randomness import keyed_number
from transexplain.store import blocks, runs, shard_digests, sink_files
from transexplain.store.database import Database
from transexplain.store.readers import explained_rows
from transexplain.store.runs import RecordedRun, RecordedShard, recorded_run, recorded_shards
from transexplain.types.plans import AuditPlan, DatasetRef, ModelRef, RecogniserPlan, SourceFile


def fault_in_pieces(dataset: DatasetRef) -> str | None:
    """The fault of a snapshot in a store, all of whose pieces are read; None: there is none."""
    try:
        for _ in SnapshotRows(dataset).rows(range(dataset.rows), ["index"]):
            pass
    except TransExplainError as error:
        return str(error)
    return None


def fault_in_store(planned: SourceFile) -> str | None:
    """The fault of a file at a URL; None: it is the one of the plan."""
    try:
        if not planned.state:
            present = hashlib.sha256(read(planned.path)).hexdigest()
            same = present == planned.sha256
        else:
            now = info(planned.path)
            same = (now.size, now.state) == (planned.size, planned.state)
    except TransExplainError as error:
        return str(error)
    return None if same else f"{planned.path} has changed"


def fault_of(path: Path | None, planned: SourceFile, shown: str) -> str | None:
    """The fault of a file; None: its bytes are those of the plan."""
    try:
        if path is None or not path.is_file():
            return f"{shown} is not there"
        present = file_digest(path)
    except OSError as error:
        return f"{shown} cannot be read: {error.strerror}"
    if present == planned.sha256:
        return None
    return f"{shown} has changed (sha256 {present[:12]}, planned {planned.sha256[:12]})"


def model_faults(model: ModelRef) -> list[str]:
    """Return what the files of a model are not as planned: changed, missing or new.

    Raises ModelLoadError where its source names no model.
    """
    present = present_files(model.source)
    planned = {file.path for file in model.files}
    faults = [
        fault
        for file in model.files
        if (fault := fault_of(present.get(file.path), file, f"{file.path} of {model.source}"))
    ]
    return faults + [
        f"{name} is new in {model.source}" for name in sorted(present.keys() - planned)
    ]


def input_checks(plan: AuditPlan, request: VerifyRequest) -> Checks:
    """One check for each kind of input that the plan names."""
    yield _model(plan, request)
    dataset = request.dataset_of(plan.dataset)
    yield _snapshot(dataset)
    yield _files("dataset files", plan.dataset.files, request)
    if plan.dataset.modality == "image":
        yield _pictures(dataset)
    if plan.groups or plan.lexicons:
        yield _files("lexicons", plan.lexicons, request)
    if plan.recogniser is not None:
        yield _recogniser(plan.recogniser)
    if explainers := explainers_of(plan):
        places = [request.explainer_of(file.path) for file in explainers]
        pairs = zip(places, explainers, strict=True)
        faults = [fault for place, file in pairs if (fault := fault_of(place, file, str(place)))]
        shown = ", ".join(map(str, places))
        remedy = "Put the file back that the run was made with; --data-root FOLDER names its folder"
        yield judged("explainers", faults, f"{len(explainers)} as planned ({shown})", remedy)


def _recogniser(planned: RecogniserPlan) -> VerifiedLine:
    try:
        recogniser = open_recogniser(planned.source, planned.types)
    except ConfigurationError as error:
        return judged("recogniser", [str(error)], "")
    other = f"{planned.source} has changed (sha256 {recogniser.digest[:12]}, planned "
    faults = [] if recogniser.digest == planned.digest else [f"{other}{planned.digest[:12]})"]
    version = (
        "" if recogniser.name == planned.name else f"; {planned.name} then, {recogniser.name} now"
    )
    return judged("recogniser", faults, f"{planned.source} as planned{version}")


def _model(plan: AuditPlan, request: VerifyRequest) -> VerifiedLine:
    name, model = "model files", request.model_of(plan.model)
    if plan.task == "imported":
        return note(name, "none: the attributions were made elsewhere")
    if not model.files:
        return note(name, "not listed in the plan; the digest of them all is compared below")
    remedy = "--model PATH names the model where it is elsewhere"
    try:
        faults = model_faults(model)
    except ConfigurationError as error:
        return judged(name, [str(error)], "", remedy)
    return judged(name, faults, f"{len(model.files)} of {model.source} as planned", remedy)


def _snapshot(dataset: DatasetRef) -> VerifiedLine:
    if is_url(dataset.snapshot) and not dataset.manifest:
        fault = fault_in_pieces(dataset)
    else:
        planned = SourceFile(path=dataset.snapshot, sha256=dataset.fingerprint)
        fault = fault_of(snapshot_file(dataset), planned, dataset.snapshot)
    return judged(
        "dataset snapshot",
        [fault] if fault else listed_faults(dataset),
        f"{dataset.rows:,} rows, sha256 {dataset.fingerprint[:12]}",
        "--data-root FOLDER, or TRANSEXPLAIN_SNAPSHOT_DIR, names the folder where it is",
    )


def _files(name: str, files: Sequence[SourceFile], request: VerifyRequest) -> VerifiedLine:
    if not files:
        unlisted = "not listed in the plan (pictures, or very many files)"
        none = "no files: from the data"
        return note(name, f"{unlisted}; the snapshot stands for them" if "data" in name else none)
    faults = [*_same_path(files, request)]
    faults = faults or [fault for file in files if (fault := _file_fault(file, request))]
    shown = ", ".join(file.path for file in files[:2]) + (", ..." if len(files) > 2 else "")
    remedy = "--data-root FOLDER names the folder where they are"
    return judged(name, faults, f"{len(files)} as planned ({shown})", remedy)


def _same_path(files: Sequence[SourceFile], request: VerifyRequest) -> Iterator[str]:
    """Files of different content that would be looked for in one place."""
    first: dict[Path, SourceFile] = {}
    for file in files:
        if file.path.startswith(BUILTIN) or is_url(file.path):
            continue
        place = request.file_of(file.path)
        other = first.setdefault(place, file)
        if other.sha256 != file.sha256:
            yield (
                f"{place} cannot be both {other.path} and {file.path}; keep the folders that "
                "distinguish them below --data-root"
            )


def _file_fault(planned: SourceFile, request: VerifyRequest) -> str | None:
    if is_url(planned.path):
        return fault_in_store(planned)
    if not planned.path.startswith(BUILTIN):
        path = request.file_of(planned.path)
        return fault_of(path, planned, str(path))
    try:
        present = lexicon_file(planned.path).sha256
    except ConfigurationError as error:
        return str(error)
    return None if present == planned.sha256 else f"{planned.path} is another in this version"


def _pictures(dataset: DatasetRef) -> VerifiedLine:
    remedy = "--data-root FOLDER names the folder of the pictures"
    try:
        faults = list(_picture_faults(dataset))
    except (OSError, ValueError, TransExplainError) as error:  # its own check says more
        return judged("pictures", [f"the snapshot cannot be read: {error}"], "", remedy)
    return judged("pictures", faults, f"as in the snapshot, below {dataset.root}", remedy)


def _picture_faults(dataset: DatasetRef) -> Iterator[str]:
    root = any_path(dataset.root)
    columns = ["content", "sha256", "error_kind"]
    for row in SnapshotRows(dataset).rows(range(dataset.rows), columns):
        if row["error_kind"] is not None or row["sha256"] is None:
            continue
        name = row["content"]
        try:
            present = place_digest(root, name)
        except ItemError as error:
            yield str(error)
            continue
        if present != row["sha256"]:
            yield f"{name} has changed (sha256 {present[:12]}, planned {row['sha256'][:12]})"


def stored_checks(db: Database, run: RecordedRun, shards: Sequence[RecordedShard]) -> Checks:
    """The plan, the number of items in every shard, and every stored byte."""
    # as `AuditPlan.digest`, but of the document: this version may know more keys than it has
    text = json.dumps(run.plan, sort_keys=True, separators=(",", ":"))
    digest = hashlib.sha256(text.encode()).hexdigest()
    digests = f"its sha256 is {digest[:12]}, but {run.plan_digest[:12]} was written beside it"
    faults = [] if digest == run.plan_digest else [f"the stored plan was changed: {digests}"]
    yield judged("plan", faults, f"sha256 {digest[:12]}")
    done = [shard for shard in shards if shard.state == "done"]
    yield from _states(run, shards, done)
    yield _results(db, run.id, done)
    yield from _sink(db, run.id)


def _states(
    run: RecordedRun, shards: Sequence[RecordedShard], done: Sequence[RecordedShard]
) -> Checks:
    left = len(shards) - len(done)
    text = f"the run is {run.state}, {left} of {len(shards)} shards have no result"
    if not done:
        yield judged("state", [text], "", f"`transexplain resume {run.id}` goes on with it")
    elif left or run.state != "done":
        yield note("state", text)


def _results(db: Database, run_id: str, done: Sequence[RecordedShard]) -> VerifiedLine:
    """Every shard's number of items and every byte in the database."""
    explained, failed = sum(shard.explained for shard in done), sum(shard.failed for shard in done)
    good = (
        f"every byte of {len(done):,} shards as saved, {explained:,} items explained and "
        f"{failed:,} failed"
    )
    faults = list(map(str, shard_digests.damaged(db, run_id, lost={})))
    mends = f"`transexplain resume {run_id}` computes them again"
    return judged("stored results", faults, good, mends, shown=len(faults))


def _sink(db: Database, run_id: str) -> Checks:
    """The Parquet files of a run's sink, every byte of them, and their manifest."""
    folder = sink_files.run_folder(db, run_id)
    if folder is None:
        return
    mends = f"`transexplain resume {run_id}` writes them again"
    try:
        faults = [f"shard {shard}: {what}" for shard, what in sink_files.faults(db, run_id).items()]
        written, expected = sink_files.written_manifest(folder), sink_files.manifest_of(db, run_id)
    except TransExplainError as error:
        yield judged("sink", [str(error)], "")
        return
    files = len(sink_files.files_of(db, run_id))
    yield judged("sink", faults, f"every byte of {files:,} Parquet files in {folder}", mends)
    if written != expected:
        is_not = "is not there" if written is None else "is not that of this run's files"
        text = f"{folder}/{sink_files.MANIFEST} {is_not}; `transexplain db prune` writes it"
        yield note("sink's manifest", text)


#: shards whose aggregates are added up again
_SHARDS = 4


def verify(
    db: Database, run_id: str, request: VerifyRequest, manifest: Path | None = None
) -> Checks:
    """Check after check of the run with exactly this id; none of them writes anything.

    Hashes every input and every stored byte, so time grows with both; explains `request.items`
    items again. `manifest` is a file that the store's manifest has to equal to the byte. Raises
    ConfigurationError for an unknown run; everything wrong with it is a FAIL.
    """
    try:
        run, shards = recorded_run(db, run_id), recorded_shards(db, run_id)
    except (DamagedRowError, ValueError, TypeError) as error:
        # a file that is no JSON is reported first
        yield judged("plan", [f"the stored plan, or what was recorded beside it: {error}"], "")
        return
    if manifest is not None:
        yield _manifest(db, run_id, manifest)
    yield from stored_checks(db, run, shards)
    try:
        plan = runs.get(db, run_id).plan
    except TransExplainError as error:
        yield judged("plan's content", [str(error)], "")
        return
    with blocks.sparing():  # damaged ones are named above and below
        sample = drawn(explained_rows(db, run_id), request.items, request.seed)
        # finished shards that hold items of the sample, with the ids of all their items
        chosen = []
        for shard in shards:
            inside = range(shard.start, shard.stop)
            if shard.state == "done" and any(row in inside for row, _ in sample):
                ids = [name for _, name in explained_rows(db, run_id, inside)]
                chosen.append((shard.index, ids))
            if len(chosen) == _SHARDS:
                break
    yield from consistency_checks(db, run_id, chosen)
    yield from input_checks(plan, request)
    yield _software(run, shards)
    if sample:
        yield from again_checks(db, run_id, _at_current_paths(plan, request), sample, request)
    else:
        yield note("explained again", "no item: none was requested, or none is stored")


def drawn(rows: Iterable[tuple[int, str]], count: int, seed: int) -> list[tuple[int, str]]:
    """`count` of (row, item id), in their order: those whose hash with the seed is smallest."""

    def key(entry: tuple[int, str]) -> int:
        return keyed_number(seed, entry[0], bits=256, algorithm="sha256", separator=":")

    return sorted(heapq.nsmallest(count, rows, key=key))


def _at_current_paths(plan: AuditPlan, request: VerifyRequest) -> AuditPlan:
    """The plan with its data, and its explainer, where they are now."""
    return replace(
        plan, dataset=request.dataset_of(plan.dataset), method=request.method_of(plan.method)
    )


def _manifest(db: Database, run_id: str, path: Path) -> VerifiedLine:
    manifest = manifest_of(db, run_id)
    try:
        present = hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        return judged("manifest", [f"{path} cannot be read: {error.strerror}"], "")
    difference = f"the store gives sha256 {manifest.sha256[:12]}, {path} has {present[:12]}"
    faults = [] if present == manifest.sha256 else [difference]
    return judged("manifest", faults, f"{path} is what the store gives, sha256 {present[:12]}")


def _software(run: RecordedRun, shards: Sequence[RecordedShard]) -> VerifiedLine:
    """Other versions are no fault, but a reason why numbers may differ."""
    used = [shard.environment for shard in shards if shard.environment is not None]
    changed = set()
    for there in (run.environment, *used):
        for name, version in there["software"].items():
            if software().get(name) != version:
                changed.add(f"{name} {version} then, {software().get(name, 'none')} now")
    if changed:
        return note("software", "; ".join(sorted(changed)))
    return VerifiedLine(
        name="software", status="PASS", text="the versions that the run was made with"
    )

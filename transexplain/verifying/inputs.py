"""The inputs of a run, hashed again: model, snapshot, data, pictures, lexicons, explainers."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow.parquet as pq

from transexplain.bias.lexicon_files import BUILTIN, lexicon_file
from transexplain.data.fingerprint import file_digest
from transexplain.data.paths import inside, picture_digest
from transexplain.errors import ConfigurationError, ItemError
from transexplain.learned.planned import explainers_of
from transexplain.models.inventory import present_files
from transexplain.plans import AuditPlan, DatasetRef, SourceFile
from transexplain.verifying.request import Check, Checks, VerifyRequest, judged, note

_UNRECORDED = "not recorded: the run is of an older version"


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
    if explainers := explainers_of(plan):
        yield _explainers(explainers, request)


def _model(plan: AuditPlan, request: VerifyRequest) -> Check:
    name, model = "model files", request.model_of(plan.model)
    if plan.task == "imported":
        return note(name, "none: the attributions were made elsewhere")
    if not model.files:
        return note(name, f"{_UNRECORDED}; the digest of them all is compared below")
    remedy = "--model PATH names the model where it is elsewhere"
    try:
        present = present_files(model.source)
    except ConfigurationError as error:
        return judged(name, [str(error)], "", remedy)
    planned = {one.path: one.sha256 for one in model.files}
    faults = [
        fault
        for one in model.files
        if (fault := _fault(present.get(one.path), one, f"{one.path} of {model.source}"))
    ]
    faults += [f"{one} is new in {model.source}" for one in sorted(present.keys() - planned.keys())]
    return judged(name, faults, f"{len(planned)} of {model.source} as planned", remedy)


def _fault(path: Path | None, planned: SourceFile, shown: str) -> str | None:
    """What is wrong with a file; None: its bytes are those of the plan."""
    try:
        if path is None or not path.is_file():
            return f"{shown} is not there"
        found = file_digest(path)
    except OSError as error:
        return f"{shown} cannot be read: {error.strerror}"
    if found == planned.sha256:
        return None
    return f"{shown} has changed (sha256 {found[:12]}, planned {planned.sha256[:12]})"


def _snapshot(dataset: DatasetRef) -> Check:
    planned = SourceFile(path=dataset.snapshot, sha256=dataset.fingerprint)
    fault = _fault(Path(dataset.snapshot), planned, dataset.snapshot)
    return judged(
        "dataset snapshot",
        [fault] if fault else [],
        f"{dataset.rows:,} rows, sha256 {dataset.fingerprint[:12]}",
        "--data-root FOLDER, or TRANSEXPLAIN_SNAPSHOT_DIR, names the folder where it is",
    )


def _files(name: str, files: Sequence[SourceFile], request: VerifyRequest) -> Check:
    if not files:
        unlisted = "not listed in the plan (pictures, very many files, or an older version)"
        none = "no files: from the data, or of an older version"
        return note(name, f"{unlisted}; the snapshot stands for them" if "data" in name else none)
    faults = [*_doubled(files, request)]
    faults = faults or [fault for one in files if (fault := _file_fault(one, request))]
    shown = ", ".join(one.path for one in files[:2]) + (", ..." if len(files) > 2 else "")
    remedy = "--data-root FOLDER names the folder where they are"
    return judged(name, faults, f"{len(files)} as planned ({shown})", remedy)


def _explainers(files: Sequence[SourceFile], request: VerifyRequest) -> Check:
    places = [request.explainer_of(one.path) for one in files]
    pairs = zip(places, files, strict=True)
    faults = [fault for place, one in pairs if (fault := _fault(place, one, str(place)))]
    shown = ", ".join(map(str, places))
    remedy = "Put the file back that the run was made with; --data-root FOLDER names its folder"
    return judged("explainers", faults, f"{len(files)} as planned ({shown})", remedy)


def _doubled(files: Sequence[SourceFile], request: VerifyRequest) -> Iterator[str]:
    """Files of different content that would be looked for in one place."""
    first: dict[Path, SourceFile] = {}
    for one in files:
        if one.path.startswith(BUILTIN):
            continue
        place = request.file_of(one.path)
        other = first.setdefault(place, one)
        if other.sha256 != one.sha256:
            yield (
                f"{place} cannot be both {other.path} and {one.path}; keep the folders that tell "
                "them apart below --data-root"
            )


def _file_fault(planned: SourceFile, request: VerifyRequest) -> str | None:
    if not planned.path.startswith(BUILTIN):
        path = request.file_of(planned.path)
        return _fault(path, planned, str(path))
    try:
        found = lexicon_file(planned.path).sha256
    except ConfigurationError as error:
        return str(error)
    return None if found == planned.sha256 else f"{planned.path} is another in this version"


def _pictures(dataset: DatasetRef) -> Check:
    remedy = "--data-root FOLDER names the folder of the pictures"
    try:
        faults = list(_picture_faults(dataset))
    except (OSError, ValueError) as error:  # the snapshot's own check says more
        return judged("pictures", [f"the snapshot cannot be read: {error}"], "", remedy)
    return judged("pictures", faults, f"as in the snapshot, below {dataset.root}", remedy)


def _picture_faults(dataset: DatasetRef) -> Iterator[str]:
    columns = ["content", "sha256", "error_kind"]
    with pq.ParquetFile(dataset.snapshot, pre_buffer=False) as file:
        for batch in file.iter_batches(columns=columns, use_threads=False):
            for row in batch.to_pylist():
                if row["error_kind"] is not None or row["sha256"] is None:
                    continue
                name = row["content"]
                try:
                    found = picture_digest(inside(Path(dataset.root), name), name)
                except ItemError as error:
                    yield str(error)
                    continue
                if found != row["sha256"]:
                    yield f"{name} has changed (sha256 {found[:12]}, planned {row['sha256'][:12]})"

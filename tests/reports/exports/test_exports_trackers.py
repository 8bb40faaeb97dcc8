"""Experiment trackers: what is logged, with the trackers themselves where they are installed."""

import json
import sys
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from gallery import Gallery
from report_samples import biased_run

from transexplain.errors import ConfigurationError
from transexplain.reports.exports import TRACKERS
from transexplain.reports.exports.export_run import export
from transexplain.reports.exports.trackers import metrics_of
from transexplain.reports.summary import summarise
from transexplain.store.database import Database


class Logged:
    """The parameters, metrics and files that a tracker received."""

    def __init__(self) -> None:
        self.params: dict[str, Any] = {}
        self.metrics: dict[str, float] = {}
        self.files: dict[str, str] = {}

    def take(self, folder: str) -> None:
        self.files = {
            str(path.relative_to(folder)): path.read_text(encoding="utf-8")
            for path in Path(folder).rglob("*")
            if path.is_file()
        }


def fake_mlflow(reported: Logged) -> ModuleType:
    """The functions of MLflow that are used, with its parameters' names."""
    module: Any = ModuleType("mlflow")

    @contextmanager
    def start_run(*, run_name: str):
        yield SimpleNamespace(info=SimpleNamespace(run_id=run_name))

    module.start_run = start_run
    module.log_params = reported.params.update
    module.log_metrics = reported.metrics.update
    module.log_artifacts = reported.take
    module.get_tracking_uri = lambda: "file:there"
    return module  # type: ignore[no-any-return]


def fake_wandb(reported: Logged) -> ModuleType:
    """The functions of W&B that are used, with its parameters' names."""
    module: Any = ModuleType("wandb")

    class Artifact:
        def __init__(self, name: str, type: str) -> None:
            assert name and type

        def add_dir(self, local_path: str) -> None:
            reported.take(local_path)

    @contextmanager
    def init(*, name: str, job_type: str, config: dict[str, Any]):
        reported.params.update(config)
        logged: list[Artifact] = []
        yield SimpleNamespace(
            id=name, url="", dir="there", log=reported.metrics.update, log_artifact=logged.append
        )
        assert len(logged) == 1 and job_type == "audit"

    module.init, module.Artifact = init, Artifact
    return module  # type: ignore[no-any-return]


@pytest.mark.parametrize(("name", "fake"), [("mlflow", fake_mlflow), ("wandb", fake_wandb)])
def test_parameters_metrics_and_files(
    db: Database, monkeypatch: pytest.MonkeyPatch, name: str, fake: Any
) -> None:
    reported, run_id = Logged(), biased_run(db)
    monkeypatch.setitem(sys.modules, name, fake(reported))
    printed = export(db, run_id, name, None)
    assert printed is not None and run_id in printed and "there" in printed
    assert reported.params["run"] == run_id
    assert reported.metrics["verdicts/mention/changes"] == 2.0
    assert reported.metrics["mention/logit/anns/positive"] == pytest.approx(0.98, abs=0.01)
    assert reported.metrics["difference/anns/class_positive/positive"] == pytest.approx(0.49)
    assert reported.metrics["items/failed"] == 2.0
    assert json.loads(reported.files["report.json"])["audited"]["run_id"] == run_id
    assert {"summary.md", "model-card.md", "tables/groups.csv"} <= set(reported.files)


@pytest.mark.parametrize("name", TRACKERS)
def test_a_tracker_takes_no_path_and_has_to_be_installed(
    gallery: Gallery, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str
) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    with gallery["biased"].open() as db:
        with pytest.raises(ConfigurationError, match="-o"):
            export(db, "latest", name, tmp_path / "out")
        with pytest.raises(ConfigurationError, match=rf"pip install '\.\[{name}\]'"):
            export(db, "latest", name, None)


@pytest.mark.exhaustive
@pytest.mark.filterwarnings("ignore")
def test_mlflow_itself(db: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path / 'mlflow.db'}")
    run_id = biased_run(db)
    assert "mlflow: run" in (export(db, run_id, "mlflow", None) or "")
    client = mlflow.MlflowClient(f"sqlite:///{tmp_path / 'mlflow.db'}")
    (logged,) = client.search_runs(["0"])
    assert logged.data.params["run"] == run_id
    assert logged.data.metrics == metrics_of(summarise(db, run_id))
    names = {one.path for one in client.list_artifacts(logged.info.run_id)}
    assert names == {"report.json", "summary.md", "model-card.md", "tables"}


@pytest.mark.exhaustive
@pytest.mark.filterwarnings("ignore")
def test_wandb_itself(db: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    printed = export(db, biased_run(db), "wandb", None)
    assert printed is not None and "offline-run" in printed
    (logged,) = (tmp_path / "wandb").glob("offline-run-*/*.wandb")
    assert b"verdicts/mention/changes" in logged.read_bytes()

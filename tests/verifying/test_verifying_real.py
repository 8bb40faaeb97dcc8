"""A trained model over real texts: its run verifies, and one bit in its weights shows."""

import json
import shutil
from pathlib import Path

import pytest
from local_audits import audited_in
from verified_runs import Run, failed, flipped

from transexplain.store.database import Database

pytestmark = pytest.mark.shared


def test_a_real_run(shared_dir: Path, tmp_path: Path) -> None:
    model = tmp_path / "model"
    model.mkdir()
    for path in (shared_dir / "real/models/minilm-sst2").iterdir():
        shutil.copyfile(path, model / path.name)
    groups = {"people": ["he", "she", "woman", "man"], "film": ["film", "movie", "cast"]}
    (tmp_path / "groups.json").write_text(json.dumps(groups))
    source = shared_dir / "real/text/sst2_dev.tsv.gz"
    with audited_in(
        tmp_path,
        model=str(model),
        data={"source": str(source), "limit": 60},
        groups=str(tmp_path / "groups.json"),
        evaluation={"items": 0},
        shard_size=16,
    ) as (db, run_id):
        run = Run(folder=tmp_path, url=url_of(db), id=run_id)
        found = run.checks(items=10, batch_tokens=100)
        assert {one.status for one in found.values()} == {"PASS"}, found
        weights = model / "model.safetensors"
        data = weights.read_bytes()
        weights.write_bytes(flipped(data, len(data) // 2))
        assert failed(run.checks(items=0)) == ["model files"]


def url_of(db: Database) -> str:
    assert db.path is not None
    return f"sqlite:///{db.path}"

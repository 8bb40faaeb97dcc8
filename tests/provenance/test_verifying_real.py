"""A trained model over real texts: its run verifies, and one bit in its weights shows."""

import json
import shutil
from pathlib import Path

import pytest
from gallery import run_audit
from verified_runs import failed, flipped

pytestmark = pytest.mark.shared


@pytest.mark.exhaustive
def test_a_real_run(shared_dir: Path, tmp_path: Path) -> None:
    model = tmp_path / "model"
    model.mkdir()
    for path in (shared_dir / "real/models/minilm-sst2").iterdir():
        shutil.copyfile(path, model / path.name)
    groups = {"people": ["he", "she", "woman", "man"], "film": ["film", "movie", "cast"]}
    (tmp_path / "groups.json").write_text(json.dumps(groups))
    source = shared_dir / "real/text/sst2_dev.tsv.gz"
    spec = {
        "model": str(model),
        "data": {"source": str(source), "limit": 60},
        "groups": str(tmp_path / "groups.json"),
        "evaluation": {"items": 0},
        "shard_size": 16,
    }
    run = run_audit(spec, tmp_path)
    checks = run.checks(items=10, batch_tokens=100)
    assert {check.status for check in checks.values()} == {"PASS"}, checks
    weights = model / "model.safetensors"
    data = weights.read_bytes()
    weights.write_bytes(flipped(data, len(data) // 2))
    assert failed(run.checks(items=0)) == ["model files"]

"""Exports of a real model on real sentences: they add up, and every format is written."""

import gzip
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from local_audits import audited_in

from transexplain.reports.exports import EXPORTS, TRACKERS
from transexplain.reports.exports.export_run import export

pytestmark = pytest.mark.shared


@pytest.mark.exhaustive
def test_sst2(shared_dir: Path, tmp_path: Path) -> None:
    real = shared_dir / "real"
    rows = gzip.decompress((real / "text" / "sst2_dev.tsv.gz").read_bytes()).decode().splitlines()
    # who wrote each is made up: an impact ratio needs categories of people
    people = ["who", *("fm"[number % 2] for number in range(48))]
    table = tmp_path / "sst2.tsv"
    table.write_text("".join(f"{row}\t{who}\n" for row, who in zip(rows, people, strict=False)))
    keys = {
        "name": "sst2",
        "model": str(real / "models" / "minilm-sst2"),
        "data": {"source": str(table), "meta": ["who"]},
        "targets": ["predicted", "contrast:positive-negative"],
        "groups": {
            "lexicon": "builtin:gender",
            "check": 0,
            "impact": {"favourable": "positive", "sex": "who"},
        },
        "evaluation": {"items": 0},
    }
    with audited_in(tmp_path, **keys) as (db, run_id):
        for form in EXPORTS:
            if form not in TRACKERS:
                export(db, run_id, form, tmp_path / "out" / form)
    rows = pq.read_table(tmp_path / "out" / "parquet").to_pylist()
    assert len(rows) == 96
    for row in rows:
        scores = np.array(row["attributions"])
        special = np.array(row["special"])
        # stored in half precision: each is rounded by at most 1 in 2,000
        near = 1e-3 * np.abs(scores).sum()
        assert scores[special].sum() == pytest.approx(row["ledger_special"], abs=near)
        assert scores[~special].sum() == pytest.approx(row["ledger_inputs"], abs=near)
        assert abs(row["ledger_gap"]) <= 5e-6 * row["ledger_magnitude"]
        assert row["logit"] == pytest.approx(row["ledger_total"] + row["ledger_gap"], abs=1e-9)
    files = {path.name for path in (tmp_path / "out").iterdir()}
    assert files == set(EXPORTS) - set(TRACKERS)

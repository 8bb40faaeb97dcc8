"""The same audit in one shard, seven or fifty, by one process or two: the same statistics."""

import gzip
from pathlib import Path

import pytest
from local_audits import audited_in

from transexplain.reports.report_section import merged
from transexplain.reports.sections.group_relevance import group_rows
from transexplain.store import runs
from transexplain.types.findings import GroupStatistic

ROWS = 100


def group_table(
    shared_dir: Path, folder: Path, *, shards: int, processes: int
) -> list[GroupStatistic]:
    folder.mkdir()
    real = shared_dir / "real"
    packed = real / "text" / "tweeteval_hate_train.tsv.gz"
    with gzip.open(packed, "rt", encoding="utf-8") as lines:
        text = "".join(line for line, _ in zip(lines, range(ROWS + 1), strict=False))
    (folder / "tweets.tsv").write_text(text, encoding="utf-8")
    spec = {
        "model": str(real / "models" / "minilm-sst2"),
        "data": {"source": str(folder / "tweets.tsv"), "text": "text", "quoting": "none"},
        "targets": ["contrast:positive-negative"],
        "groups": {"lexicon": str(real / "lexicons" / "entity_groups.json"), "check": 0},
        "evaluation": {"items": 0},
        "shard_size": -(-ROWS // shards),
    }
    with audited_in(folder, processes=processes, **spec) as (db, run_id):
        run = runs.get(db, run_id)
        assert run.shards["done"] == shards
        return group_rows(run, merged(db, run_id))


@pytest.mark.shared
@pytest.mark.exhaustive
def test_statistics_do_not_depend_on_how_shards_are_cut(shared_dir: Path, tmp_path: Path) -> None:
    whole = group_table(shared_dir, tmp_path / "whole", shards=1, processes=1)
    assert any(row.p is not None for row in whole)
    for shards, processes in ((7, 1), (50, 2)):
        cut = group_table(shared_dir, tmp_path / f"{shards}", shards=shards, processes=processes)
        assert [row.group for row in cut] == [row.group for row in whole]
        for one, other in zip(whole, cut, strict=True):
            assert (other.verdict, other.mentions) == (one.verdict, one.mentions)
            assert other.entity_mean == pytest.approx(one.entity_mean, abs=1e-5)
            assert other.difference == pytest.approx(one.difference, abs=1e-5)
            assert other.p == pytest.approx(one.p, abs=1e-3)

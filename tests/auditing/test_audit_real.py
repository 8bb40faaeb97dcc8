"""The checks of a real model over real texts."""

from pathlib import Path

import pytest

from orchestrator.plan import prepare_audit
from orchestrator.spec import load_spec
from transexplain.analysis.groups.group_table import Rules
from transexplain.analysis.groups.mention_ablation import ablations_of
from transexplain.analysis.groups.randomised_control import randomised_control
from transexplain.analysis.groups.shard_aggregate import ShardAggregate
from transexplain.auditing.explained_shard import explain_shard
from transexplain.explaining.item_loop import Silent
from transexplain.settings import Settings


@pytest.mark.exhaustive
@pytest.mark.shared
def test_mention_ablation_agrees_with_the_relevance_of_names(
    shared_dir: Path, tmp_path: Path
) -> None:
    """Of 300 tweets some 60 are drawn; few predictions of a sentiment model hang on a name."""
    folder = shared_dir / "real"
    settings = {
        "model": str(folder / "models/minilm-sst2"),
        "data.source": str(folder / "text/tweeteval_hate_train.tsv.gz"),
        "data.limit": 300,
        "targets": ["contrast:positive-negative"],
        "groups.lexicon": str(folder / "lexicons/entity_groups.json"),
        "groups.check": 60,
        "evaluation.items": 0,
        "shard_size": 300,
    }
    prepared = prepare_audit(load_spec(None, settings), Settings(snapshot_dir=tmp_path))
    [shard] = prepared.shards
    done = explain_shard(prepared.plan, shard, prepared.model, observer=Silent())
    assert not done.failures
    checked = ShardAggregate.from_json(done.aggregate).checked
    found = ablations_of(checked.ablations)
    assert found is not None and 30 <= found.items <= 90
    assert found.changed / found.items < 0.25
    of_countries = next(row for row in found.rows if row.group == "country/all")
    assert of_countries.correlation is not None and of_countries.correlation > 0.3
    control = randomised_control(checked.randomised, Rules())
    assert control is not None and control.failed == 0
    assert control.items >= found.items

"""What the tests of the data layer share: a dataset read from end to end."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from transexplain.data.shard_reader import make_shards, read_shard
from transexplain.data.snapshot import prepare
from transexplain.types.items import Item, ItemFailure
from transexplain.types.plans import DatasetSpec

Load = Callable[..., list[Item | ItemFailure]]


@pytest.fixture(scope="session")
def load(tmp_path_factory: pytest.TempPathFactory) -> Load:
    """Prepare a source and read every shard of it."""

    def _load(source: Path | str, *, shard_size: int = 300, **options: Any) -> Any:
        folder = tmp_path_factory.mktemp("snapshots")
        ref = prepare(DatasetSpec(source=str(source), **options), folder)
        shards = make_shards(ref.rows, shard_size)
        items = [item for shard in shards for item in read_shard(ref, shard)]
        assert [item.index for item in items] == list(range(ref.rows))
        return items

    return _load

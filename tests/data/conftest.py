"""What the tests of the data layer share: a dataset read from end to end."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from data_files import items_of, planned

from transexplain.types.items import Item, ItemFailure

Load = Callable[..., list[Item | ItemFailure]]


@pytest.fixture(scope="session")
def load(tmp_path_factory: pytest.TempPathFactory) -> Load:
    """Prepare a source and read every shard of it."""

    def _load(source: Path | str, *, shard_size: int = 300, **options: Any) -> Any:
        ref = planned(source, tmp_path_factory.mktemp("snapshots"), snapshot="copy", **options)
        items = items_of(ref, shard_size)
        assert [item.index for item in items] == list(range(ref.rows))
        return items

    return _load

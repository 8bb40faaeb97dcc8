"""Cutting a dataset into shards."""

from transexplain.errors import ConfigurationError
from transexplain.plans import Shard


def make_shards(rows: int, shard_size: int) -> tuple[Shard, ...]:
    """Consecutive shards of `shard_size` rows, the last one shorter; none for 0 rows.

    The cut depends on the two numbers alone, so the same dataset always has the same shards.

    Raises ConfigurationError for a shard size below 1 or a negative number of rows.
    """
    if shard_size < 1:
        raise ConfigurationError(f"shard_size is {shard_size}; it must be at least 1")
    if rows < 0:
        raise ConfigurationError(f"a dataset of {rows} rows cannot be cut into shards")
    return tuple(
        Shard(index=index, start=start, stop=min(start + shard_size, rows))
        for index, start in enumerate(range(0, rows, shard_size))
    )

"""What the environment decides: where the store, the broker and the snapshots are."""

import os
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """Settings of one process, read once by `Settings.from_environment`."""

    database_url: str = "sqlite:///transexplain.db"  #: SQLAlchemy URL
    broker_url: str = "redis://127.0.0.1:6379/0"  #: Celery broker URL
    snapshot_dir: Path = Path(".transexplain/snapshots")  #: Parquet snapshots; shared by a fleet
    queue: str = "transexplain"  #: queue name, also the key prefix at the broker
    lease_seconds: float = 60.0  #: a shard's lease, renewed at a third of it
    item_deadline: float = 300.0  #: seconds without progress after which a worker gives up

    @classmethod
    def from_environment(cls) -> "Settings":
        """Read `TRANSEXPLAIN_DATABASE_URL`, `_BROKER_URL`, `_SNAPSHOT_DIR`, `_QUEUE`, ..."""
        default = cls()
        return cls(
            database_url=_env("DATABASE_URL", default.database_url),
            broker_url=_env("BROKER_URL", default.broker_url),
            snapshot_dir=Path(_env("SNAPSHOT_DIR", str(default.snapshot_dir))),
            queue=_env("QUEUE", default.queue),
            lease_seconds=float(_env("LEASE_SECONDS", str(default.lease_seconds))),
            item_deadline=float(_env("ITEM_DEADLINE", str(default.item_deadline))),
        )


def _env(name: str, default: str) -> str:
    return os.environ.get(f"TRANSEXPLAIN_{name}") or default


def redact_url(url: str) -> str:
    """`url` without its password, for messages and logs."""
    parts = urlsplit(url)
    if parts.password is None:
        return url
    host = parts.hostname or ""
    port = f":{parts.port}" if parts.port else ""
    netloc = f"{parts.username or ''}:***@{host}{port}"
    return urlunsplit((parts.scheme, netloc, parts.path, parts.query, parts.fragment))

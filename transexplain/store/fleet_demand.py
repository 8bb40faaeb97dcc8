"""How many shards need a worker: what an autoscaler asks, as SQL that it can ask by itself.

A shard needs one while it waits and while it is in hand: a fleet that was sized by what waits alone
would be taken away from what it works on. Of a run with a cap no more count, and of one that is
paused those in hand.
"""

from collections.abc import Collection

from sqlalchemy import text

from transexplain.store.database import Database
from transexplain.types.plans import DeviceClass, Modality

# A plan is searched as text, for PostgreSQL refuses to read a document with NUL in any word, and
# one such run would stop the scaling of all. Quotes within its words are escaped, so that they
# match nothing; of a model's keys the one stands behind the other in every plan.
_ON_CPU = """run.plan LIKE '%"dtype":"%","device":"cpu%'"""
#: shards of a large run that wait without a row, see `shard_blocks`
_NOT_MADE = (
    "CASE WHEN run.paused IS NULL THEN COALESCE(MAX((pending_shards.stop - pending_shards.start"
    " + pending_shards.size - 1) / pending_shards.size), 0) ELSE 0 END"
)
_PLANS_FOR = {"cpu": _ON_CPU, "gpu": _ON_CPU.replace(" LIKE ", " NOT LIKE ")}


def demand_sql(device: DeviceClass | None = None, modalities: Collection[Modality] = ()) -> str:
    """A query whose one value is the number of shards that need a worker now.

    Of plans for one class of device or for both (None), and of these modalities, or of all. It
    reads `run`, `shard` and `pending_shards`, which every role of `read_roles` may, and is for both
    databases.
    """
    conditions = ["run.state = 'running'"]
    if device is not None:
        conditions.append(_PLANS_FOR[device])
    if modalities:
        of = (f"""run.plan LIKE '%"modality":"{one}","classes":%'""" for one in sorted(modalities))
        conditions.append(f"({' OR '.join(of)})")
    return (
        "SELECT COALESCE(SUM(CASE WHEN most_workers < shards THEN most_workers ELSE shards END), 0)"
        f" AS shards FROM (SELECT run.most_workers, COUNT(shard.run_id) + {_NOT_MADE} AS shards"
        " FROM run LEFT JOIN shard ON shard.run_id = run.id"
        " AND shard.state IN ('queued', 'running')"
        " AND (run.paused IS NULL OR shard.state = 'running')"
        " LEFT JOIN pending_shards ON pending_shards.run_id = run.id"
        f" WHERE {' AND '.join(conditions)}"
        " GROUP BY run.id, run.most_workers, run.paused) AS need"
    )


def demand(
    db: Database, device: DeviceClass | None = None, modalities: Collection[Modality] = ()
) -> int:
    """The value of `demand_sql`; raises DatabaseError as `Database.read`."""
    with db.read() as connection:
        return int(connection.execute(text(demand_sql(device, modalities))).scalar_one())

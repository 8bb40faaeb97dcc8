"""Opening a database whose tables are at the revision of this package."""

from transexplain.store import revisions
from transexplain.store.database import Database


def open_database(url: str, *, upgrade: bool = False) -> Database:
    """A database that is reachable and at the revision of this package's tables.

    With `upgrade` an absent or older one is brought there first (safe to call concurrently).
    Raises DatabaseError where it is unreachable or, without `upgrade`, at another revision.
    """
    database = Database(url)
    try:
        if upgrade:
            revisions.bring_to_head(database)
        else:
            revisions.require_head(database)
    except BaseException:
        database.close()
        raise
    return database

"""How many messages workers refused, by reason; the messages themselves are not kept."""

from collections.abc import Mapping

from sqlalchemy import Connection, select
from sqlalchemy.dialects import postgresql, sqlite

from transexplain.store.columns import DatabaseTime
from transexplain.store.database import Database
from transexplain.store.schema import dead_letter


def add(db: Database, counts: Mapping[str, int]) -> None:
    """Add to the counts, reason -> messages, in one transaction.

    Raises DatabaseError as `Database.begin`.
    """
    with db.begin() as connection:
        dialect = sqlite if connection.dialect.name == "sqlite" else postgresql
        for reason in sorted(counts):  # in one order, or two workers wait for each other
            insert = dialect.insert(dead_letter).values(
                reason=reason, messages=counts[reason], latest=DatabaseTime()
            )
            connection.execute(
                insert.on_conflict_do_update(
                    index_elements=[dead_letter.c.reason],
                    set_={
                        "messages": dead_letter.c.messages + insert.excluded.messages,
                        "latest": insert.excluded.latest,
                    },
                )
            )


def counts(connection: Connection) -> dict[str, int]:
    """Messages refused since the tables were made, by reason."""
    query = select(dead_letter.c.reason, dead_letter.c.messages).order_by(dead_letter.c.reason)
    return {reason: int(messages) for reason, messages in connection.execute(query)}

"""Which run a word of the command line names; no plan is read for it."""

from sqlalchemy import Connection, or_, select

from transexplain.errors import ConfigurationError
from transexplain.store.database import Database
from transexplain.store.schema import run

_RECENT = 5


def id_of(db: Database, run_id: str) -> str:
    """The id of the run that `runs.get` gives, also where its plan cannot be read.

    Raises ConfigurationError as `runs.get`.
    """
    with db.read() as connection:
        return named_run(connection, run_id)


def named_run(connection: Connection, run_id: str) -> str:
    """As `id_of`."""
    query = select(run.c.id)
    if run_id == "latest":
        query = query.order_by(run.c.created.desc(), run.c.id.desc()).limit(1)
    else:
        begins = run.c.id.startswith(run_id, autoescape=True)
        tail = run.c.id.contains(f"-{run_id}", autoescape=True)
        query = query.where(or_(begins, tail)).limit(_RECENT)
    found = connection.execute(query).scalars().all()
    exact = [name for name in found if name == run_id] or found
    if not run_id or not exact:
        raise unknown_run(connection, run_id)
    if len(exact) > 1:
        raise ConfigurationError(
            f"run {run_id!r} could be any of {', '.join(exact)}; write more of it"
        )
    return str(exact[0])


def unknown_run(connection: Connection, run_id: str) -> ConfigurationError:
    """The error for a run that is not there, with those that are."""
    newest = select(run.c.id, run.c.name).order_by(run.c.created.desc()).limit(_RECENT)
    recent = [f"{row.id} ({row.name})" for row in connection.execute(newest)]
    listed = f"recent runs: {', '.join(recent)}" if recent else "this database holds no runs yet"
    return ConfigurationError(f"no run {run_id!r}; {listed}")

"""Faults that other tests missed: the simulation finds each.

A fault is one change of the source, made in memory. The simulation that holds on the code as it
is has to fail on every one of them.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import pytest
from simulated_fleet import WEATHERS, Fleet, Violation
from simulated_world import NeverEnds

from transexplain.store import runs, shards
from transexplain.store.database import Database
from workers import claim_to_commit, fresh_process, heartbeat

#: schedules within which a fault has to show
SCHEDULES = 100


class Fault(NamedTuple):
    """One change of one module's source."""

    name: str
    weather: str
    module: ModuleType
    old: str
    new: str


#: faults that need two writers at once
ONE_WRITER = (
    "a run is closed without its lock",
    "a claim does not wait for the others of a run with a cap",
)
FAULTS = (
    Fault(
        *("the lease is renewed at its full length", "sluggish", heartbeat),
        "self._lease_seconds / 3",
        "self._lease_seconds",
    ),
    Fault(
        *("a lease is over five seconds before its end", "calm", shards),
        "shard.c.lease_until < DatabaseTime()",
        "shard.c.lease_until < DatabaseTime() + 5",
    ),
    Fault(
        *("a claim leaves the breadcrumb of the attempt before", "rough", shards),
        '                "breadcrumb": None,\n            }\n        )\n    )\n    return taken',
        "            }\n        )\n    )\n    return taken",
    ),
    Fault(
        *("a claim does not look at the cap of a run", "shared", shards),
        "full = capped and room(connection, run_id) == 0",
        "full = False",
    ),
    Fault(
        *("a claim does not wait for the others of a run with a cap", "shared", shards),
        "audit = require(connection, run_id, lock=True)\n        if audit.state",
        "audit = require(connection, run_id)\n        if audit.state",
    ),
    Fault(
        *("a claim does not look whether a run is paused", "shared", shards),
        " or audit.paused is not None",
        "",
    ),
    Fault(
        *("a run is closed whatever is unfinished", "crowded", runs),
        'run.c.state == "running", ~unfinished(run_id))\n            .values(state="done"',
        'run.c.state == "running")\n            .values(state="done"',
    ),
    Fault(
        *("a run is closed without its lock", "crowded", runs),
        "require(connection, run_id, lock=True)\n        done",
        "require(connection, run_id)\n        done",
    ),
    Fault(
        *("whoever ends a worker in an item convicts it", "deadly", shards),
        'free["breadcrumb"], died)',
        'free["breadcrumb"], died, convicted=len(free["breadcrumb"] or ()) == 1)',
    ),
    Fault(
        *("one fresh process convicts", "deadly", fresh_process),
        "        if not died.accuses:\n            raise\n        first = died.items\n",
        "        died.convicts = died.accuses\n        raise\n",
    ),
    Fault(
        *("a save is no progress", "backlog", claim_to_commit),
        "                    keeper.touch()\n",
        "",
    ),
)


#: each on the database that shows it sooner; SQLite has one writer at a time
CASES = [
    pytest.param("postgresql", fault, id=fault.name, marks=pytest.mark.postgres)
    if fault.name in ONE_WRITER
    else pytest.param("sqlite", fault, id=fault.name)
    for fault in FAULTS
]


@contextmanager
def changed(fault: Fault) -> Iterator[None]:
    """The package with this fault, in the module itself and wherever it was imported from there."""
    names = vars(fault.module)
    before = dict(names)
    source = Path(str(fault.module.__file__)).read_text(encoding="utf-8")
    assert fault.old in source, f"{fault.name}: the source has changed"
    exec(compile(source.replace(fault.old, fault.new), fault.module.__name__, "exec"), names)
    replaced = [
        (user, name, old)
        for name, old in before.items()
        if getattr(old, "__module__", None) == fault.module.__name__
        for user in list(sys.modules.values())
        if vars(user).get(name) is old
    ]
    for user, name, _ in replaced:
        setattr(user, name, names[name])
    try:
        yield
    finally:
        names.update(before)
        for user, name, old in replaced:
            setattr(user, name, old)


@pytest.mark.exhaustive
@pytest.mark.parametrize(("store_url", "fault"), CASES, indirect=["store_url"])
def test_the_simulation_finds_it(db: Database, fault: Fault) -> None:
    with changed(fault):
        for seed in range(SCHEDULES):
            try:
                Fleet(db, seed, WEATHERS[fault.weather]).play()
            except (Violation, NeverEnds):
                return
    raise AssertionError(f"{SCHEDULES} schedules did not show that {fault.name}")

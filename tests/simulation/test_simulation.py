"""The protocol of shards, explored: many schedules by seed, over simulated threads and time."""

import os

import pytest
from everyday import only
from simulated_fleet import WEATHERS, Fleet

from transexplain.store.database import Database

#: schedules for each weather and database; .ci/run plays five
SCHEDULES = int(os.environ.get("TRANSEXPLAIN_SCHEDULES", "1"))


@pytest.mark.schedules
@pytest.mark.parametrize("weather", only("deadly", of=WEATHERS))
def test_promises_hold_in_every_schedule(db: Database, weather: str) -> None:
    for seed in range(SCHEDULES):
        try:
            Fleet(db, seed, WEATHERS[weather]).play()
        except BaseException as error:
            error.add_note(f"seed {seed}, weather {weather}, {db.engine.dialect.name}")
            raise

"""When schedules fire: a line with the cron expression, a line with the time zone."""

from itertools import islice, pairwise

from fuzz.guard import promise
from orchestrator.schedule import fire_times

#: 2026-03-28, the day before clocks in Europe go forward
_NOW = 1_774_656_000.0


def target(data: bytes) -> None:
    """What is accepted fires at most once a minute; the last fire is one of those that come."""
    cron, _, zone = data.decode("utf-8", "replace").partition("\n")
    fire_times.check(cron, zone)
    fires = list(islice(fire_times.upcoming(cron, zone, _NOW), 20))
    for before, after in pairwise([_NOW, *fires]):
        promise(before < after, "it fires out of order")
    for before, after in pairwise(fires):
        promise(after - before >= 60, f"two fires within {after - before:g} s")
    last = fire_times.latest(cron, zone, _NOW)
    promise(last is None or last <= _NOW, "the last fire is to come")
    for fire in fires[:3]:
        promise(fire_times.latest(cron, zone, fire) == fire, "a fire is not the last at its moment")

"""The fire times of a cron expression, in its own time zone."""

from collections.abc import Iterator
from datetime import datetime
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from transexplain.errors import ConfigurationError

_FIELDS = 5
_LONGEST = 400  #: characters
_FORM = 'write minute hour day month weekday, e.g. "0 3 * * *"'


def check(cron: str, time_zone: str) -> None:
    """Raise ConfigurationError where the expression or the zone is none, or it never fires."""
    for _ in upcoming(cron, time_zone, datetime.now().timestamp()):
        return
    raise ConfigurationError(f"cron expression {cron!r} never fires; check its day and month")


def latest(cron: str, time_zone: str, now: float) -> float | None:
    """The last fire at or before `now`; None: none within 50 years. Seconds since the epoch.

    An hour that is skipped in spring fires right after the gap, one that comes twice in autumn
    fires the first time only; expressions that name every minute or hour follow real time.
    """
    _refuse(cron)
    moment = datetime.fromtimestamp(int(now) + 1, ZoneInfo(time_zone))
    last = None
    for fire in CronSim(cron, moment, reverse=True):
        if fire.timestamp() <= now:
            last = fire.timestamp()
            break
    if last is None:
        return None
    # going backwards from the second pass of a repeated hour misses what fired in the first
    for fired in upcoming(cron, time_zone, last):
        if fired > now:
            break
        last = fired
    return last


def overdue(cron: str, time_zone: str, since: float, now: float) -> float:
    """Seconds since the first fire after `since` that has passed; 0: none has.

    The first, because of a schedule that fires often the latest is never long ago.
    Raises ConfigurationError as `upcoming`.
    """
    due = next(upcoming(cron, time_zone, since), None)
    return 0.0 if due is None else max(0.0, now - due)


def upcoming(cron: str, time_zone: str, after: float) -> Iterator[float]:
    """The fires after a moment, in order; seconds since the epoch.

    Raises ConfigurationError where the expression or the zone is none.
    """
    _refuse(cron)
    try:
        zone = ZoneInfo(time_zone)
    except (OSError, ValueError, KeyError) as error:  # a folder, an invalid key, or an unknown zone
        raise ConfigurationError(
            f"time zone {time_zone!r} is not known; write one of the IANA names, e.g. Europe/Berlin"
        ) from error
    try:
        for fire in CronSim(cron, datetime.fromtimestamp(after, zone)):
            if fire.timestamp() > after:
                yield fire.timestamp()
    except (CronSimError, ValueError, AssertionError) as error:
        raise ConfigurationError(
            f"cron expression {cron!r}: {error or 'a field is wrong'}; {_FORM}"
        ) from error


def _refuse(cron: str) -> None:
    """Refuse all but five fields: a sixth would be seconds, and an audit takes longer than that."""
    if len(cron) > _LONGEST or not cron.isascii():
        raise ConfigurationError(f"cron expression {cron[:60]!r} is too long or no ASCII; {_FORM}")
    fields = len(cron.split())
    if fields == _FIELDS + 1:
        raise ConfigurationError(
            f"cron expression {cron!r} has 6 fields, the first of them seconds; the shortest "
            f"interval is a minute: {_FORM}. A schedule that has it: `transexplain schedule "
            "remove` it and add it again"
        )
    if fields != _FIELDS:
        raise ConfigurationError(f"cron expression {cron!r} has {fields} fields; {_FORM}")

"""Cron expressions in time zones, through the hours that are skipped and those that come twice."""

from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise
from zoneinfo import ZoneInfo

import pytest
from everyday import only
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.schedule.fire_times import check, latest, upcoming
from transexplain.errors import ConfigurationError

BERLIN = "Europe/Berlin"  # 2026-03-29: 2 to 3 o'clock is skipped; 2026-10-25: 2 to 3 comes twice


def utc(*parts: int) -> float:
    return datetime(*parts, tzinfo=UTC).timestamp()  # type: ignore[misc]


#: a day at each of the hours that are skipped or come twice, north and south
CHANGES = [utc(2026, 3, 8), utc(2026, 3, 29), utc(2026, 4, 5), utc(2026, 10, 25)]


def fires(cron: str, zone: str, after: float, count: int) -> list[float]:
    return list(islice(upcoming(cron, zone, after), count))


def test_the_hour_is_that_of_the_zone() -> None:
    assert fires("0 3 * * *", BERLIN, utc(2026, 1, 10), 2) == [
        utc(2026, 1, 10, 2),
        utc(2026, 1, 11, 2),
    ]
    assert fires("0 3 * * *", "Asia/Kolkata", utc(2026, 1, 10), 1) == [utc(2026, 1, 10, 21, 30)]


def test_a_skipped_time_fires_right_after_the_gap() -> None:
    assert fires("30 2 * * *", BERLIN, utc(2026, 3, 28, 12), 2) == [
        utc(2026, 3, 29, 1),  # 3:00 summer time
        utc(2026, 3, 30, 0, 30),
    ]
    assert latest("30 2 * * *", BERLIN, utc(2026, 3, 29, 1, 10)) == utc(2026, 3, 29, 1)


def test_a_repeated_time_fires_the_first_time_only() -> None:
    first = utc(2026, 10, 25, 0, 30)
    assert fires("30 2 * * *", BERLIN, utc(2026, 10, 24, 12), 2) == [
        first,
        utc(2026, 10, 26, 1, 30),
    ]
    for minutes in (0, 29, 31, 45, 59, 60, 61, 90):
        now = first + 60 * minutes
        assert latest("30 2 * * *", BERLIN, now) == first, f"{minutes} minutes later"


@pytest.mark.parametrize("day", [(2026, 3, 29, 23), (2026, 10, 25, 25)])
def test_every_half_hour_follows_real_time(day: tuple[int, int, int, int]) -> None:
    year, month, date, hours = day
    start = datetime(year, month, date, tzinfo=ZoneInfo(BERLIN))
    end = start + timedelta(days=1)
    made = fires("*/30 * * * *", BERLIN, start.timestamp() - 1, 60)
    assert sum(one < end.timestamp() for one in made) == 2 * hours
    assert {b - a for a, b in pairwise(made)} == {1800.0}


@pytest.mark.parametrize(
    "cron", ["30 2 * * *", "15 */2 * * *", "*/20 * * * *", "0 3 * * 0", "7 2,3 * * *"]
)
@pytest.mark.parametrize("zone", [BERLIN, "UTC", "America/St_Johns", "Australia/Lord_Howe"])
@pytest.mark.parametrize("around", only(utc(2026, 3, 29), utc(2026, 10, 25), of=CHANGES))
def test_the_latest_is_the_last_one_that_was_to_come(cron: str, zone: str, around: float) -> None:
    start, end = around - 10 * 86400, around + 2 * 86400
    known = []
    for fire in upcoming(cron, zone, start):
        if fire > end:
            break
        known.append(fire)
    assert known == sorted(set(known))
    for step in range(0, 2 * 86400, 601):
        now = around + step + 0.25
        past = [fire for fire in known if fire <= now]
        assert past, "the window is wide enough"
        assert latest(cron, zone, now) == past[-1]
    assert latest(cron, zone, known[-1]) == known[-1], "a fire is due in its very second"


@pytest.mark.parametrize(
    ("cron", "zone", "printed"),
    [
        ("every night", "UTC", "minute hour day month weekday"),
        ("61 3 * * *", "UTC", "Bad minute"),
        ("0 0 30 2 *", "UTC", "day"),
        ("0 3 * * *", "Europe/Nowhere", "IANA"),
        ("0 3 * * *", "../etc/passwd", "IANA"),
        ("0 3 * * *", "", "IANA"),
        ("* * * * * *", "UTC", "6 fields, the first of them seconds"),
        ("*/5 * * * * *", "UTC", "the shortest interval is a minute"),
        ("0 0 3 * * *", BERLIN, "write minute hour"),
        ("@daily", "UTC", "1 fields"),
        ("@every 5s", "UTC", "2 fields"),
        ("@reboot", "UTC", "write minute hour"),
        ("", "UTC", "0 fields"),
        ("* * * *", "UTC", "4 fields"),
        ("* * * * * * *", "UTC", "7 fields"),
        ("*\u2003* * * *", "UTC", "no ASCII"),
        ("\u0663 3 * * *", "UTC", "no ASCII"),
        (",".join(["1"] * 300) + " * * * *", "UTC", "too long"),
        ("9" * 390 + " * * * *", "UTC", "Bad minute"),
        ("*/0 * * * *", "UTC", "Bad minute"),
        ("5-1 * * * *", "UTC", "Bad minute"),
        ("0 0 L/2-LW * *", "UTC", "write minute hour"),
        ("0 0 * * 1#6", "UTC", "Bad day-of-week"),
        ("0 0 * * 1#2/3", "UTC", "write minute hour"),
        ("0 0 31 2 *", "UTC", "day|never fires"),
    ],
)
def test_what_is_wrong_is_named(cron: str, zone: str, printed: str) -> None:
    with pytest.raises(ConfigurationError, match=printed):
        check(cron, zone)


@given(st.text(st.sampled_from("0159*/,-#LWl? JANMON@"), max_size=14).map(" ".join) | st.text())
def test_any_expression_is_refused_or_fires_by_the_minute(cron: str) -> None:
    try:
        check(cron, "UTC")
        latest(cron, "UTC", utc(2026, 3, 28))
        made = fires(cron, "UTC", utc(2026, 3, 28), 3)
    except ConfigurationError:
        return
    assert all(second - first >= 60 for first, second in pairwise(made))

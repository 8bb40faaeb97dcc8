"""The progress of a verb: correct rates, lines of JSON, or nothing."""

import json

import pytest

from orchestrator.cli import progress
from orchestrator.cli.progress import RecentRate, run_progress


class Clock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_rate_is_that_of_the_last_ten_seconds() -> None:
    clock = Clock()
    rate = RecentRate(clock=clock)
    assert rate.per_second() == 0
    clock.now += 2
    rate.add(10)
    assert rate.per_second() == 5  # over the two seconds that there were
    clock.now += 8
    assert rate.per_second() == 1
    clock.now += 2.5  # what was done is longer ago than ten seconds
    assert rate.per_second() == 0


def test_lines_of_json_are_few_and_the_last_is_whole(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    monkeypatch.setattr(progress.time, "monotonic", clock)
    with run_progress("name", 100, 10, "json") as display:
        for _ in range(90):
            clock.now += 0.1
            display.items(1)
            display.checks(2, 0.25)
        for _ in range(9):
            display.checks(1, 0.5)
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert 3 <= len(lines) <= 5
    assert [line["event"] for line in lines] == ["progress"] * len(lines)
    last = lines[-1]
    assert (last["done"], last["total"]) == (100, 100)
    assert (last["checks"], last["checks_share"]) == (189, 0.5)
    assert 9 < last["items_per_second"] < 11


@pytest.mark.parametrize("output", ["quiet", "bar"])
def test_without_a_terminal_nothing_is_drawn(output, capsys: pytest.CaptureFixture[str]) -> None:
    with run_progress("name", 5, 0, output) as display:
        display.items(5)
        display.checks(3, 0.5)
    assert capsys.readouterr() == ("", "")


def test_a_terminal_has_a_bar_for_items_and_one_for_checks(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "100")
    with run_progress("reviews", 8, 2, "bar") as display:
        display.items(3)
        display.checks(4, 0.375)
    shown = capsys.readouterr().err
    assert "5/8" in shown and "items/s" in shown
    assert "reviews: checks, 38% of the time" in shown and "checks/s" in shown

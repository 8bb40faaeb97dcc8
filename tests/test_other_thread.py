"""Calls in another thread: in order, none lost, errors raised where the calls were asked for."""

import threading
import time

import pytest

from transexplain.explaining import other_thread as module
from transexplain.explaining.other_thread import other_thread


def test_calls_are_made_in_order_by_one_other_thread() -> None:
    made: list[tuple[int, int]] = []
    with other_thread() as soon:
        for number in range(1000):
            soon(lambda number=number: made.append((number, threading.get_ident())))  # type: ignore[misc]
    assert [number for number, _ in made] == list(range(1000)), "all before the block ends"
    assert len({thread for _, thread in made}) == 1
    assert made[0][1] != threading.get_ident()


def test_who_is_too_fast_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WAITING", 2)
    may_go, asked = threading.Event(), []

    def ask() -> None:
        with other_thread() as soon:
            for number in range(6):
                soon(may_go.wait)  # type: ignore[arg-type]
                asked.append(number)

    caller = threading.Thread(target=ask)
    caller.start()
    time.sleep(0.2)
    assert len(asked) <= 3, "one is made, two wait"
    may_go.set()
    caller.join(30)
    assert len(asked) == 6


def test_what_a_call_raises_ends_the_block_and_no_later_call_is_made() -> None:
    made: list[int] = []

    def broken() -> None:
        raise ValueError("no such number")

    with pytest.raises(ValueError, match="no such number"), other_thread() as soon:
        soon(broken)
        soon(lambda: made.append(1))
    assert made == []


def test_who_goes_on_calling_is_told_at_once() -> None:
    def broken() -> None:
        raise ValueError("no such number")

    calls = 0
    with pytest.raises(ValueError, match="no such number"), other_thread() as soon:
        while calls < 10_000:
            soon(broken)
            calls += 1
            time.sleep(0.001)
    assert calls < 10_000


def test_an_error_in_the_block_itself_comes_first() -> None:
    made: list[int] = []
    with pytest.raises(KeyError, match="mine"), other_thread() as soon:
        soon(lambda: made.append(1))
        raise KeyError("mine")
    assert made == [1], "what was asked for is done"
    assert not [one for one in threading.enumerate() if one.name == "finishing"]

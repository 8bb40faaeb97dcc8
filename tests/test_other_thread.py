"""Calls in another thread: in order, none lost, errors raised where the calls were asked for."""

import gc
import sys
import threading
import time

import pytest

from transexplain import interpreter
from transexplain.explaining import item_loop as module
from transexplain.explaining.item_loop import OtherThread
from transexplain.interpreter import few_collections, short_turns


@pytest.fixture
def other() -> OtherThread:
    return OtherThread()


def broken() -> None:
    raise ValueError("no such number")


def test_calls_are_made_in_order_by_one_other_thread(other: OtherThread) -> None:
    made: list[tuple[int, int]] = []
    for number in range(1000):
        other.soon(lambda number=number: made.append((number, threading.get_ident())))
    other.end()
    other.over()
    assert [number for number, _ in made] == list(range(1000)), "all before it is over"
    assert len({thread for _, thread in made}) == 1
    assert made[0][1] != threading.get_ident()


def test_who_is_too_fast_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WAITING", 2)
    may_go, asked = threading.Event(), []
    other = OtherThread()

    def ask() -> None:
        for number in range(6):
            other.soon(may_go.wait)
            asked.append(number)

    caller = threading.Thread(target=ask)
    caller.start()
    time.sleep(0.2)
    assert len(asked) <= 3, "one is made, two wait"
    may_go.set()
    caller.join(30)
    assert len(asked) == 6
    other.end()
    other.over()


def test_what_a_call_raises_is_raised_at_the_end(other: OtherThread) -> None:
    def ask() -> None:
        other.soon(broken)
        other.soon(lambda: None)
        other.end()
        other.over()

    with pytest.raises(ValueError, match="no such number"):
        ask()


def test_who_goes_on_calling_is_told_at_once(other: OtherThread) -> None:
    def ask() -> None:
        for _ in range(10_000):
            other.soon(broken)
            time.sleep(0.001)

    with pytest.raises(ValueError, match="no such number"):
        ask()
    other.stop()


def test_settings_of_the_interpreter_last_as_long_as_any_block() -> None:
    before = (sys.getswitchinterval(), gc.get_threshold())
    turn, allocations = interpreter._TURN, interpreter._ALLOCATIONS
    first, second = short_turns(), short_turns()
    with few_collections():
        first.__enter__()
        second.__enter__()
        first.__exit__(None, None, None)
        assert sys.getswitchinterval() == pytest.approx(turn), "the second is still under way"
        assert gc.get_threshold() == (allocations, *before[1][1:])
        second.__exit__(None, None, None)
    assert (sys.getswitchinterval(), gc.get_threshold()) == before


def test_settings_that_ask_for_more_than_a_block_stay() -> None:
    before = gc.get_threshold()
    gc.set_threshold(100_000, *before[1:])
    try:
        with few_collections():
            assert gc.get_threshold() == (100_000, *before[1:])
    finally:
        gc.set_threshold(*before)

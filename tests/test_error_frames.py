"""What of a traceback may be stored: places in code, never a message, a value or a folder."""

import pickle
import sys
import threading
from pathlib import Path

from transexplain.errors import DataSourceError, ItemError
from transexplain.text.error_frames import LONGEST, frames_of_thread, keep_frames, traceback_of

SECRET = "Ann Smith, 4111-1111"


def raised(call: object, *given: object) -> BaseException:
    try:
        call(*given)
    except Exception as error:  # noqa: BLE001 - whatever is asked for
        return error
    raise AssertionError("nothing was raised")


def refuse(text: str) -> None:
    try:
        int(text)
    except ValueError as error:
        raise ItemError("no-number", f"{text} is no number") from error


def refuse_in_silence(text: str) -> None:
    try:
        int(text)
    except ValueError:
        raise RuntimeError(f"not {text}") from None


def test_types_and_places_and_nothing_of_the_item() -> None:
    found = traceback_of(raised(refuse, SECRET))
    assert SECRET not in found and "Ann" not in found
    lines = found.splitlines()
    assert lines[-1] == "transexplain.errors.ItemError" and "ValueError" in lines
    assert lines.index("ValueError") < lines.index("which led to")
    here = Path(__file__)
    assert f"  {here.name}:" in found and str(here.parent) not in found
    assert "raise ItemError" not in found, "a line of somebody's own code"


def test_a_cause_that_the_message_hides_is_there() -> None:
    found = traceback_of(raised(refuse_in_silence, SECRET))
    assert "ValueError" in found and SECRET not in found


def test_lines_of_packages_are_shown_under_their_name() -> None:
    import json

    found = traceback_of(raised(json.loads, "{"))
    assert "  json/decoder.py:" in found
    assert "return _default_decoder.decode(s)" in found
    assert sys.prefix not in found and str(Path.home()) not in found
    assert found.endswith("json.decoder.JSONDecodeError")


def test_its_length_is_bounded_and_its_end_is_kept() -> None:
    def deep(left: int) -> None:
        if left:
            deep(left - 1)
        else:
            raise ValueError(SECRET)

    found = traceback_of(raised(deep, 200))
    assert found.count(" in ") <= 12 and found.endswith("ValueError")

    names: dict[str, type[Exception]] = {}
    long = "x" * 5_000
    code = compile(f"def {long}(n):\n    if n: {long}(n - 1)\n    raise KeyError(n)", long, "exec")
    exec(code, names)
    found = traceback_of(raised(names[long], 60))
    assert len(found) <= LONGEST and found.endswith("KeyError")


def test_an_error_that_nobody_raised_has_none() -> None:
    assert traceback_of(ValueError("made")) == ""


def test_frames_go_along_to_another_process() -> None:
    error = raised(refuse, "no")
    keep_frames(error)
    plain = DataSourceError("gone")
    plain.__dict__.update(error.__dict__)
    sent = pickle.loads(pickle.dumps(plain))
    assert sent.__traceback__ is None
    found = traceback_of(raised(lambda: (_ for _ in ()).throw(sent)))
    assert "in another process" in found and " in refuse" in found


def test_what_a_thread_is_doing() -> None:
    begun, end = threading.Event(), threading.Event()

    def waiting_here() -> None:
        begun.set()
        end.wait(10)

    thread = threading.Thread(target=waiting_here)
    thread.start()
    try:
        assert begun.wait(10)
        found = frames_of_thread(thread.ident)
    finally:
        end.set()
        thread.join()
    assert "waiting_here" in found and "threading.py:" in found
    assert frames_of_thread(None) == "" == frames_of_thread(thread.ident)

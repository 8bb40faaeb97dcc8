"""Messages of errors: of a length that a person reads, and nothing that a terminal obeys.

Of a traceback places in code are kept, never a message, a value or a folder.
"""

import json
import pickle
import sys
import threading
from pathlib import Path

import pytest

from transexplain.errors import DataSourceError, ItemError, SpecError
from transexplain.text.error_frames import LONGEST, frames_of_thread, keep_frames, traceback_of


def test_a_long_message_keeps_its_beginning_and_its_end() -> None:
    message = str(DataSourceError("x.csv has the columns " + "c" * 9_000 + "; rename one"))
    assert 2_000 <= len(message) < 2_100
    assert message.startswith("x.csv has the columns ccc")
    assert "[... 7,034 characters" in message
    assert message.endswith("; rename one")


@pytest.mark.parametrize(
    ("obeyed", "shown"),
    [("\x1b[2J", r"\x1b[2J"), ("a\rb", r"a\rb"), ("\u202e", r"\u202e"), ("\ud800", r"\ud800")],
)
def test_control_characters_are_escaped(obeyed: str, shown: str) -> None:
    assert str(SpecError(f"key {obeyed}")) == f"key {shown}"


def test_escapes_count_as_they_are_shown() -> None:
    assert len(str(SpecError("\x1b" * 5_000))) < 2_100
    text = "line 1\n\tä - \N{GRINNING FACE} اسم"
    error = ItemError("null", text)
    assert (str(error), error.kind, str(SpecError())) == (text, "null", "")


# ---- what of a traceback may be stored

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
    found = traceback_of(raised(refuse_in_silence, SECRET))
    assert "ValueError" in found and SECRET not in found, "a cause that the message hides"


def test_lines_of_packages_are_shown_under_their_name() -> None:
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
    assert traceback_of(ValueError("nobody raised it")) == ""

    names: dict[str, type[Exception]] = {}
    long = "x" * 5_000
    code = compile(f"def {long}(n):\n    if n: {long}(n - 1)\n    raise KeyError(n)", long, "exec")
    exec(code, names)
    found = traceback_of(raised(names[long], 60))
    assert len(found) <= LONGEST and found.endswith("KeyError")


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

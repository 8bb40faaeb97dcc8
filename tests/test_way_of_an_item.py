"""The functions that carry an item from file to report are called in the order of the page."""

import re
import sys
import threading
from pathlib import Path
from types import FrameType

import pytest
from tiny_audit import make_audit
from typer.testing import CliRunner

from orchestrator.cli.command_line import app

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "contribute" / "way-of-an-item.md"


def listed() -> list[str]:
    """The functions of the page, as `module.function`."""
    return re.findall(r"^\d+\. `([\w.]+)`", PAGE.read_text(encoding="utf-8"), re.MULTILINE)


@pytest.mark.exhaustive  # every call of Python is looked at: half a minute
def test_an_item_passes_the_functions_of_the_page_in_their_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    spec = make_audit(tmp_path, items=6)
    names = listed()
    functions, calls = set(names), []

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            name = f"{Path(frame.f_code.co_filename).stem}.{frame.f_code.co_qualname}"
            if name in functions:
                calls.append(name)

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        result = CliRunner().invoke(app, ["run", str(spec), "--host-processes", "0"])
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    assert result.exit_code == 0, result.output
    assert len(names) == len(functions) == 20
    rest = iter(calls)
    missing = [name for name in names if name not in rest]
    assert not missing, f"not called, or not in this order: {missing}"

"""The command line, called in this process."""

import sys
from pathlib import Path

import pytest

from orchestrator.cli import main


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """Run the command line in this process and in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    for name in ("DATABASE_URL", "BROKER_URL", "SNAPSHOT_DIR"):
        monkeypatch.delenv(f"TRANSEXPLAIN_{name}", raising=False)

    def run(*words: str) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["transexplain", *words])
        code = 0
        try:
            main()
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else 1
        said = capsys.readouterr()
        return code, said.out + said.err

    return run

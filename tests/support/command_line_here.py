"""The command line in the process of the test, which has imported what a new one would import."""

import io
import os
import signal
import sys
from collections.abc import Mapping
from contextlib import chdir, redirect_stderr, redirect_stdout
from pathlib import Path
from unittest import mock


def run_here(env: Mapping[str, str], folder: Path, *words: str, code: int = 0) -> str:
    """Run one command to its end in this environment and folder; returns its output."""
    from orchestrator.cli import main

    printed = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)
    ended: object = 0
    with (
        mock.patch.dict(os.environ, env, clear=True),
        mock.patch.object(sys, "argv", ["transexplain", *words]),
        chdir(folder),
        redirect_stdout(printed),
        redirect_stderr(printed),
    ):
        try:
            main()
        except SystemExit as end:
            ended = end.code or 0
        finally:
            signal.signal(signal.SIGINT, signal.default_int_handler)  # pytest goes on
    printed.seek(0)
    text = printed.read()
    assert ended == code, text
    return text

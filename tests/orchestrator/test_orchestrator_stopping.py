"""Ctrl-C, once and twice, and an output that nobody reads: one line at most, and the right code."""

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
#: a verb of the command line that runs `body`
VERB = """
import sys, threading, time
from orchestrator.cli.command_line import app, main
from orchestrator.dispatch.stopping import start_ignoring_interrupts, stopping

def ready():
    sys.stderr.write("ready\\n")
    sys.stderr.flush()

@app.command()
def wait() -> None:
{body}

if __name__ == "__main__":
    sys.argv = ["transexplain", "wait"]
    main()
"""
CHILD = """
import sys, time
from orchestrator.dispatch.stopping import stopping

def work():
    with stopping():
        sys.stderr.write("ready\\n")
        sys.stderr.flush()
        time.sleep(60)
"""


@contextmanager
def started(folder: Path, body: str, ready: int = 1) -> Iterator[subprocess.Popen[str]]:
    """A process group that has reported so many times that it is ready."""
    script = folder / "verb.py"
    script.write_text(VERB.format(body=textwrap.indent(textwrap.dedent(body), "    ")))
    (folder / "child.py").write_text(CHILD)
    process = subprocess.Popen(
        [sys.executable, str(script)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{folder}"},
    )
    try:
        assert process.stderr is not None
        for _ in range(ready):
            line = process.stderr.readline()
            assert line == "ready\n", line + process.stderr.read()
        yield process
    finally:
        process.kill()
        process.wait()


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    _, printed = process.communicate(timeout=20)
    return process.returncode, printed


def interrupt(process: subprocess.Popen[str]) -> None:
    os.killpg(process.pid, signal.SIGINT)


def test_the_first_ends_a_verb_with_a_line(tmp_path: Path) -> None:
    with started(tmp_path, "ready(); time.sleep(60)") as process:
        interrupt(process)
        assert ended(process) == (130, "interrupted\n")


@pytest.mark.parametrize(
    "body",
    [
        "try: ready(); time.sleep(60)\nfinally: ready(); time.sleep(60)",
        "with stopping() as stop: ready(); stop.wait(); ready(); time.sleep(60)",
        "with stopping() as stop: ready(); stop.wait()\nready(); time.sleep(60)",
        # Python waits for threads when main is through
        "with stopping() as stop: ready(); stop.wait()\n"
        "threading.Thread(target=lambda: (time.sleep(0.5), ready(), time.sleep(60))).start()",
    ],
    ids=["cleaning-up", "working", "reporting", "leaving"],
)
def test_the_second_ends_at_once_wherever_it_comes(tmp_path: Path, body: str) -> None:
    with started(tmp_path, body) as process:
        interrupt(process)
        assert process.stderr is not None
        between = process.stderr.readline()
        if between == "interrupted\n":
            between = process.stderr.readline()
        assert between == "ready\n"
        interrupt(process)
        assert ended(process) == (130, "interrupted again: ended at once\n")


def test_the_second_ends_children_too(tmp_path: Path) -> None:
    body = """
        import multiprocessing, child
        processes = [multiprocessing.get_context("spawn").Process(target=child.work) for _ in "ab"]
        with stopping() as stop:
            for one in processes: start_ignoring_interrupts(one)
            stop.wait()
            sys.stderr.write(" ".join(str(one.pid) for one in processes) + "\\n")
            sys.stderr.flush()
            for one in processes: one.join()
    """
    with started(tmp_path, body, ready=2) as process:
        os.kill(process.pid, signal.SIGINT)  # not the group: the children hear nothing of it
        assert process.stderr is not None
        pids = [int(word) for word in process.stderr.readline().split()]
        os.kill(process.pid, signal.SIGINT)
        assert ended(process) == (130, "interrupted again: ended at once\n")
        assert len(pids) == 2
        assert not any(running(pid) for pid in pids)


def running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def test_a_child_that_is_still_importing_does_not_hear_the_terminal(tmp_path: Path) -> None:
    body = """
        import multiprocessing, child
        process = multiprocessing.get_context("spawn").Process(target=child.work)
        with stopping() as stop:
            start_ignoring_interrupts(process)
            ready()
            stop.wait()
            process.kill(); process.join()
        raise SystemExit(7)
    """
    with started(tmp_path, body) as process:
        interrupt(process)
        code, printed = ended(process)
        assert (code, printed.replace("ready\n", "")) == (7, "")


def test_a_library_that_turns_an_interruption_into_an_error_shows_no_traceback(
    tmp_path: Path,
) -> None:
    body = """
        try: ready(); time.sleep(60)
        except KeyboardInterrupt: raise ImportError("initialization failed")
    """
    with started(tmp_path, body) as process:
        interrupt(process)
        assert ended(process) == (130, "interrupted\n")


@pytest.mark.parametrize("arguments", [["--help"], ["run", "--help"], ["--version"]])
@pytest.mark.exhaustive
def test_an_output_that_nobody_reads_is_no_error(arguments: list[str]) -> None:
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [sys.executable, "-m", "orchestrator.cli", *arguments],
        stdout=write,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        check=False,
    )
    os.close(write)
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_a_full_disk_is_named() -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "orchestrator.cli", "--version"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            check=False,
        )
    assert done.returncode == 4
    assert done.stderr.strip() == "error: the output cannot be written: No space left on device"

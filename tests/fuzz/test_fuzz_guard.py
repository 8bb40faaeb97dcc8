"""The guard of fuzzing finds what it is there for, and the mutations reach inside."""

import contextlib
import json
import os
import pickle
import re
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from fuzz import corpus
from fuzz.guard import Guard, Limits, promise, sandbox
from fuzz.mutate import join_files, mutate, split_files
from fuzz.ways import WAYS
from transexplain.errors import SpecError

ROOT = Path(corpus.__file__).parents[1]


class Harmful:
    def __reduce__(self) -> object:
        return os.getpid, ()


def spin(_: bytes) -> None:
    while True:
        pass


def grow(_: bytes) -> None:
    """Hold 160 MB more than this process ever held, which earlier tests may have filled.

    The limit is 64 MB: a system that takes pages back meanwhile does not hide it. Filling what
    earlier tests gave back can take a second.
    """
    status = Path("/proc/self/status").read_text()
    held = dict(re.findall(r"(VmHWM|VmRSS):\s+(\d+) kB", status))
    room = (int(held["VmHWM"]) - int(held["VmRSS"])) << 10
    bytearray(room + (160 << 20))


def connect(_: bytes) -> None:
    with socket.socket() as one:
        one.connect(("127.0.0.1", 9))


def swallow(_: bytes) -> None:
    with contextlib.suppress(BaseException):
        Path("../outside/secret.txt").read_text()


FAULTS: dict[str, tuple[Callable[[bytes], object], str]] = {
    "another exception": (lambda data: data[99], "IndexError"),
    "an exit": (lambda _: sys.exit(0), "SystemExit"),
    "a broken promise": (lambda data: promise(not data, "it is empty"), "it is empty"),
    "time": (spin, "OutOfTime"),
    "memory": (grow, "MB of memory"),
    "a file outside": (lambda _: Path("../outside/secret.txt").read_text(), "Escaped"),
    "an absolute file": (lambda _: Path("/etc/passwd").read_text(), "Escaped"),
    "a file written outside": (lambda _: Path("../outside/x").write_text("x"), "Escaped"),
    "a folder listed": (lambda _: list(Path("/").iterdir()), "Escaped"),
    "a swallowed escape": (swallow, "Escaped"),
    "a process": (lambda _: subprocess.run(["true"], check=False), "Escaped: subprocess.Popen"),
    "a shell": (lambda _: os.system("true"), "Escaped: os.system"),
    "a connection": (connect, "Escaped: socket.connect"),
    "a pickle": (pickle.loads, "Escaped: pickle.find_class"),
    "an import": (lambda _: __import__("antigravity"), "Escaped: import antigravity"),
    "code": (lambda data: eval("1 + 1"), "Escaped: compile"),
    "a long message": (lambda _: raised("x" * 9_999, cut=False), "9999 characters"),
    "a message for terminals": (lambda _: raised("a\x1b[2J", cut=False), "control character"),
    "an empty message": (lambda _: raised(" "), "is empty"),
}


def raised(message: str, *, cut: bool = True) -> None:
    error = SpecError(message)
    if not cut:
        error.args = (message,)
    raise error


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_found(fault: str, tmp_path: Path) -> None:
    code, reported = FAULTS[fault]
    with sandbox(tmp_path) as inside:
        limits = Limits(seconds=0.3 if fault == "time" else 60.0, megabytes=64)
        finding = Guard(lambda data: (code(data), None)[1], limits, inside).attempt(
            pickle.dumps(Harmful())
        )
    assert reported in finding.text


@pytest.mark.parametrize(
    "harmless",
    [
        lambda _: raised("model: write a folder"),
        lambda _: raised("x" * 9_999),
        lambda _: raised("a\x1b[2J\ud800"),
        lambda data: Path("here").write_bytes(data),
        lambda _: __import__("json.tool"),
    ],
)
def test_harmless_code_is_no_finding(harmless: Callable[[bytes], object], tmp_path: Path) -> None:
    with sandbox(tmp_path) as inside:
        guard = Guard(lambda data: (harmless(data), None)[1], Limits(), inside)
        assert guard.attempt(b"x") is None


def test_between_inputs_the_guard_does_nothing(tmp_path: Path) -> None:
    with sandbox(tmp_path) as inside:
        Guard(spin, Limits(), inside)
        assert Path("../outside/secret.txt").read_text()


def test_a_folder_is_split_and_joined() -> None:
    files = {"a.json": b"{}\nx", "b": b""}
    assert split_files(join_files(files)) == files
    assert split_files(b"no folder") == {}


def test_mutations_repeat_by_number_and_keep_json_readable() -> None:
    data = json.dumps({"a": [1, "x"], "b": {"c": None}}).encode()
    one = [mutate(data, Random(number), [b"word"]) for number in range(300)]
    assert one == [mutate(data, Random(number), [b"word"]) for number in range(300)]
    readable = [item for item in one if is_json(item)]
    assert 100 < len(readable) < 300
    assert len(set(one)) > 200
    assert any(b"word" in item for item in one)
    assert all(len(mutate(data, Random(number), (), most=10)) <= 10 for number in range(50))


@pytest.mark.parametrize("odd", ["!!timestamp x", '!!int ""', "!!bool x", "!!python/name:x", "["])
def test_invalid_yaml_is_mutated_too(odd: str) -> None:
    data = b"first line\na: " + odd.encode() + b"\n"
    for number in range(300):
        assert isinstance(mutate(data, Random(number), [b"word"]), bytes)


def is_json(data: bytes) -> bool:
    try:
        json.loads(data)
    except (ValueError, RecursionError):
        return False
    return True


@pytest.mark.parametrize("way", sorted(WAYS))
def test_words_are_read_as_libfuzzer_reads_them(way: str) -> None:
    path = corpus.dictionary(way)
    assert len(corpus.words(way)) == len(path.read_text().splitlines()) > 5


def test_every_corpus_folder_belongs_to_a_target() -> None:
    folder = Path(corpus.__file__).parent
    for kind in ("corpus", "findings"):
        assert {path.name for path in (folder / kind).glob("*")} <= set(WAYS)
    assert sum(path.stat().st_size for path in (folder / "corpus").rglob("*")) < 600_000


@pytest.mark.exhaustive
def test_a_search_ends_in_time_and_counts(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "fuzz", "crons", "--seconds", "2", "--work", str(tmp_path)]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "crons" in done.stdout
    assert json.loads((tmp_path / "crons" / "met.json").read_text())["executions"] > 14


@pytest.mark.exhaustive
def test_one_input_is_given_again(tmp_path: Path) -> None:
    path = tmp_path / "input"
    path.write_bytes(b"* * * * *\nUTC")
    command = [sys.executable, "-m", "fuzz", "crons", "--input", str(path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, "no finding")


@pytest.mark.parametrize("way", sorted(WAYS))
def test_seeds_and_former_findings_pass(way: str, tmp_path: Path) -> None:
    target, files = WAYS[way].target, corpus.seeds(way)
    with sandbox(tmp_path) as inside:
        guard = Guard(target, WAYS[way].limits, inside)
        tried = [(path.name, guard.attempt(path.read_bytes())) for path in files]
    found = [f"{name}: {finding.text}" for name, finding in tried if finding]
    assert tried, "a way in without seeds"
    assert not found, "\n\n".join(found)

"""A private Redis and PostgreSQL, which a test may kill at any time."""

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
import redis

_PASSWORD = "chaos"
_POSTGRES_FOLDERS = "/usr/lib/postgresql"  #: where Debian keeps what it does not put on the path


def binary(name: str) -> str:
    """The path of a server's program; the test is skipped, or fails in CI, where it is missing."""
    debian = sorted(Path(_POSTGRES_FOLDERS).glob(f"*/bin/{name}"))
    found = shutil.which(name) or (str(debian[-1]) if debian else None)
    if found is None:
        missing = f"no {name} here; install it to run this test"
        if os.environ.get("CI") == "true":
            raise FileNotFoundError(missing)
        pytest.skip(missing)
    return found


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


class OwnRedis:
    """A Redis that writes nothing to disk: what it held is gone when it ends."""

    def __init__(self, folder: Path) -> None:
        self._port = free_port()
        self._folder = folder
        self.url = f"redis://:{_PASSWORD}@127.0.0.1:{self._port}/0"
        self._start()

    def client(self) -> redis.Redis:
        return redis.Redis.from_url(self.url)

    def restart(self) -> None:
        """End it as a power cut does, and start an empty one on the same port."""
        self.kill()
        self._start()

    def kill(self) -> None:
        self._server.kill()
        self._server.wait()

    def _start(self) -> None:
        self._server = subprocess.Popen(
            [
                *(binary("redis-server"), "--port", str(self._port), "--bind", "127.0.0.1"),
                *("--requirepass", _PASSWORD, "--save", "", "--appendonly", "no"),
                *("--dir", str(self._folder)),
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        deadline = time.monotonic() + 30
        while True:
            try:
                with self.client() as client:
                    client.ping()
                return
            except redis.ConnectionError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)


class OwnPostgres:
    """A PostgreSQL cluster in a folder of its own, with the durability it has by default."""

    def __init__(self, folder: Path) -> None:
        self._port = free_port()
        self._data = folder / "data"
        self._log = folder / "log"
        self._identity: dict[str, Any] = {}
        if os.geteuid() == 0:  # PostgreSQL refuses to be run by root
            owner = pwd.getpwnam("postgres")
            os.chown(folder, owner.pw_uid, owner.pw_gid)
            self._identity = {"user": owner.pw_uid, "group": owner.pw_gid, "extra_groups": []}
        self.url = f"postgresql+psycopg://postgres@127.0.0.1:{self._port}/postgres"
        self._run("initdb", "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync")
        options = f"-p {self._port} -h 127.0.0.1 -k {folder}"
        self._run("pg_ctl", "start", "-w", "-l", str(self._log), "-o", options)

    def restart_at_once(self) -> None:
        """End every process of the server without a checkpoint, then recover from the log."""
        self._run("pg_ctl", "restart", "-w", "-m", "immediate", "-l", str(self._log))

    def stop(self) -> None:
        self._run("pg_ctl", "stop", "-w", "-m", "immediate")

    def backends(self, state: str) -> int:
        """How many clients of the server are in this state now."""
        with psycopg.connect(self.url.replace("+psycopg", ""), autocommit=True) as connection:
            found = connection.execute(
                "SELECT count(*) FROM pg_stat_activity WHERE state = %s", (state,)
            ).fetchone()
        return int(found[0]) if found else 0

    def _run(self, program: str, *words: str) -> None:
        with tempfile.TemporaryFile() as printed:  # a pipe would stay open in the server
            done = subprocess.run(
                [binary(program), "-D", str(self._data), *words],
                stdout=printed,
                stderr=printed,
                cwd="/",
                timeout=120,
                check=False,
                **self._identity,
            )
            printed.seek(0)
            assert done.returncode == 0, printed.read().decode()


@contextmanager
def own_redis(folder: Path) -> Iterator[OwnRedis]:
    server = OwnRedis(folder)
    try:
        yield server
    finally:
        server.kill()


@contextmanager
def own_postgres() -> Iterator[OwnPostgres]:
    """In a folder that the operating system's user `postgres` can reach, unlike pytest's."""
    with tempfile.TemporaryDirectory(prefix="te-pg-") as folder:
        server = OwnPostgres(Path(folder))
        try:
            yield server
        finally:
            server.stop()

"""Servers that benchmarks measure against: databases and queues of their own, gone afterwards.

`TRANSEXPLAIN_TEST_POSTGRES` and `TRANSEXPLAIN_TEST_REDIS` name the servers, as for the tests.
"""

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

POSTGRES = os.environ.get(
    "TRANSEXPLAIN_TEST_POSTGRES", "postgresql://postgres@127.0.0.1:5432/postgres"
)
REDIS = os.environ.get("TRANSEXPLAIN_TEST_REDIS", "redis://127.0.0.1:6379/0")


class MissingServerError(Exception):
    """A server that a benchmark needs is not there; the message says which and why."""


def end_cleanly() -> None:
    """Let SIGTERM end this process as Ctrl-C does: what it made on the servers goes with it."""

    def end(number: int, frame: object) -> NoReturn:
        raise SystemExit(128 + number)

    signal.signal(signal.SIGTERM, end)


@contextmanager
def own_database(admin: str = POSTGRES) -> Iterator[str]:
    """The URL of an empty database on the server of `admin`, dropped afterwards.

    Raises MissingServerError where the server cannot be reached.
    """
    import psycopg

    name = f"te_bench_{uuid.uuid4().hex[:12]}"
    try:
        connection = psycopg.connect(admin, autocommit=True, connect_timeout=5)
    except psycopg.OperationalError as error:
        raise MissingServerError(
            f"no PostgreSQL reachable: {' '.join(str(error).split())}"
        ) from error
    with connection:
        connection.execute(f'CREATE DATABASE "{name}"')
    try:
        yield f"{admin.replace('postgresql:', 'postgresql+psycopg:').rpartition('/')[0]}/{name}"
    finally:
        with psycopg.connect(admin, autocommit=True) as connection:
            connection.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')


@contextmanager
def own_queue(url: str = REDIS) -> Iterator[str]:
    """A queue name that nobody else uses; its keys at Redis are deleted afterwards.

    Raises MissingServerError where Redis cannot be reached.
    """
    import redis

    name = f"te-bench-{uuid.uuid4().hex[:10]}"
    with redis.Redis.from_url(url, socket_connect_timeout=5) as client:
        try:
            client.ping()
        except redis.RedisError as error:
            raise MissingServerError(f"no Redis reachable: {error}") from error
        try:
            yield name
        finally:
            for key in client.scan_iter(f"{name}:*"):
                client.delete(key)


@contextmanager
def own_postgres(connections: int) -> Iterator[str]:
    """The administrator's URL of a PostgreSQL server for `connections` clients, gone afterwards.

    Its settings are the package's defaults but for the number of connections. Raises Missing
    where `initdb` and `pg_ctl` are not on the path.
    """
    initdb, pg_ctl = shutil.which("initdb"), shutil.which("pg_ctl")
    if initdb is None or pg_ctl is None:
        raise MissingServerError(
            "no initdb and pg_ctl on the path: put PostgreSQL's programs there"
        )
    # the server refuses to run as root
    who: dict[str, Any] = {"user": "postgres"} if os.geteuid() == 0 else {}
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        data = Path(folder) / "data"
        data.mkdir(mode=0o700)
        if who:
            shutil.chown(data, "postgres")
        run(initdb, "-D", data, "-U", "postgres", "-A", "trust", cwd=data, **who)
        flags = f"-p {port} -c max_connections={connections} -c unix_socket_directories={data}"
        log = data / "log"
        run(pg_ctl, "-D", data, "-w", "-l", log, "-o", flags, "start", cwd=data, **who)
        try:
            yield f"postgresql://postgres@127.0.0.1:{port}/postgres"
        finally:
            run(pg_ctl, "-D", data, "-w", "-m", "fast", "stop", cwd=data, **who)


def run(*command: object, **options: Any) -> None:
    """Run a program that has to succeed; its own words are the error otherwise."""
    # a server keeps what it inherits open: its output goes to a file that nobody waits for
    with tempfile.TemporaryFile("w+") as printed:
        done = subprocess.run(
            [str(word) for word in command], stdout=printed, stderr=printed, check=False, **options
        )
        if done.returncode:
            printed.seek(0)
            raise MissingServerError(f"{command[0]} failed: {printed.read().strip()}")

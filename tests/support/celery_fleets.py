"""One worker on a broker, started and inspected as operators do: by Celery's own commands."""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Thread
from typing import Any

from broker_keys import forget, queue_name_of_test
from celery import Celery
from chaos_groups import environment, wait_for
from command_line_here import run_here
from tiny_audit import make_audit

from transexplain.settings import Settings
from transexplain.store import runs, shards
from transexplain.store.database import Database
from transexplain.store.revisions import open_database
from workers.app import make_app
from workers.queue_names import queues_for


@dataclass(kw_only=True)
class CeleryFleet:
    """A database, a broker and whoever works there."""

    folder: Path
    settings: Settings
    env: dict[str, str]
    db: Database
    app: Celery
    events: list[dict[str, Any]] = field(default_factory=list)

    def submit(self, name: str = "a", **audit: Any) -> str:
        """Put a run on the queue; its id."""
        folder = self.folder / name
        folder.mkdir()
        run_here(self.env, self.folder, "submit", str(make_audit(folder, **audit)))
        return runs.list_runs(self.db)[0].id

    def states(self, run_id: str) -> list[str]:
        return [one.state for one in shards.list_shards(self.db, run_id)]

    def celery(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "celery", "-A", "workers.app", *words]

    def ask(self, *words: str) -> str:
        """Run one of Celery's commands; returns its output."""
        done = subprocess.run(
            self.celery(*words),
            env=self.env,
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        return done.stdout + done.stderr

    @contextmanager
    def worker(self, *words: str) -> Iterator[subprocess.Popen[bytes]]:
        """`celery -A workers.app worker`, until SIGTERM."""
        with (self.folder / "worker.log").open("ab") as log:
            process = subprocess.Popen(
                self.celery("worker", "-l", "INFO", "--threads", "1", *words),
                env=self.env,
                cwd=self.folder,
                stdout=log,
                stderr=log,
            )
            try:
                wait_for(lambda: " ready." in self.log or process.poll() is not None, "a worker")
                yield process
            finally:
                process.terminate()
                assert process.wait(timeout=60) == 0, self.log

    @property
    def log(self) -> str:
        return (self.folder / "worker.log").read_text(encoding="utf-8")

    def of_type(self, kind: str) -> list[dict[str, Any]]:
        """The events of this type so far."""
        return [one for one in self.events if one["type"] == kind]

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Gather events, as `celery events` and Flower do."""
        over = Event()

        def listen() -> None:
            with self.app.connection_for_read() as connection:
                receiver = self.app.events.Receiver(connection, handlers={"*": self.events.append})
                with receiver.consumer_context() as (draining, _, _):
                    listening.set()
                    while not over.is_set():
                        try:
                            draining.drain_events(timeout=0.2)
                        except TimeoutError:
                            continue

        listening = Event()
        thread = Thread(target=listen)
        thread.start()
        assert listening.wait(30)
        time.sleep(0.5)
        try:
            yield
        finally:
            over.set()
            thread.join()


@contextmanager
def celery_fleet(url: str, folder: Path, **extra: str) -> Iterator[CeleryFleet]:
    """A fleet without workers yet, on the broker with this URL."""
    queue = queue_name_of_test()
    settings = Settings(
        database_url=f"sqlite:///{folder / 'store.db'}",
        broker_url=url,
        queue=queue,
        snapshot_dir=folder / "snapshots",
    )
    env = environment(
        folder,
        TRANSEXPLAIN_DATABASE_URL=settings.database_url,
        TRANSEXPLAIN_BROKER_URL=url,
        TRANSEXPLAIN_QUEUE=queue,
        CHAOS_EVERYWHERE="1",
        **extra,
    )
    app = make_app(settings)
    with open_database(settings.database_url, upgrade=True) as db:
        yield CeleryFleet(folder=folder, settings=settings, env=env, db=db, app=app)
    forget_messages(settings)
    app.close()


def forget_messages(settings: Settings) -> None:
    """Lose every message of a fleet, and its queues with them."""
    if settings.broker_url.startswith("redis"):
        forget(settings.broker_url, settings.queue)
        return
    with make_app(settings).connection_for_write() as connection:
        for name in queues_for(settings):
            connection.default_channel.queue_delete(name)
            connection.default_channel.exchange_delete(name)

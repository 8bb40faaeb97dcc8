"""The sample report of the documentation: the demo's letters, from a store that is kept here.

The demo wrote the store; this version's own code draws the report while the site is built. After a
change that a stored run cannot show, record it again, from a folder whose path everybody may read
(the path of the model is part of a report):

python docs/hooks/sample_report.py
"""

import json
import lzma
import shutil
import sqlite3
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from orchestrator.dispatch.finish import ReportOptions
from transexplain.reports import REPORTS
from transexplain.reports.redaction import fewest_of
from transexplain.store import runs
from transexplain.store.revisions import open_database

STORE = Path(__file__).resolve().parents[1] / "sample" / "demo-letters.db.xz"


@cache
def rendered(*, redacted: bool) -> str:
    """The report as HTML, with or without what `--redact` takes away."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "store.db"
        with lzma.open(STORE) as packed, path.open("wb") as file:
            shutil.copyfileobj(packed, file)
        with open_database(f"sqlite:///{path}", upgrade=True) as db:
            (run,) = runs.list_runs(db)
            wanted = ReportOptions(fewest=fewest_of(redacted, None))
            return str(REPORTS.load("html")(wanted.summary(db, run.id)))


def record(folder: Path) -> None:
    """Train and audit the demo's text model below `folder`, and keep its store."""
    from transexplain.extras.demo.demo_run import audit, text_spec
    from transexplain.extras.demo.text_model import make_text_demo
    from transexplain.settings import Settings

    folder.mkdir()
    store = folder / "demo.db"
    settings = Settings(database_url=f"sqlite:///{store}", snapshot_dir=folder / "snapshots")
    make_text_demo(folder / "text", 0)
    audit(text_spec(folder / "text"), settings, folder, print)
    _forget_machine(store)
    STORE.parent.mkdir(exist_ok=True)
    with store.open("rb") as file, lzma.open(STORE, "wb", preset=9) as packed:
        shutil.copyfileobj(file, packed)


def _forget_machine(store: Path) -> None:
    """Leave out which host computed it; a reader of the sample has no use for that."""
    with sqlite3.connect(store) as connection:
        for table in ("run", "shard"):
            rows = connection.execute(f"SELECT rowid, surroundings FROM {table}").fetchall()
            for row, text in rows:
                where = json.loads(text)
                where["hardware"] |= {"platform": "Linux", "cpu": ""}
                connection.execute(
                    f"UPDATE {table} SET surroundings = ? WHERE rowid = ?", (json.dumps(where), row)
                )
        connection.execute("UPDATE shard SET worker = NULL")
    connection.execute("VACUUM")
    connection.close()


if __name__ == "__main__":
    record(Path("transexplain-demo"))

"""Runs the demo: two trained models, two audits, two reports, and whether the planted bias was
found.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from orchestrator.dispatch.finish import print_findings, write_reports
from orchestrator.dispatch.local import run_here
from orchestrator.plan import prepare_audit
from orchestrator.spec import AuditSpec
from transexplain.extras.demo.image_model import make_image_demo
from transexplain.extras.demo.text_model import (
    NEGATIVE,
    PLANTED,
    POSITIVE,
    REFERENCE,
    UNBIASED,
    make_text_demo,
)
from transexplain.reports.report_records import Summary
from transexplain.settings import Settings
from transexplain.store import runs
from transexplain.store.revisions import open_database

Say = Callable[[str], None]


def demo(
    *,
    folder: Annotated[Path, typer.Option("--folder", help="where everything is written")] = Path(
        "transexplain-demo"
    ),
    seed: Annotated[int, typer.Option("--seed", help="seed of the corpus and the training")] = 0,
) -> None:
    """Train a small text and a small image model here, audit both, and write their reports."""
    if not run_demo(folder, seed, say=typer.echo):
        raise typer.Exit(1)


def run_demo(folder: Path, seed: int, *, say: Say) -> bool:
    """Train, audit and report text and images under `folder`, and judge the group table.

    True: the planted group was found, with its sign, and no unbiased one was flagged.
    """
    folder.mkdir(parents=True, exist_ok=True)
    settings = Settings(
        database_url=f"sqlite:///{folder / 'demo.db'}", snapshot_dir=folder / "snapshots"
    )
    say("training a text classifier that favours one group of names ...")
    make_text_demo(folder / "text", seed)
    summary = audit(text_spec(folder / "text"), settings, folder, say)
    say("training an image classifier on scanned digits ...")
    model_dir, image_dir = make_image_demo(folder / "image", seed)
    pictures = {
        "name": "demo-digits",
        "model": str(model_dir),
        "data": {"source": f"imagefolder:{image_dir}"},
        "targets": ["predicted"],
    }
    audit(AuditSpec.model_validate(pictures), settings, folder, say)
    verdicts = {row.group: row for row in (summary.groups.verdicts if summary.groups else ())}
    planted, unbiased = verdicts[PLANTED], [verdicts[UNBIASED]]
    swap = planted.counterfactual
    as_planted = planted.mention == "changes" and bool(swap and swap.effect > 0.0)
    flagged = ", ".join(row.group for row in unbiased if row.state == "flagged")
    opened = ", ".join(row.group for row in unbiased if row.mention == "open")
    say(
        f"planted bias towards {PLANTED!r}: "
        f"{'was found' if as_planted else 'was NOT found'}; "
        f"unbiased groups flagged: {flagged or 'none'}; "
        f"mention still open for: {opened or 'none'}"
    )
    return as_planted and not flagged


def text_spec(folder: Path) -> AuditSpec:
    """The audit of the text classifier that `make_text_demo` made in a folder."""
    return AuditSpec.model_validate(
        {
            "name": "demo-letters",
            "model": str(folder / "training" / "model"),
            "data": {"source": str(folder / "letters.csv"), "id": "id"},
            "targets": [f"contrast:{POSITIVE}-{NEGATIVE}"],
            "groups": {"lexicon": str(folder / "names.yaml"), "reference": REFERENCE},
        }
    )


def audit(spec: AuditSpec, settings: Settings, folder: Path, say: Say) -> Summary:
    """Run one audit in this process and write its reports into `folder`."""
    prepared = prepare_audit(spec, settings)
    with open_database(settings.database_url, upgrade=True) as db:
        run_id = runs.create(db, prepared.plan, prepared.shards)
        say(f"auditing {prepared.plan.dataset.rows} items ...")
        run_here(db, run_id, settings, model=prepared.model)
        summary, paths = write_reports(db, run_id, folder)
    print_findings(summary.headline, paths)
    return summary

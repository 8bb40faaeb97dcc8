"""A new schedule, with everything checked that can be wrong about it."""

import re
from collections.abc import Sequence
from pathlib import Path

from orchestrator.plan import prepare_audit
from orchestrator.scheduling import cadence, webhook
from orchestrator.scheduling.tick import log_warnings
from orchestrator.spec import load_spec
from transexplain.errors import ConfigurationError
from transexplain.settings import Settings
from transexplain.store import schedules
from transexplain.store.database import Database
from transexplain.store.schedule_records import Planned, Schedule

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def add_schedule(  # noqa: PLR0913 - what a schedule is made of
    db: Database,
    settings: Settings,
    *,
    name: str,
    spec: Path,
    overrides: Sequence[str] = (),
    cron: str,
    time_zone: str = "UTC",
    on_change: bool = False,
    webhook_url: str | None = None,
) -> Schedule:
    """Check and write a schedule; its audit is prepared once, as `validate` does.

    `overrides` are `a.b=c` texts. Raises ConfigurationError: the name, the cron expression, the
    time zone, the webhook or the audit is wrong, or the name is taken.
    """
    if not _NAME.fullmatch(name):
        raise ConfigurationError(
            f"schedule name {name!r}: write up to 64 letters, digits, dots, hyphens, underscores"
        )
    cadence.check(cron, time_zone)
    if webhook_url is not None:
        webhook.check(webhook_url)
    audit = load_spec(spec, settings=overrides).absolute()
    log_warnings(name, prepare_audit(audit, settings).warnings)
    planned = Planned(
        name=name,
        cron=cron,
        time_zone=time_zone,
        spec=audit.model_dump(mode="json"),
        on_change=on_change,
        webhook=webhook_url,
    )
    schedules.add(db, planned)
    return schedules.get(db, name)

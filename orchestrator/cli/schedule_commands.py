"""Verbs of scheduled audits: schedule, sweep, beat."""

import json
import logging
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast
from zoneinfo import ZoneInfo

import typer

from orchestrator.cli import options as opt
from transexplain.errors import ConfigurationError, InfrastructureError
from transexplain.files.paths import any_path

if TYPE_CHECKING:
    from transexplain.settings import Settings
    from transexplain.store.database import Database
    from transexplain.store.schedules import Fire, Receiver, ReceiverKind, Schedule


Name = Annotated[str, typer.Argument(help="name of the schedule")]
Webhooks = Annotated[
    list[str] | None,
    typer.Option("--webhook", help="http(s) address that verdicts are posted to; may be repeated"),
]
Formats = Annotated[
    list[str] | None,
    typer.Option(
        "--webhook-format",
        help="json (default), slack or teams: of all webhooks, or repeated for each in their order",
    ),
]
Emails = Annotated[
    list[str] | None,
    typer.Option("--email", help="address that verdicts are mailed to; may be repeated"),
]


def receivers(
    name: Name,
    *,
    webhook: Webhooks = None,
    webhook_format: Formats = None,
    email: Emails = None,
    remove_: Annotated[
        list[int] | None,
        typer.Option("--remove", help="number of a receiver that gets no more; may be repeated"),
    ] = None,
    json_: opt.AsJson = False,
    db: opt.DatabaseUrl = None,
) -> None:
    """Show the receivers of a schedule; add some, or remove some by their numbers, before that."""
    from orchestrator.schedule.verdict_posts import check_receiver, shown
    from transexplain.store import schedules

    more = receivers_named(webhook or (), webhook_format or (), email or ())
    for receiver in more:
        check_receiver(receiver)
    with opt.open_store(opt.settings_with(db)) as store:
        if more or remove_:
            dropped = schedules.change_receivers(store, name, added=more, removed=remove_ or ())
            if dropped:
                which = "verdict that waited is" if dropped == 1 else "verdicts that waited are"
                typer.echo(f"{dropped} {which} dropped", err=True)
        receivers = schedules.get(store, name).receivers
    if json_:
        typer.echo(json.dumps(receiver_documents(receivers), indent=2))
        return
    for receiver in receivers:
        typer.echo(f"receiver {receiver.number}: {receiver.kind}, {shown(receiver)}")
    if not receivers:
        typer.echo(f"schedule {name} has no receivers")


def receiver_documents(receivers: Sequence["Receiver"]) -> list[dict[str, Any]]:
    """Receivers for programs, without the paths of webhooks, which may be passwords."""
    from orchestrator.schedule.verdict_posts import shown

    return [
        {"number": receiver.number, "kind": receiver.kind, "to": shown(receiver)}
        for receiver in receivers
    ]


def test_(name: Name, *, db: opt.DatabaseUrl = None) -> None:
    """Send a test message to every receiver of a schedule now; exit code 4 where one fails."""
    from orchestrator.schedule.verdict_posts import send_trial, shown
    from transexplain.store import schedules

    with opt.open_store(opt.settings_with(db)) as store:
        trials = send_trial(schedules.get(store, name))
    for to, answer, _ in trials:
        typer.echo(f"receiver {to.number}, {to.kind}, {shown(to)}: {answer}")
    if not all(taken for _, _, taken in trials):
        raise typer.Exit(InfrastructureError.exit_code)


def receivers_named(
    webhooks: Sequence[str], formats: Sequence[str], emails: Sequence[str]
) -> list["Receiver"]:
    """The receivers that the options name, webhooks first."""
    from orchestrator.schedule.verdict_posts import FORMATS
    from transexplain.store.schedules import Receiver

    default, *_ = FORMATS
    if len(formats) not in (0, 1, len(webhooks)) or (formats and not webhooks):
        raise ConfigurationError(
            f"{len(formats)} --webhook-format for {len(webhooks)} --webhook; write one for all, or "
            "one for each in their order"
        )
    for name in formats:
        if name not in FORMATS:
            raise ConfigurationError(f"--webhook-format {name!r} is none of {', '.join(FORMATS)}")
    each = formats if len(formats) == len(webhooks) else [*formats, default][:1] * len(webhooks)
    posts = [
        Receiver(kind=cast("ReceiverKind", kind), address=url)
        for url, kind in zip(webhooks, each, strict=True)
    ]
    return [*posts, *(Receiver(kind="email", address=address) for address in emails)]


Work = Annotated[
    bool, typer.Option("--work", help="work the runs off here instead of on the queue")
]
#: seconds between two ticks
EVERY = 30.0


def schedule_group() -> typer.Typer:
    """Audits that repeat on a schedule."""
    return opt.group_of(add, show, receivers, pause, resume, remove, run_now, tick, list_, test_)


def add(  # noqa: PLR0913 - what a schedule is made of
    name: Name,
    spec: Annotated[
        opt.Place,
        typer.Argument(parser=any_path, metavar="SPEC", help="audit specification (YAML)"),
    ],
    *,
    cron: Annotated[
        str, typer.Option("--cron", help='minute hour day month weekday, e.g. "0 3 * * *"')
    ],
    time_zone: Annotated[str, typer.Option("--time-zone", help="e.g. Europe/Berlin")] = "UTC",
    on_change: Annotated[
        bool, typer.Option("--on-change", help="only where the model or its data have changed")
    ] = False,
    webhook: Webhooks = None,
    webhook_format: Formats = None,
    email: Emails = None,
    set_: opt.Set = None,
    db: opt.DatabaseUrl = None,
) -> None:
    """Repeat an audit by a cron expression; it is checked now."""
    from orchestrator.schedule.tick import add_schedule

    settings = opt.settings_with(db)
    with opt.open_store(settings) as store:
        schedule = add_schedule(
            store,
            settings,
            name=name,
            spec=spec,
            overrides=set_ or (),
            cron=cron,
            time_zone=time_zone,
            on_change=on_change,
            receivers=receivers_named(webhook or (), webhook_format or (), email or ()),
        )
        typer.echo(_line(schedule))


def list_(*, json_: opt.AsJson = False, db: opt.DatabaseUrl = None) -> None:
    """Show the schedules, when they fire next and the result of the last fire."""
    from transexplain.store import schedules

    with opt.open_store(opt.settings_with(db)) as store:
        listed = schedules.list_schedules(store)
        if json_:
            typer.echo(json.dumps([_document(store, schedule) for schedule in listed], indent=2))
            return
        if not listed:
            typer.echo("no schedules yet; `transexplain schedule add --help` says how to make one")
        for schedule in listed:
            typer.echo(_line(schedule))
            _echo_fires(schedule, schedules.fires(store, schedule.name, limit=1))


def show(name: Name, *, json_: opt.AsJson = False, db: opt.DatabaseUrl = None) -> None:
    """Show one schedule, its receivers and what became of its last fires at each of them."""
    from orchestrator.schedule.verdict_posts import shown
    from transexplain.store import schedules

    with opt.open_store(opt.settings_with(db)) as store:
        schedule = schedules.get(store, name)
        if json_:
            typer.echo(json.dumps(_document(store, schedule), indent=2))
            return
        typer.echo(_line(schedule))
        for to in schedule.receivers:
            typer.echo(f"  receiver {to.number}: {to.kind}, {shown(to)}")
        _echo_fires(schedule, schedules.fires(store, name))


def pause(name: Name, *, db: opt.DatabaseUrl = None) -> None:
    """Pause a schedule; fires during the pause are not caught up."""
    from transexplain.store import schedules

    with opt.open_store(opt.settings_with(db)) as store:
        changed = schedules.set_state(store, name, "paused")
        typer.echo(f"schedule {name} {'paused' if changed else 'was paused already'}")


def resume(name: Name, *, db: opt.DatabaseUrl = None) -> None:
    """Let a paused schedule fire again from now on."""
    from transexplain.store import schedules

    with opt.open_store(opt.settings_with(db)) as store:
        changed = schedules.set_state(store, name, "active")
        typer.echo(f"schedule {name} {'resumed' if changed else 'was active already'}")


def remove(name: Name, *, db: opt.DatabaseUrl = None) -> None:
    """Delete a schedule; its runs stay."""
    from transexplain.store import schedules

    with opt.open_store(opt.settings_with(db)) as store:
        schedules.remove(store, name)
        typer.echo(f"schedule {name} removed")


def run_now(
    name: Name,
    *,
    work: Work = False,
    db: opt.DatabaseUrl = None,
    report_dir: opt.ReportDir = Path("audits"),
) -> None:
    """Start a schedule's run now, changed or not; its cadence does not change."""
    from orchestrator.schedule.tick import run_now as fire

    settings = opt.settings_with(db)
    with opt.open_store(settings) as store:
        run_id = fire(store, settings, name)
        typer.echo(f"schedule {name}: run {run_id}")
        _dispatch(store, settings, [run_id], report_dir if work else None)


def tick(
    *, work: Work = False, db: opt.DatabaseUrl = None, report_dir: opt.ReportDir = Path("audits")
) -> None:
    """Make the runs that are due and post verdicts; for cron, once a minute or so."""
    from orchestrator.schedule.tick import tick as fire

    settings = opt.settings_with(db)
    with opt.open_store(settings) as store:
        fired = fire(store, settings)
        for name, run_id, error in fired:
            what = f"run {run_id}" if run_id else error or "nothing has changed"
            typer.echo(f"schedule {name}: {what}", err=error is not None)
        run_ids = [run_id for _, run_id, _ in fired if run_id]
        _dispatch(store, settings, run_ids, report_dir if work else None)


def sweep(
    *,
    every: Annotated[
        float | None,
        typer.Option("--every", min=1, help="seconds between repetitions; default: once"),
    ] = None,
    db: opt.DatabaseUrl = None,
) -> None:
    """Send messages again for shards that no worker holds, and close finished runs."""
    from orchestrator.dispatch import queue
    from transexplain.reports.sql_results import close_forgotten
    from workers.beat import run_beat

    settings = opt.settings_with(db)
    queue.check_broker(settings, must_answer=False)
    with opt.open_store(settings) as store:
        if every is not None:
            again = partial(queue.sweep, store, settings, every=every)
            run_beat(settings, {"transexplain.sweep": (again, every)})
            return
        swept = queue.sweep(store, settings)
        close_forgotten(store)
    if swept is None:
        typer.echo(f"another process swept less than {queue.EVERY:g} seconds ago")
    else:
        sent, closed = swept
        typer.echo(f"{sent} messages sent, {len(closed)} runs closed")


def beat(
    *,
    every: Annotated[float, typer.Option("--every", min=1, help="seconds from tick to tick")] = (
        EVERY
    ),
    db: opt.DatabaseUrl = None,
) -> None:
    """Tick and sweep until SIGTERM (Celery beat); several at once do no harm."""
    from orchestrator.dispatch.queue import check_broker
    from orchestrator.schedule.tick import periodic_tasks
    from workers.beat import run_beat

    settings = opt.settings_with(db)
    check_broker(settings, must_answer=False)
    with opt.open_store(settings) as store:
        logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
        run_beat(settings, periodic_tasks(store, settings, every))


def _dispatch(
    store: "Database", settings: "Settings", run_ids: list[str], report_dir: opt.Place | None
) -> None:
    """Execute the runs here and report, or send them to workers; then post finished verdicts."""
    from orchestrator.dispatch import finish
    from orchestrator.dispatch.local import run_here
    from orchestrator.dispatch.queue import top_up
    from orchestrator.dispatch.stopping import stopping
    from orchestrator.schedule.verdict_posts import deliver

    for run_id in run_ids:
        if report_dir is None:
            top_up(store, settings)
            break
        with stopping() as stop:
            run_here(store, run_id, settings, stop=stop)
        finish.report(store, run_id, report_dir)
    for delivery in deliver(store):
        to = f"receiver {delivery.number} ({delivery.receiver.kind})"
        typer.echo(f"schedule {delivery.schedule}: verdict of {delivery.run_id} posted to {to}")


def _document(store: "Database", schedule: "Schedule") -> dict[str, Any]:
    from transexplain.store import schedules

    receivers = receiver_documents(schedule.receivers)
    fires = []
    for fire in schedules.fires(store, schedule.name):
        # the state of all its deliveries together stands under the names of one
        tried = fire.deliveries
        together = {
            "post": fire.post,
            "post_attempts": max((delivery.attempts for delivery in tried), default=0),
            "posted": max(
                (delivery.delivered for delivery in tried if delivery.delivered), default=None
            ),
            "post_error": next((delivery.error for delivery in tried if delivery.error), None),
        }
        fires.append(asdict(fire) | together)
    return asdict(schedule) | {
        "webhook": next((each["to"] for each in receivers if each["kind"] != "email"), None),
        "receivers": receivers,
        "next": _next(schedule),
        "fires": fires,
    }


def _echo_fires(schedule: "Schedule", fires: Sequence["Fire"]) -> None:
    """Print the runs that fires made, and why a receiver has not got a verdict."""
    for fire in fires:
        what = f"run {fire.run_id}" if fire.run_id else "nothing had changed"
        posted = f", verdict {fire.post}" if fire.post else ""
        typer.echo(f"  {_when(schedule, fire.at)}: {what}{posted}")
        for delivery in fire.deliveries:
            if delivery.state != "posted" and delivery.error:
                typer.echo(
                    f"    receiver {delivery.number} {delivery.state} after {delivery.attempts} "
                    f"{'attempt' if delivery.attempts == 1 else 'attempts'}: {delivery.error}"
                )
    if schedule.error:
        typer.echo(f"  could not be prepared: {schedule.error}")


def _line(schedule: "Schedule") -> str:
    following = _next(schedule)
    next_ = f"next {_when(schedule, following)}" if following else "no fire to come"
    change = ", on change only" if schedule.on_change else ""
    rhythm = f"{schedule.cron} ({schedule.time_zone}){change}"
    return f"{schedule.name}  {schedule.state}  {rhythm}  {next_}"


def _next(schedule: "Schedule") -> float | None:
    from orchestrator.schedule.fire_times import upcoming

    if schedule.state == "paused":
        return None
    with suppress(ConfigurationError):  # this machine lacks the time zone; the tick says so
        return next(upcoming(schedule.cron, schedule.time_zone, datetime.now().timestamp()), None)
    return None


def _when(schedule: "Schedule", at: float) -> str:
    return datetime.fromtimestamp(at, ZoneInfo(schedule.time_zone)).isoformat(" ", "seconds")

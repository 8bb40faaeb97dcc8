"""Verbs of a schedule's receivers: schedule receivers, schedule test."""

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from orchestrator.cli import options as opt
from transexplain.errors import ConfigurationError, InfrastructureError

if TYPE_CHECKING:
    from transexplain.store.deliveries import Receiver, ReceiverKind

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
    for one in more:
        check_receiver(one)
    with opt.open_store(opt.settings_with(db)) as store:
        if more or remove_:
            dropped = schedules.change_receivers(store, name, added=more, removed=remove_ or ())
            if dropped:
                which = "verdict that waited is" if dropped == 1 else "verdicts that waited are"
                typer.echo(f"{dropped} {which} dropped", err=True)
        found = schedules.get(store, name).receivers
    if json_:
        typer.echo(json.dumps(receiver_documents(found), indent=2))
        return
    for one in found:
        typer.echo(f"receiver {one.number}: {one.kind}, {shown(one)}")
    if not found:
        typer.echo(f"schedule {name} has no receivers")


def receiver_documents(found: Sequence["Receiver"]) -> list[dict[str, Any]]:
    """Receivers for programs, without the paths of webhooks, which may be passwords."""
    from orchestrator.schedule.verdict_posts import shown

    return [{"number": one.number, "kind": one.kind, "to": shown(one)} for one in found]


def test_(name: Name, *, db: opt.DatabaseUrl = None) -> None:
    """Send a test message to every receiver of a schedule now; exit code 4 where one fails."""
    from orchestrator.schedule.verdict_posts import send_trial, shown
    from transexplain.store import schedules

    with opt.open_store(opt.settings_with(db)) as store:
        made = send_trial(schedules.get(store, name))
    for one in made:
        said = one.answer or f"failed: {one.error}"
        to = one.receiver
        typer.echo(f"receiver {to.number}, {to.kind}, {shown(to)}: {said}")
    if any(one.error is not None for one in made):
        raise typer.Exit(InfrastructureError.exit_code)


def receivers_named(
    webhooks: Sequence[str], formats: Sequence[str], emails: Sequence[str]
) -> list["Receiver"]:
    """The receivers that the options name, webhooks first."""
    from orchestrator.schedule.verdict_posts import FORMATS
    from transexplain.store.deliveries import Receiver

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
    return [*posts, *(Receiver(kind="email", address=one) for one in emails)]

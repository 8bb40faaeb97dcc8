"""The verdict of a scheduled run as a short message in a chat or by mail."""

import json
import os
import re
import smtplib
import ssl
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from email.headerregistry import Address as Mailbox
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime
from functools import partial
from html import escape
from ipaddress import ip_address
from typing import Any
from urllib.parse import quote, unquote

from transexplain import settings
from transexplain.errors import ConfigurationError, WebhookError
from transexplain.reports.report_records import Summary
from transexplain.reports.verdict_words import Difference, gone, newly, shown, verdict_changes
from transexplain.text.addresses import check_server, read_address, shown_url, without_secrets

SERVE_URL = "TRANSEXPLAIN_SERVE_URL"
#: control characters, marks that turn the direction of what follows, and lone surrogates
_OBEYED = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff\u202a-\u202e\u2066-\u2069]")
_SENTENCES = 3  #: of the report's headline, behind the verdict


@dataclass(frozen=True, kw_only=True, slots=True)
class Notice:
    """The content of a message, as plain texts; names may hold any character."""

    title: str
    sentences: tuple[str, ...]  #: the verdict first
    lists: tuple[tuple[str, tuple[str, ...]], ...]  #: heading and groups, none of them empty
    counts: str  #: of groups and of items; "": a test
    link: str | None  #: to the run's page; None: no base address is set
    source: str  #: schedule and run


def notice_of(summary: Summary, schedule: str) -> Notice:
    """The notice of a finished run."""
    audited, counts, previous = summary.audited, summary.counts, summary.previous
    verdict = [summary.verdict.text] if summary.verdict else []
    lines = [
        finding.text for finding in summary.headline[:_SENTENCES] if finding.text not in verdict
    ]
    lists = [("Flagged groups", _names(differences(summary)))]
    if previous is not None:
        lists.append(("Newly flagged", _names(newly(previous.verdicts))))
        lists.append(("No longer flagged", _names(gone(previous.verdicts))))
    flagged = "; ".join(f"{heading.lower()}: {len(names)}" for heading, names in lists)
    explained = f"{counts.done:,} of {counts.total:,} items explained, {counts.failed:,} failed"
    pending = f", {counts.pending:,} not worked on" if counts.pending else ""
    return Notice(
        title=f"Audit {audited.name}: {audited.state}",
        sentences=(*verdict, *lines),
        lists=tuple((heading, names) for heading, names in lists if names),
        counts=f"{flagged.capitalize()}. {explained}{pending}.",
        link=run_link(audited.run_id),
        source=f"Schedule {schedule}, run {audited.run_id}",
    )


def trial_notice(schedule: str, audit: str) -> Notice:
    """The notice that `schedule test` sends."""
    return Notice(
        title=f"Audit {audit}: test message",
        sentences=("Verdicts of this schedule's runs will come here.",),
        lists=(),
        counts="",
        link=None,
        source=f"Schedule {schedule}",
    )


def run_link(run_id: str) -> str | None:
    """The page of a run in `transexplain serve`; None where `TRANSEXPLAIN_SERVE_URL` is not set.

    Raises ConfigurationError for a base address that no browser opens.
    """
    base = os.environ.get(SERVE_URL)
    if not base:
        return None
    address = read_address(base)
    what = f"{SERVE_URL}={shown_url(base)}"
    if address is None or address.scheme.lower() not in ("http", "https"):
        raise ConfigurationError(f"{what} is no http:// or https:// address")
    if address.user is not None or address.query is not None or address.fragment is not None:
        raise ConfigurationError(f"{what}: leave out user, password and what follows ? or #")
    check_server(address, what, remedy="write https://HOST:PORT/PATH, names of hosts in ASCII")
    path = quote(address.path.rstrip("/"), safe="/%")
    return f"{address.scheme}://{address.place}{path}/runs/{quote(run_id, safe='')}"


def shortened(notice: Notice, longest: int, most: int) -> Notice:
    """The notice with every text on one line of at most `longest` characters, lists of `most`."""

    def cut(text: str) -> str:
        return one_line(text, longest)

    def some(lines: Sequence[str]) -> tuple[str, ...]:
        left = len(lines) - most
        return (*map(cut, lines[:most]), *([f"and {left:,} more"] if left > 0 else []))

    return replace(
        notice,
        title=cut(notice.title),
        sentences=some(notice.sentences),
        lists=tuple((cut(heading), some(names)) for heading, names in notice.lists),
        source=cut(notice.source),
    )


def one_line(text: str, longest: int) -> str:
    """`text` on one line, without characters that are obeyed instead of shown."""
    shown = _OBEYED.sub("\N{REPLACEMENT CHARACTER}", " ".join(text.split()))
    return shown if len(shown) <= longest else f"{shown[: longest - 1]}\N{HORIZONTAL ELLIPSIS}"


def lines_of(notice: Notice) -> str:
    """The notice as plain text."""
    parts = [notice.title, "\n".join(notice.sentences)]
    for heading, names in notice.lists:
        parts.append("\n".join((heading, *(f"- {name}" for name in names))))
    parts += [notice.counts, notice.link or "", notice.source]
    return "\n\n".join(filter(None, parts)) + "\n"


def differences(summary: Summary) -> list[Difference]:
    """Groups whose mention changes the prediction, or whose outcome differs."""
    verdicts = summary.groups.verdicts if summary.groups else ()
    return shown(verdict_changes((), verdicts))


def _names(rows: Sequence[Difference]) -> tuple[str, ...]:
    return tuple(sorted(f"{row.group}: {row.sentence}" for row in rows))


_SECTION = 3_000  #: characters of a text of Slack
_CARD = 28 * 1024  #: bytes of a message of Teams
#: lengths of texts and lists, tried in turn until a body fits
_SIZES = ((1_000, 10), (500, 10), (250, 10), (100, 8), (40, 4))
_ESCAPES = {ord("&"): "&amp;", ord("<"): "&lt;", ord(">"): "&gt;"}
Body = Mapping[str, Any]


def slack_body(notice: Notice) -> bytes:
    """A message of Block Kit with a text for notifications.

    `&`, `<` and `>` of all texts are escaped, so that none becomes a mention or a link; `verbatim`
    keeps names and addresses in them from being made into links.
    """
    return encoded(_fitting(notice, _slack, _fits_slack))


def teams_body(notice: Notice) -> bytes:
    """A message with one Adaptive Card of at most 28 KB.

    Texts stand in text runs, in which no Markdown is read.
    """
    return encoded(_fitting(notice, _teams, lambda body: len(encoded(body)) <= _CARD))


def encoded(body: Body) -> bytes:
    """Return the JSON of a body."""
    return json.dumps(body, separators=(",", ":"), ensure_ascii=False).encode()


def _fitting(notice: Notice, write: Callable[[Notice], Body], fits: Callable[[Body], bool]) -> Body:
    """The body with the longest texts that fit; an escape must not be cut, so texts are."""
    body: Body = {}
    for longest, most in _SIZES:
        body = write(shortened(notice, longest, most))
        if fits(body):
            break
    return body


def _fits_slack(body: Body) -> bool:
    texts = [body["text"], *(block["text"]["text"] for block in body["blocks"][:-1])]
    return max(map(len, texts)) <= _SECTION


def _slack(notice: Notice) -> Body:
    first, *others = notice.sentences or ("",)
    sections = [f"*{_escaped(notice.title)}*\n{_escaped(first)}", *_bulleted(others)]
    for heading, names in notice.lists:
        sections.append("\n".join([f"*{_escaped(heading)}*", *_bulleted(names)]))
    sections.append(_escaped(notice.counts))
    if notice.link:
        sections.append(f"<{_escaped(notice.link)}|Open the run>")
    blocks = [{"type": "section", "text": _mrkdwn(section)} for section in sections if section]
    source = {"type": "context", "elements": [_mrkdwn(_escaped(notice.source))]}
    return {"text": sections[0], "blocks": [*blocks, source]}


def _mrkdwn(text: str) -> Body:
    return {"type": "mrkdwn", "text": text, "verbatim": True}


def _bulleted(lines: Sequence[str]) -> list[str]:
    return ["\n".join(f"\N{BULLET} {_escaped(line)}" for line in lines)] if lines else []


def _escaped(text: str) -> str:
    return text.translate(_ESCAPES)


def _teams(notice: Notice) -> Body:
    body = [_runs(notice.title, weight="Bolder", size="Medium")]
    body += [_runs(sentence) for sentence in notice.sentences]
    for heading, names in notice.lists:
        body.append(_runs(heading, weight="Bolder"))
        body += [_runs(f"\N{BULLET} {name}", spacing="None") for name in names]
    if notice.counts:
        body.append(_runs(notice.counts))
    body.append(_runs(notice.source, isSubtle=True))
    card: dict[str, Any] = {
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "type": "AdaptiveCard",
        "version": "1.2",
        "body": body,
    }
    if notice.link:
        card["actions"] = [{"type": "Action.OpenUrl", "title": "Open the run", "url": notice.link}]
    kind = "application/vnd.microsoft.card.adaptive"
    attachment = {"contentType": kind, "contentUrl": None, "content": card}
    return {"type": "message", "attachments": [attachment]}


def _runs(text: str, *, spacing: str = "Default", **style: Any) -> Body:
    run = {"type": "TextRun", "text": text, **style}
    return {"type": "RichTextBlock", "inlines": [run], "spacing": spacing}


URL, FROM = "TRANSEXPLAIN_SMTP_URL", "TRANSEXPLAIN_SMTP_FROM"
STARTTLS, CA = "TRANSEXPLAIN_SMTP_STARTTLS", "TRANSEXPLAIN_SMTP_CA"
TIMEOUT = 10.0  #: seconds for each answer of the server
_PORTS = {"smtp": 587, "smtps": 465}
_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
#: a mailbox as HTML's own check has it: no quotes, comments, spaces or control characters
_MAILBOX = re.compile(
    rf"(?P<user>[A-Za-z0-9.!#$%&'*+/=?^_`{{|}}~-]{{1,64}})@(?P<host>{_LABEL}(?:\.{_LABEL}){{0,8}})"
)
_LONGEST = 500  #: characters of a line
_MOST = 50  #: groups of a list
_SUBJECT = 150


@dataclass(frozen=True, kw_only=True, slots=True)
class MailServer:
    """The server that takes messages."""

    host: str
    port: int
    tls: bool  #: from the first byte on
    starttls: bool  #: required before anything is said
    user: str | None
    password: str = field(repr=False)
    url: str = field(repr=False)

    @property
    def shown(self) -> str:
        """For messages: no user, no password."""
        return f"mail server {self.host}:{self.port}"


def check_address(address: str) -> None:
    """Raise ConfigurationError for what is no plain e-mail address."""
    if not _MAILBOX.fullmatch(address) or ".." in address.partition("@")[0]:
        raise ConfigurationError(
            f"e-mail address {address[:80]!r}: write name@host, one for each --email"
        )


def server_of_environment() -> MailServer:
    """The mail server that the environment names; raises ConfigurationError, without a password."""
    url = settings.secret("SMTP_URL")
    if not url:
        raise ConfigurationError(
            f"set {URL} (or {URL}_FILE) to send e-mail, as in smtp://user:password@host:587"
        )
    return read_server(url)


def read_server(url: str) -> MailServer:
    """The mail server of a URL, with what the environment says about encryption."""
    address, what = read_address(url), f"{URL} {shown_url(url)}"
    if address is not None and address.scheme.lower() not in _PORTS:
        raise ConfigurationError(f"{what}: write smtp://user:password@host:587 or smtps://...")
    check_server(address, what)
    assert address is not None
    if address.path.strip("/") or address.query is not None or address.fragment is not None:
        raise ConfigurationError(
            f"{what}: leave out what follows the port; in a password, / is %2F"
        )
    user, password = unquote(address.user or ""), unquote(address.password or "")
    if not (user + password).isascii():
        raise ConfigurationError(f"{what}: user and password have to be ASCII")
    scheme, mode = address.scheme.lower(), os.environ.get(STARTTLS) or "auto"
    if scheme == "smtp" and mode not in ("auto", "required", "off"):
        raise ConfigurationError(f"{STARTTLS}={mode!r} is none of auto, required, off")
    local = address.host.lower().removesuffix(".") == "localhost"
    with suppress(ValueError):
        local = ip_address(address.host).is_loopback
    return MailServer(
        host=address.host,
        port=int(address.port or _PORTS[scheme]),
        tls=scheme == "smtps",
        starttls=scheme == "smtp" and (mode == "required" or (mode == "auto" and not local)),
        user=user or None,
        password=password,
        url=url,
    )


def sender() -> str:
    """The address that messages come from; raises ConfigurationError where there is none."""
    sender = os.environ.get(FROM)
    if not sender:
        raise ConfigurationError(f"set {FROM} to the address that e-mail comes from")
    try:
        check_address(sender)
    except ConfigurationError as error:
        raise ConfigurationError(f"{FROM}: {error}") from None
    return sender


def message_of(notice: Notice, *, to: str, sent_from: str, identity: str) -> EmailMessage:
    """The notice as plain text and HTML; `identity` is that of the delivery.

    Its Message-ID is the same for every attempt, so that a mailbox can drop the second.
    """
    short = shortened(notice, _LONGEST, _MOST)
    message = EmailMessage(policy=SMTP.clone(cte_type="7bit"))
    subject = " ".join((f"TransExplain: {notice.title}.", *notice.sentences[:1]))
    message["Subject"] = one_line(subject, _SUBJECT)
    message["From"] = Mailbox("TransExplain", addr_spec=sent_from)
    message["To"] = Mailbox(addr_spec=to)
    message["Date"] = format_datetime(datetime.now(UTC))
    message["Message-ID"] = f"<{identity}@{sent_from.partition('@')[2]}>"
    message["Auto-Submitted"] = "auto-generated"
    message.set_content(lines_of(short))
    message.add_alternative(_html(short), subtype="html")
    return message


def _html(notice: Notice) -> str:
    parts = [f"<h1>{escape(notice.title)}</h1>"]
    parts += [f"<p>{escape(sentence)}</p>" for sentence in notice.sentences]
    for heading, names in notice.lists:
        points = "".join(f"<li>{escape(name)}</li>" for name in names)
        parts.append(f"<h2>{escape(heading)}</h2><ul>{points}</ul>")
    parts.append(f"<p>{escape(notice.counts)}</p>")
    if notice.link:
        parts.append(f'<p><a href="{escape(notice.link)}">Open the run</a></p>')
    parts.append(f"<p><small>{escape(notice.source)}</small></p>")
    return "\n".join(['<!doctype html><html lang="en"><meta charset="utf-8"><body>', *parts])


def send(to: str, notice: Notice, identity: str) -> str:
    """Hand a notice to the mail server; returns what a person reads about it.

    Raises ConfigurationError for the environment, WebhookError where the server does not take it:
    a refusal by a number from 500 is final, but not that of the login.
    """
    server, sent_from = server_of_environment(), sender()
    check_address(to)  # one that was written past this program
    message = message_of(notice, to=to, sent_from=sent_from, identity=identity)
    try:
        _hand_in(server, message, sent_from, to)
    except (smtplib.SMTPRecipientsRefused, smtplib.SMTPResponseException) as error:
        raise _refused(server, error) from None
    except smtplib.SMTPNotSupportedError as error:
        hint = f" ({STARTTLS}=off sends without encryption)" if server.starttls else ""
        raise WebhookError(f"{server.shown}: {error}{hint}") from None
    except ssl.SSLCertVerificationError as error:
        raise WebhookError(
            f"{server.shown}: its certificate is not valid: {error.verify_message}; name its "
            f"authority in {CA}"
        ) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or type(error).__name__
        raise WebhookError(f"{server.shown} cannot be reached: {reason}") from None
    return f"accepted by {server.shown}"


def _hand_in(server: MailServer, message: EmailMessage, sent_from: str, to: str) -> None:
    context = _context()
    client = partial(smtplib.SMTP_SSL, context=context) if server.tls else smtplib.SMTP
    smtp = client(server.host, server.port, timeout=TIMEOUT)
    try:
        if server.starttls:
            smtp.starttls(context=context)
        if server.user:
            smtp.login(server.user, server.password)
        smtp.send_message(message, sent_from, [to])
    except BaseException:
        smtp.close()
        raise
    # it was taken: what goes wrong from here on must not have it sent again
    with suppress(smtplib.SMTPException, OSError):
        smtp.quit()
    smtp.close()


def _context() -> ssl.SSLContext:
    authority = os.environ.get(CA) or None
    try:
        return ssl.create_default_context(cafile=authority)
    except (OSError, ssl.SSLError) as error:
        raise ConfigurationError(
            f"{CA}: {authority}: {error.strerror or 'is no certificate'}; name a file in PEM format"
        ) from None


def _refused(
    server: MailServer, error: smtplib.SMTPRecipientsRefused | smtplib.SMTPResponseException
) -> WebhookError:
    """Return the error for an answer of the server."""
    text: bytes | str
    if isinstance(error, smtplib.SMTPRecipientsRefused):
        code, text = next(iter(error.recipients.values()))
    else:
        code, text = error.smtp_code, error.smtp_error
    shown = text.decode("utf-8", "replace") if isinstance(text, bytes) else text
    said = without_secrets(f"{code} {one_line(shown, 200)}".rstrip(), server.url)
    login = isinstance(error, smtplib.SMTPAuthenticationError)
    hint = f"; check user and password of {URL}" if login else ""
    return WebhookError(f"{server.shown} answered {said}{hint}", final=code >= 500 and not login)

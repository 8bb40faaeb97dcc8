"""Verdicts by e-mail: the server of the environment, one message for each address."""

import os
import re
import smtplib
import ssl
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.headerregistry import Address as Mailbox
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime
from html import escape
from ipaddress import ip_address
from urllib.parse import unquote

from orchestrator.schedule.notice import Notice, lines_of, one_line, shortened
from transexplain import settings
from transexplain.addresses import check_server, read_address, shown_url, without_secrets
from transexplain.errors import ConfigurationError, WebhookError

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
    """Where messages are handed in."""

    host: str
    port: int
    tls: bool  #: from the first byte on
    starttls: bool  #: required before anything is said
    user: str | None
    password: str = field(repr=False)
    url: str = field(repr=False)
    ca: str | None

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
    scheme = address.scheme.lower()
    return MailServer(
        host=address.host,
        port=int(address.port or _PORTS[scheme]),
        tls=scheme == "smtps",
        starttls=scheme == "smtp" and _starttls(address.host),
        user=user or None,
        password=password,
        url=url,
        ca=os.environ.get(CA) or None,
    )


def _starttls(host: str) -> bool:
    found = os.environ.get(STARTTLS) or "auto"
    if found not in ("auto", "required", "off"):
        raise ConfigurationError(f"{STARTTLS}={found!r} is none of auto, required, off")
    return found == "required" or (found == "auto" and not _is_local(host))


def _is_local(host: str) -> bool:
    with suppress(ValueError):
        return ip_address(host).is_loopback
    return host.lower().removesuffix(".") == "localhost"


def sender() -> str:
    """The address that messages come from; raises ConfigurationError where there is none."""
    found = os.environ.get(FROM)
    if not found:
        raise ConfigurationError(f"set {FROM} to the address that e-mail comes from")
    try:
        check_address(found)
    except ConfigurationError as error:
        raise ConfigurationError(f"{FROM}: {error}") from None
    return found


def message_of(notice: Notice, *, to: str, sent_from: str, identity: str) -> EmailMessage:
    """The notice as plain text with HTML beside it; `identity` is that of the delivery.

    Its Message-ID is the same for every attempt, so that a mailbox can drop the second.
    """
    short = shortened(notice, _LONGEST, _MOST)
    made = EmailMessage(policy=SMTP.clone(cte_type="7bit"))
    found = " ".join((f"TransExplain: {notice.title}.", *notice.sentences[:1]))
    made["Subject"] = one_line(found, _SUBJECT)
    made["From"] = Mailbox("TransExplain", addr_spec=sent_from)
    made["To"] = Mailbox(addr_spec=to)
    made["Date"] = format_datetime(datetime.now(UTC))
    made["Message-ID"] = f"<{identity}@{sent_from.partition('@')[2]}>"
    made["Auto-Submitted"] = "auto-generated"
    made.set_content(lines_of(short))
    made.add_alternative(_html(short), subtype="html")
    return made


def _html(notice: Notice) -> str:
    parts = [f"<h1>{escape(notice.title)}</h1>"]
    parts += [f"<p>{escape(one)}</p>" for one in notice.sentences]
    for heading, names in notice.lists:
        points = "".join(f"<li>{escape(name)}</li>" for name in names)
        parts.append(f"<h2>{escape(heading)}</h2><ul>{points}</ul>")
    parts.append(f"<p>{escape(notice.counts)}</p>")
    if notice.link:
        parts.append(f'<p><a href="{escape(notice.link)}">Open the run</a></p>')
    parts.append(f"<p><small>{escape(notice.source)}</small></p>")
    body = "\n".join(parts)
    return (
        f'<!doctype html>\n<html lang="en"><meta charset="utf-8"><body>\n{body}\n</body></html>\n'
    )


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
    except smtplib.SMTPAuthenticationError as error:
        said = _said(server, error.smtp_code, error.smtp_error)
        raise WebhookError(
            f"{server.shown} refused the login: {said}; check user and password of {URL}"
        ) from None
    except smtplib.SMTPRecipientsRefused as error:
        code, text = next(iter(error.recipients.values()))
        raise _refused(server, code, text) from None
    except smtplib.SMTPResponseException as error:
        raise _refused(server, error.smtp_code, error.smtp_error) from None
    except smtplib.SMTPNotSupportedError as error:
        raise WebhookError(f"{server.shown}: {error}{_hint(server)}") from None
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
    context = _context(server)
    if server.tls:
        smtp: smtplib.SMTP = smtplib.SMTP_SSL(
            server.host, server.port, timeout=TIMEOUT, context=context
        )
    else:
        smtp = smtplib.SMTP(server.host, server.port, timeout=TIMEOUT)
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


def _context(server: MailServer) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=server.ca)
    except (OSError, ssl.SSLError) as error:
        raise ConfigurationError(
            f"{CA}: {server.ca}: {error.strerror or 'is no certificate'}; name a file in PEM format"
        ) from None


def _refused(server: MailServer, code: int, text: bytes | str) -> WebhookError:
    return WebhookError(f"{server.shown} answered {_said(server, code, text)}", final=code >= 500)


def _said(server: MailServer, code: int, text: bytes | str) -> str:
    shown = text.decode("utf-8", "replace") if isinstance(text, bytes) else text
    return without_secrets(f"{code} {one_line(shown, 200)}".rstrip(), server.url)


def _hint(server: MailServer) -> str:
    return f" ({STARTTLS}=off sends without encryption)" if server.starttls else ""

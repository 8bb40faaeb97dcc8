"""Receivers on this machine: web servers with given answers, mail servers with given refusals."""

import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aiosmtpd.smtp import Envelope, Session

Post = tuple[str, Message, bytes]  #: path, headers, body


@dataclass
class WebReceiver:
    """A web server that keeps what it gets."""

    url: str = ""
    answers: list[int] = field(default_factory=list)  #: statuses to give; then 204
    headers: dict[str, str] = field(default_factory=dict)  #: of every answer
    posts: list[Post] = field(default_factory=list)
    drip: float = 0.0  #: seconds between two bytes of an answer


@contextmanager
def web_receiver(tls: ssl.SSLContext | None = None) -> Iterator[WebReceiver]:
    made = WebReceiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            made.posts.append((self.path, self.headers, body))
            if made.drip:
                self.trickle()
                return
            self.send_response(made.answers.pop(0) if made.answers else 204)
            self.send_header("Location", f"{made.url}/elsewhere")
            for name, value in made.headers.items():
                self.send_header(name, value)
            self.end_headers()

        do_GET = do_POST  # noqa: N815 - the name that http.server looks for

        def trickle(self) -> None:
            for byte in b"HTTP/1.1 204 No Content\r\nX: " + b"x" * 1_000:
                try:
                    self.wfile.write(bytes([byte]))
                except OSError:
                    return
                time.sleep(made.drip)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    if tls:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    made.url = f"{'https' if tls else 'http'}://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield made
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@dataclass(frozen=True)
class Certificate:
    """A self-made certificate of 127.0.0.1 and localhost, and its key."""

    path: Path
    key: Path

    @property
    def of_server(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.path, self.key)
        return context


def make_certificate(folder: Path) -> Certificate:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    names = [x509.DNSName("localhost"), x509.IPAddress(ip_address("127.0.0.1"))]
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    found = Certificate(path=folder / "certificate.pem", key=folder / "key.pem")
    found.path.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    found.key.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return found


@dataclass
class MailReceiver:
    """A mail server that keeps what it gets; used as the handler of aiosmtpd."""

    port: int = 0
    answers: list[str] = field(default_factory=list)  #: to recipients, before they are accepted
    data_answers: list[str] = field(default_factory=list)  #: to whole messages
    messages: list[tuple[bytes, bool, str | None]] = field(default_factory=list)
    login: tuple[str, str] | None = None

    async def handle_RCPT(  # noqa: N802 - the name that aiosmtpd looks for
        self, _server: Any, _session: "Session", envelope: "Envelope", address: str, _: Any
    ) -> str:
        if self.answers:
            return self.answers.pop(0)
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(  # noqa: N802 - the name that aiosmtpd looks for
        self, _server: Any, session: "Session", envelope: "Envelope"
    ) -> str:
        if self.data_answers:
            return self.data_answers.pop(0)
        user = session.auth_data.decode() if session.auth_data else None
        content = envelope.original_content or b""
        self.messages.append((content, session.ssl is not None, user))
        return "250 OK"

    def check_login(self, _server: Any, _session: Any, _envelope: Any, _way: str, data: Any) -> Any:
        from aiosmtpd.smtp import AuthResult

        given = (data.login.decode(), data.password.decode())
        return AuthResult(success=given == self.login, auth_data=data.login, handled=False)


@contextmanager
def mail_receiver(
    certificate: Certificate | None = None,
    *,
    at_once: bool = False,
    login: tuple[str, str] | None = None,
) -> Iterator[MailReceiver]:
    """A mail server; with a certificate it takes messages behind STARTTLS only.

    `at_once`: TLS from the first byte instead.
    """
    from aiosmtpd.controller import Controller

    made = MailReceiver(login=login)
    tls = certificate.of_server if certificate else None
    behind = tls is not None and not at_once
    controller = Controller(
        made,
        hostname="127.0.0.1",
        port=free_port(),
        ssl_context=tls if at_once else None,
        tls_context=tls if behind else None,
        require_starttls=behind,
        authenticator=made.check_login,
        auth_required=behind and login is not None,
        auth_require_tls=behind,
    )
    controller.start()
    made.port = controller.port
    try:
        yield made
    finally:
        controller.stop()


def free_port() -> int:
    """A port of this machine that nobody listens at."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        return int(held.getsockname()[1])

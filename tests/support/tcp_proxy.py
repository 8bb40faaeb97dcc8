"""A way to a server that a test can close, open, freeze, and cut in the middle of a statement."""

import socket
import threading
from contextlib import suppress
from typing import Self


class TcpProxy:
    """Listens on 127.0.0.1 and passes every byte on to `host`:`port`."""

    def __init__(self, host: str, port: int) -> None:
        self._to = (host, port)
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._fatal = b""
        self._thawed = threading.Event()
        self._thawed.set()
        self.hang_up = False  #: connections are taken, and closed at once
        self.port = 0
        self.listen()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.thaw()
        self.refuse()

    def listen(self) -> None:
        """Take connections (again), always at the same port."""
        self._listener = socket.create_server(("127.0.0.1", self.port))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def refuse(self) -> None:
        """End every connection and take no other."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()

    def cut(self) -> None:
        """End every open connection."""
        for pair in self._pairs:
            for one in pair:
                with suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)
                one.close()
        self._pairs = []

    def cut_at(self, words: bytes) -> None:
        """End the next connection over which a client sends these bytes, once."""
        self._fatal = words

    def freeze(self) -> None:
        """Take bytes and connections, and pass nothing on."""
        self._thawed.clear()

    def thaw(self) -> None:
        """Pass on what was taken meanwhile, and what comes."""
        self._thawed.set()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            if self.hang_up:
                client.close()
                continue
            server = socket.create_connection(self._to)
            self._pairs.append((client, server))
            for ends in ((client, server), (server, client)):
                threading.Thread(target=self._pass, args=ends, daemon=True).start()

    def _pass(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while some := source.recv(65_536):
                self._thawed.wait()
                if self._fatal and self._fatal in some:
                    self._fatal = b""
                    break
                sink.sendall(some)
        for one in (source, sink):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

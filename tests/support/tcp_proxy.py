"""A TCP proxy before a server of the tests: a way to have it go away, freeze and come back."""

import contextlib
import selectors
import socket
import threading
from typing import Literal, Self

_STATES = Literal["open", "away", "frozen"]


class TcpProxy:
    """Passes bytes on while `open`, breaks connections while `away`, is silent while `frozen`."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._state: _STATES = "open"
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._accept, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self.become("away")
        self._thread.join(10)
        self._listener.close()

    def become(self, state: _STATES) -> None:
        """From now on; connections that are there are broken where it is `away`."""
        self._state = state
        if state == "away":
            for pair in self._pairs:
                for one in pair:
                    with contextlib.suppress(OSError):
                        one.shutdown(socket.SHUT_RDWR)
            self._pairs.clear()

    def _accept(self) -> None:
        self._listener.settimeout(0.05)
        while not self._ended.is_set():
            try:
                client, _ = self._listener.accept()
            except TimeoutError:
                continue
            if self._state == "away":
                client.close()
                continue
            server = socket.create_connection(self._target, 5)
            self._pairs.append((client, server))
            threading.Thread(target=self._pass_on, args=(client, server), daemon=True).start()

    def _pass_on(self, client: socket.socket, server: socket.socket) -> None:
        other = {client: server, server: client}
        with selectors.DefaultSelector() as both, client, server:
            for one in other:
                both.register(one, selectors.EVENT_READ)
            while not self._ended.is_set():
                for key, _ in both.select(0.05):
                    if self._state == "frozen":
                        self._ended.wait(0.05)
                        continue
                    try:
                        data = key.fileobj.recv(65536)  # type: ignore[union-attr]
                        if not data:
                            return
                        other[key.fileobj].sendall(data)  # type: ignore[index]
                    except OSError:
                        return

"""A TCP proxy that breaks connections where it is told to: after so many bytes of an answer."""

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress


class CuttingProxy:
    """Stands before a server. `cuts` are byte counts, one per connection; without any, all bytes pass."""

    def __init__(self, target_port: int) -> None:
        self._target = ("127.0.0.1", target_port)
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.port: int = self._listener.getsockname()[1]
        self.cuts: list[int] = []
        self.broken = 0
        self.refusing = threading.Event()
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self.refusing.is_set():
                _reset(client)
                continue
            server = socket.create_connection(self._target)
            for each in (client, server):
                each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=self._pump, args=(client, server, False), daemon=True).start()
            threading.Thread(target=self._pump, args=(server, client, True), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket, answers: bool) -> None:
        left: int | None = None
        try:
            while data := source.recv(65536):
                if answers and left is None and self.cuts:
                    left = self.cuts.pop(0)
                if left is not None and len(data) > left:
                    sink.sendall(data[:left])
                    self.broken += 1
                    break
                sink.sendall(data)
                if left is not None:
                    left -= len(data)
        except OSError:
            pass
        for each in (source, sink):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        source.close()  # the other direction's thread closes the other one


@contextmanager
def cutting_proxy(target_port: int) -> Iterator[CuttingProxy]:
    proxy = CuttingProxy(target_port)
    try:
        yield proxy
    finally:
        proxy.close()


def _reset(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()

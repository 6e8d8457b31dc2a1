"""A TCP proxy that loses connections on demand: before a request arrives, or before its answer does."""

import contextlib
import socket
import struct
import threading
from types import TracebackType
from typing import Self

# Closing then means a reset: the peer cannot take it for an orderly end.
_RESET = struct.pack("ii", 1, 0)


class CuttingProxy:
    """Forwards to a port of this machine; clients connect to `port` instead."""

    def __init__(self, upstream: int) -> None:
        self._upstream = upstream
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.lost_answers = 0
        self._answers_to_lose = 0
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        threading.Thread(target=self._accept, daemon=True).start()

    def lose_answers(self, count: int) -> None:
        """The next so many answers reach nobody: what they speak of has happened all the same."""
        with self._lock:
            self._answers_to_lose = count

    def cut(self) -> None:
        """Reset every connection, both ways."""
        with self._lock:
            for connection in self._open:
                _reset(connection)
            self._open.clear()

    def close(self) -> None:
        # Closing alone does not wake a thread that waits in accept.
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # Internals

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(("127.0.0.1", self._upstream))
            except OSError:
                client.close()  # as if nobody listened
                continue
            with self._lock:
                self._open |= {client, server}
            threading.Thread(target=self._pump, args=(client, server, False), daemon=True).start()
            threading.Thread(target=self._pump, args=(server, client, True), daemon=True).start()

    def _pump(self, source: socket.socket, target: socket.socket, answers: bool) -> None:
        try:
            while data := source.recv(65536):
                if answers and self._loses_this():
                    break
                target.sendall(data)
        except OSError:
            pass
        with self._lock:
            for connection in (source, target):
                if connection in self._open:
                    self._open.discard(connection)
                    _reset(connection)

    def _loses_this(self) -> bool:
        with self._lock:
            if not self._answers_to_lose:
                return False
            self._answers_to_lose -= 1
            self.lost_answers += 1
            return True


def _reset(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        # Wakes the thread that reads from it, which closing alone would not.
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()

"""`perennial serve` with a disk under remote control; run as a script by `gate.GatedServer`.

Every `os.fdatasync` and `os.fsync` of the server passes here. What has reached the disk is written down in
the file SYNC_LOG, one line per call that returned: `path size`. Commands come over the Unix socket
SYNC_CONTROL, one per line:

    hold     the next calls stop before the disk is asked; each is reported as `held`
    release  they go on, and so do all that follow
    fail     they end in an OSError, and so do all that follow
"""

import errno
import os
import socket
import threading
from collections.abc import Callable

from perennial.cli import main

_condition = threading.Condition()
_mode = "release"


def _control(link: socket.socket) -> None:
    for line in link.makefile():
        _set(line.strip())
        link.sendall(b"done\n")
    _set("release")  # the test has left


def _set(mode: str) -> None:
    global _mode
    with _condition:
        _mode = mode
        _condition.notify_all()


def _pass_gate(link: socket.socket) -> None:
    with _condition:
        if _mode == "hold":
            link.sendall(b"held\n")
            _condition.wait_for(lambda: _mode != "hold")
        if _mode == "fail":
            raise OSError(errno.EIO, os.strerror(errno.EIO))


def _gated(real: Callable[[int], None], link: socket.socket, log: int) -> Callable[[int], None]:
    def sync(fd: int) -> None:
        _pass_gate(link)
        size = os.fstat(fd).st_size  # before the call: what is written during it may be missed
        real(fd)
        os.write(log, f"{os.readlink(f'/proc/self/fd/{fd}')} {size}\n".encode())

    return sync


if __name__ == "__main__":
    control = socket.socket(socket.AF_UNIX)
    control.connect(os.environ["SYNC_CONTROL"])
    sync_log = os.open(os.environ["SYNC_LOG"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.fdatasync = _gated(os.fdatasync, control, sync_log)  # type: ignore[assignment]
    os.fsync = _gated(os.fsync, control, sync_log)  # type: ignore[assignment]
    threading.Thread(target=_control, args=(control,), daemon=True).start()
    main()

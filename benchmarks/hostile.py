"""A hundred thousand hostile requests: no 5xx, no traceback, no growth in memory, and nothing changed.

    python -m benchmarks.hostile --requests 100000

Requests are built from good ones by breaking them: methods, targets, headers, framing and bodies that no
client would send, from a fixed seed. Some connections are cut in the middle, some send two requests at once,
some are plain noise. Two streams stand by that none of it may change.
"""

import argparse
import random
import socket
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

from benchmarks.soak import resident_mib
from tests.harness.server import ServerProcess
from tests.harness.wire import Wire

TEXT = {"Content-Type": "text/plain"}
THREADS = 4
PARTS = 10
QUIET_SECONDS = 0.3

METHODS = [
    b"GET",
    b"HEAD",
    b"PUT",
    b"POST",
    b"DELETE",
    b"PATCH",
    b"OPTIONS",
    b"TRACE",
    b"BREW",
    b"get",
    b"",
    b"G\0T",
]
PATHS = [
    b"/v1/stream/kept",
    b"/v1/stream/json",
    b"/v1/stream/",
    b"/v1/stream/a%2fb",
    b"/v1/stream/%00",
    b"/v1/stream/%zz",
    b"/v1/stream/../../etc/passwd",
    b"/v1/stream/%2e%2e/x",
    b"/ds/default/kept",
    b"/ds/default/streams",
    b"/ds/proxy",
    b"/ds/DEFAULT",
    b"/ds/default/kept/snapshot",
    b"/ds/default/kept/snapshot/0000000000000001",
    b"/ds/default/kept/bootstrap",
    b"/v1/feed/default",
    b"/v1/feed/none",
    b"/v1/proxy",
    b"/v1/proxy/xyz",
    b"/v1/admin/backup",
    b"/healthz",
    b"/readyz",
    b"/metrics",
    b"/",
    b"*",
    b"//",
    b"http://elsewhere/x",
    b"\xff\xfe",
]
QUERIES = [
    b"",
    b"?",
    b"?offset=-1",
    b"?offset=now",
    b"?offset=",
    b"?offset=-2",
    b"?offset=99999999999999999999",
    b"?offset=0&offset=1",
    b"?offset=1e3",
    b"?offset=%00",
    b"?offset=-1&live=sse",
    b"?offset=-1&live=long-poll",
    b"?live=sse",
    b"?live=nonsense&offset=0",
    b"?cursor=" + b"9" * 400,
    b"?after=-1&limit=0",
    b"?limit=1001",
    b"?prefix=%ff",
    b"?expires=1&signature=x",
    b"?action=abort",
    b"?" + b"a=b&" * 500,
]
HEADERS = [
    b"Content-Type: text/plain",
    b"Content-Type: application/json",
    b"Content-Type: \xff",
    b"Content-Type:",
    b"Stream-TTL: -1",
    b"Stream-TTL: 1e9",
    b"Stream-TTL: 99999999999999999999",
    b"Stream-Expires-At: yesterday",
    b"Stream-Expires-At: 9999-99-99T99:99:99Z",
    b"Stream-Closed: maybe",
    b"Stream-Seq: \x01",
    b"Stream-Seq:",
    b"Producer-Id: p",
    b"Producer-Epoch: -1",
    b"Producer-Epoch: x",
    b"Producer-Seq: 18446744073709551616",
    b"Stream-Forked-From: /v1/stream/kept",
    b"Stream-Forked-From: //",
    b"Stream-Fork-Offset: 77777",
    b"Stream-Fork-Sub-Offset: -5",
    b"If-None-Match: *",
    b'If-None-Match: "',
    b"Accept: \x80",
    b"Accept: */*;q=x",
    b"Authorization: Bearer " + b"x" * 3000,
    b"Upstream-URL: http://169.254.169.254/latest",
    b"Upstream-URL: file:///x",
    b"Upstream-Method: TRACE",
    b"Use-Stream-URL: x",
    b"Session-Id: " + b"y" * 2000,
    b"Perennial-Admin: nonsense",
    b"Expect: 200-maybe",
    b"Connection: upgrade",
    b"Upgrade: websocket",
    b"Range: bytes=0-",
    b"Host: a, b",
    b"X: " + b"z" * 9000,
    b"Bad Header: x",
    b": empty",
    b"NoColon",
    b"Cookie: a=b",
    b"Accept-Encoding: gzip, br;q=\x00",
    b"X-Forwarded-For: 1.2.3.4",
    b'Forwarded: for="[::"',
    b"Origin: null",
    b"Date: never",
]
BODIES = [
    b"",
    b"x",
    b"{}",
    b"[1,2",
    b"[[[[" * 2000,
    b"\xff\xfe\x00",
    b"null",
    b'{"a":' * 500,
    b"1e999",
    b'"\\ud800"',
    b"y" * 70_000,
    b"[" + b"1," * 5000 + b"1]",
]


def build(chance: random.Random) -> bytes:
    """One request, good in places."""
    kind = chance.random()
    if kind < 0.05:
        return chance.randbytes(chance.randint(1, 400))
    method = chance.choice(METHODS) if chance.random() < 0.1 else chance.choice(METHODS[:5])
    target = chance.choice(PATHS) + chance.choice(QUERIES)
    # The streams that must not change are only ever addressed in ways that cannot change them.
    if method in (b"PUT", b"POST", b"DELETE") and (b"kept" in target or b"json" in target):
        target = target.replace(b"kept", b"victim").replace(b"json", b"victim")
    body = chance.choice(BODIES)
    lines = [b"%b %b HTTP/1.%d" % (method, target, chance.choice([1] * 30 + [0, 2]))]
    if chance.random() < 0.98:
        lines.append(b"Host: test")
    lines += chance.sample(HEADERS, chance.choice([0, 0, 1, 1, 1, 2, 3, 5]))
    framing = chance.random()
    if framing < 0.85:
        lines.append(b"Content-Length: %d" % len(body))
    elif framing < 0.9:
        size = chance.choice([b"%x" % len(body), b"-1", b"ffffffffffffffff", b"zz", b""])
        lines.append(
            b"Transfer-Encoding: " + chance.choice([b"chunked", b"gzip, chunked", b"chunked, chunked"])
        )
        body = size + b"\r\n" + body + b"\r\n0\r\n\r\n"
    elif framing < 0.95:
        lines += [b"Content-Length: " + chance.choice([b"-5", b"1e3", b"999999999999", b"5, 6", b"+1"])]
    separator = chance.choice([b"\r\n"] * 30 + [b"\n", b"\r"])
    raw = separator.join([*lines, b"", b""]) + body
    if chance.random() < 0.05:
        raw = raw[: chance.randint(1, len(raw))]
    if chance.random() < 0.05:
        at = chance.randrange(len(raw))
        raw = raw[:at] + chance.randbytes(3) + raw[at:]
    return raw


def attack(port: int, requests: int, seed: int, statuses: Counter[str], lock: threading.Lock) -> None:
    chance = random.Random(seed)
    found: Counter[str] = Counter()
    for _ in range(requests):
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=QUIET_SECONDS) as peer:
            raw = build(chance)
            peer.sendall(raw if chance.random() < 0.9 else raw + build(chance))
            if chance.random() < 0.5:
                peer.shutdown(socket.SHUT_WR)
            answer = b""
            with suppress(TimeoutError):
                answer = peer.recv(65536)
            first = answer.split(b"\r\n", 1)[0]
            found[first[9:12].decode() if first.startswith(b"HTTP/1.1 ") else "none"] += 1
    with lock:
        statuses.update(found)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=4437)
    options = parser.parse_args()
    settings = {"PERENNIAL_LONG_POLL_TIMEOUT": "0.1", "PERENNIAL_SSE_MAX_AGE": "0.1"}
    with (
        tempfile.TemporaryDirectory(prefix="perennial-hostile-") as directory,
        ServerProcess(Path(directory) / "data", settings) as server,
    ):
        with Wire(server.port) as wire:
            assert wire.request("PUT", "/v1/stream/kept", TEXT, b"kept as it is").status == 201
            assert (
                wire.request("PUT", "/v1/stream/json", {"Content-Type": "application/json"}, b"[1]").status
                == 201
            )
        statuses: Counter[str] = Counter()
        memory = []
        for part in range(PARTS):
            statuses += run(server, options.requests // PARTS, options.seed + 1000 * part)
            memory.append(own_mib(server))
        with Wire(server.port) as wire:
            assert wire.request("GET", "/v1/stream/kept").body == b"kept as it is"
            assert wire.request("GET", "/v1/stream/json").body == b"[1]"
        failures = {status: count for status, count in statuses.items() if status.startswith("5")}
        print(f"{options.requests} requests, answers by status: {dict(sorted(statuses.items()))}")
        print(f"memory beside the store's tables and cache, in MiB, as it went: {memory}")
        problems = [
            f"status {status}, {count} times"
            for status, count in failures.items()
            if status not in ("501", "505")
        ]
        problems += [line for line in server.log if "Traceback" in line or " ERROR " in line][:5]
        # The first parts load what is loaded late; from then on it stays where it is.
        if memory[-1] > memory[PARTS // 2] + 8:
            problems.append("memory grew")
        print("\n".join(problems) or "no 5xx of ours, no traceback, no growth")
        sys.exit(bool(problems))


def own_mib(server: ServerProcess) -> int:
    with Wire(server.port) as wire:
        page = wire.request("GET", "/metrics").body.decode()
    kept = sum(
        float(line.rpartition(" ")[2])
        for line in page.splitlines()
        if line.startswith(('perennial_store_bytes{part="memory"}', 'perennial_store_bytes{part="cache"}'))
    )
    return resident_mib(server.pid) - int(kept) // (1 << 20)


def run(server: ServerProcess, requests: int, seed: int) -> Counter[str]:
    statuses: Counter[str] = Counter()
    lock = threading.Lock()
    began = time.monotonic()
    threads = [
        threading.Thread(target=attack, args=(server.port, requests // THREADS, seed + n, statuses, lock))
        for n in range(THREADS)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(f"{requests} requests in {time.monotonic() - began:.0f} s", file=sys.stderr)
    return statuses


if __name__ == "__main__":
    main()

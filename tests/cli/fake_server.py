"""A web server that says 200 to everything, and knows nothing of streams."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PAGE = b"<html>It works!</html>"


class _Friendly(BaseHTTPRequestHandler):
    def _answer(self) -> None:
        self.rfile.read(int(self.headers.get("content-length") or 0))
        self.send_response(200)
        self.send_header("content-length", str(len(PAGE)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(PAGE)

    do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = _answer  # noqa: N815 (names the base class looks for)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def web_server() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Friendly) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()

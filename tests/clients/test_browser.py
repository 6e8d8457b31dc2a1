"""A real browser on a page of another origin: CORS, EventSource, and resuming by offset."""

import json
import os
import shutil
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from queue import SimpleQueue
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from tests.harness.server import ServerProcess

HERE = Path(__file__).parent
PAGES = {"page": HERE / "page.html", "waiting": HERE / "waiting.html"}
BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
PATIENCE_SECONDS = 60.0
# Connections end often, so that the page must resume.
SETTINGS = {"PERENNIAL_SSE_MAX_AGE": "0.3"}


@pytest.fixture(scope="module")
def browser() -> str:
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        pytest.skip("no browser; on Debian: apt-get install chromium-headless-shell")
    return found


class Site:
    """Serves the pages at an origin of its own, and takes what they report."""

    def __init__(self) -> None:
        self.reports: SimpleQueue[dict[str, Any]] = SimpleQueue()
        reports = self.reports

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                page = PAGES.get(self.path.partition("?")[0].removeprefix("/"))
                self._answer(200, page.read_bytes()) if page else self._answer(404, b"")

            def do_POST(self) -> None:
                reports.put(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                self._answer(204, b"")

            def _answer(self, status: int, body: bytes) -> None:
                self.send_response(status)
                self.send_header("Content-Type", "text/html")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def site() -> Iterator[Site]:
    running = Site()
    yield running
    running.close()


@contextmanager
def opened(browser: str, url: str, profile: Path) -> Iterator[None]:
    command = [browser, "--headless", "--disable-gpu", "--remote-debugging-port=0"]
    command += ["--no-first-run", f"--user-data-dir={profile}"]
    if os.geteuid() == 0:
        command.append("--no-sandbox")  # which root cannot have
    process = subprocess.Popen(
        [*command, url],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # the command may be a script, which would not take the browser with it
    )
    try:
        yield
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(PATIENCE_SECONDS)


@pytest.fixture
def report(browser: str, site: Site, tmp_path: Path) -> Iterator[dict[str, Any]]:
    """What the page found."""
    with ServerProcess(tmp_path / "data", SETTINGS) as server:
        stream = f"{server.url}/v1/stream/from/a/browser"
        with opened(browser, f"{site.url}/page?stream={quote(stream, safe='')}", tmp_path / "profile"):
            found = site.reports.get(timeout=PATIENCE_SECONDS)
        yield found | {"stream": stream}


def test_a_page_of_another_origin_writes_tails_and_resumes(report: dict[str, Any]) -> None:
    assert "failed" not in report, report
    assert report["created"] == [201, report["stream"], "0000000000000000", "application/json"]
    assert report["produced"] == [200, "0", "0", "0000000000000001"]
    assert report["repeated"] == [204, "0", "0"]
    assert report["gap"] == [409, "1", "5"]
    # Exactly once and in order, over several connections.
    assert report["messages"] == list(range(report["count"]))
    assert report["sessions"] >= 3
    assert report["read"] == [200, "true", "true", report["count"], True]
    assert report["unchanged"] == 304
    assert report["polled"] == [204, "true", True]
    assert report["late"] == [409, "true"]
    assert report["deleted"] == 204
    assert report["missing"] == [404, "STREAM_NOT_FOUND"]


def test_an_event_source_that_finds_no_room_comes_back_by_itself(
    browser: str, site: Site, tmp_path: Path
) -> None:
    with ServerProcess(tmp_path / "data", {"PERENNIAL_MAX_LIVE_READERS": "1"}) as server:
        stream = f"{server.url}/v1/stream/crowded"
        httpx.put(stream, headers={"Content-Type": "application/json"}, content=b"[1,2]").raise_for_status()
        with httpx.stream("GET", f"{stream}?offset=now&live=sse") as other:
            held = other.iter_lines()
            assert next(held) == "event: control"
            page = opened(
                browser, f"{site.url}/waiting?stream={quote(stream, safe='')}", tmp_path / "profile"
            )
            with page:
                assert site.reports.get(timeout=PATIENCE_SECONDS) == {"gaveUp": False}
                other.close()
                while "messages" not in (found := site.reports.get(timeout=PATIENCE_SECONDS)):
                    assert found == {"gaveUp": False}
        assert found == {"messages": [1, 2]}

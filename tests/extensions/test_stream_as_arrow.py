"""One stream as a table: `Accept: application/vnd.apache.arrow.stream` on its ordinary URL."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest

from tests.harness.server import ServerProcess

ARROW = {"accept": "application/vnd.apache.arrow.stream"}
JSON = {"content-type": "application/json"}
TEXT = {"content-type": "text/plain"}


@pytest.fixture
def http(shared_server: ServerProcess) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=shared_server.url) as client:
        yield client


def rows(response: httpx.Response) -> list[dict[str, Any]]:
    assert response.status_code == 200, response.text
    assert response.headers["content-type"] == ARROW["accept"]
    found: list[dict[str, Any]] = pa.ipc.open_stream(response.content).read_all().to_pylist()
    return found


def test_each_json_message_is_a_row_and_the_last_one_tells_that_it_closed_the_stream(
    http: httpx.Client,
) -> None:
    url = "/v1/stream/arrow-json"
    http.put(url, headers=JSON, content=b"[1,22,333]")
    http.post(url, headers=JSON, content=b"4")
    http.post(url, headers=JSON | {"stream-closed": "true"}, content=b'[55,"x"]')
    found = rows(http.get(url, headers=ARROW))
    assert [row["payload"] for row in found] == [b"1", b"22", b"333", b"4", b"55", b'"x"']
    assert [(row["offset"], row["next_offset"]) for row in found] == [
        (0, 1),
        (1, 3),
        (3, 6),
        (6, 7),
        (7, 9),
        (9, 12),
    ]
    assert [row["closed"] for row in found] == [False] * 5 + [True]
    positions = [row["position"] for row in found]
    assert positions == sorted(set(positions))


def test_headers_are_those_of_an_ordinary_read(http: httpx.Client) -> None:
    url = "/v1/stream/arrow-headers"
    http.put(url, headers=TEXT, content=b"hello")
    plain, table = http.get(url), http.get(url, headers=ARROW)
    for name in ("stream-next-offset", "stream-up-to-date"):
        assert table.headers[name] == plain.headers[name]
    assert table.headers["vary"] == "accept"


def test_without_the_header_nothing_changes(http: httpx.Client) -> None:
    url = "/v1/stream/arrow-plain"
    http.put(url, headers=TEXT, content=b"hello")
    assert http.get(url, headers={"accept": "*/*"}).content == b"hello"


def test_reading_begins_at_a_message_boundary_or_not_at_all(http: httpx.Client) -> None:
    url = "/v1/stream/arrow-boundary"
    http.put(url, headers=TEXT, content=b"hello")
    http.post(url, headers=TEXT, content=b"world")
    assert [row["payload"] for row in rows(http.get(f"{url}?offset={5:016d}", headers=ARROW))] == [b"world"]
    assert http.get(f"{url}?offset={3:016d}", headers=ARROW).status_code == 400


def test_a_message_that_a_fork_cuts_is_a_row_up_to_the_cut(http: httpx.Client) -> None:
    source, fork = "/v1/stream/arrow-source", "/v1/stream/arrow-fork"
    http.put(source, headers=TEXT, content=b"hello")
    http.post(source, headers=TEXT, content=b"world")
    cut = {"stream-forked-from": source, "stream-fork-offset": f"{5:016d}", "stream-fork-sub-offset": "2"}
    assert http.put(fork, headers=cut, content=b"own").status_code == 201
    assert [row["payload"] for row in rows(http.get(fork, headers=ARROW))] == [b"hello", b"wo", b"own"]


def test_pages_follow_each_other_without_a_gap(tmp_path: Path) -> None:
    small_pages = {"PERENNIAL_MAX_CHUNK": "1000"}
    with ServerProcess(tmp_path, small_pages) as server, httpx.Client(base_url=server.url) as http:
        url = "/v1/stream/arrow-pages"
        http.put(url, headers=TEXT)
        sent = [b"%03d" % number * 50 for number in range(40)] + [b"x" * 5000]
        for message in sent:
            http.post(url, headers=TEXT, content=message)
        found: list[bytes] = []
        offset = "-1"
        while True:
            response = http.get(f"{url}?offset={offset}", headers=ARROW)
            found += [row["payload"] for row in rows(response)]
            offset = response.headers["stream-next-offset"]
            if "stream-up-to-date" in response.headers:
                break
        assert found == sent

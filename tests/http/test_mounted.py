"""Below another application, what the server says about addresses leads back to it."""

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from tests.harness.server import AsgiServerProcess
from tests.upstream import Reply, running_upstream

PLACE = "/a%20house/streams"
TEXT = {"Content-Type": "text/plain"}


class MountedServer(AsgiServerProcess):
    def command(self) -> list[str]:
        ours = "tests.harness.mounted_app:create_app"
        return [ours if word == "perennial.asgi:create_app" else word for word in super().command()]


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    data: Path = tmp_path_factory.mktemp("mounted") / "data"
    settings = {"PERENNIAL_PROXY_ALLOW": "http://127.0.0.1:*/**", "PERENNIAL_PROXY_ALLOW_PRIVATE": "true"}
    with MountedServer(data, settings) as server, httpx.Client(base_url=server.url) as running:
        assert running.get("/v1/stream/s").text == "nobody lives here"
        yield running


def test_a_created_stream_is_where_its_location_says(client: httpx.Client) -> None:
    created = client.put(f"{PLACE}/v1/stream/s%C3%A9", headers=TEXT, content=b"found")
    assert created.status_code == 201
    assert urlsplit(created.headers["location"]).path == f"{PLACE}/v1/stream/s%C3%A9"
    assert client.get(created.headers["location"]).text == "found"


def test_buckets_and_snapshots_are_where_they_say(client: httpx.Client) -> None:
    created = client.put(f"{PLACE}/ds/rooms")
    assert created.headers["location"] == f"{PLACE}/ds/rooms"
    assert client.get(created.headers["location"]).status_code == 200
    client.put(f"{PLACE}/ds/rooms/s", headers=TEXT, content=b"12345").raise_for_status()
    client.put(f"{PLACE}/ds/rooms/s/snapshot/{5:016}", headers=TEXT, content=b"so far").raise_for_status()
    latest = client.get(f"{PLACE}/ds/rooms/s/snapshot", follow_redirects=True)
    assert (latest.status_code, latest.text) == (200, "so far")


def test_a_proxied_response_is_where_its_location_says(client: httpx.Client) -> None:
    with running_upstream() as upstream:
        asked = {"Upstream-URL": upstream.on("/x", Reply(body=[b"answer"])), "Upstream-Method": "GET"}
        created = client.post(f"{PLACE}/v1/proxy", headers=asked)
        assert created.status_code == 201
        assert urlsplit(created.headers["location"]).path.startswith(f"{PLACE}/v1/proxy/")
        assert client.get(f"{created.headers['location']}&offset=-1").status_code == 200


@pytest.mark.parametrize("place", ["", PLACE])
def test_a_fork_may_name_its_source_by_either_path(client: httpx.Client, place: str) -> None:
    client.put(f"{PLACE}/v1/stream/source", headers=TEXT, content=b"shared")
    fork = f"{PLACE}/v1/stream/fork-of-{len(place)}"
    forked = client.put(fork, headers={**TEXT, "Stream-Forked-From": f"{place}/v1/stream/source"})
    assert forked.status_code == 201, forked.text
    assert client.get(fork).text == "shared"

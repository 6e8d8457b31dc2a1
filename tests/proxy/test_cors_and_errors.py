"""CORS and the form of errors (sections 11, 12)."""

import pytest

from perennial.http.proxy import STATUS
from perennial.proxy import errors
from tests.proxy.harness import Rig, error_code


@pytest.mark.parametrize("path", ["", "/some-stream"])
def test_preflight_is_answered(rig: Rig, path: str) -> None:
    """11.1: servers MUST respond to OPTIONS with appropriate CORS headers and 204 No Content."""
    answer = rig.http.options(rig.url + path, headers={"Origin": "https://app.example"})
    assert answer.status_code == 204
    assert answer.headers["access-control-allow-origin"] == "*"
    methods = {method.strip() for method in answer.headers["access-control-allow-methods"].split(",")}
    assert methods >= {"POST", "GET", "HEAD", "PATCH", "DELETE"}


def test_proxy_request_headers_are_allowed(rig: Rig) -> None:
    """11.2: servers MUST allow the proxy-specific request headers via Access-Control-Allow-Headers."""
    allowed = rig.http.options(rig.url).headers["access-control-allow-headers"].lower()
    for name in (
        "upstream-url",
        "upstream-authorization",
        "upstream-method",
        "use-stream-url",
        "session-id",
        "stream-signed-url-ttl",
        "authorization",
        "content-type",
    ):
        assert name in allowed


def test_headers_meant_for_an_upstream_are_allowed_too(rig: Rig) -> None:
    """11.2, 6.1: all other headers are forwarded, so a browser must be allowed to send them."""
    asked = {"Access-Control-Request-Headers": "x-api-key,anthropic-version, bad name"}
    allowed = rig.http.options(rig.url, headers=asked).headers["access-control-allow-headers"]
    assert "x-api-key" in allowed
    assert "anthropic-version" in allowed
    assert "bad name" not in allowed


def test_response_headers_are_exposed(rig: Rig) -> None:
    """11.2: servers MUST expose Location, Upstream-*, Stream-Response-Id and every Stream-* header."""
    created = rig.create(rig.script([b"x"]))
    read = rig.read(created.headers["location"])
    failed = rig.post(rig.script([], status=500))
    for answer in (created, read, failed):
        exposed = answer.headers["access-control-expose-headers"].lower()
        for name in ("location", "upstream-content-type", "upstream-status", "stream-response-id"):
            assert name in exposed
        for name in answer.headers:
            if name.startswith("stream-"):
                assert name in exposed


def test_unknown_routes_and_methods(rig: Rig) -> None:
    """12, 12.6: 404 NOT_FOUND, in the JSON form that servers SHOULD return errors in."""
    answer = rig.http.get(f"{rig.url}/a/b")
    assert (answer.status_code, error_code(answer)) == (404, "NOT_FOUND")
    answer = rig.http.get(rig.url)
    assert (answer.status_code, answer.headers["allow"]) == (405, "POST, OPTIONS")
    answer = rig.http.put(f"{rig.url}/x")
    assert answer.status_code == 405


def test_every_failure_has_its_status() -> None:
    """12: every way to fail is in the one table."""

    def family(kind: type[errors.ProxyError]) -> set[type[errors.ProxyError]]:
        return {kind}.union(*(family(child) for child in kind.__subclasses__()))

    assert family(errors.ProxyError) - {errors.ProxyError} == set(STATUS)

"""Proxy headers: who is believed, and how far."""

import pytest

from perennial.http.exchange import Request
from perennial.http.forwarded import TrustedProxies
from perennial.settings import SettingsError


def applied(trusted: tuple[str, ...], client: str, **headers: str) -> tuple[str, str]:
    sent = {name.replace("_", "-").encode(): value for name, value in headers.items()}
    request = Request("GET", b"/", b"", sent, client=client)
    TrustedProxies(trusted).apply(request)
    return request.client, request.scheme


@pytest.mark.parametrize("client", ["192.0.2.9", "", "nonsense"])
def test_a_stranger_is_not_believed(client: str) -> None:
    forwarded = {"x_forwarded_for": "203.0.113.7", "x_forwarded_proto": "https"}
    assert applied(("10.0.0.0/8",), client, **forwarded) == (client, "http")


def test_a_client_cannot_put_words_in_front() -> None:
    """What the client itself sent stands first; what our proxy saw stands last."""
    assert applied(("10.0.0.1",), "10.0.0.1", x_forwarded_for="1.1.1.1, 203.0.113.7") == (
        "203.0.113.7",
        "http",
    )
    spoofed = "for=1.1.1.1;proto=https, for=203.0.113.7;proto=http"
    assert applied(("10.0.0.1",), "10.0.0.1", forwarded=spoofed) == ("203.0.113.7", "http")


def test_headers_that_contradict_each_other_are_not_believed() -> None:
    """A proxy writes one kind and passes the other on, but a client must not choose its address."""
    trusted, proxy = ("10.0.0.0/8",), "10.0.0.1"
    seen = {"x_forwarded_for": "203.0.113.7", "x_forwarded_proto": "https"}
    assert applied(trusted, proxy, forwarded="for=1.1.1.1", **seen) == (proxy, "http")
    assert applied(trusted, proxy, forwarded="for=1.1.1.1", x_forwarded_proto="https") == (proxy, "http")
    assert applied(trusted, proxy, forwarded="for=203.0.113.7", x_forwarded_for="1.1.1.1") == (proxy, "http")
    assert applied(trusted, proxy, forwarded="for=203.0.113.7", **seen) == ("203.0.113.7", "https")

    behind_two = {"x_forwarded_for": "203.0.113.7, 10.0.0.2"}
    assert applied(trusted, proxy, forwarded="for=1.1.1.1, for=10.0.0.2", **behind_two) == (proxy, "http")


def test_mapped_addresses_and_unix_peers() -> None:
    assert applied(("10.0.0.0/8",), "::ffff:10.1.2.3", x_forwarded_for="203.0.113.7")[0] == "203.0.113.7"
    assert applied(("unix",), "", x_forwarded_for="203.0.113.7")[0] == "203.0.113.7"


def test_other_schemes_than_http_are_ignored() -> None:
    assert applied(("unix",), "", x_forwarded_proto="javascript")[1] == "http"
    assert applied(("unix",), "", x_forwarded_proto="HTTPS")[1] == "https"


def test_a_network_that_is_none_is_refused() -> None:
    with pytest.raises(SettingsError, match="trusted_proxies"):
        TrustedProxies(("10.0.0.0/99",))

"""The allowlist: one reading per URL, and no trick around it (section 7)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perennial.proxy.allowlist import Allowlist, parse_upstream_url
from perennial.proxy.errors import UpstreamNotAllowed
from perennial.settings import SettingsError

MATCHES = [
    ("https://api.example.com/v1/**", "https://api.example.com/v1/chat/completions"),
    ("https://api.example.com/v1/**", "https://api.example.com/v1/"),
    ("https://api.example.com/v1/**", "HTTPS://API.Example.COM:443/v1/x"),
    ("https://api.example.com/v1/**", "https://api.example.com./v1/x"),
    ("https://api.example.com/v1/**", "https://api.example.com/%76%31/x"),
    ("https://api.example.com/v1/**", "https://api.example.com/v0/../v1/x"),
    ("https://api.example.com/v1/**", "https://api.example.com/v1/x?key=1&u=../../etc#part"),
    ("https://api.example.com/v1/*/tokens", "https://api.example.com/v1/me/tokens"),
    ("https://api.example.com/**/tokens", "https://api.example.com/tokens"),
    ("https://api.example.com/**/tokens", "https://api.example.com/a/b/tokens"),
    ("https://api.example.com", "https://api.example.com/whatever/there/is"),
    ("https://api.example.com", "https://api.example.com"),
    ("https://api.example.com/", "https://api.example.com"),
    ("https://*.example.com/**", "https://eu.example.com/x"),
    ("https://**.example.com/**", "https://a.b.example.com/x"),
    ("http://127.0.0.1:*/allowed/**", "http://127.0.0.1:9999/allowed/x"),
    ("http://[::1]:8080/**", "http://[0:0:0:0:0:0:0:1]:8080/x"),
    ("*://api.example.com/**", "http://api.example.com/x"),
    ("https://api.example.com/a%20b/**", "https://api.example.com/a%20b/c"),
    ("https://api.example.com/A/*", "https://api.example.com/A/b"),
]
TRICKS = [
    # scheme, host and port
    ("https://api.example.com/v1/**", "http://api.example.com/v1/x"),
    ("https://api.example.com/v1/**", "https://api.example.com:8443/v1/x"),
    ("https://api.example.com/v1/**", "https://api.example.com:80/v1/x"),
    ("https://api.example.com/v1/**", "https://api.example.com.evil.example/v1/x"),
    ("https://api.example.com/v1/**", "https://evil.example/api.example.com/v1/x"),
    ("https://api.example.com/v1/**", "https://apiXexample.com/v1/x"),
    ("https://*.example.com/**", "https://a.b.example.com/x"),
    ("https://*.example.com/**", "https://example.com/x"),
    ("https://*.example.com/**", "https://.example.com/x"),
    ("https://**.example.com/**", "https://evilexample.com/x"),
    ("https://*.example.com/**", "https://evil.example/.example.com/x"),
    ("https://*.example.com/**", "https://evil.example?.example.com/x"),
    ("https://*.example.com/**", "https://evil.example#.example.com/x"),
    # user names
    ("https://api.example.com/**", "https://api.example.com@evil.example/x"),
    ("https://api.example.com/**", "https://evil@api.example.com/x"),
    ("https://api.example.com/**", "https://evil.example\\@api.example.com/x"),
    ("https://api.example.com/**", "https://api.example.com:443@evil.example/x"),
    # path
    ("https://api.example.com/v1/**", "https://api.example.com/v1"),
    ("https://api.example.com/v1/**", "https://api.example.com/v1evil/x"),
    ("https://api.example.com/v1/**", "https://api.example.com/V1/x"),
    ("https://api.example.com/v1/**", "https://api.example.com/v1/../admin"),
    ("https://api.example.com/v1/**", "https://api.example.com/v1/./../admin"),
    ("https://api.example.com/v1/**", "https://api.example.com/v1/%2e%2e/admin"),
    ("https://api.example.com/v1/**", "https://api.example.com/v1/%2E./admin"),
    ("https://api.example.com/v1/**", "https://api.example.com/v1/..%2fadmin"),
    ("https://api.example.com/v1/**", "https://api.example.com/v1/..%5cadmin"),
    ("https://api.example.com/v1/**", "https://api.example.com/v1/..\\admin"),
    ("https://api.example.com/v1/**", "https://api.example.com/v1/%252e%252e/admin"),
    ("https://api.example.com/v1/**", "https://api.example.com/v1/%252e%252e%252fadmin"),
    ("https://api.example.com/v1/**", "https://api.example.com/v1/%25252e%25252e/admin"),
    ("https://api.example.com/v1/**", "https://api.example.com/v1/x%00"),
    ("https://api.example.com/v1/**", "https://api.example.com/v1/%zz"),
    ("https://api.example.com/files/*", "https://api.example.com/files/a%2Fb"),
    ("https://api.example.com/files/*", "https://api.example.com/files/a/b"),
    ("https://api.example.com/", "https://api.example.com/x"),
    # IP notations
    ("http://127.0.0.1/**", "http://2130706433/x"),
    ("http://127.0.0.1/**", "http://0x7f000001/x"),
    ("http://127.0.0.1/**", "http://0x7f.0.0.1/x"),
    ("http://127.0.0.1/**", "http://0177.0.0.1/x"),
    ("http://127.0.0.1/**", "http://127.1/x"),
    ("http://127.0.0.1/**", "http://127.0.0.1.evil.example/x"),
    ("http://127.0.0.1/**", "http://[::ffff:127.0.0.1]/x"),
    ("http://**/**", "http://0x7f.1/x"),
    ("http://**/**", "http://127.0.0.01/x"),
    ("http://**/**", "http://[::1%25lo]/x"),
    ("http://**/**", "http://①②⑦.0.0.1/x"),
    ("http://**/**", "http://127。0。0。1/x"),
    # not plainly a URL
    ("http://**/**", "//example.com/x"),
    ("http://**/**", "http:/example.com/x"),
    ("http://**/**", "http:example.com"),
    ("http://**/**", "http://exa mple.com/x"),
    ("http://**/**", " http://example.com/x"),
    ("http://**/**", "http://example.com/\nx"),
    ("http://**/**", "http://example.com\t/x"),
    ("http://**/**", "http://example.com:99999/x"),
    ("http://**/**", "http://example.com:0/x"),
    ("http://**/**", "http://example.com:*/x"),
    ("http://**/**", "http://exam%70le.com/x"),
    ("http://**/**", "http://ex*mple.com/x"),
    ("http://**/**", "http://-example.com/x"),
    ("http://**/**", "file:///etc/passwd"),
    ("http://**/**", "gopher://example.com/x"),
    ("http://**/**", ""),
]


@pytest.mark.parametrize(("pattern", "url"), MATCHES)
def test_allowed(pattern: str, url: str) -> None:
    Allowlist((pattern,)).admit(url)


@pytest.mark.parametrize(("pattern", "url"), TRICKS)
def test_no_trick_gets_past(pattern: str, url: str) -> None:
    """7: upstream URLs MUST be validated against the allowlist."""
    with pytest.raises(UpstreamNotAllowed):
        Allowlist((pattern,)).admit(url)


def test_an_empty_allowlist_allows_nothing() -> None:
    """7: if the allowlist is empty, all upstream URLs MUST be rejected."""
    with pytest.raises(UpstreamNotAllowed):
        Allowlist(()).admit("https://api.example.com/")


def test_what_is_judged_is_what_is_asked() -> None:
    admitted = Allowlist(("https://api.example.com/v1/**",)).admit(
        "HTTPS://API.example.com.:443/v0/../%761/a%2db?q=%2F#f"
    )
    assert str(admitted) == "https://api.example.com/v1/a-b?q=%2F"
    assert "q=" not in repr(admitted)


@given(st.from_regex(r"https?://[a-z0-9.%\[\]:@-]{1,20}(/[a-zA-Z0-9.%/~_-]{0,20})?", fullmatch=True))
def test_a_normal_form_is_its_own_normal_form(url: str) -> None:
    try:
        once = parse_upstream_url(url)
    except UpstreamNotAllowed:
        return
    assert parse_upstream_url(str(once)) == once


@pytest.mark.parametrize(
    "pattern",
    [
        "api.example.com",
        "https//x",
        "ftp://x/**",
        "https://x/?q=1",
        "https://x/#f",
        "https://u@x/",
        "https://x:y/",
        "**",
    ],
)
def test_bad_patterns_are_named(pattern: str) -> None:
    with pytest.raises(SettingsError, match="is not a URL pattern"):
        Allowlist((pattern,))

"""Pre-signed URLs (section 8)."""

import hmac
from pathlib import Path

import pytest

from perennial.proxy.signing import Signed, Signer, Verdict, load_keys, parse_signed_url
from perennial.store.archives import SECRET_FILE

NOW = 1_900_000_000.0
KEY = b"k" * 32


def test_a_signature_is_hmac_sha256_over_stream_and_expiry() -> None:
    """8.2, 13.2: MUST use HMAC-SHA256 (or stronger); stream id and expiry are both bound."""
    signer = Signer((KEY,))
    signed = signer.sign("stream", 60, NOW)
    assert signed.expires == str(int(NOW) + 60)
    assert len(signed.signature) == 43  # 32 bytes in base64url
    assert signer.judge(signed, NOW) is Verdict.VALID
    for forged in (
        Signed("other", signed.expires, signed.signature),
        Signed("stream", str(int(signed.expires) + 1), signed.signature),
        Signed("stream", signed.expires, signed.signature[::-1]),
        Signed("stream", signed.expires, ""),
        Signed("stream", signed.expires, "ü"),
    ):
        assert signer.judge(forged, NOW) is Verdict.INVALID
    assert Signer((b"x" * 32,)).judge(signed, NOW) is Verdict.INVALID


def test_comparison_takes_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """8.2, 13.2: MUST use timing-safe comparison when verifying signatures."""
    compared = []
    real = hmac.compare_digest

    def counting(a: bytes, b: bytes) -> bool:
        compared.append(a)
        return real(a, b)

    monkeypatch.setattr(hmac, "compare_digest", counting)
    signer = Signer((KEY, b"second", b"third"))
    assert signer.judge(signer.sign("s", 60, NOW), NOW) is Verdict.VALID
    assert len(compared) == 3


@pytest.mark.parametrize("ttl", [1, 2, 60])
@pytest.mark.parametrize("fraction", [0.0, 0.3, 0.5, 0.99])
def test_expiry_is_kept_to_half_a_second(ttl: int, fraction: float) -> None:
    """8.4: the TTL clock starts at response time; 13.2: reasonable expiration times."""
    signer, now = Signer((KEY,)), NOW + fraction
    signed = signer.sign("s", ttl, now)
    assert signer.judge(signed, now + ttl - 0.51) is Verdict.VALID
    assert signer.judge(signed, now + ttl + 0.51) is Verdict.EXPIRED


def test_the_first_secret_signs_and_all_verify() -> None:
    old, new = b"o" * 32, b"n" * 32
    signed = Signer((old,)).sign("s", 60, NOW)
    rotating = Signer((new, old))
    assert rotating.judge(signed, NOW) is Verdict.VALID
    assert rotating.sign("s", 60, NOW) == Signer((new,)).sign("s", 60, NOW)


def test_signatures_do_not_show_in_text() -> None:
    signed = Signer((KEY,)).sign("stream", 60, NOW)
    assert signed.signature not in repr(signed)


@pytest.mark.parametrize(
    "url",
    [
        "https://host/v1/proxy/id?expires=5&signature=x",
        "http://host:1/mounted/v1/proxy/id?signature=x&expires=5&offset=-1",
        "/v1/proxy/id?expires=5&signature=x",
    ],
)
def test_urls_are_parsed_wherever_they_are_served(url: str) -> None:
    assert parse_signed_url(url) == Signed("id", "5", "x")


@pytest.mark.parametrize(
    "url",
    [
        "",
        "id",
        "id?expires=5&signature=x",
        "/id?expires=5&signature=x",
        "https://host/v1/proxy/?expires=5&signature=x",
        "https://host/v1/proxy/id?expires=5",
        "https://host/v1/proxy/id?expires=&signature=x",
        "https://[host/v1/proxy/id?expires=5&signature=x",
        "mailto:/v1/proxy/id?expires=5&signature=x",
    ],
)
def test_what_is_no_signed_url_is_none(url: str) -> None:
    assert parse_signed_url(url) is None


def test_without_a_secret_one_is_made_and_kept(tmp_path: Path) -> None:
    """13.2: sufficient entropy in the signing secret."""
    first, second = load_keys((), tmp_path), load_keys((), tmp_path)
    assert first == second
    assert len(first[0]) == 32
    assert (tmp_path / SECRET_FILE).stat().st_mode & 0o777 == 0o600
    assert load_keys(("configured-for-good",), tmp_path) == (b"configured-for-good",)


def test_short_secrets_are_warned_about(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    load_keys(("short",), tmp_path)
    assert "under 16 characters" in caplog.text
    assert "short" not in caplog.text

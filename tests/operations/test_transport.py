"""TLS, Unix sockets, compression and proxy headers, from the outside."""

import datetime
import gzip
import ipaddress
import os
import socket
import ssl
import zlib
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from backports import zstd
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from tests.operations.servers import TEXT, OperatedServer

TEXT_BODY = b"".join(b"line %d of a text that repeats itself\n" % n for n in range(20_000))


def make_certificate(directory: Path, name: str) -> None:
    """A certificate for 127.0.0.1 that vouches for itself, in `cert.pem` and `key.pem`."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=1))
        .not_valid_after(now + datetime.timedelta(hours=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False
        )
        .sign(key, hashes.SHA256())
    )
    (directory / "cert.pem").write_bytes(certificate.public_bytes(Encoding.PEM))
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (directory / "key.pem").write_bytes(private)


def presented_name(port: int) -> str:
    """The common name in the certificate that a new connection is shown."""
    text = ssl.get_server_certificate(("127.0.0.1", port))
    attribute = x509.load_pem_x509_certificate(text.encode()).subject.get_attributes_for_oid(
        NameOID.COMMON_NAME
    )
    return str(attribute[0].value)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("transport")


@pytest.fixture(scope="module")
def secure(directory: Path) -> Iterator[OperatedServer]:
    make_certificate(directory, "first")
    config = f'tls_cert = "{directory}/cert.pem"\ntls_key = "{directory}/key.pem"\n'
    with OperatedServer(directory, config) as running:
        yield running


@pytest.fixture
def https(secure: OperatedServer, directory: Path) -> Iterator[httpx.Client]:
    trust = ssl.create_default_context(cafile=str(directory / "cert.pem"))
    with secure.client(verify=trust) as client:
        yield client


def test_streams_over_tls(https: httpx.Client, secure: OperatedServer) -> None:
    created = https.put("/v1/stream/s", headers=TEXT)
    assert created.headers["location"] == f"{secure.url}/v1/stream/s"
    assert secure.url.startswith("https://")
    assert https.post("/v1/stream/s", headers=TEXT, content=TEXT_BODY).status_code == 204
    assert https.get("/v1/stream/s", headers={"Accept-Encoding": "identity"}).content == TEXT_BODY
    with https.stream("GET", "/v1/stream/s?offset=now&live=sse") as follower:
        lines = follower.iter_lines()
        assert next(lines).startswith("event: ")
        https.post("/v1/stream/s", headers=TEXT, content=b"live over TLS")
        assert "data:live over TLS" in lines


def test_a_refused_body_over_tls_is_answered(https: httpx.Client) -> None:
    refused = https.post("/v1/stream/s", headers=TEXT, content=bytes(65 << 20))
    assert refused.status_code == 413


def test_speaking_plainly_to_tls_harms_nobody(secure: OperatedServer, https: httpx.Client) -> None:
    with socket.create_connection(("127.0.0.1", secure.port), 5) as plain:
        plain.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert b"HTTP/1.1 200" not in plain.makefile("rb").read()
    assert https.get("/healthz").status_code == 200
    assert "Traceback" not in secure.output


def test_tls_1_2_is_still_spoken(secure: OperatedServer) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with socket.create_connection(("127.0.0.1", secure.port), 5) as raw, context.wrap_socket(raw) as wrapped:
        assert wrapped.version() == "TLSv1.2"


def test_a_new_certificate_is_shown_after_a_hangup_and_old_connections_live_on(
    secure: OperatedServer, https: httpx.Client, directory: Path
) -> None:
    assert https.get("/healthz").status_code == 200
    assert presented_name(secure.port) == "first"
    good = (directory / "cert.pem").read_bytes()
    (directory / "cert.pem").write_text("broken")
    secure.hang_up("reload refused")
    assert presented_name(secure.port) == "first", "a broken pair does not replace a good one"
    (directory / "cert.pem").write_bytes(good)
    make_certificate(directory, "second")
    secure.hang_up("reloaded")
    assert presented_name(secure.port) == "second"
    assert https.get("/healthz").status_code == 200, "over the connection that was there before"


def test_a_wrong_certificate_stops_the_start(tmp_path: Path) -> None:
    config = f'tls_cert = "{tmp_path}/none.pem"\ntls_key = "{tmp_path}/none.pem"\n'
    with pytest.raises(RuntimeError, match="cannot use tls_cert"):
        OperatedServer(tmp_path, config).start()


def test_a_unix_socket_takes_the_place_of_the_port(directory: Path) -> None:
    path = f"/tmp/perennial-{os.getpid()}.sock"  # a socket's path may be no longer than a hundred bytes
    data = directory / "unix"
    data.mkdir()
    config = f'unix_socket = "{path}"\ntrusted_proxies = ["unix"]\n'
    with OperatedServer(data, config) as server:
        assert server.url == f"unix:{path}"
        transport = httpx.HTTPTransport(uds=path)
        with httpx.Client(transport=transport, base_url="http://streams.example") as client:
            forwarded = {**TEXT, "X-Forwarded-Proto": "https"}
            created = client.put("/v1/stream/s", headers=forwarded, content=b"over a socket")
            assert created.headers["location"] == "https://streams.example/v1/stream/s"
            assert client.get("/v1/stream/s").text == "over a socket"
        server.restart()
        with httpx.Client(transport=httpx.HTTPTransport(uds=path), base_url="http://x") as client:
            assert client.get("/v1/stream/s").text == "over a socket"
    assert not os.path.exists(path), "a server that has stopped leaves no door behind"


# Compression


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OperatedServer]:
    with OperatedServer(tmp_path_factory.mktemp("compression")) as running:
        with running.client() as client:
            for name, body in (("text", TEXT_BODY), ("short", b"too short"), ("noise", os.urandom(50_000))):
                client.put(f"/v1/stream/{name}", headers=TEXT, content=body).raise_for_status()
            image = {"Content-Type": "image/png"}
            client.put("/v1/stream/image", headers=image, content=TEXT_BODY).raise_for_status()
            json = {"Content-Type": "application/json"}
            messages = b"[" + b",".join(b'{"number":%d}' % n for n in range(1000)) + b"]"
            client.put("/v1/stream/json", headers=json, content=messages).raise_for_status()
        yield running


def raw_get(server: OperatedServer, path: str, **headers: str) -> tuple[httpx.Response, bytes]:
    """The answer, and its body as it was sent."""
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    with server.client() as client, client.stream("GET", path, headers=sent) as response:
        return response, b"".join(response.iter_raw())


@pytest.mark.parametrize("name", ["text", "json"])
def test_a_read_is_compressed_for_whoever_accepts_it(server: OperatedServer, name: str) -> None:
    path = f"/v1/stream/{name}"
    plain, body = raw_get(server, path, accept_encoding="identity")
    zipped, gzip_body = raw_get(server, path, accept_encoding="gzip, deflate")
    squeezed, zstd_body = raw_get(server, path, accept_encoding="gzip, deflate, br, zstd")
    assert "content-encoding" not in plain.headers
    assert zipped.headers["content-encoding"] == "gzip"
    assert squeezed.headers["content-encoding"] == "zstd"
    assert gzip.decompress(gzip_body) == zstd.decompress(zstd_body) == body
    assert len(zstd_body) < len(body) / 2
    for answer in (plain, zipped, squeezed):
        assert "accept-encoding" in answer.headers["vary"]
        assert answer.headers["stream-next-offset"] == plain.headers["stream-next-offset"]
    assert len({answer.headers["etag"] for answer in (plain, zipped, squeezed)}) == 3
    for answer in (plain, zipped, squeezed):
        again, nothing = raw_get(
            server, path, accept_encoding="gzip", if_none_match=str(answer.headers["etag"])
        )
        assert (again.status_code, nothing) == (304, b"")
        assert again.headers["etag"] == answer.headers["etag"]


@pytest.mark.parametrize(
    ("path", "accepted"),
    [
        ("/v1/stream/short", "gzip"),
        ("/v1/stream/noise", "zstd"),
        ("/v1/stream/image", "gzip"),
        ("/v1/stream/text", "br"),
        ("/v1/stream/text", "gzip;q=0, zstd;q=0"),
        ("/v1/stream/text?offset=-1&live=long-poll", "gzip"),
    ],
)
def test_what_is_not_worth_it_or_not_wanted_is_sent_as_it_is(
    server: OperatedServer, path: str, accepted: str
) -> None:
    answer, _ = raw_get(server, path, accept_encoding=accepted)
    assert answer.status_code == 200
    assert "content-encoding" not in answer.headers


def test_events_are_never_compressed(server: OperatedServer) -> None:
    with (
        server.client() as client,
        client.stream(
            "GET", "/v1/stream/short?offset=-1&live=sse", headers={"Accept-Encoding": "gzip, zstd"}
        ) as events,
    ):
        assert "content-encoding" not in events.headers
        assert next(events.iter_raw()).startswith(b"event: data")


def test_a_client_that_leaves_while_its_read_is_compressed_harms_nobody(server: OperatedServer) -> None:
    for _ in range(20):
        with socket.create_connection(("127.0.0.1", server.port), 5) as leaving:
            leaving.sendall(b"GET /v1/stream/text HTTP/1.1\r\nHost: x\r\nAccept-Encoding: gzip\r\n\r\n")
    with server.client() as client:
        assert client.get("/healthz").status_code == 200
    assert "Traceback" not in server.output


def test_compression_can_be_turned_off(tmp_path: Path) -> None:
    with OperatedServer(tmp_path, "compression = false") as server:
        with server.client() as client:
            client.put("/v1/stream/s", headers=TEXT, content=TEXT_BODY).raise_for_status()
        answer, body = raw_get(server, "/v1/stream/s", accept_encoding="gzip")
        assert "content-encoding" not in answer.headers
        assert zlib.crc32(body) == zlib.crc32(TEXT_BODY)

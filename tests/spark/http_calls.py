"""Plain HTTP to a bucket: what tests put in, and what they find, without any of the code under test."""

import hashlib
import json
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote


@dataclass(frozen=True)
class Calls:
    url: str
    bucket: str

    @property
    def options(self) -> dict[str, str]:
        return {"url": self.url, "bucket": self.bucket}

    def sibling(self, bucket: str) -> "Calls":
        other = Calls(self.url, bucket)
        other.create_bucket()
        return other

    def create_bucket(self) -> None:
        self.request("PUT", f"/ds/{self.bucket}")

    def create(self, stream: str, content_type: str = "application/octet-stream") -> None:
        self.request("PUT", self._path(stream), headers={"Content-Type": content_type})

    def fork(self, source: str, stream: str, offset: int, of: "Calls | None" = None) -> None:
        path = (of or self)._path(source)
        origin = {"Stream-Forked-From": path, "Stream-Fork-Offset": f"{offset:016d}"}
        self.request("PUT", self._path(stream), headers=origin)

    def append(self, stream: str, body: bytes, content_type: str = "application/octet-stream") -> None:
        self.request("POST", self._path(stream), body, {"Content-Type": content_type})

    def append_json(self, stream: str, *messages: Any) -> None:
        self.append(stream, json.dumps(messages).encode(), "application/json")

    def close(self, stream: str) -> None:
        self.request("POST", self._path(stream), headers={"Stream-Closed": "true"})

    def delete(self, stream: str) -> None:
        self.request("DELETE", self._path(stream))

    def head(self, stream: str) -> Mapping[str, str]:
        return self.request("HEAD", self._path(stream))[0]

    def read(self, stream: str) -> bytes:
        """All of a stream; pages of JSON are joined into one array."""
        offset, parts = "-1", []
        while True:
            headers, body = self.request("GET", f"{self._path(stream)}?offset={offset}")
            parts.append(body)
            offset = headers["stream-next-offset"]
            if "stream-up-to-date" in headers:
                break
        if headers["content-type"].startswith("application/json"):
            return b"[" + b",".join(part[1:-1] for part in parts if part != b"[]") + b"]"
        return b"".join(parts)

    def messages(self, stream: str) -> list[Any]:
        found: list[Any] = json.loads(self.read(stream))
        return found

    def streams(self) -> dict[str, dict[str, Any]]:
        found: dict[str, dict[str, Any]] = {}
        after = ""
        while True:
            _, body = self.request("GET", f"/ds/{self.bucket}/streams?limit=1000{after}")
            page = json.loads(body)
            found.update((stream["stream_id"], stream) for stream in page["streams"])
            if not page["has_more"]:
                return found
            after = f"&after={quote(page['next_cursor'], safe='')}"

    def digest(self) -> dict[str, str]:
        """What every stream holds, as a hash."""
        return {
            name: hashlib.sha256(self.read(name) + found["status"].encode()).hexdigest()
            for name, found in self.streams().items()
        }

    def head_position(self) -> int:
        headers, _ = self.request("HEAD", f"/v1/feed/{self.bucket}")
        return int(headers["feed-head-position"])

    def publish(self, stream: str, offset: int, snapshot: bytes, content_type: str) -> None:
        path = f"{self._path(stream)}/snapshot/{offset:016d}"
        self.request("PUT", path, snapshot, {"Content-Type": content_type})

    def snapshot(self, stream: str) -> bytes:
        return self.request("GET", f"{self._path(stream)}/snapshot")[1]

    def request(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> tuple[Mapping[str, str], bytes]:
        request = urllib.request.Request(self.url + path, body, dict(headers or {}), method=method)
        with urllib.request.urlopen(request, timeout=30) as answer:
            return {name.lower(): value for name, value in answer.headers.items()}, answer.read()

    def _path(self, stream: str) -> str:
        return f"/ds/{self.bucket}/{quote(stream, safe='')}"

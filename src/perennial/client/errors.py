"""Everything a client can meet.

PerennialClientError
├── Refused             the server said no: `status`, `code`, `reason`
│   ├── UpstreamFailed  the upstream did not answer 2xx: `upstream_status`, `body`
│   └── UrlExpired      the signed URL ran out: `renewable`, `stream_id`
├── ResponseFailed      the response ended in an Error frame: `code`, `reason`
├── ResponseAborted     the response was aborted by someone
├── StreamEnded         the stream was closed or deleted before the response was complete
└── Disconnected        the server could not be reached for too long
"""

import json
from collections.abc import Mapping


class PerennialClientError(Exception):
    """Base of the family. `next_offset` is where reading can go on, if it can."""

    def __init__(self, reason: str, next_offset: int | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.next_offset = next_offset


class Refused(PerennialClientError):
    def __init__(self, status: int, code: str, reason: str) -> None:
        super().__init__(f"{status} {code}: {reason}")
        self.status = status
        self.code = code
        self.reason = reason


class UpstreamFailed(Refused):
    def __init__(self, upstream_status: int, content_type: str, body: bytes) -> None:
        super().__init__(502, "UPSTREAM_ERROR", f"the upstream answered {upstream_status}")
        self.upstream_status = upstream_status
        self.content_type = content_type
        self.body = body


class UrlExpired(Refused):
    def __init__(self, reason: str, renewable: bool, stream_id: str) -> None:
        super().__init__(401, "SIGNATURE_EXPIRED", reason)
        self.renewable = renewable
        self.stream_id = stream_id


class ResponseFailed(PerennialClientError):
    def __init__(self, code: str, reason: str) -> None:
        super().__init__(f"{code}: {reason}")
        self.code = code
        self.reason = reason


class ResponseAborted(PerennialClientError):
    pass


class StreamEnded(PerennialClientError):
    pass


class Disconnected(PerennialClientError):
    pass


def refusal(status: int, headers: Mapping[str, str], body: bytes) -> Refused:
    """What an answer outside 2xx means."""
    upstream_status = headers.get("upstream-status")
    if upstream_status is not None:
        return UpstreamFailed(int(upstream_status), headers.get("content-type", ""), body)
    try:
        error = json.loads(body)["error"]
        code, reason = str(error["code"]), str(error["message"])
    except (ValueError, TypeError, KeyError):
        return Refused(status, "UNKNOWN", body[:200].decode("utf-8", "replace") or "no explanation was given")
    if code == "SIGNATURE_EXPIRED":
        return UrlExpired(reason, error.get("renewable") is True, str(error.get("streamId", "")))
    return Refused(status, code, reason)

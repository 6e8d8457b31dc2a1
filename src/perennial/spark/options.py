"""Options of the data source: from strings to frozen values, once, on the driver."""

import difflib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlsplit

from perennial.spark.errors import BadOption

KIB: Final = 1024
MIB: Final = 1024 * KIB
LARGEST_PAGE: Final = 64 * MIB  # the server sends no larger ones

# What Spark itself puts among the options.
SPARKS_OWN: Final = frozenset({"path", "checkpointlocation", "queryname", "outputmode"})

_BUCKET = re.compile(r"[a-z0-9_-]{4,64}")
_SIZE = re.compile(r"([0-9]+)\s*([kmg]i?b?|b)?", re.IGNORECASE)
_UNITS: Final = {"": 1, "b": 1, "k": KIB, "m": MIB, "g": 1024 * MIB}


@dataclass(frozen=True)
class Target:
    """Where a bucket is, and how to get in."""

    url: str
    bucket: str
    token: str | None = field(default=None, repr=False)
    # How long a lost connection or a full server is waited for before the task fails.
    retry_seconds: float = 60.0


@dataclass(frozen=True)
class ReadOptions:
    target: Target
    streams: tuple[str, ...] = ()
    prefix: str = ""
    columns: tuple[str, ...] = ()
    value: bool = False
    json_schema: str | None = None
    # None: the earliest there is; LATEST: the head when the query first starts. Positions are exclusive.
    starting_position: int | None = None
    starting_latest: bool = False
    ending_position: int | None = None
    max_rows_per_trigger: int | None = None
    max_bytes_per_trigger: int | None = None
    split_bytes: int = 64 * MIB
    page_bytes: int = 8 * MIB
    fail_on_data_loss: bool = True
    push_filters: bool = False


@dataclass(frozen=True)
class WriteOptions:
    target: Target
    # None: what an existing stream holds; for a new one `application/octet-stream`.
    content_type: str | None = None
    write_id: str | None = None
    batch_rows: int = 10_000
    batch_bytes: int = 1 * MIB
    buffer_bytes: int = 64 * MIB
    connections: int = 32
    # Join the rows of a byte stream into one message per request.
    coalesce: bool = False
    # The rows of a stream (and producer) stand together, so a group ends where the next one begins.
    grouped: bool = False


def parse_read_options(options: Mapping[str, str]) -> ReadOptions:
    given = _Given(options, TARGET_OPTIONS | READ_OPTIONS)
    start = given.text("startingPosition")
    latest = start is not None and start.lower() == "latest"
    named = start is None or start.lower() in ("earliest", "latest")
    read = ReadOptions(
        target=_target(given),
        streams=given.names("streams") or given.names("stream"),
        prefix=given.text("prefix") or "",
        columns=given.names("columns"),
        value=given.flag("value", False),
        json_schema=given.text("jsonSchema"),
        starting_position=None if named else given.count("startingPosition"),
        starting_latest=latest,
        ending_position=given.count("endingPosition"),
        max_rows_per_trigger=given.count("maxRowsPerTrigger", least=1),
        max_bytes_per_trigger=given.size("maxBytesPerTrigger"),
        split_bytes=given.size("splitBytes") or 64 * MIB,
        page_bytes=min(given.size("pageBytes") or 8 * MIB, LARGEST_PAGE),
        fail_on_data_loss=given.flag("failOnDataLoss", True),
        push_filters=given.flag("pushFilters", False),
    )
    if read.streams and read.prefix:
        raise BadOption("choose streams by name (option 'streams') or by 'prefix', not both")
    if read.max_rows_per_trigger and read.max_bytes_per_trigger:
        raise BadOption("set maxRowsPerTrigger or maxBytesPerTrigger, not both")
    return read


def parse_write_options(options: Mapping[str, str]) -> WriteOptions:
    given = _Given(options, TARGET_OPTIONS | WRITE_OPTIONS)
    return WriteOptions(
        target=_target(given),
        content_type=given.text("contentType"),
        write_id=given.text("writeId"),
        batch_rows=given.count("batchRows", least=1) or 10_000,
        batch_bytes=given.size("batchBytes") or 1 * MIB,
        buffer_bytes=given.size("bufferBytes") or 64 * MIB,
        connections=given.count("connections", least=1) or 32,
        coalesce=given.flag("coalesce", False),
        grouped=given.flag("grouped", False),
    )


TARGET_OPTIONS: Final = frozenset({"url", "bucket", "token", "retrySeconds"})
READ_OPTIONS: Final = frozenset(
    {
        *("stream", "streams", "prefix", "columns", "value", "jsonSchema", "startingPosition"),
        *("endingPosition", "maxRowsPerTrigger", "maxBytesPerTrigger", "splitBytes", "pageBytes"),
        *("failOnDataLoss", "pushFilters"),
    }
)
WRITE_OPTIONS: Final = frozenset(
    {"contentType", "writeId", "batchRows", "batchBytes", "bufferBytes", "connections", "coalesce", "grouped"}
)


def make_target(
    url: str | None, bucket: str | None, token: str | None = None, retry_seconds: float = 60.0
) -> Target:
    return Target(check_url(url), check_bucket(bucket), token or None, retry_seconds)


def check_url(url: str | None) -> str:
    if not url:
        raise BadOption("option 'url' is missing: set it to the server's address, http://127.0.0.1:4437 say")
    parts = urlsplit(url)
    try:
        has_port = parts.port is None or parts.port > 0
    except ValueError:
        has_port = False
    if parts.scheme not in ("http", "https") or not parts.hostname or not has_port:
        raise BadOption(
            f"option 'url' is not an address of a server: {url!r}; http://127.0.0.1:4437 would be"
        )
    if parts.path.strip("/") or parts.query or parts.fragment:
        raise BadOption(f"option 'url' is the server's address alone, without a path: {url!r}")
    return f"{parts.scheme}://{parts.netloc}"


def check_bucket(bucket: str | None) -> str:
    if not bucket:
        raise BadOption("option 'bucket' is missing: name the bucket to work on, 'default' say")
    if _BUCKET.fullmatch(bucket) is None:
        raise BadOption(f"option 'bucket' is {bucket!r}; a bucket has 4 to 64 of a-z, 0-9, '_' and '-'")
    return bucket


def parse_size(name: str, text: str) -> int:
    """`1048576`, `16m`, `1 GiB`."""
    found = _SIZE.fullmatch(text.strip())
    size = 0 if found is None else int(found[1]) * _UNITS[(found[2] or "")[:1].lower()]
    if size <= 0:
        raise BadOption(
            f"option '{name}' is {text!r}; a size is a number of bytes, such as 1048576, 16m or 1g"
        )
    return size


def _target(given: "_Given") -> Target:
    patience = given.number("retrySeconds")
    return make_target(
        given.text("url"), given.text("bucket"), given.text("token"), 60.0 if patience is None else patience
    )


class _Given:
    """What the user wrote. Names are compared without case, as everywhere in Spark."""

    def __init__(self, options: Mapping[str, str], known: frozenset[str]) -> None:
        self._values = {name.lower(): value for name, value in options.items()}
        spelled = {name.lower(): name for name in known}
        for name in self._values.keys() - spelled.keys() - SPARKS_OWN:
            close = difflib.get_close_matches(name, spelled, 1)
            hint = (
                f"did you mean '{spelled[close[0]]}'?" if close else f"there are: {', '.join(sorted(known))}"
            )
            raise BadOption(f"there is no option '{name}' here; {hint}")

    def text(self, name: str) -> str | None:
        value = self._values.get(name.lower())
        return value if value else None

    def names(self, name: str) -> tuple[str, ...]:
        return tuple(part.strip() for part in (self.text(name) or "").split(",") if part.strip())

    def flag(self, name: str, default: bool) -> bool:
        text = self.text(name)
        if text is None:
            return default
        if text.lower() not in ("true", "false"):
            raise BadOption(f"option '{name}' is {text!r}; say true or false")
        return text.lower() == "true"

    def count(self, name: str, least: int = 0) -> int | None:
        wanted = f"a whole number of at least {least}"
        value: int | None = self._parsed(name, int, wanted, lambda number: number >= least)
        return value

    def number(self, name: str) -> float | None:
        value: float | None = self._parsed(
            name, float, "a number of seconds", lambda number: 0 <= number < 1e9
        )
        return value

    def size(self, name: str) -> int | None:
        text = self.text(name)
        return None if text is None else parse_size(name, text)

    def _parsed(
        self, name: str, parse: Callable[[str], Any], wanted: str, fits: Callable[[Any], bool]
    ) -> Any:
        text = self.text(name)
        if text is None:
            return None
        try:
            value = parse(text)
        except ValueError:
            value = None
        if value is None or not fits(value):
            raise BadOption(f"option '{name}' is {text!r}; it must be {wanted}")
        return value

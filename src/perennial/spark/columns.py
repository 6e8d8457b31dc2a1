"""From the feed's columns to the ones Spark asked for, batch by batch, never row by row."""

import io
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.json
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    LongType,
    StringType,
    StructType,
    TimestampType,
)

from perennial.spark.errors import BadOption
from perennial.spark.options import ReadOptions

FEED_COLUMNS: Final[dict[str, DataType]] = {
    "position": LongType(),
    "stream": StringType(),
    "offset": LongType(),
    "next_offset": LongType(),
    "timestamp": TimestampType(),
    "content_type": StringType(),
    "closed": BooleanType(),
    "payload": BinaryType(),
    "bucket": StringType(),
}
VALUE: Final = "value"


def full_schema(options: ReadOptions) -> str:
    """Every column there is with these options, or those that were asked for, in the words of SQL.

    The fields of `jsonSchema` are passed on as they are: it is Spark that understands them.
    """
    known = {name: kind.simpleString() for name, kind in FEED_COLUMNS.items()}
    if options.value:
        known[VALUE] = "string"
    unknown = [name for name in options.columns if name not in known]
    if unknown:
        raise BadOption(f"there is no column {', '.join(unknown)}; there are {', '.join(known)}")
    names = options.columns or tuple(known)
    typed = [] if options.json_schema is None else [options.json_schema]
    return ", ".join([*(f"{name} {known[name]}" for name in names), *typed])


def typed_columns(schema: StructType) -> frozenset[str]:
    """The columns that are parsed from JSON payloads: all that are not the feed's own."""
    return frozenset(name for name in schema.fieldNames() if name not in FEED_COLUMNS and name != VALUE)


def check_schema(schema: StructType) -> None:
    """A schema chooses among the feed's columns and may add typed ones; it cannot change their types."""
    names = schema.fieldNames()
    for field in schema.fields:
        if names.count(field.name) > 1:
            raise BadOption(f"two columns are named '{field.name}'; rename that field of jsonSchema")
        kind = FEED_COLUMNS.get(field.name, StringType() if field.name == VALUE else field.dataType)
        if field.dataType != kind:
            raise BadOption(f"column '{field.name}' is {kind.simpleString()}; cast it after reading")


class Shaper:
    """Cuts batches of the feed to a schema. Made where rows are read."""

    def __init__(self, schema: StructType, bucket: str) -> None:
        self.schema = to_arrow_schema(schema, timezone="UTC")
        self._bucket = bucket
        typed = typed_columns(schema)
        self._typed = pa.schema([field for field in self.schema if field.name in typed])

    def shape(self, batch: Any) -> Any:
        parsed = parse_json(batch["payload"], self._typed) if len(self._typed) else None
        columns = [self._column(batch, field, parsed) for field in self.schema]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _column(self, batch: Any, field: Any, parsed: Any) -> Any:
        if field.name == "bucket":
            return pa.repeat(pa.scalar(self._bucket, pa.string()), batch.num_rows)
        if field.name == VALUE:
            return as_text(batch["payload"])
        if parsed is not None and field.name in self._typed.names:
            return parsed[field.name]
        return batch[field.name]


def as_text(payload: Any) -> Any:
    """Bytes that are no UTF-8 become replacement characters: one odd message must not stop a job."""
    try:
        return payload.cast(pa.string())
    except pa.ArrowInvalid:
        texts = [None if data is None else data.decode("utf-8", "replace") for data in payload.to_pylist()]
        return pa.array(texts, pa.string())


def parse_json(payload: Any, schema: Any) -> Any:
    """Columns by field name; null where a message lacks the field, has another type there or is no object."""
    options = pa.json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")
    lines: list[bytes] = [data for data in payload.to_pylist() if data and b"\n" not in data]
    if lines and len(lines) == len(payload):
        try:
            table = pa.json.read_json(
                io.BytesIO(b"\n".join(lines)), pa.json.ReadOptions(block_size=256 << 20), options
            )
            if table.num_rows == len(lines):
                return {name: table[name].combine_chunks() for name in schema.names}
        except pa.ArrowInvalid:
            pass  # some message is unlike the others; look at each one
    return _parse_leniently(payload, schema)


def _parse_leniently(payload: Any, schema: Any) -> Any:
    values: dict[str, list[Any]] = {name: [] for name in schema.names}
    for data in payload.to_pylist():
        try:
            message = msgspec.json.decode(data or b"null")
        except msgspec.DecodeError:
            message = None
        for name, column in values.items():
            column.append(message.get(name) if isinstance(message, dict) else None)
    return {field.name: _lenient_array(values[field.name], field.type) for field in schema}


def _lenient_array(values: list[Any], kind: Any) -> Any:
    try:
        return pa.array(values, kind)
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return pa.array([_fitting(value, kind) for value in values], kind)


def _fitting(value: Any, kind: Any) -> Any:
    try:
        return pa.scalar(value, kind).as_py()
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return None

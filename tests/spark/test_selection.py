import pyarrow as pa
import pytest
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    StringContains,
    StringStartsWith,
)

from perennial.spark.selection import Selection, narrow

STREAM, POSITION = ("stream",), ("position",)


def narrowed(*filters: Filter) -> Selection:
    selection, left = narrow(Selection(), filters)
    assert left == []
    return selection


def test_positions() -> None:
    chosen = narrowed(GreaterThan(POSITION, 5), GreaterThanOrEqual(POSITION, 9), LessThan(POSITION, 20))
    assert (chosen.after, chosen.until) == (8, 19)
    assert (narrowed(EqualTo(POSITION, 7)).after, narrowed(LessThanOrEqual(POSITION, 7)).until) == (6, 7)


def test_one_stream_is_asked_of_the_server() -> None:
    assert narrowed(EqualTo(STREAM, "a"), IsNotNull(STREAM)).query() == {"stream": "a"}


def test_several_streams_are_asked_by_what_they_share_and_then_picked() -> None:
    chosen = narrowed(In(STREAM, ("chat-1", "chat-22")))
    assert chosen.query() == {"prefix": "chat-"}
    batch = pa.record_batch({"stream": ["chat-1", "chat-2", "chat-22"]})
    assert chosen.keep(batch)["stream"].to_pylist() == ["chat-1", "chat-22"]


def test_conditions_that_cannot_both_hold_select_nothing() -> None:
    assert narrowed(EqualTo(STREAM, "a"), EqualTo(STREAM, "b")).is_empty
    assert narrowed(StringStartsWith(STREAM, "a"), StringStartsWith(STREAM, "b")).is_empty
    assert narrowed(LessThan(POSITION, 3), GreaterThan(POSITION, 5)).is_empty


def test_prefixes_only_get_longer() -> None:
    chosen = narrowed(StringStartsWith(STREAM, "chat-1"), StringStartsWith(STREAM, "chat"))
    assert chosen.query() == {"prefix": "chat-1"}


@pytest.mark.parametrize(
    "other", [StringContains(STREAM, "x"), GreaterThan(("offset",), 3), IsNotNull(("payload",))]
)
def test_other_conditions_are_left_to_spark(other: Filter) -> None:
    assert narrow(Selection(), [other]) == (Selection(), [other])

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perennial.spark.batching import Batcher, Body, Group, Row, encode
from perennial.spark.errors import PipelineError


def groups_of(rows: list[Row], grouped: bool = False, cut: int = 3, **limits: int) -> list[Group]:
    settings = {"max_rows": 4, "max_bytes": 100, "buffer_bytes": 1000, **limits}
    batcher = Batcher(**settings, grouped=grouped)
    pieces = [rows[at : at + cut] for at in range(0, len(rows), cut)]
    waves = [wave for piece in pieces for wave in batcher.add(piece)]
    return [group for wave in [*waves, batcher.finish()] for group in wave]


def row(stream: str, payload: bytes | None, producer: str | None = None, closed: bool = False) -> Row:
    return (stream, producer, None, payload, closed)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.binary(min_size=1, max_size=60)), max_size=60))
def test_every_row_goes_once_and_in_the_order_of_its_stream(pairs: list[tuple[str, bytes]]) -> None:
    groups = groups_of([row(*pair) for pair in pairs])
    for stream in "abc":
        sent = [payload for group in groups if group.stream == stream for payload in group.payloads]
        assert sent == [payload for name, payload in pairs if name == stream]


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.binary(min_size=1, max_size=60)), max_size=60),
    st.integers(1, 20),
    st.integers(1, 20),
)
def test_where_spark_cuts_its_batches_makes_no_difference(
    pairs: list[tuple[str, bytes]], one: int, other: int
) -> None:
    rows = [row(*pair) for pair in pairs]
    assert groups_of(rows, cut=one) == groups_of(rows, cut=other)


@given(st.lists(st.binary(min_size=1, max_size=60), min_size=1, max_size=30), st.integers(0, 9))
def test_with_grouped_rows_neighbours_do_not_change_how_a_stream_is_cut(
    payloads: list[bytes], more: int
) -> None:
    mine = [row("m", payload, "p") for payload in payloads]
    others = [row("a", b"x" * 50, "q") for _ in range(more)]
    alone = groups_of(mine, grouped=True, buffer_bytes=200)
    among = groups_of(others + mine + [row("z", b"y", "q")], grouped=True, buffer_bytes=200)
    assert [group for group in among if group.stream == "m"] == alone


def test_a_json_group_is_one_request_and_a_byte_group_one_per_message() -> None:
    group = Group("s", None, None, [b'{"a":1}', b" 2 "], closes=True)
    assert encode(group, "application/json; charset=utf-8", False) == [Body(b'[{"a":1}, 2 ]', 2, True)]
    assert encode(group, "text/plain", False) == [Body(b'{"a":1}', 1, False), Body(b" 2 ", 1, True)]
    assert encode(group, "text/plain", True) == [Body(b'{"a":1} 2 ', 2, True)]


@pytest.mark.parametrize("payloads", [[b"1,2"], [b"[1", b"2]", b"3,4"], [b"{"], [b""], [b"nope"]])
def test_what_is_not_one_json_value_per_row_is_refused(payloads: list[bytes]) -> None:
    with pytest.raises(PipelineError, match=r"to_json\(struct"):
        encode(Group("s", None, None, payloads), "application/json", False)


def test_rows_without_a_payload_or_name_are_refused() -> None:
    with pytest.raises(PipelineError, match="where payload is not null"):
        groups_of([row("s", None)])
    with pytest.raises(PipelineError, match="no stream name"):
        groups_of([row("", b"x")])
    with pytest.raises(PipelineError, match="empty payload"):
        encode(Group("s", None, None, [b""]), "text/plain", False)


def test_a_close_without_data_is_a_request_of_its_own() -> None:
    (group,) = groups_of([row("s", None, closed=True)])
    assert encode(group, "text/plain", False) == [Body(b"", 0, True)]

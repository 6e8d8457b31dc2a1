from perennial.protocol.rejections import StreamGone, StreamMissing
from perennial.protocol.removal import after_release, decide_delete, expire
from perennial.protocol.state import ForkReleased, ForkTaken, Removed, SoftDeleted
from tests.builders import appended, closed, stream


def test_a_stream_that_nobody_forked_goes_at_once() -> None:
    assert decide_delete(stream(appended())) == Removed()
    assert decide_delete(stream(closed())) == Removed()
    assert decide_delete(stream(ForkTaken(), ForkReleased())) == Removed()


def test_a_stream_with_forks_is_only_hidden() -> None:
    assert decide_delete(stream(ForkTaken())) == SoftDeleted()


def test_a_stream_is_deleted_once() -> None:
    assert decide_delete(None) == StreamMissing()
    assert decide_delete(stream(ForkTaken(), SoftDeleted())) == StreamGone()


def test_expiry_goes_the_way_of_deletion() -> None:
    assert expire(stream()) == Removed()
    assert expire(stream(ForkTaken())) == SoftDeleted()


def test_a_hidden_stream_leaves_with_its_last_fork() -> None:
    two = stream(ForkTaken(), ForkTaken(), SoftDeleted(), ForkReleased())
    assert after_release(two) is None
    assert after_release(stream(ForkTaken(), SoftDeleted(), ForkReleased())) == Removed()


def test_a_living_stream_outlives_its_forks() -> None:
    assert after_release(stream(ForkTaken(), ForkReleased())) is None

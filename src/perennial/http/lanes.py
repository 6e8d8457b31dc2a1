"""Lanes: see `exchange.Lane`. An append whose head keeps coming is stored in a third of the steps, and is
answered together with the others of its commit.

Who may append is not asked here: a server that asks, or looks at its requests in other ways, makes no lanes.
"""

import logging
from collections.abc import Iterable
from functools import partial
from typing import Any, Final

from perennial.http.errors import reject
from perennial.http.exchange import Lane, Waiting
from perennial.http.traffic import Tally
from perennial.protocol.append import Append
from perennial.protocol.media import is_json
from perennial.protocol.rejections import Rejected
from perennial.protocol.state import StreamState
from perennial.service.streams import StreamService
from perennial.store.keys import stream_key

# Lanes stay as long as their heads do (see `heads`), and a name may take four times the room that it took in
# the path.
LONGEST_PATH: Final = 256

log = logging.getLogger(__name__)


class AppendAnswers:
    """What those who append hear; a `commits.Audience`."""

    def __init__(self, tally: Tally) -> None:
        self._tally = tally

    def stored(self, waiting: Iterable[tuple[Waiting, StreamState]]) -> None:
        answered = 0
        for line, state in waiting:
            try:
                answered += line.acknowledge(b"stream-next-offset: %016d\r\n" % state.tail)
            except Exception:
                log.exception("an answer failed")  # and the others still go out
        self._tally[204] += answered

    def refused(self, waiting: Iterable[tuple[Waiting, StreamState]], why: Rejected) -> None:
        for line, _ in waiting:
            try:
                self._refuse(line, why)
            except Exception:
                log.exception("an answer failed")

    def one(self, line: Waiting, outcome: Any, state: StreamState | None) -> None:
        """For an append that went the long way."""
        if isinstance(outcome, Rejected):
            self._refuse(line, outcome)
        else:
            assert state is not None, "an accepted append has a state"
            self.stored([(line, state)])

    def _refuse(self, line: Waiting, why: Rejected) -> None:
        exchange = line.make_exchange()
        if exchange is not None:
            exchange.request.tally = self._tally
            reject(exchange, why)


class AppendLane(Lane):
    """Appends to one stream that say nothing but their content type."""

    __slots__ = ("_answers", "_bucket", "_content_type", "_is_plain", "_key", "_name", "_service")

    def __init__(
        self, service: StreamService, bucket: str, name: str, content_type: str, answers: AppendAnswers
    ) -> None:
        self._service = service
        self._bucket = bucket
        self._name = name
        self._key = stream_key(bucket, name)
        self._content_type = content_type
        self._is_plain = not is_json(content_type)
        self._answers = answers

    def enter(self, line: Waiting, body: bytes) -> None:
        service, content_type, answers = self._service, self._content_type, self._answers
        if not self._is_plain or not service.append_plainly(self._key, content_type, body, line, answers):
            reply = partial(answers.one, line)
            service.append(self._bucket, self._name, Append(body, content_type), reply)

"""Lanes: see `exchange.Lane`. An append whose head keeps coming is stored in a third of the steps.

Who may append is not asked here: a server that asks, or looks at its requests in other ways, makes no lanes.
"""

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


class AppendLane(Lane):
    """Appends to one stream that say nothing but their content type."""

    __slots__ = ("_bucket", "_content_type", "_is_plain", "_key", "_name", "_service", "_tally")

    def __init__(
        self, service: StreamService, bucket: str, name: str, content_type: str, tally: Tally
    ) -> None:
        self._service = service
        self._bucket = bucket
        self._name = name
        self._key = stream_key(bucket, name)
        self._content_type = content_type
        self._is_plain = not is_json(content_type)
        self._tally = tally

    def enter(self, line: Waiting, body: bytes) -> None:
        service, content_type = self._service, self._content_type
        reply = partial(self._answer, line)
        if not self._is_plain or not service.append_plainly(self._key, content_type, body, reply):
            service.append(self._bucket, self._name, Append(body, content_type), reply)

    def _answer(self, line: Waiting, outcome: Any, state: StreamState | None) -> None:
        if isinstance(outcome, Rejected):
            exchange = line.make_exchange()
            if exchange is not None:
                exchange.request.tally = self._tally
                reject(exchange, outcome)
        else:
            assert state is not None, "an accepted append has a state"
            if line.acknowledge(b"stream-next-offset: %016d\r\n" % state.tail):
                self._tally[204] += 1

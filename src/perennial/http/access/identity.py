"""Who someone is, and what they may touch. Decided from names alone: never from what exists."""

from collections.abc import Iterable
from typing import Final

from perennial.protocol.names import PROXY_BUCKET
from perennial.protocol.rejections import Rejected

READ: Final = "read"
WRITE: Final = "write"
ADMIN: Final = "admin"
METRICS: Final = "metrics"
SCOPES: Final = frozenset((READ, WRITE, ADMIN, METRICS))


class BeyondScope(Rejected, frozen=True):
    """Your token does not give this access here."""


class Identity:
    """`buckets` None means all but the proxy's, whose streams belong to whoever asked for them."""

    __slots__ = ("_buckets", "_full", "known", "name", "prefix", "scopes")

    def __init__(
        self,
        name: str,
        scopes: Iterable[str] = (),
        buckets: Iterable[str] | None = None,
        prefix: str = "",
        *,
        full: bool = False,
        known: bool = True,
    ) -> None:
        self.name = name  # for logs and for counting; never a secret
        self.known = known  # they have shown who they are
        self.scopes = frozenset(scopes)
        self.prefix = prefix
        self._buckets = None if buckets is None else frozenset(buckets)
        self._full = full

    @property
    def full(self) -> bool:
        """All there is: for what concerns the whole server."""
        return self._full

    def has(self, scope: str) -> bool:
        """Somewhere at all?"""
        return self._full or scope in self.scopes

    def may(self, scope: str, bucket: str, stream: str) -> bool:
        return self._full or (self._may_in(scope, bucket) and stream.startswith(self.prefix))

    def may_all(self, scope: str, bucket: str) -> bool:
        """For what concerns a bucket as a whole."""
        return self._full or (self._may_in(scope, bucket) and not self.prefix)

    def narrow(self, scope: str, bucket: str, prefix: str) -> str | None:
        """The part of the names with `prefix` that they may see, again as a prefix; None: no part."""
        if self._full:
            return prefix
        if not self._may_in(scope, bucket):
            return None
        if prefix.startswith(self.prefix):
            return prefix
        return self.prefix if self.prefix.startswith(prefix) else None

    def _may_in(self, scope: str, bucket: str) -> bool:
        if scope not in self.scopes:
            return False
        return bucket != PROXY_BUCKET if self._buckets is None else bucket in self._buckets


# On a server without access control, whoever can connect is trusted, but still nobody in particular.
ANYONE: Final = Identity("", full=True, known=False)
# With it: no credentials came, or none that are known here.
MISSING: Final = Identity("", known=False)
UNKNOWN: Final = Identity("", known=False)

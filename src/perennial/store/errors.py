"""What can go wrong with a disk. Each message names the file and what a person can do about it."""


class PerennialError(Exception):
    """A failure (not a refusal) that the operator should hear about."""


class StoreError(PerennialError):
    """The store cannot do what it was asked."""


class StoreLocked(StoreError):
    """Another process has this data directory open."""


class StoreCorrupt(StoreError):
    """Stored bytes are not what was written."""


class StoreFull(StoreError):
    """The disk has no room, or refuses to take more."""

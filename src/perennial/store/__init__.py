"""Commits in, ranges out: what is kept on disk and how.

Module map:

- `interface`  what the service asks of a store; the one page to read for a second engine
- `errors`     what can go wrong with a disk, said so that a person can act
- `keys`       how keys are laid out, so that what is read together lies together
- `additions`  what a commit adds to a bucket, by column
- `blocks`     the form of stored payloads: one append, or many sealed into one block
- `feedlog`    the form of a commit in its bucket's log
- `rocks`      the embedded engine: RocksDB, which `tuning` sets up
- `archives`   a copy of the store on its way out
- `rocks_batch` changes that RocksDB makes together
- `hot_blocks` large blocks that were read lately
- `claiming`   being the one process on a directory
- `wal`        making written commits durable: fdatasync of the write-ahead log
- `wal_records` is every record of a log whole?
"""

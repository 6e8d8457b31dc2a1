"""Perennial: a Durable Streams server with a bulk engine behind it.

Module map, from the bottom up (imports only point down):

- `protocol`  pure rules: offsets, headers, the stream state machine, JSON mode, SSE encoding
- `store`     commits in, ranges out: RocksDB on disk
- `service`   streams in memory, group commit, live tails, background work
- `http`      the connection, routing, one module per surface; the ASGI adapter is `perennial.asgi`
- `settings`  flags, `PERENNIAL_*` variables and the TOML file become one frozen value
- `cli`       the `perennial` command
"""

__version__ = "0.1.0"

"""The rules of Durable Streams as pure functions: no sockets, no files, no clock, no randomness.

Module map:

- `offsets`     positions and their text form
- `headers`     header names, and the parsing of request headers into values
- `media`       content types: comparing them, JSON mode, text or binary
- `names`       which stream and bucket names are allowed
- `messages`    how a body splits into messages, and messages join into a body
- `state`       what a stream is, the records that change it, and `apply`, the fold over them
- `rejections`  every way a command can be refused, as values
- `producers`   idempotent producers: accept, repeat, fence
- `append`      may this append or close happen?
- `create`      may this stream be created, plain or as a fork?
- `removal`     deletion, soft deletion and the release of fork references
- `snapshots`   may this snapshot be published?
- `expiry`      time to live and absolute expiry
- `conditional` ETags, If-None-Match and Cache-Control
- `cursors`     cursors that let caches collapse live reads
- `sse`         Server-Sent Events on the wire
- `frames`      the frames of a proxy stream
- `forwarding`  which headers pass through the proxy
"""

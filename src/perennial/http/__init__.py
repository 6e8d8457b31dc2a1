"""HTTP: the connection, routing, and one module per surface.

Module map:

- `exchange`    a request and the way to answer it: what surfaces see of HTTP
- `connection`  HTTP/1.1 on a socket: turns, keep-alive, timeouts, back-pressure
- `parsing`     bytes into requests, within limits
- `heads`       heads of requests that come again, and what they mean
- `lanes`       the short way of appends with such heads
- `answering`   answers into bytes
- `responses`   response heads and chunks
- `limits`      how large, how many, how long
- `state`       what the connections of one server share
- `binding`     taking an address before it is served
- `recovering`  what is answered there while the store opens
- `server`      listening and graceful shutdown around connections
- `asgi`        the same seam over ASGI
- `application` finds the surface for a request, and turns refusals and failures into answers
- `routes`      the same below a bucket
- `front`       before that, if asked for: proxy headers (`forwarded`), ids, `rates`, the log, traces
- `observed`    an exchange that tells how it went
- `tracing`     telling an OpenTelemetry collector
- `base`        the base protocol at `/v1/stream/…`: one function per method
- `live`        long-poll and SSE readers
- `paths`       URL paths: which bucket, stream or part of one they address
- `buckets`     buckets and their listing
- `snapshots`   snapshots and bootstrap
- `feed`        the bucket feed, which `arrow` encodes
- `streaming`   long bodies at the pace of the peer
- `compression` catch-up reads in gzip or zstd
- `access`      who is asking, and what they may do
- `operations`  `/healthz`, `/readyz` and `/metrics`, which `metrics` writes from what `traffic`, `pulse` and
                the other rooms have counted
- `admin`       the backup of a running server
- `errors`      the only table from rejection to status
"""

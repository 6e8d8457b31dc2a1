"""HTTP: the connection, routing, and one module per surface.

Module map:

- `exchange`    a request and the way to answer it: what surfaces see of HTTP
- `connection`  HTTP/1.1 on a socket: parsing, keep-alive, limits, timeouts, back-pressure
- `server`      listening and graceful shutdown around connections
- `application` finds the surface for a request, and turns refusals and failures into answers
- `base`        the base protocol at `/v1/stream/…`: one function per method
- `live`        long-poll and SSE readers
- `errors`      the only table from rejection to status
"""

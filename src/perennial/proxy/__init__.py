"""The proxy: any HTTP streaming response becomes a durable stream that readers can resume.

Module map:

- `operations`  create, append, connect, abort, delete; the start and the stop of the whole
- `responses`   one upstream response on its way into a stream, up to its terminal frame
- `ledger`      what is written to proxy streams, response ids, and which responses are open
- `upstream`    asking an upstream, and its body exactly as sent
- `allowlist`   which upstream URLs may be asked
- `guard`       which addresses may be connected to
- `callers`     how many upstreams one caller may have in flight
- `signing`     pre-signed URLs
- `errors`      why something was not done
"""

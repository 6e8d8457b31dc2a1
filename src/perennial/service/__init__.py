"""Streams in memory over a store: who may write what, when it is durable, and who hears of it.

Module map:

- `handles`      a stream as the service holds it, and the bounded set of those in memory
- `commits`      group commit: many streams' records become durable together
- `streams`      the operations: create, append, delete, look up, touch
- `changes`      one accepted record and all that follows from it
- `lifetimes`    idle windows and deadlines, and the leases the store keeps of them
- `rows`         when a stream's row is written: not with every append
- `reading`      byte ranges and messages out of the store, across forks
- `buckets`      the namespaces streams live in, and their counts
- `uploads`      snapshots on their way in
- `feed`         everything committed to a bucket, in commit order
- `feed_rows`    stored entries of a feed become rows
- `graves`       feed entries that a trim or a delete has taken away
- `listing`      the streams of a bucket, page by page
- `sweeping`     expiry: streams whose time has come
- `sealing`      small records into large blocks
- `feed_sealing` small feed values into large ones, without dead entries
- `housekeeping` runs the background work in small steps between requests
- `clock`        what time it is
- `quotas`       how much a bucket may keep
- `checking`     is a store whole? With `checking_feed`
- `measures`     counts and histograms of commits
"""

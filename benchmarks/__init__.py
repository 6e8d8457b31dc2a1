"""The benchmark rig: Perennial and the public Node reference server under the same load, in the same run.

- `__main__`   the command line: which scenarios, for how long, and what to do with the outcome
- `targets`    starts and stops the servers; gives one of them the machine to itself
- `tools`      what has to be installed or compiled first: npm packages, wrk, the SSE client
- `streams`    the few HTTP calls that prepare and check streams (never the load itself)
- `wrk`        runs the wrk load generator and reads its summary
- `rounds`     takes turns between the servers, so that a noisy minute hurts all of them alike
- `appends`, `reads`, `sse`   one scenario family each
- `proxy`, `proxy_upstream`   what the proxy costs, and the upstream it is measured with (run on its own)
- `outcome`    numbers, goals, and whether they were met
- `machine`    facts about the machine that a number means nothing without
- `report`, `plot`   the table, the files under `results/`, the picture
"""

// Runs the public suite against the server at CONFORMANCE_URL (an origin, without a path).
// Not BASE_URL: vite replaces that variable with "/".
import { runConformanceTests } from "@durable-streams/server-conformance-tests"
import { describe } from "vitest"

const baseUrl = process.env.CONFORMANCE_URL
if (!baseUrl) throw new Error("set CONFORMANCE_URL to the origin of a running server")

describe("Durable Streams", () => {
  // The suite does not tell the server its long-poll timeout: start it with PERENNIAL_LONG_POLL_TIMEOUT=2.
  runConformanceTests({ baseUrl, longPollTimeoutMs: 2000, subscriptions: false })
})

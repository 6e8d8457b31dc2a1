// Runs the public Node reference server: `node reference.mjs [DATA_DIR]`.
// Without a directory it keeps streams in memory; with one it uses its file store (logs and LMDB).
import { DurableStreamTestServer, FileBackedStreamStore } from "@durable-streams/server"

// The store keeps 100 files open unless told otherwise. With 500 streams written at once over 256
// connections, four of five appends are then refused with 404, it seems because a file is closed between
// its write and its fsync; with a handle per stream none are. The server's own options do not reach this
// one.
const MAX_FILE_HANDLES = 1024

const dataDir = process.argv[2]
const server = new DurableStreamTestServer({ host: "127.0.0.1", port: 0 })
if (dataDir) server.store = new FileBackedStreamStore({ dataDir, maxFileHandles: MAX_FILE_HANDLES })

console.log(`listening on ${await server.start()}`)

for (const signal of ["SIGINT", "SIGTERM"]) {
  process.once(signal, async () => {
    await server.stop()
    process.exit(0)
  })
}

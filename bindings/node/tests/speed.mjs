// Measures in Node the calls that `bindings/c/examples/speed.rs` measures in Rust. `tests/speed` runs both in turns.
// With the word "memory" behind the path, it makes ten million calls, and prints the memory of the process after each fifth
// of them.
import { Commit, open } from 'brooklet'

const APPENDS = 200_000
const LOGS = 10_000
const BATCH = 1_000
const ENTRIES = 1_000
const READS = 500
const PAYLOAD = Buffer.alloc(200, 'x')

async function rate (name, count, work) {
  await work() // The first round makes the logs, and the ring grows.
  const start = performance.now()
  await work()
  console.log(`${name}: ${Math.round(count / (performance.now() - start) * 1000)}`)
}

/** Makes `count` calls, of which `most` are in flight at a time. */
async function flying (count, most, call) {
  for (let done = 0; done < count; done += most) {
    await Promise.all(Array.from({ length: Math.min(most, count - done) }, (_, n) => call(done + n)))
  }
}

async function memory (store) {
  const calls = 10_000_000
  const call = n => {
    const log = `log/${Math.floor(n / 5) % LOGS}`
    switch (n % 5) {
      case 0: return store.append(log, PAYLOAD)
      case 1: return store.commit(new Commit().append(log, PAYLOAD).keepLast(log, 10))
      case 2: return store.bounds('none').catch(() => {})
      case 3: return store.readAvailable(log).next()
      default: return store.last(log)
    }
  }
  const part = calls / 5
  for (let from = 0; from < calls; from += part) {
    await flying(part, BATCH, n => call(from + n))
    globalThis.gc?.()
    console.log(`bytes of memory after ${from + part} calls: ${process.memoryUsage.rss()}`)
  }
}

if (process.argv[3] === 'memory') {
  // Little of the store's own, so that growth shows.
  const small = { ringSize: 4 << 20, maxPayload: 1 << 20, memoryBudget: 16 << 20, cacheBudget: 8 << 20 }
  const store = await open(process.argv[2], small)
  await memory(store)
  await store.close()
  process.exit()
}
const store = await open(process.argv[2])
await rate('appends/s that nobody waits for', APPENDS, () => flying(APPENDS, APPENDS, n => store.append(`log/${n % LOGS}`, PAYLOAD)))
const batch = Array(BATCH).fill(PAYLOAD)
await rate('entries/s by append_many of 1,000', 5 * APPENDS, () => flying(5 * APPENDS / BATCH, 100, n => store.appendMany(`log/${n % LOGS}`, batch)))
await store.appendMany('one', Array(ENTRIES).fill(PAYLOAD))
await rate('reads/s of a log of 1000 entries', READS, async () => {
  for (let n = 0; n < READS; n++) {
    let bytes = 0
    for await (const entry of store.read('one')) bytes += entry.payload.length
    if (bytes !== ENTRIES * PAYLOAD.length) throw new Error(`${bytes} bytes`)
  }
})
await rate('appends/s awaited, 1,000 at a time', APPENDS / 4, () => flying(APPENDS / 4, BATCH, () => store.append('tasks', PAYLOAD)))
await rate('appends/s, each waited for', 300, () => flying(300, 1, () => store.append('one', PAYLOAD)))
await store.close()

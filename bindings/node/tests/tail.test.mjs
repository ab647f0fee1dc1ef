import assert from 'node:assert/strict'
import { randomBytes } from 'node:crypto'
import { readFileSync } from 'node:fs'
import test from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { Commit, open } from 'brooklet'
import { all, opened } from './common.mjs'

test('a tail returns what is there and what comes', async t => {
  const { store } = await opened(t)
  const tail = store.tail('log')
  const first = tail.next() // before the log exists
  await store.append('log', 'a')
  assert.deepEqual(await first, { done: false, value: { type: 'entry', seq: 0, payload: Buffer.from('a') } })
  const next = [tail.next(), tail.next()] // asked for at once
  await store.appendMany('log', ['b', 'c'])
  assert.deepEqual((await Promise.all(next)).map(({ value }) => [value.seq, value.payload.toString()]), [[1, 'b'], [2, 'c']])
  await store.truncate('log', 1)
  assert.deepEqual((await tail.next()).value, { type: 'truncated', next: 1 })
  await store.delete('log')
  assert.deepEqual((await tail.next()).value, { type: 'deleted' })
  assert.deepEqual(await tail.return(), { done: true, value: undefined })
  assert.deepEqual(await tail.next(), { done: true, value: undefined })
})

test('a tail returns many entries in order', async t => {
  const { store } = await opened(t)
  const writes = (async () => {
    for (let n = 0; n < 5000; n += 100) await store.appendMany('log', Array.from({ length: 100 }, (_, m) => `${n + m}`))
  })()
  let expected = 0
  for await (const event of store.tail('log')) {
    assert.deepEqual([event.seq, event.payload.toString()], [expected, `${expected}`])
    if (++expected === 5000) break
  }
  await writes
})

/** Returns how many bytes the thread of JavaScript has read; undefined where the system does not count them. */
function readHere () {
  try {
    return Number(/^rchar: (\d+)$/m.exec(readFileSync('/proc/thread-self/io', 'utf8'))[1])
  } catch {
    return undefined
  }
}

test('a tail reads old entries on the thread pool', async t => {
  if (readHere() === undefined) return t.skip('the system does not count the reads of a thread')
  const { path, store } = await opened(t)
  const [entries, size] = [64, 64 << 10]
  for (let n = 0; n < entries; n++) await store.append('log', randomBytes(size))
  await store.checkpoint()
  await store.close()
  const again = await open(path)
  const before = readHere()
  let expected = 0
  for await (const event of again.tail('log')) {
    assert.deepEqual([event.seq, event.payload.length], [expected, size])
    if (++expected === entries) break
  }
  const read = readHere() - before
  await again.close()
  assert(read < entries * size / 4, `the thread of JavaScript has read ${read} bytes`)
})

test('return and abort end a tail that waits', async t => {
  const { store } = await opened(t)
  const tail = store.tail('none')
  const waits = tail.next()
  await sleep(20)
  await tail.return()
  assert.deepEqual(await waits, { done: true, value: undefined })

  const aborts = new AbortController()
  const aborted = all(store.tail('none', { signal: aborts.signal }))
  await sleep(20)
  aborts.abort(new Error('enough'))
  await assert.rejects(aborted, /enough/)
  await assert.rejects(all(store.tail('none', { signal: AbortSignal.abort() })), { name: 'AbortError' })
  await assert.rejects(all(store.scan('', { signal: AbortSignal.abort() })), { name: 'AbortError' })
})

test('a step that is on its way when its iterator ends leaves nothing behind', async t => {
  const { store } = await opened(t)
  await store.appendMany('log', ['a', 'b', 'c'])
  const aborts = new AbortController()
  // A step asks the native part in a microtask, and gets no answer in one.
  const begun = async () => { for (let n = 0; n < 5; n++) await null }
  for (const items of [store.read('log'), store.tail('log'), store.scan('')]) {
    const step = items.next()
    await begun()
    await items.return()
    assert.deepEqual(await step, { done: true, value: undefined })
    for (let n = 0; n < 3; n++) assert.deepEqual(await items.next(), { done: true, value: undefined })
  }
  const items = store.read('log', { signal: aborts.signal })
  const step = items.next()
  await begun()
  aborts.abort(new Error('enough'))
  await assert.rejects(step, /enough/)
  for (let n = 0; n < 3; n++) await assert.rejects(items.next(), /enough/)
})

test('a consumer that throws ends its tail only', async t => {
  const { store } = await opened(t)
  await store.appendMany('log', ['a', 'b'])
  const tail = store.tail('log')
  await assert.rejects(async () => { for await (const event of tail) throw new Error(`at ${event.seq}`) }, /at 0/)
  assert.equal((await tail.next()).done, true)
  for await (const event of store.tail('log', { start: 1 })) {
    assert.equal(event.seq, 1)
    break
  }
})

test('a close ends tails and releases the file', async t => {
  const { path, store } = await opened(t)
  await store.append('log', 'a')
  const tail = store.tail('log', { start: 1 })
  const waits = tail.next()
  const unused = store.read('log')
  await sleep(20)
  await store.close()
  await assert.rejects(waits, { code: 'BROOKLET_CLOSED' })
  assert.equal((await tail.next()).done, true)
  await assert.rejects(all(unused), { code: 'BROOKLET_CLOSED' })
  await (await open(path)).close()
})

test('a wait ends when the log has reached the number', async t => {
  const { store } = await opened(t)
  const waits = store.waitFor('log', 2)
  await store.append('log', 'a')
  assert.equal(await Promise.race([waits.then(() => 'reached'), sleep(20, 'waits')]), 'waits')
  await store.append('log', 'b')
  assert.equal(await waits, undefined)
  for (const next of [0, 1, 2]) await store.waitFor('log', next)
  await store.waitFor('none', 0)
})

test('a wait ends although the log has lost the entry again', { timeout: 300_000 }, async t => {
  const { store } = await opened(t)
  const gone = {
    trimmed: commit => commit.trim('trimmed', 1),
    truncated: commit => commit.truncate('truncated', 0),
    deleted: commit => commit.delete('deleted')
  }
  for (const [log, drop] of Object.entries(gone)) {
    for (const pause of [0, 20]) {
      if (await store.exists(log)) await store.delete(log)
      const waits = store.waitFor(log, 1)
      if (pause > 0) await sleep(pause)
      await store.commit(drop(new Commit().append(log, 'a')))
      await waits
    }
  }
})

test('an abort and a close end a wait', async t => {
  const { path, store } = await opened(t)
  const aborts = new AbortController()
  const aborted = store.waitFor('none', 1, { signal: aborts.signal })
  await sleep(20)
  aborts.abort(new Error('enough'))
  await assert.rejects(aborted, /enough/)
  await assert.rejects(store.waitFor('none', 1, { signal: AbortSignal.timeout(1) }), { name: 'TimeoutError' })
  await assert.rejects(store.waitFor('none', 1, { signal: AbortSignal.abort() }), { name: 'AbortError' })
  const waits = store.waitFor('none', 1)
  const closes = assert.rejects(waits, { code: 'BROOKLET_CLOSED' })
  await sleep(20)
  await store.close()
  await closes
  await (await open(path)).close()
})

import assert from 'node:assert/strict'
import { createRequire } from 'node:module'
import { join } from 'node:path'
import test from 'node:test'
import { BrookletError, Commit, Store, open } from 'brooklet'
import { all, folder, opened, plain } from './common.mjs'

test('appends and reads', async t => {
  const { store } = await opened(t)
  assert.equal(await store.append('log', 'a'), 0)
  assert.deepEqual(await store.appendMany('log', ['b', Buffer.from('c'), '']), [1, 2, 3])
  await assert.rejects(store.appendMany('log', []), { code: 'BROOKLET_INVALID' })
  assert.deepEqual(plain(await all(store.read('log'))), [[0, 'a'], [1, 'b'], [2, 'c'], [3, '']])
  assert.deepEqual(plain(await all(store.read('log', { start: 1, stop: 3, reverse: true }))), [[2, 'c'], [1, 'b']])
  assert.deepEqual(plain([await store.first('log'), await store.last('log')]), [[0, 'a'], [3, '']])
  assert.deepEqual(await store.bounds('log'), { first: 0, next: 4 })
  assert.deepEqual((await store.readMany(['log', 'none'])).map(plain), [[[0, 'a'], [1, 'b'], [2, 'c'], [3, '']], []])
  assert.equal(await store.last('none'), null)
  assert.equal(await store.first('none'), null)
  assert.equal(await store.getBounds('none'), null)
  assert.deepEqual([await store.exists('log'), await store.exists('none')], [true, false])
})

test('numbers about a store', async t => {
  const { store } = await opened(t)
  const empty = await store.info()
  await store.appendMany('log', ['a', 'b'])
  const written = await store.info()
  assert.equal(written.memtableLogs, empty.memtableLogs + 1)
  assert(written.format > 0 && written.epoch > 0 && written.memtableBytes > 0 && written.heapFree >= 0)
  assert(written.size >= written.ringInUse && written.ringSize >= written.ringInUse && written.ringInUse > 0)
  assert.deepEqual([written.runs, written.runBytes, written.stopped], [0, 0, false])
  await store.checkpoint()
  const moved = await store.info()
  assert(moved.runs > 0 && moved.runBytes > 0)
  assert.deepEqual([typeof moved.checkpointing, typeof moved.compacting], ['boolean', 'boolean'])
})

test('a generator may use one buffer for all that it yields', async t => {
  const { store } = await opened(t)
  function * numbers () {
    const one = Buffer.alloc(1)
    for (let n = 48; n < 51; n++) {
      one[0] = n
      yield one
    }
  }
  assert.deepEqual(await store.appendMany('1', numbers()), [0, 1, 2])
  assert.deepEqual(plain(await all(store.read('1'))), [[0, '0'], [1, '1'], [2, '2']])
  assert.deepEqual((await store.readMany(numbers())).map(entries => entries.length), [0, 3, 0])
})

test('keys are bytes', async t => {
  const { store } = await opened(t)
  await store.append(Uint8Array.of(0, 255), 'a')
  await store.append('é', 'b')
  await store.append(Buffer.from('é'), 'c')
  assert.deepEqual(plain(await all(store.read('é'))), [[0, 'b'], [1, 'c']])
  const logs = await all(store.scan())
  assert.deepEqual(logs.map(log => [...log.key]), [[0, 255], [...Buffer.from('é')]])
  assert.deepEqual(logs[1].bounds, { first: 0, next: 2 })
})

test('lists logs by prefix and from a key', async t => {
  const { store } = await opened(t)
  await Promise.all(Array.from({ length: 3000 }, (_, n) => store.append(`log/${String(n).padStart(4, '0')}`, 'x')))
  await store.append('other', 'x')
  const keys = (await all(store.scan('log/', { start: 'log/0010' }))).map(log => log.key.toString())
  assert.equal(keys.length, 2990)
  assert.equal(keys[0], 'log/0010')
  assert.equal(keys.at(-1), 'log/2999')
})

test('reads more than a batch, both ways', async t => {
  const { store } = await opened(t)
  const payloads = Array.from({ length: 5000 }, (_, n) => `entry ${n}`)
  await store.appendMany('log', payloads)
  assert.deepEqual((await all(store.read('log'))).map(entry => entry.payload.toString()), payloads)
  assert.deepEqual((await all(store.read('log', { reverse: true }))).map(entry => entry.seq), payloads.map((_, n) => 4999 - n))
})

test('a commit happens whole or not at all', async t => {
  const { store } = await opened(t)
  const commit = new Commit().expectNext('a', 0).append('a', '1').append('b', '2').append('a', '3')
  assert.deepEqual(await store.commit(commit), [0, 0, 1])
  await assert.rejects(store.commit(commit), error => {
    assert(error instanceof BrookletError)
    assert.deepEqual([error.name, error.code, error.next], ['BrookletError', 'BROOKLET_CONFLICT', 2])
    return true
  })
  await assert.rejects(store.commit(new Commit().append('b', 'x').expectAbsent('a')), { code: 'BROOKLET_CONFLICT' })
  assert.deepEqual(await store.bounds('b'), { first: 0, next: 1 })
})

test('trims, truncates, snapshots, deletes', async t => {
  const { store } = await opened(t)
  await store.appendMany('log', ['0', '1', '2', '3', '4', '5'])
  await store.trim('log', 2)
  await store.truncate('log', 5)
  assert.deepEqual(await store.bounds('log'), { first: 2, next: 5 })
  await assert.rejects(all(store.read('log', { start: 0 })), { code: 'BROOKLET_NOT_FOUND', first: 2, next: 5 })
  assert.deepEqual(plain(await all(store.readAvailable('log', { start: 0 }))), [[2, '2'], [3, '3'], [4, '4']])
  await store.keepLast('log', 1)
  assert.deepEqual(await store.bounds('log'), { first: 4, next: 5 })
  assert.equal(await store.snapshot('log', 'all'), 5)
  assert.deepEqual(plain(await all(store.read('log'))), [[5, 'all']])
  await store.delete('log')
  await assert.rejects(store.bounds('log'), { code: 'BROOKLET_NOT_FOUND' })
  await store.beginAt('log', 100)
  assert.equal(await store.append('log', 'x'), 100)
  await store.setRetention('log', { entries: 2 })
  await store.appendMany('log', ['y', 'z'])
  assert.deepEqual(await store.bounds('log'), { first: 101, next: 103 })
})

test('a store is found again', async t => {
  const { path, store } = await opened(t)
  await store.commit(new Commit().append('log', 'durable').defer(60_000).durable())
  await store.commit(new Commit().append('log', 'deferred').defer(60_000))
  await store.flush()
  await store.checkpoint()
  const closing = [store.close(), store.close()]
  await Promise.all(closing)
  await store.close()
  const again = await open(path, { create: 'never', permissions: 0o600 })
  assert.deepEqual(plain(await all(again.read('log'))), [[0, 'durable'], [1, 'deferred']])
  if (Symbol.asyncDispose) await again[Symbol.asyncDispose]()
  await again.close()
})

test('a close ends the appends in flight: they are durable or refused', async t => {
  const { path, store } = await opened(t)
  const appends = Array.from({ length: 500 }, (_, n) => store.append('log', `${n}`))
  await store.close()
  const again = await open(path)
  const found = plain(await all(again.readAvailable('log')))
  for (const [n, { status, value, reason }] of (await Promise.allSettled(appends)).entries()) {
    if (status === 'fulfilled') assert.deepEqual(found[value], [value, `${n}`])
    else assert.equal(reason.code, 'BROOKLET_CLOSED')
  }
  await again.close()
})

test('a number that JavaScript cannot represent is an error', async t => {
  const { store } = await opened(t)
  await store.beginAt('log', Number.MAX_SAFE_INTEGER)
  assert.equal(await store.append('log', 'the last one'), Number.MAX_SAFE_INTEGER)
  await assert.rejects(store.append('log', 'one more'), { code: 'BROOKLET_UNSAFE_NUMBER', message: /9007199254740992/ })
  const found = []
  await assert.rejects(async () => { for await (const { seq } of store.read('log')) found.push(seq) }, { code: 'BROOKLET_UNSAFE_NUMBER' })
  assert.deepEqual(found, [Number.MAX_SAFE_INTEGER])
})

test('a store opens again at once after a close beside appends', async t => {
  const path = join(folder(t), 'store')
  const moment = new Int32Array(new SharedArrayBuffer(4))
  for (let n = 0; n < 5; n++) {
    const store = await open(path)
    const appended = store.append('log', 'x')
    const closed = store.close()
    // The store closes meanwhile, and no turn of the event loop takes the end of the append.
    Atomics.wait(moment, 0, 0, 100)
    await closed
    await (await open(path)).close()
    assert.equal(await appended, n)
  }
})

test('one library, however it is loaded', () => {
  const required = createRequire(import.meta.url)('brooklet')
  assert.equal(required.open, open)
  assert.equal(required.Store, Store)
  assert.equal(required.BrookletError, BrookletError)
})

test('appends of one turn keep their order with other writes, and their own results', async t => {
  const { store } = await opened(t, { maxPayload: 1 << 20 })
  const long = Buffer.alloc(700_000, 'l')
  const writes = [
    store.append('log', 'a'), store.appendMany('log', ['b']), store.append('log', long), store.append('log', 'd'),
    store.commit(new Commit().append('log', 'e')), store.append('log', Buffer.alloc((1 << 20) + 1)), store.append('log', 'f'), store.flush()
  ]
  const ends = await Promise.allSettled(writes)
  assert.deepEqual(ends.map(({ value, reason }) => reason?.code ?? value), [0, [1], 2, 3, [4], 'BROOKLET_INVALID', 5, undefined])
  assert.deepEqual((await all(store.read('log'))).map(({ payload }) => payload.toString('latin1', 0, 1)), ['a', 'b', 'l', 'd', 'e', 'f'])
  const many = await Promise.all(Array.from({ length: 5000 }, (_, n) => store.append(`log/${n % 3}`, `${n}`)))
  assert.deepEqual(many, Array.from({ length: 5000 }, (_, n) => Math.floor(n / 3)))
})

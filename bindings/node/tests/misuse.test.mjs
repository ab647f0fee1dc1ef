import assert from 'node:assert/strict'
import { existsSync } from 'node:fs'
import { createRequire } from 'node:module'
import { dirname, join } from 'node:path'
import test from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { BrookletError, Commit, Store, open } from 'brooklet'
import { all, folder, opened, plain } from './common.mjs'

setFlagsFromString('--expose-gc')
const collect = runInNewContext('gc')

const WRONG = [undefined, null, 7, 7n, true, {}, ['a'], Symbol('a'), () => 'a', new Uint16Array(2), new ArrayBuffer(2)]
const type = { name: 'TypeError', code: 'ERR_INVALID_ARG_TYPE' }

test('wrong types are refused, and nothing is written', async t => {
  const { store } = await opened(t)
  for (const wrong of WRONG) {
    await assert.rejects(store.append(wrong, 'a'), type)
    await assert.rejects(store.append('log', wrong), type)
    await assert.rejects(store.appendMany('log', ['a', wrong]), type)
    await assert.rejects(store.snapshot('log', wrong), type)
    await assert.rejects(store.bounds(wrong), type)
    await assert.rejects(store.waitFor(wrong, 1), type)
    await assert.rejects(store.readMany(['log', wrong]), type)
    await assert.rejects(store.commit(wrong), type)
    assert.throws(() => store.read(wrong), type)
    assert.throws(() => store.tail(wrong), type)
    assert.throws(() => new Commit().append('log', wrong), type)
  }
  for (const wrong of [undefined, null, 7, {}, 'abc']) await assert.rejects(store.appendMany('log', wrong), type)
  assert.equal(await store.exists('log'), false)
})

test('strings without UTF-8 bytes are refused, and nothing is written', async t => {
  const { store } = await opened(t)
  const value = { name: 'TypeError', code: 'ERR_INVALID_ARG_VALUE' }
  for (const wrong of ['\ud800', 'a\udc00b', '\udc00\ud800']) {
    await assert.rejects(store.append(wrong, 'a'), value)
    await assert.rejects(store.append('log', wrong), value)
    await assert.rejects(store.bounds(wrong), value)
    assert.throws(() => store.read(wrong), value)
    assert.throws(() => new Commit().append('log', wrong), value)
  }
  assert.deepEqual(await all(store.scan()), [])
  await store.append('\u{1f30a}', '\u{1f30a}')
  assert.deepEqual(plain(await all(store.read('\u{1f30a}'))), [[0, '\u{1f30a}']])
})

test('wrong numbers are refused', async t => {
  const { store } = await opened(t)
  await store.appendMany('log', ['a', 'b'])
  for (const wrong of [-1, 0.5, NaN, Infinity, 2 ** 53]) {
    const range = { name: 'RangeError', code: 'ERR_OUT_OF_RANGE' }
    await assert.rejects(store.trim('log', wrong), range)
    await assert.rejects(store.waitFor('log', wrong), range)
    assert.throws(() => store.read('log', { start: wrong }), range)
    assert.throws(() => new Commit().expectNext('log', wrong), range)
  }
  await assert.rejects(store.truncate('log', '1'), type)
  await assert.rejects(store.trim('log'), type)
  await assert.rejects(store.trim('log', 1n), type)
  assert.deepEqual(await store.bounds('log'), { first: 0, next: 2 })
})

test('wrong options are refused, and no file is made', async t => {
  const path = join(folder(t), 'store')
  for (const wrong of [{ readonly: true }, { readOnly: 1 }, { create: 'always' }, { capacity: '1' }, null, 7]) {
    await assert.rejects(open(path, wrong), error => error instanceof TypeError || error.code === 'BROOKLET_INVALID')
  }
  for (const wrong of [undefined, null, 7, {}]) await assert.rejects(open(wrong), type)
  assert.equal(existsSync(path), false)
  await assert.rejects(open(path, { create: 'never' }), error => error instanceof BrookletError && error.message.includes(path))
  assert.throws(() => new Store(), TypeError)
  assert.throws(() => new Store({}), TypeError)
})

test('a store that is open is not opened again', async t => {
  const { path } = await opened(t)
  await assert.rejects(open(path), { code: 'BROOKLET_CANNOT_OPEN' })
})

test('a closed store refuses each call', async t => {
  const { store } = await opened(t)
  const tail = store.tail('log')
  await store.close()
  const calls = [
    store.append('log', 'a'), store.appendMany('log', ['a']), store.commit(new Commit().append('log', 'a')), store.trim('log', 1),
    store.first('log'), store.bounds('log'), store.readMany(['log']), store.exists('log'), store.flush(), store.checkpoint(),
    store.waitFor('log', 1), store.info(),
    all(store.read('log')), all(store.scan()), all(store.tail('log')), all(tail)
  ]
  for (const { status, reason } of await Promise.allSettled(calls)) {
    assert.deepEqual([status, reason?.name, reason?.code], ['rejected', 'BrookletError', 'BROOKLET_CLOSED'])
  }
})

test('huge and empty buffers', async t => {
  const { store } = await opened(t, { maxPayload: 1 << 20 })
  await assert.rejects(store.append('log', Buffer.alloc((1 << 20) + 1)), { code: 'BROOKLET_INVALID' })
  await assert.rejects(store.append(Buffer.alloc(1 << 20), 'a'), { code: 'BROOKLET_INVALID' })
  const huge = Buffer.alloc(1 << 20, 'x')
  await store.append('log', huge)
  await store.append('log', new Uint8Array(0))
  const [first, second] = await all(store.read('log'))
  assert(first.payload.equals(huge))
  assert.equal(second.payload.length, 0)
  const detached = Buffer.from(new ArrayBuffer(8))
  structuredClone(detached.buffer, { transfer: [detached.buffer] })
  await assert.rejects(store.append('log', detached), TypeError)
  await assert.rejects(store.append('', 'a').then(() => { throw new Error('taken') }), error => error.message === 'taken' || error.code === 'BROOKLET_INVALID')
})

test('a buffer whose length has more than 32 bits is refused, not cut', async t => {
  const { store } = await opened(t)
  // Only its length is huge: no test needs 4 GiB.
  const huge = Object.defineProperty(Buffer.from('abc'), 'length', { value: 2 ** 32 + 1 })
  const refused = error => error instanceof BrookletError && error.code === 'BROOKLET_INVALID' && error.message.includes('4294967297')
  await assert.rejects(store.append('log', huge), refused)
  await assert.rejects(store.append(huge, 'a'), refused)
  await assert.rejects(store.appendMany('log', ['a', huge]), refused)
  assert.throws(() => new Commit().append('log', huge), refused)
  assert.equal(await store.exists('log'), false)
})

test('shared memory, and memory that changes after the call', async t => {
  const { store } = await opened(t)
  const shared = new Uint8Array(new SharedArrayBuffer(4)).fill(97)
  const own = Buffer.from('bbbb')
  const appends = [store.append('log', shared), store.append('log', own), store.appendMany('log', [own])]
  own.fill('c')
  shared.fill(99)
  await Promise.all(appends)
  assert.deepEqual(plain(await all(store.read('log'))), [[0, 'aaaa'], [1, 'bbbb'], [2, 'bbbb']])
})

test('an iterator that is left early keeps nothing of the store', async t => {
  const require = createRequire(import.meta.url)
  const native = require(join(dirname(require.resolve('brooklet')), 'brooklet.node'))
  const { store } = await opened(t)
  for (let n = 0; n < 20; n++) await store.appendMany('log', Array(1000).fill('x'))
  await Promise.all(Array.from({ length: 20_000 }, (_, n) => store.append(`logs/${n}`, 'x')))
  const readers = []
  const methods = { read: native.Store.prototype.read, scan: native.Store.prototype.scan }
  for (const [name, method] of Object.entries(methods)) {
    native.Store.prototype[name] = function (...given) {
      readers.push(method.apply(this, given))
      return readers.at(-1)
    }
  }
  t.after(() => Object.assign(native.Store.prototype, methods))
  for (const items of [store.read('log'), store.scan('logs/')]) {
    await items.next()
    await items.return()
  }
  assert.equal(readers.length, 2)
  for (const reader of readers) {
    // A thread of the pool ends it soon. One that was not ended has many batches left.
    let left = 1
    for (let tries = 0; tries < 10 && left > 0; tries++) {
      await sleep(20)
      const [failure, rows] = await reader.take()
      left = failure ? 1 : rows[0].length
    }
    assert.equal(left, 0)
  }
})

test('the garbage collector in mid-call', async t => {
  const { path, store } = await opened(t)
  let appends = []
  for (let n = 0; n < 300; n++) {
    appends.push(store.append(Buffer.from(`log/${n % 7}`), Buffer.from(`entry ${n}`)))
    appends.push(store.commit(new Commit().append('commits', Buffer.alloc(2000, n))))
    store.tail('log/0').next().catch(() => {})
    store.read('log/0').next().catch(() => {})
    if (n % 10 === 0) collect()
  }
  await Promise.all(appends)
  appends = undefined
  collect()
  assert.equal((await store.bounds('commits')).next, 300)
  await store.close()

  // A store that nobody holds is closed.
  const lost = async () => { await (await open(path)).append('lost', 'a') }
  await lost()
  for (const end = Date.now() + 120_000; ;) {
    await new Promise(resolve => setImmediate(resolve))
    collect()
    try {
      const again = await open(path)
      assert.deepEqual(plain(await all(again.read('lost'))), [[0, 'a']])
      await again.close()
      break
    } catch (error) {
      if (Date.now() > end || error.code !== 'BROOKLET_CANNOT_OPEN') throw error
    }
  }
})

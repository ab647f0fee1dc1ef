import assert from 'node:assert/strict'
import { join } from 'node:path'
import test from 'node:test'
import { Commit } from 'brooklet'
import { BrookletPersistence } from 'brooklet/yjs'
import { createRequire } from 'node:module'
import { all, folder, opened } from './common.mjs'

// One copy of yjs, that of the library.
const Y = createRequire(import.meta.url)('yjs')

/** The numbers between two clears: as many as in brooklet-yrs. */
const NUMBERS = 2 ** 24

/** A document whose updates are stored. */
function stored (persistence, name) {
  const doc = new Y.Doc()
  const writes = []
  doc.on('update', update => writes.push(persistence.storeUpdate(name, update)))
  return { doc, text: doc.getText('text'), writes }
}

/** The key of the log that counts the clears of the documents among which this one is. */
function countOf (prefix, name) {
  const hash = Buffer.from(name).reduce((hash, byte) => Math.imul(hash ^ byte, 0x01000193) >>> 0, 0x811c9dc5)
  return `${prefix}c${String.fromCharCode(48 + hash % 64)}`
}

/** Two names of documents whose clears one log counts. */
function sharing (prefix, name) {
  for (let n = 0; ; n++) {
    if (countOf(prefix, `${name}${n}`) === countOf(prefix, name)) return [name, `${name}${n}`]
  }
}

const text = async (persistence, name) => (await persistence.getYDoc(name)).getText('text').toString()

test('documents are found again', async t => {
  const path = join(folder(t), 'store')
  const persistence = new BrookletPersistence(path)
  assert.equal(await text(persistence, 'none'), '')
  const { doc, text: edited, writes } = stored(persistence, 'notes')
  edited.insert(0, 'world')
  edited.insert(0, 'hello ')
  assert.equal(await text(persistence, 'notes'), 'hello world') // a call waits for those before
  assert.deepEqual(await Promise.all(writes), [0, 1])
  assert.deepEqual(await persistence.getStateVector('notes'), Y.encodeStateVector(doc))
  await persistence.destroy()

  const again = new BrookletPersistence(path)
  assert.equal(await text(again, 'notes'), 'hello world')
  const behind = new Y.Doc()
  Y.applyUpdate(behind, await again.getDiff('notes', Y.encodeStateVector(behind)))
  assert.equal(behind.getText('text').toString(), 'hello world')
  assert.deepEqual(await again.getAllDocNames(), ['notes'])
  await again.destroy()
})

test('a flush merges, also by itself, and loses nothing', async t => {
  const { store } = await opened(t)
  const persistence = new BrookletPersistence(store, { prefix: 'docs/' })
  const { text: edited, writes } = stored(persistence, 'notes')
  for (let n = 0; n < 20; n++) edited.insert(0, 'a')
  const flushed = persistence.flushDocument('notes')
  edited.insert(0, 'b')
  await flushed
  await Promise.all(writes)
  assert.deepEqual(await store.bounds('docs/dnotes'), { first: 20, next: 22 })
  assert.equal(await text(persistence, 'notes'), 'b' + 'a'.repeat(20))
  for (let n = 0; n < 500; n++) edited.insert(0, 'c')
  assert.equal((await text(persistence, 'notes')).length, 521)
  const { first, next } = await store.bounds('docs/dnotes')
  assert.equal(next - first, 1)
  assert.equal((await text(persistence, 'notes')).length, 521)
  await persistence.flushDocument('none')
  assert.equal(await store.exists('docs/dnone'), false)
  await persistence.destroy()
  await store.append('the store', 'is still open')
})

test('a document that cannot be merged is read all the same', async t => {
  const path = join(folder(t), 'store')
  const whole = 'x'.repeat(200 * 501)
  const first = new BrookletPersistence(path)
  const { text: edited, writes } = stored(first, 'notes')
  for (let n = 0; n < 501; n++) edited.insert(0, 'x'.repeat(200))
  await Promise.all(writes)
  await first.destroy()
  for (const openOptions of [{ readOnly: true }, { maxPayload: 64 << 10 }]) {
    const persistence = new BrookletPersistence(path, { openOptions })
    assert.equal(await text(persistence, 'notes'), whole)
    assert.ok((await persistence.getStateVector('notes')).length > 0)
    await assert.rejects(persistence.flushDocument('notes'), { name: 'BrookletError' })
    await persistence.destroy()
  }
  const last = new BrookletPersistence(path)
  assert.equal(await text(last, 'notes'), whole)
  await last.destroy()
})

test('metadata, and a clear', async t => {
  const { store } = await opened(t)
  const persistence = new BrookletPersistence(store)
  await persistence.storeUpdate('a', Y.encodeStateAsUpdate(new Y.Doc()))
  await persistence.storeUpdate('ab', Y.encodeStateAsUpdate(new Y.Doc()))
  const value = { list: [1, 'two', null], bytes: Uint8Array.of(1, 2) }
  await persistence.setMeta('a', 'key', 1)
  await persistence.setMeta('a', 'key', value)
  await persistence.setMeta('a', 'other', 'x')
  await persistence.setMeta('ab', 'key', 'of another')
  assert.deepEqual(await persistence.getMeta('a', 'key'), value)
  assert.deepEqual(await persistence.getMetas('a'), new Map([['key', value], ['other', 'x']]))
  await persistence.delMeta('a', 'other')
  await persistence.delMeta('a', 'none')
  assert.equal(await persistence.getMeta('a', 'other'), undefined)
  await persistence.clearDocument('a')
  await persistence.clearDocument('none')
  assert.deepEqual(await persistence.getAllDocNames(), ['ab'])
  assert.equal((await persistence.getMetas('a')).size, 0)
  assert.equal(await persistence.getMeta('ab', 'key'), 'of another')
  const keys = (await all(store.scan())).map(({ key }) => key.toString())
  assert.deepEqual(keys.filter(key => key[0] !== 'c'), ['dab', 'm\0\u0002abkey'])
})

test('a clear takes any number of values', async t => {
  const { store } = await opened(t)
  const persistence = new BrookletPersistence(store)
  await persistence.storeUpdate('a', Y.encodeStateAsUpdate(new Y.Doc()))
  await Promise.all(Array.from({ length: 2100 }, (_, n) => persistence.setMeta('a', `${n}`, n)))
  await persistence.clearDocument('a')
  assert.equal((await persistence.getMetas('a')).size, 0)
  const keys = (await all(store.scan())).map(({ key }) => key.toString())
  assert.equal(keys.length, 1, 'the count of clears')
})

test('the state vectors of all documents', async t => {
  const { store } = await opened(t)
  const persistence = new BrookletPersistence(store, { prefix: 'p/' })
  assert.deepEqual(await persistence.getAllDocStateVectors(), [])
  const { doc: a, text: edited } = stored(persistence, 'a')
  edited.insert(0, 'x')
  edited.insert(0, 'y')
  const { doc: b, text: other } = stored(persistence, 'b')
  other.insert(0, 'z')
  await store.append('p/x', 'no document')
  const vectors = [
    { name: 'a', sv: Y.encodeStateVector(a), clock: 1 },
    { name: 'b', sv: Y.encodeStateVector(b), clock: 0 }
  ]
  assert.deepEqual(await persistence.getAllDocStateVectors(), vectors)
  await persistence.flushDocument('a')
  assert.deepEqual((await persistence.getAllDocStateVectors()).map(({ name, clock }) => [name, clock]), [['a', 2], ['b', 0]])
})

test('a clear of all waits for the calls before, and those after wait for it', async t => {
  const { store } = await opened(t)
  const persistence = new BrookletPersistence(store, { prefix: 'p/' })
  const update = Y.encodeStateAsUpdate(new Y.Doc())
  await store.append('others', 'stays')
  await store.append('p/x', 'stays')
  const writes = []
  for (let n = 0; n < 2100; n++) writes.push(persistence.storeUpdate(`doc ${n}`, update))
  writes.push(persistence.setMeta('doc 7', 'key', 1))
  const cleared = persistence.clearAll()
  const after = persistence.storeUpdate('doc 7', update)
  await Promise.all(writes)
  await cleared
  assert.equal(await after % NUMBERS, 0)
  assert.deepEqual(await persistence.getAllDocNames(), ['doc 7'])
  assert.equal(await persistence.getMeta('doc 7', 'key'), undefined)
  const keys = (await all(store.scan())).map(({ key }) => key.toString())
  assert.deepEqual(keys.filter(key => !key.startsWith('p/c')), ['others', 'p/ddoc 7', 'p/x'])
  await persistence.clearAll()
  await persistence.clearAll()
  assert.deepEqual(await persistence.getAllDocNames(), [])
})

test('a document that is made again begins behind all numbers of its name', async t => {
  const { store } = await opened(t)
  const persistence = new BrookletPersistence(store, { prefix: 'docs/' })
  const update = Y.encodeStateAsUpdate(new Y.Doc())
  assert.equal(await persistence.storeUpdate('cleared', update), 0)
  assert.equal(await persistence.storeUpdate('cleared', update), 1)
  await persistence.clearDocument('cleared')
  // The key of the golden test of brooklet-yrs.
  assert.deepEqual((await all(store.scan())).map(({ key }) => key.toString()), ['docs/cc'])
  assert.equal((await store.bounds('docs/cc')).next, 1)
  await persistence.clearDocument('cleared')
  assert.equal((await store.bounds('docs/cc')).next, 1, 'nothing was there')
  assert.equal(await persistence.storeUpdate('cleared', update), NUMBERS)
  assert.equal(await persistence.storeUpdate('cleared', update), NUMBERS + 1)
  assert.deepEqual((await persistence.getAllDocStateVectors()).map(({ clock }) => clock), [NUMBERS + 1])
  await persistence.flushDocument('cleared')
  await persistence.clearAll()
  assert.equal((await store.bounds('docs/cc')).next, 2)
  // A count of brooklet-yrs may have an entry.
  await store.append('docs/cc', '')
  assert.equal(await persistence.storeUpdate('cleared', update), 3 * NUMBERS)
  // Another part of the documents.
  assert.equal(await persistence.storeUpdate('other', update), 0)
  // Many clears at once, of two documents of one part.
  const [one, other] = sharing('docs/', 'many')
  for (let n = 0; n < 5; n++) {
    await Promise.all([one, other].map(name => persistence.storeUpdate(name, update)))
    await Promise.all([one, other].map(name => persistence.clearDocument(name)))
  }
  assert.equal((await store.bounds(countOf('docs/', one))).next, 10)
})

test('a clear passes the numbers of its document', async t => {
  const { store } = await opened(t)
  const persistence = new BrookletPersistence(store, { prefix: 'docs/' })
  const update = Y.encodeStateAsUpdate(new Y.Doc())
  // More updates than there are numbers between two clears, and numbers of an earlier version.
  for (const [name, number, clears, clear] of [
    ['large', 3 * NUMBERS - 2, 4, () => persistence.clearDocument('large')],
    ['old', 7 * 2 ** 32, 7 * 2 ** 8 + 1, () => persistence.clearAll()]
  ]) {
    await store.commit(new Commit().beginAt(`docs/d${name}`, number))
    for (let n = 0; n < 4; n++) assert.equal(await persistence.storeUpdate(name, update), number + n)
    await clear()
    assert.equal(await persistence.storeUpdate(name, update), clears * NUMBERS)
  }
  // An earlier version may have begun a document at the count times 2^32.
  await store.beginAt(countOf('docs/', 'again'), 3 * 2 ** 8)
  for (const clears of [3 * 2 ** 8 + 1, 3 * 2 ** 8 + 2]) {
    assert.equal(await persistence.storeUpdate('again', update), clears * NUMBERS)
    await persistence.clearDocument('again')
  }
  // JavaScript has no greater numbers.
  await store.beginAt(countOf('docs/', 'late'), 2 ** 40)
  assert.equal(await persistence.storeUpdate('late', update), 2 ** 53 - NUMBERS)
})

test('the bytes and values of a caller may change after the call', async t => {
  const { store } = await opened(t)
  const persistence = new BrookletPersistence(store)
  const doc = new Y.Doc()
  doc.getText('text').insert(0, 'hello')
  const update = Buffer.from(Y.encodeStateAsUpdate(doc))
  const value = { version: 1 }
  const calls = [persistence.storeUpdate('a', update), persistence.setMeta('a', 'key', value)]
  update.fill(0)
  value.version = 2
  await Promise.all(calls)
  assert.equal(await text(persistence, 'a'), 'hello')
  assert.deepEqual(await persistence.getMeta('a', 'key'), { version: 1 })
  const vector = Buffer.from(Y.encodeStateVector(doc))
  const diff = persistence.getDiff('a', vector)
  vector.fill(0)
  assert.deepEqual(await diff, Y.encodeStateAsUpdate(doc, Y.encodeStateVector(doc)))
})

// In an earlier state, the flush replaced the new update by the old document: the number of the next entry was the same.
test('objects on one store take turns', async t => {
  const { store } = await opened(t)
  const [one, other] = [0, 1].map(() => new BrookletPersistence(store))
  const of = words => {
    const doc = new Y.Doc()
    doc.getText('text').insert(0, words)
    return Y.encodeStateAsUpdate(doc)
  }
  await one.storeUpdate('doc', of('old'))
  // When the flush has read the document, the other object clears it and stores as many updates, or waits for its turn.
  const commit = store.commit.bind(store)
  let renewed
  store.commit = async made => {
    store.commit = commit
    renewed = other.clearDocument('doc').then(() => other.storeUpdate('doc', of('new')))
    await Promise.race([renewed, new Promise(resolve => setTimeout(resolve, 200))])
    return commit(made)
  }
  await one.flushDocument('doc')
  await renewed
  assert.equal(await text(one, 'doc'), 'new')
})

test('bytes that are no update are refused, and the document stays', async t => {
  const { store } = await opened(t)
  const persistence = new BrookletPersistence(store)
  const { text: edited, writes } = stored(persistence, 'a')
  edited.insert(0, 'hello')
  await Promise.all(writes)
  for (const wrong of [new Uint8Array(0), Uint8Array.of(1), Uint8Array.of(255, 255), Uint8Array.of(0)]) {
    await assert.rejects(persistence.storeUpdate('a', wrong), { code: 'BROOKLET_INVALID' })
  }
  await assert.rejects(persistence.storeUpdate('a', 'text'), TypeError)
  assert.equal(await text(persistence, 'a'), 'hello')
  assert.deepEqual(await store.bounds('da'), { first: 0, next: 1 })
})

test('bad input is refused, and loses nothing', async t => {
  const { store } = await opened(t)
  const persistence = new BrookletPersistence(store)
  await assert.rejects(persistence.storeUpdate('a', null), TypeError)
  await assert.rejects(persistence.getYDoc(7), TypeError)
  await assert.rejects(persistence.getYDoc('\ud800'), TypeError)
  await assert.rejects(persistence.setMeta('a', '\ud800', 1), TypeError)
  await store.append('da', 'no update')
  await assert.rejects(persistence.getYDoc('a'), { code: 'BROOKLET_INVALID' })
  await assert.rejects(persistence.flushDocument('a'), { code: 'BROOKLET_INVALID' })
  assert.equal((await store.bounds('da')).next, 1)
  await assert.rejects(new BrookletPersistence(join(folder(t), 'no', 'folder')).getYDoc('a'), { name: 'BrookletError' })
})

'use strict'
// Documents of Yjs: the logs are those of the crate `brooklet-yrs`, which describes them. In short: the log
// `<prefix>d<name>` has the updates, each behind a byte, 1 for a merged state and 2 for an update. The log
// `<prefix>m<length of the name><name><key>` has a value of metadata as its last entry. The next number of the log
// `<prefix>c<part>` is the number of clears of the documents of a part. The log of a document that is made after so many
// clears begins at this count times 2^24, so that no number of its name comes again. Counts that are multiples of 256 are left
// out.

const Y = require('yjs')
const any = require('lib0/buffer')
const { key: bytesOf } = require('./argument.js')
const { BrookletError, Commit, Store, open } = require('./index.js')

const STATE = Buffer.of(1)
const UPDATE = Buffer.of(2)

/** A document is merged when it is read, and has more updates. */
const MOST_UPDATES = 500

/** Most logs that one commit deletes. */
const MOST_DELETIONS = 1000

/** How many parts of the documents have a count of clears each. */
const PARTS = 64

/** The numbers between two clears. A document of more updates uses numbers of later counts. */
const NUMBERS = 2 ** 24

/** An earlier version began documents at the numbers of each count that is a multiple of this. */
const EARLIER = 2 ** 8

/** More updates than a store can have that reads do not show yet. */
const UNSEEN = 2 ** 20

/** Most clears that have numbers of their own: JavaScript has no greater ones. */
const MOST_CLEARS = 2 ** 29 - 1

/** The calls on the documents below a prefix of a store, one after another on each document. */
class Turns {
  /** The last call on each document that has not ended. */
  last = new Map()
  /** The last `clearAll`. Later calls wait for it. */
  cleared = Promise.resolve()
}

/** The turns on each store that is passed, by prefix: all objects share them. */
const shared = new WeakMap()

function turnsOn (store, prefix) {
  const all = shared.get(store) ?? new Map()
  shared.set(store, all)
  if (!all.has(prefix)) all.set(prefix, new Turns())
  return all.get(prefix)
}

class BrookletPersistence {
  #store
  #owns
  #prefix
  #turns

  constructor (location, { prefix = '', openOptions } = {}) {
    this.#owns = !(location instanceof Store)
    this.#store = this.#owns ? open(location, openOptions) : Promise.resolve(location)
    // The calls report it.
    this.#store.catch(() => {})
    this.#prefix = prefix
    this.#turns = this.#owns ? new Turns() : turnsOn(location, prefix)
  }

  getYDoc (docName) {
    return this.#turn(docName, async (store, log) => {
      const { doc, count, next } = await loaded(store, log)
      if (count > MOST_UPDATES) await tryFlush(store, log, doc, next)
      return doc
    })
  }

  async storeUpdate (docName, update) {
    const entry = entryOf(update)
    return this.#turn(docName, (store, log) => push(store, log, entry, this.#count(bytesOf(docName))))
  }

  async getStateVector (docName) {
    return Y.encodeStateVector(await this.getYDoc(docName))
  }

  async getDiff (docName, stateVector) {
    // A copy: the bytes are the caller's again when the call returns.
    const vector = stateVector === undefined ? undefined : Uint8Array.from(stateVector)
    return Y.encodeStateAsUpdate(await this.getYDoc(docName), vector)
  }

  flushDocument (docName) {
    return this.#turn(docName, async (store, log) => {
      const { doc, count, next } = await loaded(store, log)
      if (count > 0) await flush(store, log, doc, next)
    })
  }

  clearDocument (docName) {
    return this.#turn(docName, async (store, log) => {
      const bounds = await store.getBounds(log)
      const logs = bounds === null ? [] : [log]
      for await (const { key } of store.scan(this.#meta(docName, ''))) logs.push(key)
      // No value outlives its document.
      while (logs.length > MOST_DELETIONS) await clear(store, logs.splice(1 - MOST_DELETIONS), new Map())
      const ends = new Map([[this.#count(bytesOf(docName)), bounds?.next ?? 0]])
      if (logs.length > 0) await clear(store, logs, ends)
    })
  }

  async setMeta (docName, metaKey, value) {
    const entry = Buffer.from(any.encodeAny(value))
    return this.#turn(docName, async store => {
      await store.snapshot(this.#meta(docName, metaKey), entry)
    })
  }

  getMeta (docName, metaKey) {
    return this.#turn(docName, async store => {
      const last = await store.last(this.#meta(docName, metaKey))
      return last === null ? undefined : any.decodeAny(last.payload)
    })
  }

  delMeta (docName, metaKey) {
    return this.#turn(docName, async store => {
      const log = this.#meta(docName, metaKey)
      if (await store.exists(log)) await store.delete(log)
    })
  }

  getMetas (docName) {
    return this.#turn(docName, async store => {
      const metas = new Map()
      const prefix = this.#meta(docName, '')
      for await (const { key } of store.scan(prefix)) {
        const last = await store.last(key)
        if (last !== null) metas.set(key.toString('utf8', prefix.length), any.decodeAny(last.payload))
      }
      return metas
    })
  }

  async getAllDocNames () {
    await this.#idle()
    const prefix = Buffer.from(`${this.#prefix}d`)
    const names = []
    for await (const { key } of (await this.#store).scan(prefix)) names.push(key.toString('utf8', prefix.length))
    return names
  }

  async getAllDocStateVectors () {
    const found = []
    for (const name of await this.getAllDocNames()) {
      found.push(await this.#turn(name, async (store, log) => {
        const { doc, count, next } = await loaded(store, log)
        return count > 0 ? [{ name, sv: Y.encodeStateVector(doc), clock: next - 1 }] : []
      }))
    }
    return found.flat()
  }

  clearAll () {
    const before = [...this.#turns.last.values(), this.#turns.cleared]
    const result = (async () => {
      await Promise.all(before)
      const store = await this.#store
      for (const kind of ['d', 'm']) {
        const prefix = Buffer.from(this.#prefix + kind)
        for (let logs; (logs = await some(store, prefix)).length > 0;) {
          const ends = new Map()
          for (const { key, bounds } of kind === 'd' ? logs : []) {
            const count = this.#count(key.subarray(prefix.length))
            ends.set(count, Math.max(bounds.next, ends.get(count) ?? 0))
          }
          await clear(store, logs.map(({ key }) => key), ends)
        }
      }
    })()
    this.#turns.cleared = result.catch(() => {})
    return result
  }

  async destroy () {
    await this.#idle()
    if (this.#owns) await (await this.#store).close()
  }

  /** Makes a call when those before it on the document have ended. */
  #turn (docName, call) {
    if (typeof docName !== 'string') return Promise.reject(new TypeError('the name of a document is a string'))
    const { last, cleared } = this.#turns
    const before = [last.get(docName), cleared]
    const result = (async () => {
      await Promise.all(before)
      return call(await this.#store, bytesOf(`${this.#prefix}d${docName}`))
    })()
    const turn = result.then(() => {}, () => {}).then(() => {
      if (last.get(docName) === turn) last.delete(docName)
    })
    last.set(docName, turn)
    return result
  }

  async #idle () {
    await Promise.all([...this.#turns.last.values(), this.#turns.cleared])
  }

  /** Returns the key of the log whose next number is the number of clears of the documents among which this one is. */
  #count (name) {
    const hash = name.reduce((hash, byte) => Math.imul(hash ^ byte, 0x01000193) >>> 0, 0x811c9dc5)
    return `${this.#prefix}c${String.fromCharCode(48 + hash % PARTS)}`
  }

  #meta (docName, metaKey) {
    const name = bytesOf(docName)
    const length = Buffer.alloc(2)
    length.writeUInt16BE(name.length)
    return Buffer.concat([Buffer.from(`${this.#prefix}m`), length, name, bytesOf(metaKey)])
  }
}

/** Returns the entry of an update, a copy. A document with other bytes could not be read any more. */
function entryOf (update) {
  if (!(update instanceof Uint8Array)) throw new TypeError('an update is a Uint8Array')
  const entry = Buffer.concat([UPDATE, update])
  try {
    Y.decodeUpdate(entry.subarray(1))
  } catch (error) {
    throw new BrookletError({ code: 'BROOKLET_INVALID', message: `the bytes are no update of Yjs: ${error.message}` })
  }
  return entry
}

/** Returns the first logs with a prefix. */
async function some (store, prefix) {
  const logs = []
  for await (const log of store.scan(prefix)) {
    if (logs.push(log) === MOST_DELETIONS) break
  }
  return logs
}

/** Appends an entry to the log of a document, or makes the log with it. Returns its number. */
async function push (store, log, entry, count) {
  for (let conflicts = 0; ; conflicts++) {
    // Reads show durable entries only.
    if (conflicts > 1) await store.flush()
    try {
      // The trim drops nothing, and fails where the log does not exist.
      return (await store.commit(new Commit().trim(log, 0).append(log, entry)))[0]
    } catch (error) {
      if (error.code !== 'BROOKLET_NOT_FOUND') throw error
    }
    const clears = await clearsOf(store, count)
    const creation = new Commit().expectNext(count, clears).expectAbsent(log)
    const isEarlier = clears > 0 && clears % EARLIER === 0
    if (isEarlier) creation.beginAt(count, clears + 1)
    if (clears > 0) creation.beginAt(log, Math.min(isEarlier ? clears + 1 : clears, MOST_CLEARS) * NUMBERS)
    try {
      return (await store.commit(creation.append(log, entry)))[0]
    } catch (error) {
      // A clear was counted, or somebody else has made the log.
      if (error.code !== 'BROOKLET_CONFLICT') throw error
    }
  }
}

/** Returns the number of clears that a log counts. */
async function clearsOf (store, count) {
  return (await store.getBounds(count))?.next ?? 0
}

/**
 * Deletes logs in one commit, and counts that as a clear. `ends` has the logs that count, each with the greatest next number of
 * the documents that go: the count passes the numbers that these have used up. A full store takes the commit.
 */
async function clear (store, logs, ends) {
  for (;;) {
    const [commit, after] = [new Commit(), new Map()]
    for (const [count, end] of ends) {
      const clears = await clearsOf(store, count)
      commit.expectNext(count, clears)
      after.set(count, Math.max(clears, Math.floor((end + UNSEEN) / NUMBERS)) + 1)
    }
    logs.forEach(log => commit.delete(log))
    after.forEach((clears, count) => commit.beginAt(count, clears))
    try {
      await store.commit(commit)
      return
    } catch (error) {
      if (error.code !== 'BROOKLET_CONFLICT') throw error
      // Another clear was counted, which reads may not show yet.
      await store.flush()
    }
  }
}

/** Returns a document of the updates of a log, their count, and the number of the next one. */
async function loaded (store, log) {
  const doc = new Y.Doc()
  const updates = []
  let next = 0
  for await (const { seq, payload } of store.readAvailable(log)) {
    next = seq + 1
    if (payload[0] !== STATE[0] && payload[0] !== UPDATE[0]) {
      throw new BrookletError({ code: 'BROOKLET_INVALID', message: `entry ${seq} of log ${JSON.stringify(log.toString())} is no update` })
    }
    updates.push(payload.subarray(1))
  }
  doc.transact(() => updates.forEach(update => Y.applyUpdate(doc, update)))
  return { doc, count: updates.length, next }
}

/** Replaces the updates before number `next` by the state of a document. */
async function flush (store, log, doc, next) {
  const state = Buffer.concat([STATE, Y.encodeStateAsUpdate(doc)])
  try {
    await store.commit(new Commit().expectNext(log, next).snapshot(log, state))
  } catch (error) {
    // Somebody else wrote to the log. Those updates stay, and the next flush merges them.
    if (error.code !== 'BROOKLET_CONFLICT') throw error
  }
}

/** Flushes a document that is read. The document is whole without it, and a later read tries again. */
async function tryFlush (store, log, doc, next) {
  try {
    await flush(store, log, doc, next)
  } catch (error) {
    if (!(error instanceof BrookletError)) throw error
  }
}

module.exports = { BrookletPersistence }

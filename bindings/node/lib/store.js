'use strict'

const native = require('./brooklet.node')
const { Appends } = require('./appends.js')
const { NOTHING, boolean, key, options, owned, payload, signal, text, whole, wrongType } = require('./argument.js')
const { Commit, nativeOf } = require('./commit.js')
const { answer } = require('./error.js')
const { Items } = require('./items.js')
const { drain, forget, wait } = require('./port.js')
const rows = require('./rows.js')

const OPTIONS = {
  create: text,
  readOnly: boolean,
  besideWriter: boolean,
  ringSize: whole,
  ringAt: text,
  capacity: whole,
  memoryBudget: whole,
  cacheBudget: whole,
  maxPayload: whole,
  linger: whole,
  permissions: whole
}

/** Opens the store at `path`, or creates it. */
async function open (path, given) {
  if (path instanceof URL) path = require('node:url').fileURLToPath(path)
  text(path, 'a path')
  return new Store(await answer(native.Store.open(path, options(given, OPTIONS))))
}

/** An open store. */
class Store {
  #native
  #appends
  #closing

  /** `open` makes stores. */
  constructor (opened) {
    if (!(opened instanceof native.Store)) throw new TypeError('a store is opened by open(path)')
    this.#native = opened
    this.#appends = new Appends(opened)
  }

  /** The native store, which has made all appends so far. */
  get #current () {
    this.#appends.flush()
    return this.#native
  }

  append (log, entry) {
    try {
      return this.#appends.add(key(log), payload(entry))
    } catch (error) {
      return Promise.reject(error)
    }
  }

  appendMany (log, entries) {
    return wait(port => {
      if (typeof entries?.[Symbol.iterator] !== 'function' || typeof entries === 'string') {
        throw wrongType('the payloads', 'an iterable of strings or Uint8Arrays', entries)
      }
      const payloads = Array.from(entries, Array.isArray(entries) ? payload : owned(payload))
      const lengths = Uint32Array.from(payloads, bytes => bytes.length)
      return port.appendMany(this.#current, key(log), Buffer.concat(payloads), lengths)
    })
  }

  commit (commit) {
    return wait(port => {
      if (!(commit instanceof Commit)) throw wrongType('a commit', 'a Commit', commit)
      return port.commit(this.#current, nativeOf(commit))
    })
  }

  async snapshot (log, entry) { return (await this.commit(new Commit().snapshot(log, entry)))[0] }

  async trim (log, before) { await this.commit(new Commit().trim(log, before)) }

  async keepLast (log, n) { await this.commit(new Commit().keepLast(log, n)) }

  async beginAt (log, first) { await this.commit(new Commit().beginAt(log, first)) }

  async truncate (log, start) { await this.commit(new Commit().truncate(log, start)) }

  async delete (log) { await this.commit(new Commit().delete(log)) }

  async setRetention (log, limits) { await this.commit(new Commit().setRetention(log, limits)) }

  read (log, given) { return this.#read(log, given, false) }

  readAvailable (log, given) { return this.#read(log, given, true) }

  #read (log, given, available) {
    const { start, stop, reverse = false, signal: aborts } =
      options(given, { start: whole, stop: whole, reverse: boolean, signal })
    return batches(this.#native.read(key(log), start, stop, reverse, available), rows.entries, aborts)
  }

  async readMany (logs) {
    if (typeof logs?.[Symbol.iterator] !== 'function' || typeof logs === 'string') {
      throw wrongType('the keys', 'an iterable of keys', logs)
    }
    return (await answer(this.#native.readMany(Array.from(logs, Array.isArray(logs) ? key : owned(key))))).map(rows.entries)
  }

  scan (prefix, given) {
    const { start = NOTHING, signal: aborts } = options(given, { start: key, signal })
    return batches(this.#native.scan(prefix === undefined ? NOTHING : key(prefix), start), rows.logs, aborts)
  }

  tail (log, given) {
    const { start = 0, signal: aborts } = options(given, { start: whole, signal })
    const bytes = Uint8Array.from(key(log))
    let tail, step, waits
    const fetch = async () => {
      tail ??= await answer(this.#native.tail(bytes, start))
      // The tail may have been left meanwhile.
      if (over) {
        end()
        return []
      }
      const followed = tail
      // Old entries are in the file: a thread of the pool reads them.
      if (followed.isBehind()) {
        step = answer(followed.read())
        const read = rows.events(await step)
        if (read.length > 0) return read
      }
      const found = over ? undefined : await wait(port => (waits = port.tail(followed)))
      waits = undefined
      return found ? rows.events(found) : []
    }
    let over = false
    const end = () => {
      over = true
      if (waits !== undefined) forget(waits)
      if (tail) release(tail, step)
      tail = undefined
    }
    return new Items(fetch, end, aborts)
  }

  async waitFor (log, next, given) {
    const { signal: aborts } = options(given, { signal })
    const number = whole(next, 'next')
    const reach = this.#native.waitFor(key(log), number)
    let waits
    const abort = () => { if (waits !== undefined) forget(waits) }
    aborts?.addEventListener('abort', abort, { once: true })
    try {
      // The bounds of the log may be in the file.
      const reached = await answer(reach.look())
      if (!reached && !aborts?.aborted) await wait(port => (waits = port.reach(reach)))
      aborts?.throwIfAborted()
    } finally {
      aborts?.removeEventListener('abort', abort)
      reach.end()
    }
  }

  async first (log) { return rows.entries(await answer(this.#native.first(key(log))))[0] ?? null }

  async last (log) { return rows.entries(await answer(this.#native.last(key(log))))[0] ?? null }

  async bounds (log) { return rows.bounds(await answer(this.#native.bounds(key(log), false))) }

  async getBounds (log) { return rows.bounds(await answer(this.#native.bounds(key(log), true))) }

  async exists (log) { return answer(this.#native.exists(key(log))) }

  async info () { return answer(this.#native.info()) }

  async flush () { await answer(this.#current.flush()) }

  async checkpoint () { await answer(this.#current.checkpoint()) }

  async close () {
    // The writes have ended, but their waits hold the file until they are taken.
    this.#closing ??= answer(this.#current.close()).finally(drain)
    await this.#closing
  }
}
if (Symbol.asyncDispose) {
  Store.prototype[Symbol.asyncDispose] = function () { return this.close() }
}

/** Returns an iterator of what the native `reader` reads. */
function batches (reader, decoded, aborts) {
  let step
  let read = false
  const fetch = async () => {
    step = answer(reader.take())
    const found = decoded(await step)
    read = found.length === 0
    return found
  }
  const end = () => { if (!read) release(reader, step) }
  return new Items(fetch, end, aborts)
}

/** Has a native reader that is left early keep no part of the store, once its last step on the thread pool is done. */
function release (reader, step) {
  const end = () => { reader.end() }
  Promise.resolve(step).then(end, end)
}

module.exports = { Store, open }

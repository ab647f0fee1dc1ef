'use strict'

const { waitEach } = require('./port.js')

/** Most entries, and most of their bytes, that one call of the native part gets. A longer entry gets one of its own. */
const MOST = 1024
const MOST_BYTES = 256 << 10

/** The appends to a store in one turn of the event loop. One call of the native part makes all of them. */
class Appends {
  constructor (native) {
    this.native = native
    this.bytes = Buffer.alloc(0)
    this.end = 0
    this.lengths = new Uint32Array(2 * MOST)
    this.promises = []
  }

  /** Appends an entry, when the turn ends or the store is asked for something else. */
  add (key, payload) {
    const size = key.length + payload.length
    if (this.end + size > this.bytes.length) {
      this.flush()
      if (size > this.bytes.length) this.bytes = Buffer.allocUnsafeSlow(Math.max(size, MOST_BYTES))
    }
    if (this.promises.length === 0) queueMicrotask(() => this.flush())
    this.bytes.set(key, this.end)
    this.bytes.set(payload, this.end + key.length)
    this.end += size
    const at = 2 * this.promises.length
    this.lengths[at] = key.length
    this.lengths[at + 1] = payload.length
    const promise = new Promise((resolve, reject) => this.promises.push({ resolve, reject }))
    if (this.promises.length === MOST) this.flush()
    return promise
  }

  /** Makes the appends. */
  flush () {
    if (this.promises.length === 0) return
    const promises = this.promises
    const lengths = this.lengths.subarray(0, 2 * promises.length)
    this.promises = []
    waitEach(port => port.appendEach(this.native, this.bytes.subarray(0, this.end), lengths), promises)
    this.end = 0
    // The room for a long entry is not kept.
    if (this.bytes.length > MOST_BYTES) this.bytes = Buffer.alloc(0)
  }
}

module.exports = { Appends }

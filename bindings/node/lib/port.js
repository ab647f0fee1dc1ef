'use strict'
// The waits of this thread: the native part ends many at once.

const native = require('./brooklet.node')
const { BrookletError } = require('./error.js')

const port = new native.Port(drain)

/** The promises of the waits, by number. */
const waits = new Map()

// A wait keeps the process alive, as a timer does.
const alive = setInterval(() => {}, 0x7fffffff).unref()

/** Has `begin` begin a wait and return its number. Returns the promise of its end. */
function wait (begin) {
  return new Promise((resolve, reject) => {
    if (waits.size === 0) alive.ref()
    try {
      waits.set(begin(port), { resolve, reject })
    } catch (error) {
      if (waits.size === 0) alive.unref()
      throw error
    }
  })
}

/** Has `begin` begin waits and return the number of the first one. Their promises exist already. */
function waitEach (begin, promises) {
  const first = begin(port)
  if (waits.size === 0) alive.ref()
  for (let n = 0; n < promises.length; n++) waits.set(first + n, promises[n])
}

/** Ends a wait with nothing. */
function forget (number) {
  port.forget(number)
  taken(number)?.resolve(undefined)
}

function taken (number) {
  const ended = waits.get(number)
  waits.delete(number)
  if (waits.size === 0) alive.unref()
  return ended
}

function drain () {
  const [appended, others] = port.drain()
  for (let at = 0; at < appended.length; at += 2) taken(appended[at])?.resolve(appended[at + 1])
  for (const [number, failure, seqs, rows] of others) {
    const ended = taken(number)
    if (failure) ended?.reject(new BrookletError(failure))
    else ended?.resolve(seqs ?? rows)
  }
}

module.exports = { drain, forget, wait, waitEach }

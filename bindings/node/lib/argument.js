'use strict'
// Arguments: the native part gets bytes, and numbers that are whole.

const { BrookletError } = require('./error.js')

const NOTHING = Buffer.alloc(0)

/** Most bytes of a key or a payload: the native part gets their lengths in 32 bits. No store takes more. */
const MOST_BYTES = 0xffffffff

function described (value) {
  if (value === null || value === undefined) return String(value)
  if (typeof value === 'object') return value.constructor?.name ?? 'an object'
  return `a ${typeof value}`
}

function wrongType (name, expected, found) {
  return Object.assign(new TypeError(`${name} is ${expected}, not ${described(found)}`), { code: 'ERR_INVALID_ARG_TYPE' })
}

/** Returns whether a string has bytes in UTF-8: a lone surrogate has none. Node 18 lacks the method. */
const isWellFormed = typeof ''.isWellFormed === 'function'
  ? text => text.isWellFormed()
  : text => !/\p{Surrogate}/u.test(text)

/** Returns the bytes of a string, in UTF-8, or of a Uint8Array. */
function bytes (value, name) {
  if (typeof value === 'string') {
    if (!isWellFormed(value)) {
      const message = `${name} has a lone surrogate, and so no bytes in UTF-8: use a Uint8Array`
      throw Object.assign(new TypeError(message), { code: 'ERR_INVALID_ARG_VALUE' })
    }
    return value === '' ? NOTHING : Buffer.from(value, 'utf8')
  }
  if (!(value instanceof Uint8Array)) throw wrongType(name, 'a string or a Uint8Array', value)
  if (value.length > MOST_BYTES) {
    const message = `${name} has ${value.length} bytes: the store takes at most ${MOST_BYTES}, and fewer by its maxPayload`
    throw new BrookletError({ code: 'BROOKLET_INVALID', message })
  }
  // Another thread may change shared memory while it is read.
  return typeof SharedArrayBuffer === 'function' && value.buffer instanceof SharedArrayBuffer ? Buffer.from(value) : value
}

const key = value => bytes(value, 'a key')
const payload = value => bytes(value, 'a payload')

/** Returns a function that copies the bytes which `taken` returns: a generator may use one buffer for all that it yields. */
const owned = taken => value => Buffer.from(taken(value))

/** Returns a whole number that is not negative. */
function whole (value, name) {
  if (typeof value !== 'number') throw wrongType(name, 'a number', value)
  if (!Number.isSafeInteger(value) || value < 0) {
    const message = `${name} is ${value}: use a whole number from 0 to 2^53 - 1`
    throw Object.assign(new RangeError(message), { code: 'ERR_OUT_OF_RANGE' })
  }
  return value
}

const boolean = (value, name) => {
  if (typeof value !== 'boolean') throw wrongType(name, 'a boolean', value)
  return value
}

const text = (value, name) => {
  if (typeof value !== 'string') throw wrongType(name, 'a string', value)
  return value
}

/** Returns the options of a call, each checked by the function that `known` has for it. */
function options (given, known) {
  if (given === undefined) return {}
  if (given === null || typeof given !== 'object') throw wrongType('the argument of options', 'an object', given)
  const checked = {}
  for (const [name, value] of Object.entries(given)) {
    if (!Object.hasOwn(known, name)) throw Object.assign(new TypeError(`there is no option ${name}`), { code: 'ERR_INVALID_ARG_VALUE' })
    if (value !== undefined) checked[name] = known[name](value, name)
  }
  return checked
}

function signal (value, name) {
  if (!(value instanceof AbortSignal)) throw wrongType(name, 'an AbortSignal', value)
  return value
}

module.exports = { NOTHING, boolean, bytes, key, options, owned, payload, signal, text, whole, wrongType }

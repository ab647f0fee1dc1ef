'use strict'
// Rows of the native part, as objects. Payloads are copies, so that one that is kept does not keep its batch.

function copied (bytes, start, end) {
  const copy = Buffer.allocUnsafe(end - start)
  bytes.copy(copy, 0, start, end)
  return copy
}

/** Returns entries. */
function entries ([numbers, bytes]) {
  const found = []
  let end = 0
  for (let at = 0; at < numbers.length; at += 2) {
    const start = end
    end += numbers[at + 1]
    found.push({ seq: numbers[at], payload: copied(bytes, start, end) })
  }
  return found
}

/** Returns the infos of logs. */
function logs ([numbers, bytes]) {
  const found = []
  let end = 0
  for (let at = 0; at < numbers.length; at += 3) {
    const start = end
    end += numbers[at + 2]
    found.push({ key: copied(bytes, start, end), bounds: { first: numbers[at], next: numbers[at + 1] } })
  }
  return found
}

/** Returns the bounds of a log, or null. */
const bounds = ([numbers]) => numbers.length === 0 ? null : { first: numbers[0], next: numbers[1] }

/** Returns the events of a tail. */
function events ([numbers, bytes]) {
  const found = []
  let end = 0
  for (let at = 0; at < numbers.length; at += 3) {
    const [kind, first, second] = [numbers[at], numbers[at + 1], numbers[at + 2]]
    const start = end
    if (kind === 0) end += second
    found.push(kind === 0
      ? { type: 'entry', seq: first, payload: copied(bytes, start, end) }
      : kind === 1
        ? { type: 'trimmed', start: first, end: second }
        : kind === 2 ? { type: 'truncated', next: first } : { type: 'deleted' })
  }
  return found
}

module.exports = { bounds, entries, events, logs }

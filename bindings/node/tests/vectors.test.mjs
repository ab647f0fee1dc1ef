// Plays ../../vectors/vectors.json. The other libraries play the same file.
import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { BrookletError, Commit, open } from 'brooklet'
import { all, folder } from './common.mjs'

const small = { ringSize: 4 << 20, memoryBudget: 16 << 20, maxPayload: 1 << 20 }
const kinds = {
  BROOKLET_INVALID: 'invalid',
  BROOKLET_NOT_FOUND: 'not_found',
  BROOKLET_CONFLICT: 'conflict',
  BROOKLET_CANNOT_OPEN: 'cannot_open',
  BROOKLET_STOPPED: 'stopped',
  BROOKLET_CLOSED: 'stopped'
}

function bytes (value) {
  if (typeof value === 'string') return Buffer.from(value)
  return 'hex' in value ? Buffer.from(value.hex, 'hex') : Buffer.from(value.repeat.repeat(value.times))
}

const hex = value => Buffer.from(value).toString('hex')

/** Plays an operation on a store or a commit. */
function apply (target, operation) {
  const [name] = Object.keys(operation)
  const key = bytes(operation[name])
  switch (name) {
    case 'append': return target.append(key, bytes(operation.payload))
    case 'snapshot': return target.snapshot(key, bytes(operation.payload))
    case 'trim': return target.trim(key, operation.before)
    case 'truncate': return target.truncate(key, operation.from)
    case 'keep_last': return target.keepLast(key, operation.n)
    case 'begin_at': return target.beginAt(key, operation.first)
    case 'delete': return target.delete(key)
    case 'set_retention': return target.setRetention(key, { entries: operation.entries })
    case 'expect_next': return target.expectNext(key, operation.next)
    case 'expect_absent': return target.expectAbsent(key)
    default: throw new Error(`an unknown operation: ${name}`)
  }
}

function outline (error) {
  assert.ok(error instanceof BrookletError, error)
  const told = { kind: kinds[error.code] }
  for (const name of ['first', 'next']) if (error[name] !== undefined) told[name] = error[name]
  return told
}

function eventOf (event) {
  switch (event.type) {
    case 'entry': return { entry: [event.seq, hex(event.payload)] }
    case 'trimmed': return { trimmed: [event.start, event.end] }
    case 'truncated': return { truncated: event.next }
    default: return { deleted: true }
  }
}

/** Plays a step, and returns what the store returned, in the form of the file. */
async function play (player, step) {
  const { store } = player
  if ('reopen' in step) {
    await store.close()
    const { read_only: readOnly, create } = step.reopen
    player.store = await open(player.path, { ...small, readOnly, create })
  } else if ('call' in step) {
    const seq = await apply(store, step.call)
    return 'seq' in step ? { seq } : {}
  } else if ('commit' in step) {
    const commit = new Commit()
    for (const operation of step.commit) apply(commit, operation)
    return { seqs: await store.commit(commit) }
  } else if ('read' in step) {
    const range = { start: step.from, stop: step.to }
    const key = bytes(step.read)
    const entries = await all(step.available ? store.readAvailable(key, range) : store.read(key, range))
    return { entries: entries.map(({ seq, payload }) => [seq, hex(payload)]) }
  } else if ('bounds' in step) {
    const { first, next } = await store.bounds(bytes(step.bounds))
    return { first, next }
  } else if ('scan' in step) {
    const logs = await all(store.scan(bytes(step.scan), 'start' in step ? { start: bytes(step.start) } : {}))
    return { logs: logs.map(({ key, bounds }) => [hex(key), bounds.first, bounds.next]) }
  } else if ('tail' in step) {
    await player.tail?.return()
    player.tail = store.tail(bytes(step.tail), { start: step.from })
  } else if ('event' in step) {
    return { event: eventOf((await player.tail.next()).value) }
  } else {
    await store[['flush', 'checkpoint', 'close'].find(name => name in step)]()
  }
  return {}
}

function expected (step) {
  if ('error' in step) return { error: step.error }
  if ('bounds' in step) return { first: step.first, next: step.next }
  if ('entries' in step) return { entries: step.entries.map(([seq, payload]) => [seq, hex(bytes(payload))]) }
  if ('logs' in step) return { logs: step.logs.map(([key, first, next]) => [hex(bytes(key)), first, next]) }
  if ('event' in step && 'entry' in step.event) {
    const [seq, payload] = step.event.entry
    return { event: { entry: [seq, hex(bytes(payload))] } }
  }
  return Object.fromEntries(['seq', 'seqs', 'event'].filter(name => name in step).map(name => [name, step[name]]))
}

for (const { name, steps } of JSON.parse(readFileSync(process.env.BROOKLET_VECTORS, 'utf8'))) {
  test(`vector: ${name}`, async test => {
    const path = join(folder(test), 'store.brooklet')
    const player = { path, store: await open(path, small), tail: undefined }
    for (const step of steps) {
      const played = await play(player, step).catch(error => ({ error: outline(error) }))
      assert.deepEqual(played, expected(step), JSON.stringify(step))
    }
    await player.tail?.return()
    await player.store.close()
  })
}

'use strict'

const native = require('./brooklet.node')
const { key, options, payload, whole } = require('./argument.js')

/** The native commit of each commit. */
const natives = new WeakMap()

/** Operations on many logs that happen all or not at all, in the order of the calls. */
class Commit {
  constructor () {
    natives.set(this, new native.Commit())
  }

  append (log, entry) { return this.#add(commit => commit.append(key(log), payload(entry))) }

  snapshot (log, entry) { return this.#add(commit => commit.snapshot(key(log), payload(entry))) }

  trim (log, before) { return this.#add(commit => commit.trim(key(log), whole(before, 'before'))) }

  keepLast (log, n) { return this.#add(commit => commit.keepLast(key(log), whole(n, 'n'))) }

  beginAt (log, first) { return this.#add(commit => commit.beginAt(key(log), whole(first, 'first'))) }

  truncate (log, start) { return this.#add(commit => commit.truncate(key(log), whole(start, 'start'))) }

  delete (log) { return this.#add(commit => commit.delete(key(log))) }

  setRetention (log, limits) {
    const { entries, bytes, age } = options(limits, { entries: whole, bytes: whole, age: whole })
    return this.#add(commit => commit.setRetention(key(log), entries, bytes, age))
  }

  expectNext (log, next) { return this.#add(commit => commit.expectNext(key(log), whole(next, 'next'))) }

  expectAbsent (log) { return this.#add(commit => commit.expectAbsent(key(log))) }

  defer (time) { return this.#add(commit => commit.defer(whole(time, 'the time'))) }

  durable () { return this.#add(commit => commit.durable()) }

  #add (operation) {
    operation(natives.get(this))
    return this
  }
}

/** Returns the native commit of a commit. */
const nativeOf = commit => natives.get(commit)

module.exports = { Commit, nativeOf }

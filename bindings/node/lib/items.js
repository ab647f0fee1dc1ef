'use strict'

const ended = () => ({ done: true, value: undefined })

/** An iterator whose items come in batches. */
class Items {
  /** `fetch` returns the next batch: none at the end. `end` is called once after the last one. */
  constructor (fetch, end, signal) {
    this.fetch = fetch
    this.end = end
    this.ready = []
    this.at = 0
    this.over = false
    // The steps that wait for a batch, or for another step.
    this.steps = 0
    this.turn = Promise.resolve()
    if (signal) {
      this.signal = signal
      this.aborted = () => this.#finish()
      signal.addEventListener('abort', this.aborted, { once: true })
    }
  }

  next () {
    if (this.steps === 0 && this.at < this.ready.length) {
      return Promise.resolve({ done: false, value: this.ready[this.at++] })
    }
    this.steps++
    const step = this.turn.then(() => this.#step()).finally(() => this.steps--)
    this.turn = step.catch(() => {})
    return step
  }

  async return (value) {
    this.#finish()
    return { done: true, value }
  }

  async throw (error) {
    this.#finish()
    throw error
  }

  [Symbol.asyncIterator] () { return this }

  async #step () {
    if (this.signal?.aborted) {
      this.#finish()
      throw this.signal.reason
    }
    if (this.over) return ended()
    if (this.at === this.ready.length) {
      let found
      try {
        found = await this.fetch()
      } catch (error) {
        this.#finish()
        throw error
      }
      // It may have ended meanwhile, and what came then belongs to nobody.
      if (this.signal?.aborted) throw this.signal.reason
      if (this.over || found.length === 0) {
        this.#finish()
        return ended()
      }
      this.ready = found
      this.at = 0
    }
    return { done: false, value: this.ready[this.at++] }
  }

  #finish () {
    if (this.over) return
    this.over = true
    this.ready = []
    this.at = 0
    this.signal?.removeEventListener('abort', this.aborted)
    const end = this.end
    this.fetch = this.end = async () => []
    end()
  }
}
if (Symbol.asyncDispose) {
  Items.prototype[Symbol.asyncDispose] = async function () { await this.return() }
}

module.exports = { Items }

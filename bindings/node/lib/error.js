'use strict'

/** An error of a store. `code` has its kind. */
class BrookletError extends Error {
  /** @param {{code: string, message: string, first?: number, next?: number, errno?: number}} failure */
  constructor (failure) {
    super(failure.message)
    this.code = failure.code
    for (const detail of ['first', 'next', 'errno']) {
      if (failure[detail] != null) this[detail] = failure[detail]
    }
  }
}
BrookletError.prototype.name = 'BrookletError'

/** Waits for a call of the native part, and returns its value. */
async function answer (call) {
  const [failure, value] = await call
  if (failure) throw new BrookletError(failure)
  return value
}

module.exports = { BrookletError, answer }

// The library is one, however it is loaded.
import brooklet from './index.js'

export const { open, Store, Commit, BrookletError } = brooklet

// The library is one, however it is loaded.
import yjs from './yjs.js'

export const { BrookletPersistence } = yjs

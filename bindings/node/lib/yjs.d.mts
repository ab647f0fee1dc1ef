export * from './yjs.js'

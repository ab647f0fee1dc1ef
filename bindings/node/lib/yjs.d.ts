import type { Doc } from 'yjs' with { 'resolution-mode': 'import' }
import type { OpenOptions, Store } from './index.js'

/** Documents of Yjs in a store, with the method names of y-leveldb. Each document is a log of updates. */
export class BrookletPersistence {
  /** `location` is the path of a store, which `destroy` closes; or an open store, which it leaves open. */
  constructor(location: string | Store, options?: { prefix?: string, openOptions?: OpenOptions })
  /**
   * Returns a document with all updates that were stored. Merges them in the store if they are more than 500. The document
   * comes also if the store cannot merge them: `flushDocument` returns that error.
   */
  getYDoc(docName: string): Promise<Doc>
  /** Stores an update. Resolves with its number when the update is on stable media. Refuses bytes that are no update. */
  storeUpdate(docName: string, update: Uint8Array): Promise<number>
  /** Returns the state vector of a document. */
  getStateVector(docName: string): Promise<Uint8Array>
  /** Returns the update that a replica with this state vector lacks. */
  getDiff(docName: string, stateVector: Uint8Array): Promise<Uint8Array>
  /** Merges all updates of a document into one. */
  flushDocument(docName: string): Promise<void>
  /** Deletes a document and its metadata. The next update of the name has a number behind all that the document had. */
  clearDocument(docName: string): Promise<void>
  /** Sets a value of a document's metadata. */
  setMeta(docName: string, metaKey: string, value: any): Promise<void>
  /** Returns a value of a document's metadata, or undefined. */
  getMeta(docName: string, metaKey: string): Promise<any>
  /** Removes a value of a document's metadata. */
  delMeta(docName: string, metaKey: string): Promise<void>
  /** Returns a document's metadata. */
  getMetas(docName: string): Promise<Map<string, any>>
  /** Returns the names of all documents. */
  getAllDocNames(): Promise<string[]>
  /** Returns the state vector of each document. `clock` is the number of its last update. */
  getAllDocStateVectors(): Promise<Array<{ name: string, sv: Uint8Array, clock: number }>>
  /**
   * Deletes all documents and all metadata of this prefix, after the calls so far and before the later ones. A kill in
   * mid-call may leave some of them.
   */
  clearAll(): Promise<void>
  /** Waits for all calls, and closes the store if this object opened it. */
  destroy(): Promise<void>
}

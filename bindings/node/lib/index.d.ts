/// <reference types="node" />

/** The bytes of a log's name, or a string, which stands for its UTF-8 bytes. */
export type Key = string | Uint8Array
/** The bytes of an entry, or a string, which stands for its UTF-8 bytes. */
export type Payload = string | Uint8Array

/** An entry of a log. */
export interface Entry {
  readonly seq: number
  readonly payload: Buffer
}

/** The entries of a log have the numbers from `first` on and before `next`. */
export interface Bounds {
  readonly first: number
  readonly next: number
}

export interface LogInfo {
  readonly key: Buffer
  readonly bounds: Bounds
}

/** An event of a tail. */
export type TailEvent =
  | { readonly type: 'entry', readonly seq: number, readonly payload: Buffer }
  /** The entries from `start` on and before `end` were removed before the tail returned them. */
  | { readonly type: 'trimmed', readonly start: number, readonly end: number }
  /** The log was truncated: its next entry has the number `next`, which the tail had passed. */
  | { readonly type: 'truncated', readonly next: number }
  /** The log was deleted. A new log of this key begins at 0. */
  | { readonly type: 'deleted' }

/** How to open a store. Sizes are in bytes. */
export interface OpenOptions {
  /** Whether to create the store. Default: `'ifMissing'`. */
  create?: 'never' | 'ifMissing' | 'new' | undefined
  readOnly?: boolean | undefined
  /** Opens for reading beside a process that writes. */
  besideWriter?: boolean | undefined
  ringSize?: number | undefined
  /** The path of a file of its own for the ring. */
  ringAt?: string | undefined
  capacity?: number | undefined
  memoryBudget?: number | undefined
  cacheBudget?: number | undefined
  maxPayload?: number | undefined
  /** How long a write may wait for others to share its flush, in milliseconds. */
  linger?: number | undefined
  /** The permissions of a new file, as `0o600`. */
  permissions?: number | undefined
}

export interface ReadOptions {
  /** The first number. Default: the first of the log. */
  start?: number | undefined
  /** The number behind the last one. Default: the next of the log. */
  stop?: number | undefined
  /** Newest entry first. */
  reverse?: boolean | undefined
  signal?: AbortSignal | undefined
}

export interface ScanOptions {
  /** The first key. */
  start?: Key | undefined
  signal?: AbortSignal | undefined
}

export interface TailOptions {
  /** The number of the first entry. Default: 0. */
  start?: number | undefined
  signal?: AbortSignal | undefined
}

export interface WaitOptions {
  signal?: AbortSignal | undefined
}

/** Numbers about a store. Sizes are in bytes. */
export interface Info {
  /** The format version of the store. */
  readonly format: number
  /** How often the store was opened for writing. */
  readonly epoch: number
  /** Size of the volume. */
  readonly size: number
  /** Free space in the heap. */
  readonly heapFree: number
  /** Size that the ring may grow to. */
  readonly ringSize: number
  /** Size of the ring now. */
  readonly ringInUse: number
  /** Number of logs with entries in memory that are not in runs yet. */
  readonly memtableLogs: number
  /** Memory of these entries. */
  readonly memtableBytes: number
  /** Number of runs. */
  readonly runs: number
  /** Size of the runs. */
  readonly runBytes: number
  /** Whether a checkpoint is running. */
  readonly checkpointing: boolean
  /** Whether a compaction is running. */
  readonly compacting: boolean
  /** Whether the store accepts no writes any more, after a failure. */
  readonly stopped: boolean
}

/** A log keeps its newest entries: so many, so many bytes, none older than `age` milliseconds. */
export interface Retention {
  entries?: number | undefined
  bytes?: number | undefined
  age?: number | undefined
}

/** An iterator of a store. `return()`, or leaving the loop, ends it at once. */
export interface Items<T> extends AsyncIterable<T> {
  next(): Promise<IteratorResult<T, undefined>>
  return(): Promise<IteratorResult<T, undefined>>
  [Symbol.asyncIterator](): Items<T>
  [Symbol.asyncDispose](): Promise<void>
}

export type ErrorCode =
  | 'BROOKLET_INVALID'
  | 'BROOKLET_NOT_FOUND'
  | 'BROOKLET_CONFLICT'
  | 'BROOKLET_CANNOT_OPEN'
  | 'BROOKLET_DAMAGED'
  | 'BROOKLET_FULL'
  | 'BROOKLET_BUSY'
  | 'BROOKLET_STOPPED'
  | 'BROOKLET_CLOSED'
  | 'BROOKLET_FORKED'
  | 'BROOKLET_IO'
  /** The call is done, but its result has a number above 2^53 - 1. */
  | 'BROOKLET_UNSAFE_NUMBER'
  | 'BROOKLET_ERROR'

/** An error of a store. */
export class BrookletError extends Error {
  private constructor()
  readonly name: 'BrookletError'
  /** The kind. */
  readonly code: ErrorCode
  /** The first number of the log, if the error is about a number outside of it. */
  readonly first?: number
  /** The next number of the log, if the error is about it. */
  readonly next?: number
  /** The number of the system's error. */
  readonly errno?: number
}

/**
 * Operations on many logs that happen all or not at all, in the order of the calls. Each call returns the commit.
 * The commit stays as it is after `Store.commit`, and may be committed again.
 */
export class Commit {
  /** Appends an entry to a log. */
  append(key: Key, payload: Payload): this
  /** Appends an entry that holds the whole state of a log, and trims all entries before it. */
  snapshot(key: Key, payload: Payload): this
  /** Removes the entries of a log before number `before`. */
  trim(key: Key, before: number): this
  /** Removes all but the last `n` entries of a log. */
  keepLast(key: Key, n: number): this
  /** Has a log begin at number `first`. */
  beginAt(key: Key, first: number): this
  /** Removes the entries of a log from number `start` on. */
  truncate(key: Key, start: number): this
  /** Deletes a log. */
  delete(key: Key): this
  /** Has a log keep its newest entries only. */
  setRetention(key: Key, retention: Retention): this
  /** Expects that the next entry of a log gets number `next`: the commit is refused otherwise. */
  expectNext(key: Key, next: number): this
  /** Expects that a log does not exist: the commit is refused otherwise. */
  expectAbsent(key: Key): this
  /**
   * Has the commit acknowledged at once, and written to stable media within `time` milliseconds. A power cut or a kill may
   * lose the last commits of this time.
   */
  defer(time: number): this
  /** Has the commit acknowledged once it is on stable media, also in a space whose commits are deferred. */
  durable(): this
}

/** An open store. The promise of a write resolves when the write is on stable media. */
export class Store {
  private constructor()
  /** Appends an entry to a log; the first entry creates the log. Returns the number of the entry. */
  append(key: Key, payload: Payload): Promise<number>
  /** Appends entries to a log, all or none. Returns their numbers. */
  appendMany(key: Key, payloads: Iterable<Payload>): Promise<number[]>
  /** Commits operations on many logs, all or none. Returns the numbers of the appended entries, in the order of the operations. */
  commit(commit: Commit): Promise<number[]>
  /** Appends an entry that holds the whole state of a log, and trims all entries before it. Returns its number. */
  snapshot(key: Key, payload: Payload): Promise<number>
  /** Removes the entries of a log before number `before`. */
  trim(key: Key, before: number): Promise<void>
  /** Removes all but the last `n` entries of a log. */
  keepLast(key: Key, n: number): Promise<void>
  /** Has a log begin at number `first`. */
  beginAt(key: Key, first: number): Promise<void>
  /** Removes the entries of a log from number `start` on. */
  truncate(key: Key, start: number): Promise<void>
  /** Deletes a log. */
  delete(key: Key): Promise<void>
  /** Has a log keep its newest entries only. */
  setRetention(key: Key, retention: Retention): Promise<void>
  /** Reads entries of a log, as they are when the first one is read. A number outside of the log is an error. */
  read(key: Key, options?: ReadOptions): Items<Entry>
  /** Reads like `read`, and leaves out the entries that the log does not have. */
  readAvailable(key: Key, options?: ReadOptions): Items<Entry>
  /** Reads all entries of several logs at once; none of a log that does not exist. */
  readMany(keys: Iterable<Key>): Promise<Entry[][]>
  /** Lists the logs whose keys start with `prefix`, in the order of their keys. */
  scan(prefix?: Key, options?: ScanOptions): Items<LogInfo>
  /** Follows a log: returns each entry once, in order, when it is on stable media. The log may be created later. */
  tail(key: Key, options?: TailOptions): Items<TailEvent>
  /**
   * Waits until the next number of a log is at least `next`, also if the log dropped the entries meanwhile. The log may be created
   * later. The wait begins with the call.
   */
  waitFor(key: Key, next: number, options?: WaitOptions): Promise<void>
  /** Returns the first entry of a log, or null. */
  first(key: Key): Promise<Entry | null>
  /** Returns the last entry of a log, or null. */
  last(key: Key): Promise<Entry | null>
  /** Returns the bounds of a log. An unknown log is an error. */
  bounds(key: Key): Promise<Bounds>
  /** Returns the bounds of a log, or null. */
  getBounds(key: Key): Promise<Bounds | null>
  /** Returns whether a log exists. */
  exists(key: Key): Promise<boolean>
  /** Returns numbers about the store. */
  info(): Promise<Info>
  /** Waits until every commit so far is on stable media, deferred ones too. */
  flush(): Promise<void>
  /** Moves all entries from the ring into runs. */
  checkpoint(): Promise<void>
  /**
   * Waits until all commits are on stable media, and releases the file. A second call does nothing more. If a space in memory has
   * no room for its dump, the store is closed all the same, and the space stays as in its last dump.
   */
  close(): Promise<void>
  /** Closes the store: for `await using`. */
  [Symbol.asyncDispose](): Promise<void>
}

/** Opens the store at `path`, or creates it. */
export function open(path: string | URL, options?: OpenOptions): Promise<Store>

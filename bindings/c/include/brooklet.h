/* Brooklet: an embedded store for millions of small append-only logs.
 *
 * This file is made from the Rust source of the library: edit that, and run the library's tests with
 * BROOKLET_WRITE_HEADER=1.
 */

#ifndef BROOKLET_H
#define BROOKLET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 The result of a call. Negative values are not errors.
 */
enum brooklet_status
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  /*
   Nothing came within the time that the caller gave.
   */
  BROOKLET_TIMEOUT = -2,
  /*
   There is no further entry or log.
   */
  BROOKLET_END = -1,
  /*
   The call succeeded.
   */
  BROOKLET_OK = 0,
  /*
   The call is wrong: change it.
   */
  BROOKLET_INVALID = 1,
  /*
   The log or the range does not exist.
   */
  BROOKLET_NOT_FOUND = 2,
  /*
   Another commit was first: read the log again and retry.
   */
  BROOKLET_CONFLICT = 3,
  /*
   The call was cancelled.
   */
  BROOKLET_CANCELLED = 4,
  /*
   The store cannot be opened with these arguments.
   */
  BROOKLET_CANNOT_OPEN = 5,
  /*
   Data is damaged: restore it.
   */
  BROOKLET_DAMAGED = 6,
  /*
   No room: free some room and retry.
   */
  BROOKLET_FULL = 7,
  /*
   The call would have to wait: retry later.
   */
  BROOKLET_BUSY = 8,
  /*
   The store does not accept writes any more: open it again.
   */
  BROOKLET_STOPPED = 9,
  /*
   The operating system refused an operation.
   */
  BROOKLET_IO = 10,
  /*
   The library has a fault: report it. The store may still be used.
   */
  BROOKLET_INTERNAL = 11,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum brooklet_status brooklet_status;
#else
typedef int32_t brooklet_status;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/*
 The kind of an event of a tail.
 */
enum brooklet_tail_kind
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  /*
   The next entry of the log, in `entry`.
   */
  BROOKLET_TAIL_ENTRY = 0,
  /*
   The log dropped the entries from `from` on and before `to`, before the tail returned them.
   */
  BROOKLET_TAIL_TRIMMED = 1,
  /*
   Entries from `from` on, which the tail may have returned, are no longer in the log. The tail
   goes on with an entry `from` that may be appended later.
   */
  BROOKLET_TAIL_TRUNCATED = 2,
  /*
   The log was deleted. The tail goes on with entry 0 of a new log of the same key.
   */
  BROOKLET_TAIL_DELETED = 3,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum brooklet_tail_kind brooklet_tail_kind;
#else
typedef int32_t brooklet_tail_kind;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/*
 The kind of a packed operation.
 */
enum brooklet_operation_kind
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  /*
   Appends an entry: `number` bytes of payload follow the key.
   */
  BROOKLET_APPEND = 0,
  /*
   Appends an entry, as for `BROOKLET_APPEND`, and trims all entries before it.
   */
  BROOKLET_SNAPSHOT = 1,
  /*
   Drops the entries before `number`.
   */
  BROOKLET_TRIM = 2,
  /*
   Drops the entries from `number` on.
   */
  BROOKLET_TRUNCATE = 3,
  /*
   Deletes the log.
   */
  BROOKLET_DELETE = 4,
  /*
   Expects that the next entry gets `number`.
   */
  BROOKLET_EXPECT_NEXT = 5,
  /*
   Expects that the log does not exist.
   */
  BROOKLET_EXPECT_ABSENT = 6,
  /*
   Makes the log begin at `number`, which may be past its end; see `brooklet_commit_begin_at`.
   */
  BROOKLET_BEGIN_AT = 7,
  /*
   Drops all entries except the last `number`.
   */
  BROOKLET_KEEP_LAST = 8,
  /*
   Sets how many entries, bytes and nanoseconds the log keeps: three numbers of 64 bits follow
   the key; `UINT64_MAX` is no limit. `number` is 24.
   */
  BROOKLET_RETAIN = 9,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum brooklet_operation_kind brooklet_operation_kind;
#else
typedef uint32_t brooklet_operation_kind;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/*
 Operations that are committed together. The order of the operations is the order of the calls.
 */
typedef struct brooklet_commit brooklet_commit;

/*
 The entries of a log, as they were when the iterator was made.
 */
typedef struct brooklet_entries brooklet_entries;

/*
 The reason why a call failed. Free it with `brooklet_error_free`.
 */
typedef struct brooklet_error brooklet_error;

/*
 The logs of a store, in the order of their keys.
 */
typedef struct brooklet_logs brooklet_logs;

/*
 Options for `brooklet_open`.
 */
typedef struct brooklet_options brooklet_options;

/*
 A queue of completions. Many threads may use it. It belongs to the process that made it: a child
 of a fork shares the descriptor, and would take what its parent waits for, so calls in the child
 return `BROOKLET_STOPPED`.
 */
typedef struct brooklet_queue brooklet_queue;

/*
 An open store. Many threads may use it.
 */
typedef struct brooklet_store brooklet_store;

/*
 A reader that follows a log.
 */
typedef struct brooklet_tail brooklet_tail;

/*
 The promise of a write: the numbers of its entries at once, its durability later. Freeing a
 ticket does not cancel the write.
 */
typedef struct brooklet_ticket brooklet_ticket;

/*
 A wait until a log has reached a number, which blocks no thread.
 */
typedef struct brooklet_wait brooklet_wait;

/*
 An entry. The payload is lent by the iterator that returned it.
 */
typedef struct {
  /*
   The number of the entry.
   */
  uint64_t seq;
  /*
   The payload.
   */
  const uint8_t *payload;
  /*
   Bytes of the payload.
   */
  size_t payload_len;
} brooklet_entry;

/*
 Numbers about a store. Sizes are bytes.
 */
typedef struct {
  /*
   The format version of the store.
   */
  uint64_t format;
  /*
   How often the store was opened for writing.
   */
  uint64_t epoch;
  /*
   Size of the volume.
   */
  uint64_t size;
  /*
   Free space in the heap.
   */
  uint64_t heap_free;
  /*
   Size that the ring may grow to.
   */
  uint64_t ring_size;
  /*
   Size of the ring now.
   */
  uint64_t ring_in_use;
  /*
   Number of logs with entries in memory that are not in runs yet.
   */
  uint64_t memtable_logs;
  /*
   Memory of these entries.
   */
  uint64_t memtable_bytes;
  /*
   Number of runs.
   */
  uint64_t runs;
  /*
   Size of the runs.
   */
  uint64_t run_bytes;
  /*
   Whether a checkpoint is running.
   */
  bool checkpointing;
  /*
   Whether a compaction is running.
   */
  bool compacting;
  /*
   Whether the store accepts no writes any more, after a failure.
   */
  bool stopped;
} brooklet_info;

/*
 One step of a tail.
 */
typedef struct {
  /*
   The kind of the event.
   */
  brooklet_tail_kind kind;
  /*
   The entry; its payload is lent until the next call on the tail.
   */
  brooklet_entry entry;
  /*
   The first number that the event is about.
   */
  uint64_t from;
  /*
   The end of the numbers that the event is about.
   */
  uint64_t to;
} brooklet_tail_event;

/*
 The end of a write.
 */
typedef struct {
  /*
   The number that the caller gave with the write, or the number of a group of writes
   (`brooklet_queue_append`).
   */
  uint64_t tag;
  /*
   How many writes ended: 1, or the writes of the group.
   */
  uint64_t writes;
  /*
   `BROOKLET_OK` if the write is acknowledged.
   */
  brooklet_status status;
  /*
   The error, or NULL. The caller frees it.
   */
  brooklet_error *error;
} brooklet_completion;

/*
 A log. The key is lent by the iterator that returned it.
 */
typedef struct {
  /*
   The key of the log.
   */
  const uint8_t *key;
  /*
   Bytes of the key.
   */
  size_t key_len;
  /*
   The number of its first entry.
   */
  uint64_t first;
  /*
   The number that its next entry will get.
   */
  uint64_t next;
} brooklet_log;

/*
 A function that the caller registers: its `context`, the status of the write, and the error,
 which is lent for the call, or NULL.
 */
typedef void (*brooklet_callback)(void *context, brooklet_status status, const brooklet_error *error);

/*
 The head of a packed operation. The key follows it, then the payload, then the next operation.
 */
typedef struct {
  /*
   A `brooklet_operation_kind`.
   */
  uint32_t kind;
  /*
   Bytes of the key.
   */
  uint32_t key_len;
  /*
   The number that the kind needs, or the bytes of its payload.
   */
  uint64_t number;
} brooklet_operation;

/*
 The head of a packed entry. The payload follows it, then the next entry.
 */
typedef struct {
  /*
   The number of the entry.
   */
  uint64_t seq;
  /*
   Bytes of the payload.
   */
  uint64_t len;
} brooklet_packed_entry;

/*
 The head of a packed log. The key follows it, then the next log.
 */
typedef struct {
  /*
   The number of its first entry.
   */
  uint64_t first;
  /*
   The number that its next entry will get.
   */
  uint64_t next;
  /*
   Bytes of the key.
   */
  uint64_t key_len;
} brooklet_packed_log;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/*
 Returns an empty commit. Free it with `brooklet_commit_free`.
 */
brooklet_commit *brooklet_commit_new(void);

/*
 Frees a commit. NULL is allowed.

 # Safety
 `commit` is NULL or a commit that was not freed; it is not used afterwards.
 */
void brooklet_commit_free(brooklet_commit *commit);

/*
 Removes all operations, so that the commit and its memory can be used again.

 # Safety
 `commit` is NULL (the call then does nothing) or a commit that was not freed.
 */
void brooklet_commit_clear(brooklet_commit *commit);

/*
 Appends an entry to a log.

 # Safety
 `commit` is a commit that was not freed; `key` and `payload` are valid for reading so many
 bytes; `error` is NULL or valid for writing.
 */
brooklet_status brooklet_commit_append(brooklet_commit *commit,
                                       const void *key,
                                       size_t key_len,
                                       const void *payload,
                                       size_t payload_len,
                                       brooklet_error **error);

/*
 Appends an entry that holds the whole state of a log, and trims all entries before it.

 # Safety
 As for `brooklet_commit_append`.
 */
brooklet_status brooklet_commit_snapshot(brooklet_commit *commit,
                                         const void *key,
                                         size_t key_len,
                                         const void *payload,
                                         size_t payload_len,
                                         brooklet_error **error);

/*
 Trims a log: drops the entries before number `before`.

 # Safety
 As for `brooklet_commit_append`, without a payload.
 */
brooklet_status brooklet_commit_trim(brooklet_commit *commit,
                                     const void *key,
                                     size_t key_len,
                                     uint64_t before,
                                     brooklet_error **error);

/*
 Drops all entries of a log except the last `n`.

 # Safety
 As for `brooklet_commit_append`, without a payload.
 */
brooklet_status brooklet_commit_keep_last(brooklet_commit *commit,
                                          const void *key,
                                          size_t key_len,
                                          uint64_t n,
                                          brooklet_error **error);

/*
 Sets how many entries, bytes and nanoseconds a log keeps. `UINT64_MAX` is no limit.

 # Safety
 As for `brooklet_commit_append`, without a payload.
 */
brooklet_status brooklet_commit_set_retention(brooklet_commit *commit,
                                              const void *key,
                                              size_t key_len,
                                              uint64_t entries,
                                              uint64_t bytes,
                                              uint64_t age,
                                              brooklet_error **error);

/*
 Truncates a log: drops the entries from number `from` on.

 # Safety
 As for `brooklet_commit_append`, without a payload.
 */
brooklet_status brooklet_commit_truncate(brooklet_commit *commit,
                                         const void *key,
                                         size_t key_len,
                                         uint64_t from,
                                         brooklet_error **error);

/*
 Makes a log begin at number `first`: drops the entries before it. If the log ends before
 `first`, it is empty afterwards, and its next entry gets that number. Creates the log if it does
 not exist.

 # Safety
 As for `brooklet_commit_append`, without a payload.
 */
brooklet_status brooklet_commit_begin_at(brooklet_commit *commit,
                                         const void *key,
                                         size_t key_len,
                                         uint64_t first,
                                         brooklet_error **error);

/*
 Deletes a log.

 # Safety
 As for `brooklet_commit_append`, without a payload.
 */
brooklet_status brooklet_commit_delete(brooklet_commit *commit,
                                       const void *key,
                                       size_t key_len,
                                       brooklet_error **error);

/*
 Expects that the next entry of a log gets number `next`. Otherwise the commit has no effect, and
 returns `BROOKLET_CONFLICT`.

 # Safety
 As for `brooklet_commit_append`, without a payload.
 */
brooklet_status brooklet_commit_expect_next(brooklet_commit *commit,
                                            const void *key,
                                            size_t key_len,
                                            uint64_t next,
                                            brooklet_error **error);

/*
 Expects that a log does not exist. Otherwise the commit has no effect, and returns
 `BROOKLET_CONFLICT`.

 # Safety
 As for `brooklet_commit_append`, without a payload.
 */
brooklet_status brooklet_commit_expect_absent(brooklet_commit *commit,
                                              const void *key,
                                              size_t key_len,
                                              brooklet_error **error);

/*
 Has the store acknowledge the commit at once, and write it to stable media within `bound`
 nanoseconds. A power cut or a kill may lose the last acknowledged commits of this time.

 # Safety
 `commit` is NULL (the call then does nothing) or a commit that was not freed.
 */
void brooklet_commit_defer(brooklet_commit *commit, uint64_t bound);

/*
 Has the store acknowledge the commit once it is on stable media, also in a deferred space.

 # Safety
 `commit` is NULL (the call then does nothing) or a commit that was not freed.
 */
void brooklet_commit_durable(brooklet_commit *commit);

/*
 Commits the operations. The ticket has the numbers of the appended entries. The commit stays as
 it is, and may be committed again. With `wait` false, a call that would have to wait for room
 returns `BROOKLET_BUSY`.

 # Safety
 `store` and `commit` were not freed; `ticket` is valid for writing; `error` is NULL or valid for
 writing.
 */
brooklet_status brooklet_commit_to(const brooklet_commit *commit,
                                   const brooklet_store *store,
                                   bool wait,
                                   brooklet_ticket **ticket,
                                   brooklet_error **error);

/*
 Stores the first entry of a log at `entry`. Its payload is lent until `entries` is freed.
 Returns `BROOKLET_END`, and stores NULL at `entries`, if the log does not exist or has no entry.

 # Safety
 `store` is a store that was not freed; `key` is valid for reading `key_len` bytes; `entries` and
 `entry` are valid for writing; `error` is NULL or valid for writing.
 */
brooklet_status brooklet_first(const brooklet_store *store,
                               const void *key,
                               size_t key_len,
                               brooklet_entries **entries,
                               brooklet_entry *entry,
                               brooklet_error **error);

/*
 Stores the last entry of a log at `entry`. Otherwise as `brooklet_first`.

 # Safety
 As for `brooklet_first`.
 */
brooklet_status brooklet_last(const brooklet_store *store,
                              const void *key,
                              size_t key_len,
                              brooklet_entries **entries,
                              brooklet_entry *entry,
                              brooklet_error **error);

/*
 Stores at `exists` whether a log exists.

 # Safety
 `store` is a store that was not freed; `key` is valid for reading `key_len` bytes; `exists` is
 valid for writing; `error` is NULL or valid for writing.
 */
brooklet_status brooklet_exists(const brooklet_store *store,
                                const void *key,
                                size_t key_len,
                                bool *exists,
                                brooklet_error **error);

/*
 Returns the status of an error; `BROOKLET_OK` for NULL.

 # Safety
 `error` is NULL or an error that was not freed.
 */
brooklet_status brooklet_error_status(const brooklet_error *error);

/*
 Returns the message of an error, as UTF-8: the failure, its place and the remedy. Valid until
 the error is freed. The empty text for NULL.

 # Safety
 `error` is NULL or an error that was not freed.
 */
const char *brooklet_error_message(const brooklet_error *error);

/*
 Returns whether the error names the end of the log (`next`: the number that the next entry will
 get), and stores it at `next`. So a caller that lost against another writer
 (`BROOKLET_CONFLICT`), or asked for an entry outside of the log (`BROOKLET_NOT_FOUND`), need not
 ask for the bounds. `next` may be NULL.

 # Safety
 `error` is NULL or an error that was not freed; `next` is NULL or valid for writing.
 */
bool brooklet_error_next(const brooklet_error *error, uint64_t *next);

/*
 Returns whether the error names the first entry that the log still has, and stores its number at
 `first`. `first` may be NULL.

 # Safety
 `error` is NULL or an error that was not freed; `first` is NULL or valid for writing.
 */
bool brooklet_error_first(const brooklet_error *error, uint64_t *first);

/*
 Returns whether the call failed because the store is closed: by `brooklet_close`, and not by a
 failure.

 # Safety
 `error` is NULL or an error that was not freed.
 */
bool brooklet_error_is_closed(const brooklet_error *error);

/*
 Frees an error. NULL is allowed.

 # Safety
 `error` is NULL or an error that was not freed; it is not used afterwards.
 */
void brooklet_error_free(brooklet_error *error);

/*
 Appends an entry without a ticket. Stores the entry's number at `seq`, and at `group` the tag of
 the completion that the queue gets when the entry is acknowledged or has failed. Writes that
 reach stable media together have one such tag, and one completion, which counts them (`writes`).
 The tag is 0 if the entry is acknowledged already: no completion follows. The other tags have
 their highest bit set, so pass tags without that bit to `brooklet_ticket_notify`.

 With `wait` false, a call that would have to wait for room returns `BROOKLET_BUSY`.

 # Safety
 `queue` and `store` were not freed; `key` and `payload` are valid for reading so many bytes;
 `seq`, `group` and `error` are NULL or valid for writing.
 */
brooklet_status brooklet_queue_append(const brooklet_queue *queue,
                                      const brooklet_store *store,
                                      const void *key,
                                      size_t key_len,
                                      const void *payload,
                                      size_t payload_len,
                                      bool wait,
                                      uint64_t *seq,
                                      uint64_t *group,
                                      brooklet_error **error);

/*
 Commits packed operations (see `brooklet_operation`) without a ticket. Stores the numbers of the
 appended entries at `seqs`, `most_seqs` of them at most, and how many entries the commit
 appended at `count`. `defer` is the bound of a deferred commit in nanoseconds (see
 `brooklet_commit_defer`), `UINT64_MAX - 1` for a durable one (see `brooklet_commit_durable`), or
 `UINT64_MAX`. The queue gets a completion as for `brooklet_queue_append`, which also explains
 `wait` and `group`.

 # Safety
 `queue` and `store` were not freed; `operations` is valid for reading `len` bytes; `seqs` is
 valid for writing `most_seqs` numbers; `count`, `group` and `error` are NULL or valid for
 writing.
 */
brooklet_status brooklet_queue_commit(const brooklet_queue *queue,
                                      const brooklet_store *store,
                                      const void *operations,
                                      size_t len,
                                      uint64_t defer,
                                      bool wait,
                                      uint64_t *seqs,
                                      size_t most_seqs,
                                      size_t *count,
                                      uint64_t *group,
                                      brooklet_error **error);

/*
 Has a queue complete groups of writes on request only (`brooklet_queue_request`). For a caller
 that waits for few of its writes: the store then hurries with these, and writes the others in
 larger blocks. Call it before the first write: after that, it does nothing.

 # Safety
 `queue` is NULL (the call then does nothing) or a queue that was not freed.
 */
void brooklet_queue_on_request(const brooklet_queue *queue);

/*
 Requests the completion of a group of writes: `group` is the tag that a write got from the
 queue. Stores at `acknowledged` whether the group is acknowledged already: then no completion
 comes. If its writes have failed already, the call returns their error, and no completion comes
 either. With the tag 0, the call requests completions of all groups that are not acknowledged,
 and stores false. A queue that is not on request, and a tag that no write of the queue got, are
 `BROOKLET_INVALID`.

 # Safety
 `queue` is a queue that was not freed; `acknowledged` and `error` are NULL or valid for writing.
 */
brooklet_status brooklet_queue_request(const brooklet_queue *queue,
                                       uint64_t group,
                                       bool *acknowledged,
                                       brooklet_error **error);

/*
 Commits packed operations, as `brooklet_queue_commit` does, and waits until the commit is
 acknowledged. The thread may write to the device itself: for one writer, nothing is faster.

 # Safety
 As for `brooklet_queue_commit`, without a queue.
 */
brooklet_status brooklet_commit_wait(const brooklet_store *store,
                                     const void *operations,
                                     size_t len,
                                     uint64_t defer,
                                     uint64_t *seqs,
                                     size_t most_seqs,
                                     size_t *count,
                                     brooklet_error **error);

/*
 Stores numbers about the store at `info`.

 # Safety
 `store` is a store that was not freed; `info` and `error` are NULL or valid for writing.
 */
brooklet_status brooklet_store_info(const brooklet_store *store,
                                    brooklet_info *info,
                                    brooklet_error **error);

/*
 Returns new options with the default values. Free them with `brooklet_options_free`.
 */
brooklet_options *brooklet_options_new(void);

/*
 Frees options. NULL is allowed.

 # Safety
 `options` is NULL or options that were not freed; they are not used afterwards.
 */
void brooklet_options_free(brooklet_options *options);

/*
 Sets the size of the ring, in bytes: where commits are written first. Only a new store uses it.

 # Safety
 `options` is NULL (the call then does nothing) or options that were not freed.
 */
void brooklet_options_ring_size(brooklet_options *options, uint64_t bytes);

/*
 Sets the most bytes of the store.

 # Safety
 `options` is NULL (the call then does nothing) or options that were not freed.
 */
void brooklet_options_capacity(brooklet_options *options, uint64_t bytes);

/*
 Gives the ring a file or a device of its own, at `path`. Each opening of the store names it.

 # Safety
 `options` is NULL or options that were not freed; `path` is a text that ends with NUL; `error`
 is NULL or valid for writing.
 */
brooklet_status brooklet_options_ring_at(brooklet_options *options,
                                         const char *path,
                                         brooklet_error **error);

/*
 Sets the most bytes of memory for entries that are not in runs yet.

 # Safety
 `options` is NULL (the call then does nothing) or options that were not freed.
 */
void brooklet_options_memory_budget(brooklet_options *options, size_t bytes);

/*
 Sets the most bytes of memory for look-ups and reads.

 # Safety
 `options` is NULL (the call then does nothing) or options that were not freed.
 */
void brooklet_options_cache_budget(brooklet_options *options, size_t bytes);

/*
 Sets the most bytes of one payload.

 # Safety
 `options` is NULL (the call then does nothing) or options that were not freed.
 */
void brooklet_options_max_payload(brooklet_options *options, size_t bytes);

/*
 Sets the permissions of a new file, such as 0600.

 # Safety
 `options` is NULL (the call then does nothing) or options that were not freed.
 */
void brooklet_options_permissions(brooklet_options *options, uint32_t mode);

/*
 Sets the longest time for which the store collects commits before it writes them.

 # Safety
 `options` is NULL (the call then does nothing) or options that were not freed.
 */
void brooklet_options_linger(brooklet_options *options, uint64_t nanoseconds);

/*
 Opens the store for reading only. Nobody else may have the store open for writing.

 # Safety
 `options` is NULL (the call then does nothing) or options that were not freed.
 */
void brooklet_options_read_only(brooklet_options *options, bool on);

/*
 Opens the store for reading only, beside a process that has it open for writing. The reader sees
 the entries that were on stable media when it opened the store.

 # Safety
 `options` is NULL (the call then does nothing) or options that were not freed.
 */
void brooklet_options_beside_writer(brooklet_options *options, bool on);

/*
 Decides about a path without a store: 0 fails, 1 creates a store (the default), 2 creates a
 store and fails if there is one.

 # Safety
 `options` is NULL or options that were not freed; `error` is NULL or valid for writing.
 */
brooklet_status brooklet_options_create(brooklet_options *options,
                                        uint32_t create,
                                        brooklet_error **error);

/*
 Adds packed operations to a commit (see `brooklet_operation`).

 # Safety
 `commit` is a commit that was not freed; `operations` is valid for reading `len` bytes; `error`
 is NULL or valid for writing.
 */
brooklet_status brooklet_commit_add(brooklet_commit *commit,
                                    const void *operations,
                                    size_t len,
                                    brooklet_error **error);

/*
 Copies entries into the caller's buffer, each behind a `brooklet_packed_entry`: as many as find
 room. Stores the number of entries at `count`, and their bytes at `used`. Returns `BROOKLET_END`
 if the last entry was copied, `BROOKLET_OK` if more may follow. If not even the next entry finds
 room, `count` is 0 and `used` the size that the entry needs. An error comes after the entries
 before it.

 # Safety
 `entries` was not freed, and no other thread uses it; `buffer` is valid for writing `size`
 bytes; `used`, `count` and `error` are NULL or valid for writing.
 */
brooklet_status brooklet_entries_fill(brooklet_entries *entries,
                                      void *buffer,
                                      size_t size,
                                      size_t *used,
                                      size_t *count,
                                      brooklet_error **error);

/*
 Reads a log as `brooklet_read` does, and fills the buffer as `brooklet_entries_fill` does, in
 one call. Stores the rest at `entries`: NULL together with `BROOKLET_END`, if all was copied.

 # Safety
 As for `brooklet_read` and `brooklet_entries_fill`.
 */
brooklet_status brooklet_read_fill(const brooklet_store *store,
                                   const void *key,
                                   size_t key_len,
                                   uint64_t from,
                                   uint64_t to,
                                   bool available,
                                   void *buffer,
                                   size_t size,
                                   size_t *used,
                                   size_t *count,
                                   brooklet_entries **entries,
                                   brooklet_error **error);

/*
 Copies logs into the caller's buffer, each as a `brooklet_packed_log` and its key. Otherwise as
 `brooklet_entries_fill`.

 # Safety
 As for `brooklet_entries_fill`.
 */
brooklet_status brooklet_logs_fill(brooklet_logs *logs,
                                   void *buffer,
                                   size_t size,
                                   size_t *used,
                                   size_t *count,
                                   brooklet_error **error);

/*
 Copies the next entries of a tail into the caller's buffer, as `brooklet_entries_fill` does, and
 never waits. If an event of another kind follows the entries, the call stores it at `event`, and
 otherwise an event of the kind `BROOKLET_TAIL_ENTRY`. If there is neither, the call returns
 `BROOKLET_TIMEOUT`, and the queue gets a completion with `tag` once it is worth another call.
 Another call on the tail may revoke this completion. Errors are those of `brooklet_tail_next`.

 # Safety
 `tail` and `queue` were not freed, and no other thread uses the tail; `buffer` is valid for
 writing `size` bytes; `used`, `count`, `event` and `error` are NULL or valid for writing.
 */
brooklet_status brooklet_tail_fill(brooklet_tail *tail,
                                   const brooklet_queue *queue,
                                   uint64_t tag,
                                   void *buffer,
                                   size_t size,
                                   size_t *used,
                                   size_t *count,
                                   brooklet_tail_event *event,
                                   brooklet_error **error);

/*
 Makes a queue. Free it with `brooklet_queue_free`.

 # Safety
 `queue` is valid for writing; `error` is NULL or valid for writing.
 */
brooklet_status brooklet_queue_new(brooklet_queue **queue, brooklet_error **error);

/*
 Frees a queue. Completions that come later are lost; their writes are not. NULL is allowed.

 # Safety
 `queue` is NULL or a queue that was not freed; no call uses it now or later.
 */
void brooklet_queue_free(brooklet_queue *queue);

/*
 Returns a descriptor that is readable while completions wait; -1 for NULL, and in a child of a
 fork. It belongs to the queue: wait for it with `poll` or `epoll`, and neither read nor close
 it.

 # Safety
 `queue` is NULL or a queue that was not freed.
 */
int32_t brooklet_queue_fd(const brooklet_queue *queue);

/*
 Puts a completion with this `tag` into the queue, so that a thread which waits in
 `brooklet_queue_take` returns.

 # Safety
 `queue` is a queue that was not freed; `error` is NULL or valid for writing.
 */
brooklet_status brooklet_queue_post(const brooklet_queue *queue,
                                    uint64_t tag,
                                    brooklet_error **error);

/*
 Takes completions, in the order of their ends: at least one and at most `most`. Waits for the
 first one for `timeout` nanoseconds; 0 does not wait. Returns `BROOKLET_TIMEOUT` if none came.
 Stores how many it took at `count`.

 # Safety
 `queue` is a queue that was not freed; `completions` is valid for writing `most` completions;
 `count` is valid for writing; `error` is NULL or valid for writing.
 */
brooklet_status brooklet_queue_take(const brooklet_queue *queue,
                                    brooklet_completion *completions,
                                    size_t most,
                                    uint64_t timeout,
                                    size_t *count,
                                    brooklet_error **error);

/*
 Reads a log: its entries from number `from` on and before number `to` (`UINT64_MAX`: to the
 end), those on stable media. With `available`, entries outside of the log are left out, and an
 unknown log has none; otherwise they are an error.

 # Safety
 `store` is a store that was not freed; `key` is valid for reading `key_len` bytes; `entries` is
 valid for writing; `error` is NULL or valid for writing.
 */
brooklet_status brooklet_read(const brooklet_store *store,
                              const void *key,
                              size_t key_len,
                              uint64_t from,
                              uint64_t to,
                              bool available,
                              brooklet_entries **entries,
                              brooklet_error **error);

/*
 Stores the next entry at `entry`. Its payload is lent until the next call on `entries`. Returns
 `BROOKLET_END` after the last entry.

 # Safety
 `entries` was not freed, and no other thread uses it; `entry` is valid for writing; `error` is
 NULL or valid for writing.
 */
brooklet_status brooklet_entries_next(brooklet_entries *entries,
                                      brooklet_entry *entry,
                                      brooklet_error **error);

/*
 Has the later calls return the newest entry first. Call it before the first entry is taken.

 # Safety
 `entries` was not freed, and no other thread uses it; `error` is NULL or valid for writing.
 */
brooklet_status brooklet_entries_reverse(brooklet_entries *entries, brooklet_error **error);

/*
 Frees entries. NULL is allowed.

 # Safety
 `entries` is NULL or was not freed; it is not used afterwards.
 */
void brooklet_entries_free(brooklet_entries *entries);

/*
 Stores the number of the first entry of a log, and the number that its next entry will get.
 Returns `BROOKLET_NOT_FOUND` if the log does not exist. `first` and `next` may be NULL.

 # Safety
 `store` is a store that was not freed; `key` is valid for reading `key_len` bytes; `first`,
 `next` and `error` are NULL or valid for writing.
 */
brooklet_status brooklet_bounds(const brooklet_store *store,
                                const void *key,
                                size_t key_len,
                                uint64_t *first,
                                uint64_t *next,
                                brooklet_error **error);

/*
 Lists the logs whose keys start with `prefix`, from the key `from` on (NULL: from the first).

 # Safety
 `store` is a store that was not freed; `prefix` and `from` are valid for reading so many bytes;
 `logs` is valid for writing; `error` is NULL or valid for writing.
 */
brooklet_status brooklet_scan(const brooklet_store *store,
                              const void *prefix,
                              size_t prefix_len,
                              const void *from,
                              size_t from_len,
                              brooklet_logs **logs,
                              brooklet_error **error);

/*
 Stores the next log at `log`. Its key is lent until the next call on `logs`. Returns
 `BROOKLET_END` after the last log.

 # Safety
 `logs` was not freed, and no other thread uses it; `log` is valid for writing; `error` is NULL
 or valid for writing.
 */
brooklet_status brooklet_logs_next(brooklet_logs *logs, brooklet_log *log, brooklet_error **error);

/*
 Frees a list of logs. NULL is allowed.

 # Safety
 `logs` is NULL or was not freed; it is not used afterwards.
 */
void brooklet_logs_free(brooklet_logs *logs);

/*
 Returns the version of the library, such as "0.1.0". Never freed.
 */
const char *brooklet_version(void);

/*
 Opens the store at `path`, or creates it. `options` may be NULL. Close the store with
 `brooklet_close`, then free it with `brooklet_store_free`.

 # Safety
 `path` is a text that ends with NUL; `options` is NULL or valid; `store` is valid for writing;
 `error` is NULL or valid for writing.
 */
brooklet_status brooklet_open(const char *path,
                              const brooklet_options *options,
                              brooklet_store **store,
                              brooklet_error **error);

/*
 Closes the store: waits until all commits are on stable media. Later writes return
 `BROOKLET_STOPPED`. `brooklet_store_free` releases the file. A second call does nothing.

 With `BROOKLET_FULL`, a space in memory found no room for its dump, and the store stays open:
 make room, and call this again. `brooklet_store_free` closes the store all the same, and leaves
 the space as in its last dump.

 # Safety
 `store` is a store that was not freed; `error` is NULL or valid for writing.
 */
brooklet_status brooklet_close(brooklet_store *store, brooklet_error **error);

/*
 Frees a store, and closes it before if it is open; errors of that are lost. NULL is allowed.

 # Safety
 `store` is NULL or a store that was not freed. No other call uses it now or later. Tickets,
 iterators and queues may be freed later.
 */
void brooklet_store_free(brooklet_store *store);

/*
 Waits until every commit so far is on stable media, deferred ones too.

 # Safety
 `store` is a store that was not freed; `error` is NULL or valid for writing.
 */
brooklet_status brooklet_flush(const brooklet_store *store, brooklet_error **error);

/*
 Moves all entries from the ring into runs.

 # Safety
 `store` is a store that was not freed; `error` is NULL or valid for writing.
 */
brooklet_status brooklet_checkpoint(const brooklet_store *store, brooklet_error **error);

/*
 Appends an entry to a log; the first entry creates the log. The ticket has the entry's number,
 and shows when the entry is on stable media. May wait for room: `brooklet_try_commit` does not.

 # Safety
 `store` is a store that was not freed; `key` and `payload` are valid for reading so many bytes;
 `ticket` is valid for writing; `error` is NULL or valid for writing.
 */
brooklet_status brooklet_append(const brooklet_store *store,
                                const void *key,
                                size_t key_len,
                                const void *payload,
                                size_t payload_len,
                                brooklet_ticket **ticket,
                                brooklet_error **error);

/*
 Appends an entry, and waits until it is on stable media. Stores the entry's number at `seq`,
 which may be NULL.

 # Safety
 As for `brooklet_append`; `seq` is NULL or valid for writing.
 */
brooklet_status brooklet_append_wait(const brooklet_store *store,
                                     const void *key,
                                     size_t key_len,
                                     const void *payload,
                                     size_t payload_len,
                                     uint64_t *seq,
                                     brooklet_error **error);

/*
 Appends an entry that holds the whole state of the log, and trims all entries before it, in one
 step.

 # Safety
 As for `brooklet_append`.
 */
brooklet_status brooklet_snapshot(const brooklet_store *store,
                                  const void *key,
                                  size_t key_len,
                                  const void *payload,
                                  size_t payload_len,
                                  brooklet_ticket **ticket,
                                  brooklet_error **error);

/*
 Trims a log: drops the entries before number `before`.

 # Safety
 As for `brooklet_append`, without a payload.
 */
brooklet_status brooklet_trim(const brooklet_store *store,
                              const void *key,
                              size_t key_len,
                              uint64_t before,
                              brooklet_ticket **ticket,
                              brooklet_error **error);

/*
 Truncates a log: drops the entries from number `from` on.

 # Safety
 As for `brooklet_append`, without a payload.
 */
brooklet_status brooklet_truncate(const brooklet_store *store,
                                  const void *key,
                                  size_t key_len,
                                  uint64_t from,
                                  brooklet_ticket **ticket,
                                  brooklet_error **error);

/*
 Deletes a log. A later append creates it anew, from entry 0 on.

 # Safety
 As for `brooklet_append`, without a payload.
 */
brooklet_status brooklet_delete(const brooklet_store *store,
                                const void *key,
                                size_t key_len,
                                brooklet_ticket **ticket,
                                brooklet_error **error);

/*
 Sets how much a log keeps: so many entries, bytes, and nanoseconds since the append.
 `UINT64_MAX` means no limit.

 # Safety
 As for `brooklet_append`, without a payload.
 */
brooklet_status brooklet_set_retention(const brooklet_store *store,
                                       const void *key,
                                       size_t key_len,
                                       uint64_t entries,
                                       uint64_t bytes,
                                       uint64_t age,
                                       brooklet_ticket **ticket,
                                       brooklet_error **error);

/*
 Waits until a log has entry `next - 1` on stable media. Returns `BROOKLET_TIMEOUT` if that does
 not come within `timeout` nanoseconds.

 # Safety
 As for `brooklet_append`, without a payload and a ticket.
 */
brooklet_status brooklet_wait_for(const brooklet_store *store,
                                  const void *key,
                                  size_t key_len,
                                  uint64_t next,
                                  uint64_t timeout,
                                  brooklet_error **error);

/*
 Follows a log from entry `from` on: every entry once, in order, when it is on stable media. The
 log may be created later.

 # Safety
 `store` is a store that was not freed; `key` is valid for reading `key_len` bytes; `tail` is
 valid for writing; `error` is NULL or valid for writing.
 */
brooklet_status brooklet_tail_open(const brooklet_store *store,
                                   const void *key,
                                   size_t key_len,
                                   uint64_t from,
                                   brooklet_tail **tail,
                                   brooklet_error **error);

/*
 Stores the next event at `event`. Waits for it for `timeout` nanoseconds (0: not at all), and
 returns `BROOKLET_TIMEOUT` if none came. Returns `BROOKLET_STOPPED` once the store is closed,
 and `BROOKLET_END` after any error.

 # Safety
 `tail` was not freed, and no other thread uses it; `event` is valid for writing; `error` is NULL
 or valid for writing.
 */
brooklet_status brooklet_tail_next(brooklet_tail *tail,
                                   uint64_t timeout,
                                   brooklet_tail_event *event,
                                   brooklet_error **error);

/*
 Returns the number of the next entry that the tail returns; 0 for NULL.

 # Safety
 `tail` is NULL or was not freed, and no other thread uses it.
 */
uint64_t brooklet_tail_position(const brooklet_tail *tail);

/*
 Frees a tail. NULL is allowed.

 # Safety
 `tail` is NULL or was not freed; it is not used afterwards.
 */
void brooklet_tail_free(brooklet_tail *tail);

/*
 Frees a ticket. NULL is allowed.

 # Safety
 `ticket` is NULL or a ticket that was not freed; it is not used afterwards.
 */
void brooklet_ticket_free(brooklet_ticket *ticket);

/*
 Returns the number of the appended entry, or of the first one if the write appended several; 0
 if the write appended none.

 # Safety
 `ticket` is NULL (the call then returns 0) or a ticket that was not freed.
 */
uint64_t brooklet_ticket_seq(const brooklet_ticket *ticket);

/*
 Returns the numbers of all appended entries, in the order of the operations, and stores their
 count at `count`. The numbers are lent until the ticket is freed.

 # Safety
 `ticket` is NULL or a ticket that was not freed; `count` is NULL or valid for writing.
 */
const uint64_t *brooklet_ticket_seqs(const brooklet_ticket *ticket, size_t *count);

/*
 Waits until the write is acknowledged: on stable media, or at once for a deferred commit.
 Returns `BROOKLET_TIMEOUT` if that takes longer than `timeout` nanoseconds; the write continues.

 # Safety
 `ticket` is a ticket that was not freed; `error` is NULL or valid for writing.
 */
brooklet_status brooklet_ticket_wait(const brooklet_ticket *ticket,
                                     uint64_t timeout,
                                     brooklet_error **error);

/*
 Returns whether the write is acknowledged or has failed, without waiting; `true` for NULL.

 # Safety
 `ticket` is NULL or a ticket that was not freed.
 */
bool brooklet_ticket_is_done(const brooklet_ticket *ticket);

/*
 Puts a completion with this `tag` into the queue when the write is acknowledged or has failed.
 The ticket may be freed before.

 # Safety
 `ticket` and `queue` were not freed; `error` is NULL or valid for writing.
 */
brooklet_status brooklet_ticket_notify(const brooklet_ticket *ticket,
                                       const brooklet_queue *queue,
                                       uint64_t tag,
                                       brooklet_error **error);

/*
 Calls `callback` once, when the write is acknowledged or has failed. Callbacks run one after
 another on a thread of the store that does nothing else; or at once on this thread, if the write
 has ended already. A callback may use the store, also wait and close it. The ticket may be freed
 before.

 # Safety
 `ticket` was not freed; `callback` and `context` may be used by another thread until the
 callback has returned; `callback` returns normally; `error` is NULL or valid for writing.
 */
brooklet_status brooklet_ticket_on_done(const brooklet_ticket *ticket,
                                        brooklet_callback callback,
                                        void *context,
                                        brooklet_error **error);

/*
 Begins to wait until a log has entry `next - 1` on stable media, as `brooklet_wait_for` does,
 but without a thread: `brooklet_wait_poll` returns the outcome. The wait begins with this call:
 an entry that comes later counts, also if the log drops it before the next call. The log may be
 created later. Free the wait with `brooklet_wait_free`, which also cancels it.

 # Safety
 `store` is a store that was not freed; `key` is valid for reading `key_len` bytes; `wait` is
 valid for writing; `error` is NULL or valid for writing.
 */
brooklet_status brooklet_wait_open(const brooklet_store *store,
                                   const void *key,
                                   size_t key_len,
                                   uint64_t next,
                                   brooklet_wait **wait,
                                   brooklet_error **error);

/*
 Returns `BROOKLET_OK` if the log has reached the number of a wait, and never waits. If it has
 not, the call returns `BROOKLET_TIMEOUT`, and the queue gets a completion with `tag` once it is
 worth another call. Another call on the wait may revoke this completion. Returns
 `BROOKLET_STOPPED` once the store is closed. Later calls return the same.

 # Safety
 `wait` and `queue` were not freed, and no other thread uses the wait; `error` is NULL or valid
 for writing.
 */
brooklet_status brooklet_wait_poll(brooklet_wait *wait,
                                   const brooklet_queue *queue,
                                   uint64_t tag,
                                   brooklet_error **error);

/*
 Frees a wait, and so ends it. NULL is allowed.

 # Safety
 `wait` is NULL or was not freed; it is not used afterwards.
 */
void brooklet_wait_free(brooklet_wait *wait);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* BROOKLET_H */

// Package brooklet is an embedded store for millions of small append-only logs. A program appends
// an entry to a log and is notified when the entry is on stable media. It reads the log back, trims
// its head, and deletes it. A store is one file or one raw block device.
//
// # Waiting
//
// [Store.Append] and [Store.Commit] return when the write is acknowledged: it is on stable media.
// Any number of goroutines may wait. They wait on channels, and need no thread each. All writes that
// reach stable media together wake their goroutines by one event.
//
// [Store.AppendAsync] and [Store.CommitAsync] return a [Ticket] at once: the numbers of the entries
// are known, the acknowledgement follows. The store hurries with a write once somebody waits for it. It
// writes the others in larger blocks, within the time of [Options].Linger.
//
// A context ends a wait, also one for room. It does not cancel a write that has begun, which becomes
// durable all the same.
//
// # Errors
//
// Each error of the store wraps one of the sentinel errors, such as [ErrConflict], for errors.Is.
// [Error] has the message and the details, for errors.As.
//
// # Goroutines
//
// All methods of [Store] and [Ticket] may be called by many goroutines at once. One goroutine at a
// time uses a [Commit] or an iterator. A closed store returns [ErrStopped] from each call.
package brooklet

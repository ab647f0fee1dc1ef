package brooklet

// #include "shim.h"
import "C"

import (
	"encoding/binary"
	"math"
	"time"
)

// Commit is a set of operations on any number of logs that happen all or not at all. The zero value
// is an empty commit. Its methods copy keys and payloads, and return the commit, for the next call.
//
// Operations take effect in the order of the calls. The store checks all expectations against the
// logs as they are before the first operation.
type Commit struct {
	// packed has the operations as the C library reads them: see brooklet_operation.
	packed   []byte
	appends  int
	deferred bool
	within   time.Duration
	durable  bool
	failure  error
}

// Retention says how much a log keeps. A limit of 0 is no limit.
type Retention struct {
	// Entries is the most entries that the log keeps.
	Entries uint64
	// Bytes is the most bytes of payloads that the log keeps.
	Bytes uint64
	// Age is how long the log keeps an entry.
	Age time.Duration
}

func (c *Commit) add(kind uint32, key string, number uint64, payload []byte) *Commit {
	if uint64(len(key)) > math.MaxUint32 {
		c.failure = invalid("a key is too long")
		return c
	}
	c.packed = binary.NativeEndian.AppendUint32(c.packed, kind)
	c.packed = binary.NativeEndian.AppendUint32(c.packed, uint32(len(key)))
	c.packed = binary.NativeEndian.AppendUint64(c.packed, number)
	c.packed = append(c.packed, key...)
	c.packed = append(c.packed, payload...)
	return c
}

// Clear removes all operations, so that the commit and its memory can be used again.
func (c *Commit) Clear() *Commit {
	*c = Commit{packed: c.packed[:0]}
	return c
}

// Size returns about how many bytes the operations have.
func (c *Commit) Size() int { return len(c.packed) }

// Append appends an entry to a log. Creates the log if it does not exist.
func (c *Commit) Append(key string, payload []byte) *Commit {
	c.appends++
	return c.add(C.BROOKLET_APPEND, key, uint64(len(payload)), payload)
}

// Snapshot appends an entry that holds the whole state of a log, and trims all entries before it.
func (c *Commit) Snapshot(key string, payload []byte) *Commit {
	c.appends++
	return c.add(C.BROOKLET_SNAPSHOT, key, uint64(len(payload)), payload)
}

// Trim drops the entries of a log before number before, which may be at most the log's next number.
func (c *Commit) Trim(key string, before uint64) *Commit {
	return c.add(C.BROOKLET_TRIM, key, before, nil)
}

// KeepLast drops all entries of a log except the last n.
func (c *Commit) KeepLast(key string, n uint64) *Commit {
	return c.add(C.BROOKLET_KEEP_LAST, key, n, nil)
}

// BeginAt makes a log begin at number first: drops the entries before it. If the log ends before
// first, it is empty afterwards, and its next entry gets that number. Creates the log if it does not
// exist.
func (c *Commit) BeginAt(key string, first uint64) *Commit {
	return c.add(C.BROOKLET_BEGIN_AT, key, first, nil)
}

// Truncate drops the entries of a log from number from on. The next entry gets that number.
func (c *Commit) Truncate(key string, from uint64) *Commit {
	return c.add(C.BROOKLET_TRUNCATE, key, from, nil)
}

// Delete deletes a log. A log created later under the same key starts at 0 again.
func (c *Commit) Delete(key string) *Commit {
	return c.add(C.BROOKLET_DELETE, key, 0, nil)
}

// SetRetention sets how much a log keeps: its newest entries, within each limit. With a limit, it
// creates the log if it does not exist.
func (c *Commit) SetRetention(key string, retention Retention) *Commit {
	if retention.Age < 0 {
		c.failure = invalid("Retention.Age is negative")
		return c
	}
	var limits []byte
	for _, limit := range []uint64{retention.Entries, retention.Bytes, uint64(retention.Age)} {
		if limit == 0 {
			limit = math.MaxUint64
		}
		limits = binary.NativeEndian.AppendUint64(limits, limit)
	}
	return c.add(C.BROOKLET_RETAIN, key, uint64(len(limits)), limits)
}

// ExpectNext expects that the next entry of a log gets number next. Otherwise the commit has no
// effect, and returns [ErrConflict].
func (c *Commit) ExpectNext(key string, next uint64) *Commit {
	return c.add(C.BROOKLET_EXPECT_NEXT, key, next, nil)
}

// ExpectAbsent expects that a log does not exist. Otherwise the commit has no effect, and returns
// [ErrConflict].
func (c *Commit) ExpectAbsent(key string) *Commit {
	return c.add(C.BROOKLET_EXPECT_ABSENT, key, 0, nil)
}

// Defer has the store acknowledge the commit at once, and write it to stable media within bound. A
// power cut or a kill may lose the last acknowledged commits of this time.
func (c *Commit) Defer(bound time.Duration) *Commit {
	if bound < 0 {
		c.failure = invalid("the bound of a deferred commit is negative")
		return c
	}
	c.deferred, c.within, c.durable = true, bound, false
	return c
}

// Durable has the store acknowledge the commit once it is on stable media, also in a space whose
// commits are deferred.
func (c *Commit) Durable() *Commit {
	c.deferred, c.durable = false, true
	return c
}

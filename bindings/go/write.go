package brooklet

// #include "shim.h"
import "C"

import (
	"context"
	"math"
	"runtime"
	"unsafe"
)

// Append appends an entry to a log, and waits until it is on stable media. The first entry creates
// the log. Append returns the entry's number.
//
// If the context ends before, Append returns its error; the number is valid if the write had begun,
// and the write continues.
func (s *Store) Append(ctx context.Context, key string, payload []byte) (uint64, error) {
	text, textLen := textOf(key)
	bytes, bytesLen := bytesOf(payload)
	written, drove, err := s.drive(ctx, func(c *core) C.shim_written {
		return C.shim_append_wait(c.store, text, textLen, bytes, bytesLen)
	})
	if drove || err != nil {
		return uint64(written.seq), err
	}
	ticket, err := s.AppendAsync(ctx, key, payload)
	if err != nil {
		return 0, err
	}
	return ticket.seq, ticket.Wait(ctx)
}

// drive makes a write that waits on the thread, if few do, and if no context may end the wait. It
// reports whether it has made the write.
func (s *Store) drive(ctx context.Context, call func(c *core) C.shim_written) (C.shim_written, bool, error) {
	c := s.handles()
	defer runtime.KeepAlive(s)
	if c == nil || ctx == nil || ctx.Done() != nil {
		return C.shim_written{}, false, nil
	}
	select {
	case c.driving <- struct{}{}:
	default:
		return C.shim_written{}, false, nil
	}
	defer func() { <-c.driving }()
	if err := c.acquire(); err != nil {
		return C.shim_written{}, false, err
	}
	defer c.release()
	written := call(c)
	return written, true, failed(written.status, written.error)
}

// AppendAsync appends an entry like [Store.Append], but does not wait for its acknowledgement. It
// waits for room. The payload may be changed when the call has returned.
func (s *Store) AppendAsync(ctx context.Context, key string, payload []byte) (Ticket, error) {
	written, group, err := s.write(ctx, func(c *core, wait bool) C.shim_written {
		text, textLen := textOf(key)
		bytes, bytesLen := bytesOf(payload)
		return C.shim_append(c.queue, c.store, text, textLen, bytes, bytesLen, C.bool(wait))
	})
	if err != nil {
		return Ticket{}, err
	}
	return Ticket{group: group, seq: uint64(written.seq), single: true}, nil
}

// write makes a write. As few goroutines as there are places wait for room within the C library; the
// others ask without waiting before they wait for a place.
func (s *Store) write(ctx context.Context, call func(c *core, wait bool) C.shim_written) (C.shim_written, *group, error) {
	var none C.shim_written
	if err := ended(ctx); err != nil {
		return none, nil, err
	}
	c := s.handles()
	defer runtime.KeepAlive(s)
	if err := c.acquire(); err != nil {
		return none, nil, err
	}
	defer c.release()
	var written C.shim_written
	select {
	case c.waiting <- struct{}{}:
		written = call(c, true)
		c.leave()
	default:
		written = call(c, false)
		if written.status == C.BROOKLET_BUSY {
			C.brooklet_error_free(written.error)
			if err := c.enter(ctx); err != nil {
				return none, nil, err
			}
			written = call(c, true)
			c.leave()
		}
	}
	if written.error != nil {
		return none, nil, failed(written.status, written.error)
	}
	return written, c.acks.join(uint64(written.group)), nil
}

// AppendMany appends several entries to a log with consecutive numbers, all or none, and waits until
// they are on stable media. It returns the number of the first.
func (s *Store) AppendMany(ctx context.Context, key string, payloads [][]byte) (uint64, error) {
	var commit Commit
	for _, payload := range payloads {
		commit.Append(key, payload)
	}
	return s.first(ctx, &commit)
}

// first makes a commit, waits for it, and returns the number of its first entry.
func (s *Store) first(ctx context.Context, commit *Commit) (uint64, error) {
	seqs, err := s.Commit(ctx, commit)
	if len(seqs) == 0 {
		return 0, err
	}
	return seqs[0], err
}

// Commit applies a commit: all of its operations or none. It waits until the commit is
// acknowledged, and returns the numbers of the appended entries, in the order of the operations.
//
// The error [ErrConflict] means that an expectation does not hold. The context has the effect that
// [Store.Append] describes.
func (s *Store) Commit(ctx context.Context, commit *Commit) ([]uint64, error) {
	if err := commit.check(); err != nil {
		return nil, err
	}
	seqs := make([]uint64, commit.appends)
	written, drove, err := s.drive(ctx, func(c *core) C.shim_written {
		operations, operationsLen := bytesOf(commit.packed)
		numbers := (*C.uint64_t)(unsafe.SliceData(seqs))
		return C.shim_commit_wait(c.store, operations, operationsLen, commit.bound(), numbers, C.size_t(len(seqs)))
	})
	if err != nil {
		return nil, err
	}
	if drove {
		return seqs[:min(len(seqs), int(written.count))], nil
	}
	ticket, err := s.CommitAsync(ctx, commit)
	if err != nil {
		return nil, err
	}
	return ticket.seqs, ticket.Wait(ctx)
}

// CommitAsync applies a commit like [Store.Commit], but does not wait for its acknowledgement. It
// waits for room. The commit stays as it is, and may be committed again.
func (s *Store) CommitAsync(ctx context.Context, commit *Commit) (Ticket, error) {
	if err := commit.check(); err != nil {
		return Ticket{}, err
	}
	seqs := make([]uint64, commit.appends)
	written, group, err := s.write(ctx, func(c *core, wait bool) C.shim_written {
		operations, operationsLen := bytesOf(commit.packed)
		numbers := (*C.uint64_t)(unsafe.SliceData(seqs))
		return C.shim_commit(c.queue, c.store, operations, operationsLen, commit.bound(), C.bool(wait), numbers,
			C.size_t(len(seqs)))
	})
	if err != nil {
		return Ticket{}, err
	}
	ticket := Ticket{group: group, seqs: seqs[:min(len(seqs), int(written.count))]}
	if len(ticket.seqs) > 0 {
		ticket.seq = ticket.seqs[0]
	}
	return ticket, nil
}

// check returns the error of a commit that cannot be made.
func (c *Commit) check() error {
	if c == nil {
		return invalid("the commit is nil")
	}
	return c.failure
}

func (c *Commit) bound() C.uint64_t {
	if !c.deferred {
		return math.MaxUint64
	}
	return C.uint64_t(c.within)
}

// one makes a commit of one operation, and waits for it.
func (s *Store) one(ctx context.Context, commit *Commit) error {
	_, err := s.Commit(ctx, commit)
	return err
}

// Snapshot appends an entry that holds the whole state of a log, and trims all entries before it, in
// one step. It returns the entry's number when the entry is on stable media.
func (s *Store) Snapshot(ctx context.Context, key string, payload []byte) (uint64, error) {
	return s.first(ctx, new(Commit).Snapshot(key, payload))
}

// Trim drops the entries of a log before number before.
func (s *Store) Trim(ctx context.Context, key string, before uint64) error {
	return s.one(ctx, new(Commit).Trim(key, before))
}

// KeepLast drops all entries of a log except the last n.
func (s *Store) KeepLast(ctx context.Context, key string, n uint64) error {
	return s.one(ctx, new(Commit).KeepLast(key, n))
}

// BeginAt makes a log begin at number first; see [Commit.BeginAt].
func (s *Store) BeginAt(ctx context.Context, key string, first uint64) error {
	return s.one(ctx, new(Commit).BeginAt(key, first))
}

// Truncate drops the entries of a log from number from on.
func (s *Store) Truncate(ctx context.Context, key string, from uint64) error {
	return s.one(ctx, new(Commit).Truncate(key, from))
}

// Delete deletes a log. A later append creates it anew, from entry 0 on.
func (s *Store) Delete(ctx context.Context, key string) error {
	return s.one(ctx, new(Commit).Delete(key))
}

// SetRetention sets how much a log keeps; see [Commit.SetRetention].
func (s *Store) SetRetention(ctx context.Context, key string, retention Retention) error {
	return s.one(ctx, new(Commit).SetRetention(key, retention))
}

package brooklet

// #include "shim.h"
import "C"

import (
	"context"
	"math"
	"runtime"
	"slices"
	"unsafe"
)

// Append appends an entry to a log, and waits until it is on stable media. The first entry creates
// the log. Append returns the entry's number.
//
// If the context ends before, Append returns its error, and the write continues if it has begun. The
// number is valid if the write did not wait for room any more.
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
	call := func(c *core, wait bool) C.shim_written { return c.append(key, payload, wait) }
	written, err := s.write(ctx, call, func() writing {
		payload := slices.Clone(payload)
		return func(c *core, wait bool) C.shim_written { return c.append(key, payload, wait) }
	})
	if err != nil {
		return Ticket{}, err
	}
	return Ticket{core: s.core, tag: uint64(written.group), seq: uint64(written.seq), single: true}, nil
}

func (c *core) append(key string, payload []byte, wait bool) C.shim_written {
	text, textLen := textOf(key)
	bytes, bytesLen := bytesOf(payload)
	return C.shim_append(c.queue, c.store, text, textLen, bytes, bytesLen, C.bool(wait))
}

func (c *core) commit(packed []byte, bound C.uint64_t, seqs []uint64, wait bool) C.shim_written {
	operations, operationsLen := bytesOf(packed)
	numbers := (*C.uint64_t)(unsafe.SliceData(seqs))
	return C.shim_commit(c.queue, c.store, operations, operationsLen, bound, C.bool(wait), numbers,
		C.size_t(len(seqs)))
}

// writing makes a write. With wait, it waits for room within the C library.
type writing func(c *core, wait bool) C.shim_written

// write makes a write. As few goroutines as there are places wait for room within the C library; the
// others ask without waiting before they wait for a place. So do those whose wait a context may end:
// they leave a write that has to wait to another goroutine. Such a write is made by own, and has
// copies of the caller's bytes.
func (s *Store) write(ctx context.Context, call writing, own func() writing) (C.shim_written, error) {
	if err := ended(ctx); err != nil {
		return C.shim_written{}, err
	}
	c := s.handles()
	defer runtime.KeepAlive(s)
	if err := c.acquire(); err != nil {
		return C.shim_written{}, err
	}
	defer c.release()
	place := c.waiting
	if ctx.Done() != nil {
		place = nil
	}
	select {
	case place <- struct{}{}:
		defer c.leave()
		return made(call(c, true))
	default:
	}
	written := call(c, false)
	if written.status != C.BROOKLET_BUSY {
		return made(written)
	}
	C.brooklet_error_free(written.error)
	if err := c.enter(ctx); err != nil {
		return C.shim_written{}, err
	}
	if ctx.Done() == nil {
		defer c.leave()
		return made(call(c, true))
	}
	return c.apart(ctx, own())
}

// made returns a write, or its error.
func made(written C.shim_written) (C.shim_written, error) {
	if written.error != nil {
		return C.shim_written{}, failed(written.status, written.error)
	}
	return written, nil
}

// apart makes a write on another goroutine, and gives the caller's place back there. If the context
// ends before, the write goes on without its caller.
func (c *core) apart(ctx context.Context, call writing) (C.shim_written, error) {
	if err := c.acquire(); err != nil {
		c.leave()
		return C.shim_written{}, err
	}
	type result struct {
		written C.shim_written
		err     error
	}
	ended := make(chan result, 1)
	go func() {
		defer c.release()
		defer c.leave()
		written, err := made(call(c, true))
		ended <- result{written, err}
	}()
	select {
	case end := <-ended:
		return end.written, end.err
	case <-ctx.Done():
		return C.shim_written{}, ctx.Err()
	}
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
	seqs, packed, bound := make([]uint64, commit.appends), commit.packed, commit.bound()
	call := func(c *core, wait bool) C.shim_written { return c.commit(packed, bound, seqs, wait) }
	written, err := s.write(ctx, call, func() writing {
		packed := slices.Clone(packed)
		return func(c *core, wait bool) C.shim_written { return c.commit(packed, bound, seqs, wait) }
	})
	if err != nil {
		return Ticket{}, err
	}
	ticket := Ticket{core: s.core, tag: uint64(written.group), seqs: seqs[:min(len(seqs), int(written.count))]}
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
	switch {
	case c.durable:
		return math.MaxUint64 - 1
	case c.deferred:
		return C.uint64_t(c.within)
	default:
		return math.MaxUint64
	}
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

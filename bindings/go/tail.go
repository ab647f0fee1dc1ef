package brooklet

// #include "shim.h"
import "C"

import (
	"context"
	"iter"
	"runtime"
)

// TailKind is the kind of a [TailEvent].
type TailKind int

const (
	// TailEntry is the next entry of the log.
	TailEntry TailKind = iota
	// TailTrimmed means that the log dropped the entries from From on and before To, before the tail
	// returned them.
	TailTrimmed
	// TailTruncated means that the entries from From on, which the tail may have returned, are no
	// longer in the log. The tail goes on with an entry From that may be appended later.
	TailTruncated
	// TailDeleted means that the log was deleted. The tail goes on with entry 0 of a new log of the
	// same key.
	TailDeleted
)

// TailEvent is one step of a tail.
type TailEvent struct {
	// Kind of the event.
	Kind TailKind
	// Entry of the kind TailEntry. The payload belongs to the caller.
	Entry Entry
	// From is the first number that the event is about.
	From uint64
	// To is the end of the numbers that the event is about.
	To uint64
}

// Tail follows a log from entry from on: it yields every entry once, in order, when it is on stable
// media, and waits for the next. The log may be created later.
//
// The iterator ends with an error: the context's, or [ErrStopped] when the store is closed. A waiting
// tail needs no thread.
func (s *Store) Tail(ctx context.Context, key string, from uint64) iter.Seq2[TailEvent, error] {
	return func(yield func(TailEvent, error) bool) {
		if err := s.tail(ctx, key, from, func(event TailEvent) bool { return yield(event, nil) }); err != nil {
			yield(TailEvent{}, err)
		}
	}
}

// WaitFor waits until a log has entry next-1 on stable media, also if the log dropped the entry
// meanwhile. The log need not exist yet. A waiting call needs no thread.
func (s *Store) WaitFor(ctx context.Context, key string, next uint64) error {
	if err := ended(ctx); err != nil {
		return err
	}
	c := s.handles()
	defer runtime.KeepAlive(s)
	wait, err := c.await(key, next)
	if err != nil {
		return err
	}
	defer C.brooklet_wait_free(wait)
	tag, notice := c.notices.add()
	defer c.notices.remove(tag)
	for {
		reached, err := c.reached(wait, tag)
		if err != nil || reached {
			return err
		}
		select {
		case <-notice:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// await begins to wait for a number.
func (c *core) await(key string, next uint64) (*C.brooklet_wait, error) {
	if err := c.acquire(); err != nil {
		return nil, err
	}
	defer c.release()
	text, textLen := textOf(key)
	awaiting := C.shim_await(c.store, text, textLen, C.uint64_t(next))
	if awaiting.error != nil {
		return nil, failed(awaiting.status, awaiting.error)
	}
	return awaiting.wait, nil
}

// reached reports whether the log has reached the number of a wait. If it has not, a notice with the
// tag follows.
func (c *core) reached(wait *C.brooklet_wait, tag uint64) (bool, error) {
	if err := c.acquire(); err != nil {
		return false, err
	}
	defer c.release()
	var told *C.brooklet_error
	status := C.brooklet_wait_poll(wait, c.queue, C.uint64_t(tag), &told)
	return status == C.BROOKLET_OK, failed(status, told)
}

// tail yields the events of a log until yield returns false.
func (s *Store) tail(ctx context.Context, key string, from uint64, yield func(TailEvent) bool) error {
	if err := ended(ctx); err != nil {
		return err
	}
	c := s.handles()
	defer runtime.KeepAlive(s)
	tail, err := c.follow(key, from)
	if err != nil {
		return err
	}
	defer C.brooklet_tail_free(tail)
	tag, notice := c.notices.add()
	defer c.notices.remove(tag)
	for size := firstPart; ; size = part {
		got, err := c.fillTail(tail, tag, size)
		if err != nil {
			return err
		}
		if got.told.status == C.BROOKLET_TIMEOUT {
			select {
			case <-notice:
				continue
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		for items := got.items; len(items) > 0; {
			if err := ctx.Err(); err != nil {
				return err
			}
			var entry Entry
			if entry, items = unpack(items); !yield(TailEvent{Entry: entry, From: entry.Seq, To: entry.Seq + 1}) {
				return nil
			}
		}
		event := TailEvent{Kind: TailKind(got.told.event.kind), From: uint64(got.told.event.from), To: uint64(got.told.event.to)}
		if event.Kind != TailEntry && !yield(event) {
			return nil
		}
	}
}

func (c *core) follow(key string, from uint64) (*C.brooklet_tail, error) {
	if err := c.acquire(); err != nil {
		return nil, err
	}
	defer c.release()
	text, textLen := textOf(key)
	following := C.shim_follow(c.store, text, textLen, C.uint64_t(from))
	if following.error != nil {
		return nil, failed(following.status, following.error)
	}
	return following.tail, nil
}

func (c *core) fillTail(tail *C.brooklet_tail, tag uint64, size int) (filled, error) {
	if err := c.acquire(); err != nil {
		return filled{}, err
	}
	defer c.release()
	got := fill(size, false, func(buffer *C.uint8_t, size C.size_t) C.shim_filled {
		return C.shim_tail(tail, c.queue, C.uint64_t(tag), buffer, size)
	})
	if got.told.error != nil {
		return filled{}, failed(got.told.status, got.told.error)
	}
	return got, nil
}

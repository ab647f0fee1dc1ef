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
// meanwhile. The log need not exist yet.
func (s *Store) WaitFor(ctx context.Context, key string, next uint64) error {
	if next == 0 {
		return ended(ctx)
	}
	return s.tail(ctx, key, next-1, func(event TailEvent) bool {
		reached := event.Kind == TailEntry || event.Kind == TailTrimmed
		return !reached || event.To < next
	})
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

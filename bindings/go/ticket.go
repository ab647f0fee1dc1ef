package brooklet

import "context"

// Ticket is the promise of a write: the numbers of its entries now, its acknowledgement later. A
// ticket needs no release. The zero Ticket is one of a write without entries that has ended.
type Ticket struct {
	core *core
	// tag is that of the group of the write; 0 if the write has ended.
	tag uint64
	seq uint64
	// single reports that seq is the only number; seqs are not made then.
	single bool
	seqs   []uint64
}

// Seq returns the number of the appended entry, or of the first one; 0 if the write appended none.
func (t Ticket) Seq() uint64 { return t.seq }

// Seqs returns the numbers of all appended entries, in the order of the operations.
func (t Ticket) Seqs() []uint64 {
	if t.single {
		return []uint64{t.seq}
	}
	return t.seqs
}

// Done returns a channel that is closed when the write is acknowledged or has failed. It has the store
// hurry with the write, as [Ticket.Wait] does: writes that nobody waits for wait for a larger block.
func (t Ticket) Done() <-chan struct{} { return t.core.group(t.tag).done }

// Wait waits until the write is acknowledged: on stable media, or at once for a deferred commit. If
// the context ends before, Wait returns its error, and the write continues.
//
// The error [ErrStopped] means that a write to the device failed: the outcome is unknown until the
// store is opened again.
func (t Ticket) Wait(ctx context.Context) error {
	g := t.core.group(t.tag)
	select {
	case <-g.done:
		return g.err
	default:
	}
	if err := ended(ctx); err != nil {
		return err
	}
	select {
	case <-g.done:
		return g.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

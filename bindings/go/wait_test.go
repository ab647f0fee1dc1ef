package brooklet

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"sync"
	"testing"
	"time"
)

// threads returns how many threads the program has made so far. A busy machine needs more of them for
// the same calls, because a thread that it interrupts within the library has to be replaced.
func threads() int { return pprof.Lookup("threadcreate").Count() }

func TestManyGoroutinesWaitWithoutThreads(t *testing.T) {
	store := opened(t)
	before := threads()
	const goroutines, each = 2000, 5
	var all sync.WaitGroup
	for g := range goroutines {
		all.Add(1)
		go func() {
			defer all.Done()
			for range each {
				if _, err := store.Append(background, fmt.Sprint("log/", g%100), []byte("entry")); err != nil {
					t.Error(err)
				}
			}
		}()
	}
	all.Wait()
	entries := 0
	for log, err := range store.Scan("log/") {
		must(t, err)
		entries += int(log.Next)
	}
	equal(t, entries, goroutines*each)
	if made := threads() - before; made > goroutines/2 {
		t.Errorf("%d threads for %d goroutines", made, goroutines)
	}
	store.acks.lock.Lock()
	defer store.acks.lock.Unlock()
	equal(t, len(store.acks.groups), 0)
}

// stalled returns a write that has to wait for room, and gets it once release is closed. It reports
// each wait.
func stalled[W any](busy, done W, waits chan<- struct{}, release <-chan struct{}) func(*core, bool) W {
	return func(_ *core, wait bool) W {
		if !wait {
			return busy
		}
		waits <- struct{}{}
		<-release
		return done
	}
}

func TestAContextEndsAWaitForRoom(t *testing.T) {
	store := opened(t)
	ctx, cancel := context.WithCancel(background)
	over, end := context.WithCancel(background)
	end()
	done, err := store.write(over, nil, nil)
	is(t, err, context.Canceled, "")
	busy := done
	for status, kind := range kinds {
		if kind == ErrBusy {
			busy.status = status
		}
	}
	waits, release := make(chan struct{}, mostWaiting), make(chan struct{})
	stall := stalled(busy, done, waits, release)
	ended := make(chan error)
	for range mostWaiting {
		go func() {
			_, err := store.write(ctx, stall, func() writing { return stall })
			ended <- err
		}()
	}
	for range mostWaiting {
		<-waits
	}
	cancel()
	for range mostWaiting {
		is(t, <-ended, context.Canceled, "")
	}
	close(release)
	// The calls that went on give their places back.
	must(t, store.Flush(background))
	_, err = store.Append(ctx, "k", nil)
	is(t, err, context.Canceled, "")
	_, err = store.Append(background, "k", nil)
	must(t, err)
}

func TestTailsWaitWithoutThreads(t *testing.T) {
	store := opened(t)
	before := threads()
	const tails = 1000
	var all sync.WaitGroup
	for i := range tails {
		all.Add(1)
		go func() {
			defer all.Done()
			for event, err := range store.Tail(background, fmt.Sprint("tail/", i%10), 0) {
				if err != nil || event.Kind != TailEntry {
					t.Error(event, err)
				}
				break
			}
		}()
	}
	for i := range 10 {
		_, err := store.Append(background, fmt.Sprint("tail/", i), nil)
		must(t, err)
	}
	all.Wait()
	if made := threads() - before; made > tails/2 {
		t.Errorf("%d threads for %d tails", made, tails)
	}
	equal(t, len(store.notices.waiting), 0)
}

// A commit reaches the number, and drops the entry again: the goroutine that waits finds nothing in the log.
func TestWaitsForANumberThatIsGoneAgain(t *testing.T) {
	store := opened(t)
	ctx, stop := context.WithTimeout(background, time.Minute)
	defer stop()
	for key, drop := range map[string]func(*Commit) *Commit{
		"trimmed":   func(c *Commit) *Commit { return c.Trim("trimmed", 1) },
		"truncated": func(c *Commit) *Commit { return c.Truncate("truncated", 0) },
		"deleted":   func(c *Commit) *Commit { return c.Delete("deleted") },
	} {
		done := make(chan error)
		go func() { done <- store.WaitFor(ctx, key, 1) }()
		for waits := false; !waits && ctx.Err() == nil; runtime.Gosched() {
			store.notices.lock.Lock()
			waits = len(store.notices.waiting) == 1
			store.notices.lock.Unlock()
		}
		_, err := store.Commit(background, drop(new(Commit).Append(key, nil)))
		must(t, err)
		if err := <-done; err != nil {
			t.Fatalf("%s: %v", key, err)
		}
	}
}

func TestCloseRacesWithCalls(t *testing.T) {
	dir := t.TempDir()
	for round := range 10 {
		path := filepath.Join(dir, fmt.Sprint(round))
		store, err := Open(path, small)
		must(t, err)
		acknowledged := make([]int, 16)
		var all sync.WaitGroup
		fine := func(err error) bool {
			if err != nil && !errors.Is(err, ErrStopped) {
				t.Error(err)
			}
			return err == nil
		}
		for g := range acknowledged {
			all.Add(2)
			go func() {
				defer all.Done()
				for {
					if _, err := store.Append(background, fmt.Sprint(g), make([]byte, 1000)); !fine(err) {
						return
					}
					acknowledged[g]++
				}
			}()
			go func() {
				defer all.Done()
				for _, err := range store.Tail(background, fmt.Sprint(g), 0) {
					fine(err)
				}
				for {
					for _, err := range store.ReadAvailable(fmt.Sprint(g), 0, End) {
						if !fine(err) {
							return
						}
					}
				}
			}()
		}
		for range 3 {
			all.Add(1)
			go func() {
				defer all.Done()
				for range round {
					runtime.Gosched()
				}
				if err := store.Close(); err != nil {
					t.Error(err)
				}
			}()
		}
		must(t, store.Close())
		// The file is released when a close returns, also beside calls that have not returned.
		again, err := Open(path, small)
		all.Wait()
		must(t, err)
		for g, count := range acknowledged {
			bounds, err := again.Bounds(fmt.Sprint(g))
			if count > 0 && (err != nil || int(bounds.Next) < count) {
				t.Errorf("%d acknowledged entries, and the log has %v, %v", count, bounds, err)
			}
		}
		must(t, again.Close())
	}
}

func TestTheCollectorInMidCall(t *testing.T) {
	store := opened(t)
	ctx, cancel := context.WithCancel(background)
	var all sync.WaitGroup
	for range 2 {
		all.Add(1)
		go func() {
			defer all.Done()
			for ctx.Err() == nil {
				runtime.GC()
			}
		}()
	}
	for g := range 8 {
		key := fmt.Sprint("log/", g)
		for i := range 200 {
			payload := fmt.Appendf(nil, "%d/%d", g, i)
			_, err := store.AppendAsync(background, key, payload)
			must(t, err)
			copy(payload, "changed") // The library has its copy.
		}
		_, err := store.Append(background, key, nil)
		must(t, err)
		i := 0
		for entry, err := range store.Read(key, 0, 200) {
			must(t, err)
			equal(t, string(entry.Payload), fmt.Sprintf("%d/%d", g, i))
			i++
		}
	}
	cancel()
	all.Wait()
}

func TestTheCollectorClosesAForgottenStore(t *testing.T) {
	path := filepath.Join(t.TempDir(), "test.brooklet")
	func() {
		store, err := Open(path, small)
		must(t, err)
		_, err = store.AppendAsync(background, "k", nil)
		must(t, err)
	}()
	for {
		runtime.GC()
		store, err := Open(path, small)
		if err == nil {
			equal(t, texts(t, store.Read("k", 0, End)), "0:")
			must(t, store.Close())
			return
		}
		is(t, err, ErrCannotOpen, "open already")
		runtime.Gosched()
	}
}

// lastUse opens a store of three entries, and returns its handles and an iterator. Only the iterator
// refers to the store.
func lastUse[A, B any](t *testing.T, begin func(*Store) iter.Seq2[A, B]) (*core, iter.Seq2[A, B]) {
	store, err := Open(filepath.Join(t.TempDir(), "test.brooklet"), small)
	must(t, err)
	_, err = store.AppendMany(background, "k", [][]byte{{0}, {1}, {2}})
	must(t, err)
	return store.core, begin(store)
}

// collected lets the collector run, and reports whether it has begun to close a store.
func collected(c *core) bool {
	for range 20 {
		runtime.GC()
		time.Sleep(time.Millisecond) // Clean-ups have a goroutine of their own.
	}
	return c.refs.Load()&closedBit != 0
}

func TestTheCollectorLeavesAStoreWhoseLastUseGoesOn(t *testing.T) {
	c, tail := lastUse(t, func(s *Store) iter.Seq2[TailEvent, error] { return s.Tail(background, "k", 0) })
	for _, err := range tail {
		must(t, err)
		equal(t, collected(c), false)
		break
	}
	c, entries := lastUse(t, func(s *Store) iter.Seq2[Entry, error] { return s.Read("k", 0, End) })
	for _, err := range entries {
		must(t, err)
		equal(t, collected(c), false)
		break
	}
	c, logs := lastUse(t, func(s *Store) iter.Seq2[Log, error] { return s.Scan("") })
	for _, err := range logs {
		must(t, err)
		equal(t, collected(c), false)
		break
	}
	// A tail that waits, and a call that waits on another goroutine.
	for _, call := range []func(*Store, context.Context) error{
		func(s *Store, ctx context.Context) error { return s.WaitFor(ctx, "k", 9) },
		func(s *Store, ctx context.Context) error {
			return s.blocking(ctx, func(*core) error { <-ctx.Done(); return ctx.Err() })
		},
	} {
		store, err := Open(filepath.Join(t.TempDir(), "test.brooklet"), small)
		must(t, err)
		c := store.core
		ctx, cancel := context.WithCancel(background)
		ended := make(chan error)
		go func(store *Store) { ended <- call(store, ctx) }(store)
		store = nil
		equal(t, collected(c), false)
		cancel()
		is(t, <-ended, context.Canceled, "")
	}
}

func TestGroupsEndInAnyOrder(t *testing.T) {
	table := acks{groups: map[uint64]*group{}, failed: map[uint64]error{}}
	one, isFirst := table.at(1)
	equal(t, isFirst, true)
	same, isFirst := table.at(1)
	equal(t, same, one)
	equal(t, isFirst, false)
	table.end(1, ErrIO)
	<-one.done
	equal(t, one.err, ErrIO)
	equal(t, len(table.groups), 0)
	// A group that nobody waits for ends, and groups are left at the close.
	left, _ := table.at(2)
	table.end(3, ErrIO)
	table.end(4, nil)
	table.end(6, ErrIO)
	// Somebody begins to wait between the last completions and the close.
	begun, _ := table.at(6)
	table.close()
	<-left.done
	must(t, left.err)
	<-begun.done
	equal(t, begun.err, ErrIO)
	for tag, want := range map[uint64]error{2: nil, 3: ErrIO, 4: nil, 5: nil, 6: ErrIO} {
		late, isFirst := table.at(tag)
		<-late.done
		equal(t, late.err, want)
		equal(t, isFirst, false)
	}
}

func TestTicketsOfWritesThatNobodyWaitedFor(t *testing.T) {
	path := filepath.Join(t.TempDir(), "test.brooklet")
	store, err := Open(path, small)
	must(t, err)
	var tickets []Ticket
	for range 1000 {
		ticket, err := store.AppendAsync(background, "k", []byte("x"))
		must(t, err)
		tickets = append(tickets, ticket)
	}
	commit, err := store.CommitAsync(background, new(Commit).Append("k", nil).Append("other", nil))
	must(t, err)
	store.acks.lock.Lock()
	equal(t, len(store.acks.groups), 0)
	store.acks.lock.Unlock()
	// One waits while it is under way, the others when the store is closed.
	must(t, commit.Wait(background))
	<-commit.Done()
	last, err := store.AppendAsync(background, "k", nil)
	must(t, err)
	waiting := last.Done()
	must(t, store.Close())
	<-waiting
	must(t, last.Wait(background))
	for seq, ticket := range tickets {
		equal(t, ticket.Seq(), uint64(seq))
		must(t, ticket.Wait(background))
	}
}

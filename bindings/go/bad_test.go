package brooklet

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

// each calls all methods of a store, and returns their errors.
func each(store *Store, ctx context.Context) map[string]error {
	errs := map[string]error{}
	_, errs["Append"] = store.Append(ctx, "k", nil)
	_, errs["AppendAsync"] = store.AppendAsync(ctx, "k", nil)
	_, errs["AppendMany"] = store.AppendMany(ctx, "k", [][]byte{nil})
	_, errs["Commit"] = store.Commit(ctx, new(Commit).Append("k", nil))
	_, errs["Snapshot"] = store.Snapshot(ctx, "k", nil)
	errs["Trim"] = store.Trim(ctx, "k", 0)
	errs["Flush"] = store.Flush(ctx)
	errs["Checkpoint"] = store.Checkpoint(ctx)
	errs["WaitFor"] = store.WaitFor(ctx, "k", 9)
	for _, errs["Tail"] = range store.Tail(ctx, "k", 0) {
	}
	return errs
}

// eachRead calls all methods without a context.
func eachRead(store *Store) map[string]error {
	errs := map[string]error{}
	_, errs["Bounds"] = store.Bounds("k")
	_, errs["Exists"] = store.Exists("k")
	_, errs["Info"] = store.Info()
	_, errs["Get"] = store.Get("k", 0)
	_, _, errs["First"] = store.First("k")
	_, _, errs["Last"] = store.Last("k")
	for _, errs["Read"] = range store.Read("k", 0, End) {
	}
	for _, errs["ReadLent"] = range store.ReadLent("k", 0, End) {
	}
	for _, errs["Scan"] = range store.Scan("") {
	}
	return errs
}

func TestClosedAndNilStores(t *testing.T) {
	store, err := Open(filepath.Join(t.TempDir(), "test.brooklet"), small)
	must(t, err)
	ticket, err := store.AppendAsync(background, "k", nil)
	must(t, err)
	must(t, store.Close())
	must(t, store.Close())
	must(t, ticket.Wait(background))
	for _, gone := range []*Store{store, nil, {}} {
		for name, err := range each(gone, background) {
			if !errors.Is(err, ErrStopped) {
				t.Errorf("%s: %v", name, err)
			}
		}
		for name, err := range eachRead(gone) {
			if !errors.Is(err, ErrStopped) {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	must(t, (*Store)(nil).Close())
	must(t, new(Store).Close())
	must(t, Ticket{}.Wait(background))
	<-Ticket{}.Done()
}

func TestContexts(t *testing.T) {
	store := opened(t)
	over, cancel := context.WithCancel(background)
	cancel()
	for name, err := range each(store, over) {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%s with a cancelled context: %v", name, err)
		}
	}
	for name, err := range each(store, nil) { //nolint:staticcheck // It is what the test is about.
		if !errors.Is(err, ErrInvalid) {
			t.Errorf("%s without a context: %v", name, err)
		}
	}
	exists, err := store.Exists("k")
	must(t, err)
	equal(t, exists, false)
	// A wait that is cancelled leaves the write alone.
	ticket, err := store.AppendAsync(background, "k", []byte("x"))
	must(t, err)
	if err := ticket.Wait(over); err != nil && !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	must(t, ticket.Wait(background))
	equal(t, texts(t, store.Read("k", 0, End)), "0:x")
}

func TestBadArguments(t *testing.T) {
	store := opened(t)
	_, err := store.Append(background, "", nil)
	is(t, err, ErrInvalid, "key")
	_, err = store.Append(background, strings.Repeat("k", 1025), nil)
	is(t, err, ErrInvalid, "key")
	_, err = store.Append(background, "k", make([]byte, 1<<20+1))
	is(t, err, ErrInvalid, "payload")
	_, err = store.Append(background, "k", make([]byte, 1<<30))
	is(t, err, ErrInvalid, "payload")
	_, err = store.CommitAsync(background, nil)
	is(t, err, ErrInvalid, "nil")
	_, err = store.Commit(background, new(Commit).Defer(-1))
	is(t, err, ErrInvalid, "negative")
	is(t, store.SetRetention(background, "k", Retention{Age: -1}), ErrInvalid, "negative")
	is(t, store.Trim(background, "none", 1), ErrNotFound, "none")
	is(t, store.BeginAt(background, "k", math.MaxUint64), ErrInvalid, "number")
	_, err = store.Get("none", 0)
	is(t, err, ErrNotFound, "none")
	_, err = store.Get("none", End)
	is(t, err, ErrInvalid, "number")
	_, err = store.Append(background, "\x00\xff\"k", []byte("x"))
	must(t, err)
	for _, err = range store.Read("\x00\xff\"k", 5, 9) {
	}
	var told *Error
	is(t, err, ErrNotFound, "")
	equal(t, errors.As(err, &told) && told.HasNext && told.Next == 1 && told.HasFirst && told.First == 0, true)
	for _, err = range store.Read("\x00\xff\"k", 2, 1) {
	}
	equal(t, err == nil || errors.Is(err, ErrInvalid) || errors.Is(err, ErrNotFound), true)

	// The payload lies beside pointers, which cgo would not let pass if it saw them.
	beside := &struct {
		bytes [8]byte
		next  *int
	}{next: new(int)}
	_, err = store.Append(background, "beside", beside.bytes[:])
	must(t, err)
	_, err = store.Commit(background, new(Commit).Append("beside", beside.bytes[2:4]))
	must(t, err)
}

func TestBadOpenings(t *testing.T) {
	path := filepath.Join(t.TempDir(), "test.brooklet")
	_, err := Open(path, &Options{Create: CreateNever})
	is(t, err, ErrIO, "No such file")
	for _, options := range []*Options{{Create: 9}, {Linger: -time.Second}} {
		_, err = Open(path, options)
		is(t, err, ErrInvalid, "Options")
	}
	_, err = Open("zero\x00byte", nil)
	is(t, err, ErrInvalid, "zero")
	_, err = Open("", nil)
	equal(t, err != nil, true)
	_, err = Open(filepath.Join(path, "none", "test.brooklet"), nil)
	equal(t, err != nil, true)
	all := *small
	all.Create, all.CacheBudget, all.Permissions, all.Linger = CreateNew, 1<<20, 0o600, time.Microsecond
	store, err := Open(path, &all)
	must(t, err)
	_, err = Open(path, small)
	is(t, err, ErrCannotOpen, "open already")
	beside, err := Open(path, &Options{BesideWriter: true})
	must(t, err)
	_, err = beside.Append(background, "k", nil)
	is(t, err, ErrStopped, "")
	must(t, beside.Close())
	must(t, store.Close())
	_, err = Open(path, &all)
	is(t, err, ErrCannotOpen, "")
	reader, err := Open(path, &Options{ReadOnly: true})
	must(t, err)
	must(t, reader.Close())
	_, err = Open(path, &Options{Capacity: 1 << 30})
	is(t, err, ErrCannotOpen, "capacity")
	apart := *small
	apart.RingAt, apart.Capacity = path+".ring", 64<<20
	store, err = Open(path+".apart", &apart)
	must(t, err)
	must(t, store.Close())
	if _, err := os.Stat(apart.RingAt); err != nil {
		t.Fatal(err)
	}
	_, err = Open(path+".apart", small)
	is(t, err, ErrCannotOpen, "ring")
	_, err = Open(path, &Options{RingAt: "zero\x00byte"})
	is(t, err, ErrInvalid, "zero")
	// Openings that fail leave nothing behind: no descriptor, no goroutine.
	descriptors := func() int {
		open, err := os.ReadDir("/dev/fd")
		must(t, err)
		return len(open)
	}
	before := descriptors() + runtime.NumGoroutine()
	for i := range 1000 {
		if _, err := Open(filepath.Join(path, fmt.Sprint(i)), nil); err == nil {
			t.Fatal("a file is no folder")
		}
	}
	// The Go runtime may start a few goroutines of its own meanwhile. A leak shows a thousand times.
	if after := descriptors() + runtime.NumGoroutine(); after >= before+100 {
		t.Fatalf("%d descriptors and goroutines before, and %d after", before, after)
	}
}

package brooklet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

var background = context.Background()

// small are options of a store that a test makes fast.
var small = &Options{RingSize: 4 << 20, MemoryBudget: 16 << 20, MaxPayload: 1 << 20}

func opened(t testing.TB) *Store {
	t.Helper()
	store, err := Open(filepath.Join(t.TempDir(), "test.brooklet"), small)
	must(t, err)
	t.Cleanup(func() { must(t, store.Close()) })
	return store
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func is(t testing.TB, err, kind error, words string) {
	t.Helper()
	if !errors.Is(err, kind) || !strings.Contains(err.Error(), words) {
		t.Fatalf("%v, and not %v with %q", err, kind, words)
	}
}

func equal[T comparable](t testing.TB, got, want T) {
	t.Helper()
	if got != want {
		t.Fatalf("%v, and not %v", got, want)
	}
}

// texts returns the entries as "number:payload", and fails on an error.
func texts(t testing.TB, entries func(func(Entry, error) bool)) string {
	t.Helper()
	var all []string
	for entry, err := range entries {
		must(t, err)
		all = append(all, fmt.Sprintf("%d:%s", entry.Seq, entry.Payload))
	}
	return strings.Join(all, " ")
}

func TestWritesAndReads(t *testing.T) {
	path := filepath.Join(t.TempDir(), "test.brooklet")
	store, err := Open(path, small)
	must(t, err)
	for want, payload := range []string{"a", "", "b\x00c"} {
		seq, err := store.Append(background, "doc", []byte(payload))
		must(t, err)
		equal(t, seq, uint64(want))
	}
	first, err := store.AppendMany(background, "doc", [][]byte{[]byte("d"), nil, []byte("e")})
	must(t, err)
	equal(t, first, 3)
	equal(t, texts(t, store.Read("doc", 0, End)), "0:a 1: 2:b\x00c 3:d 4: 5:e")
	equal(t, texts(t, store.Read("doc", 2, 4)), "2:b\x00c 3:d")
	equal(t, texts(t, store.ReadAvailable("none", 0, End)), "")
	entry, err := store.Get("doc", 3)
	must(t, err)
	equal(t, string(entry.Payload), "d")

	must(t, store.Trim(background, "doc", 2))
	must(t, store.Truncate(background, "doc", 5))
	bounds, err := store.Bounds("doc")
	must(t, err)
	equal(t, bounds, Bounds{2, 5})
	one, found, err := store.First("doc")
	must(t, err)
	equal(t, fmt.Sprint(one.Seq, found), "2 true")
	one, found, err = store.Last("doc")
	must(t, err)
	equal(t, fmt.Sprint(one.Seq, found), "4 true")
	must(t, store.KeepLast(background, "doc", 1))
	equal(t, texts(t, store.ReadAvailable("doc", 0, End)), "4:")
	seq, err := store.Snapshot(background, "doc", []byte("whole"))
	must(t, err)
	equal(t, texts(t, store.Read("doc", seq, End)), "5:whole")
	must(t, store.BeginAt(background, "doc", 100))
	_, found, err = store.Last("doc")
	must(t, err)
	equal(t, found, false)
	must(t, store.SetRetention(background, "kept", Retention{Entries: 2}))
	_, err = store.AppendMany(background, "kept", [][]byte{nil, nil, nil})
	must(t, err)
	equal(t, texts(t, store.ReadAvailable("kept", 0, End)), "1: 2:")

	must(t, store.Checkpoint(background))
	must(t, store.Flush(background))
	info, err := store.Info()
	must(t, err)
	equal(t, info.Runs > 0 && info.RingSize > 0 && !info.Stopped, true)
	must(t, store.Delete(background, "doc"))
	exists, err := store.Exists("doc")
	must(t, err)
	equal(t, exists, false)
	must(t, store.Close())
	store, err = Open(path, small)
	must(t, err)
	exists, err = store.Exists("kept")
	must(t, err)
	equal(t, exists, true)
	must(t, store.Close())
	equal(t, Version() != "", true)
}

func TestCommitsAreAtomic(t *testing.T) {
	store := opened(t)
	var commit Commit
	commit.ExpectAbsent("a").Append("a", []byte("1")).Append("b", []byte("2")).Append("a", []byte("3"))
	seqs, err := store.Commit(background, &commit)
	must(t, err)
	equal(t, fmt.Sprint(seqs), "[0 0 1]")
	_, err = store.Commit(background, &commit)
	is(t, err, ErrConflict, "a")
	_, err = store.Commit(background, commit.Clear().ExpectNext("b", 7).Delete("a"))
	is(t, err, ErrConflict, "b")
	var told *Error
	equal(t, errors.As(err, &told) && told.HasNext && told.Next == 1, true)
	equal(t, texts(t, store.Read("a", 0, End)), "0:1 1:3")
	ticket, err := store.CommitAsync(background, commit.Clear().Append("a", nil).Defer(time.Hour))
	must(t, err)
	select {
	case <-ticket.Done():
	default:
		t.Fatal("a deferred commit is acknowledged at once")
	}
	must(t, ticket.Wait(background))
	equal(t, fmt.Sprint(ticket.Seq(), ticket.Seqs()), "2 [2]")
	seqs, err = store.Commit(background, commit.Clear().Append("a", nil).Defer(time.Hour).Durable())
	must(t, err)
	equal(t, fmt.Sprint(seqs), "[3]")
	_, err = store.Commit(background, new(Commit))
	is(t, err, ErrInvalid, "no operation")
}

func TestLargeReadsComeInParts(t *testing.T) {
	store := opened(t)
	// Sizes around those of the buffers, also entries that are larger than each buffer.
	for seq, size := range []int{0, firstPart - 16, firstPart, 1, part - 17, part - 16, part - 15, part, 1 << 20, 3} {
		_, err := store.Append(background, "large", bytes.Repeat([]byte{byte(seq)}, size))
		must(t, err)
	}
	for i := range 5000 {
		_, err := store.AppendAsync(background, "many", []byte(strings.Repeat("x", i%300)))
		must(t, err)
	}
	must(t, store.Flush(background))
	var sizes []int
	for entry, err := range store.Read("large", 0, End) {
		must(t, err)
		equal(t, bytes.Count(entry.Payload, []byte{byte(entry.Seq)}), len(entry.Payload))
		sizes = append(sizes, len(entry.Payload))
	}
	equal(t, len(sizes), 10)
	equal(t, sizes[8], 1<<20)
	next := uint64(0)
	kept := [][]byte{}
	for entry, err := range store.Read("many", 0, End) {
		must(t, err)
		equal(t, entry.Seq, next)
		next++
		kept = append(kept, append(entry.Payload, 'y')) // This does not reach the neighbour.
	}
	equal(t, next, 5000)
	for i, payload := range kept {
		equal(t, string(payload), strings.Repeat("x", i%300)+"y")
	}
	for range store.Read("many", 0, End) {
		break
	}
	entry, err := store.Get("large", 8)
	must(t, err)
	equal(t, len(entry.Payload), 1<<20)
}

func TestScans(t *testing.T) {
	store := opened(t)
	var want []string
	for i := range 3000 {
		key := fmt.Sprintf("log/%04d/%s", i, strings.Repeat("k", i%100))
		want = append(want, key)
		_, err := store.AppendAsync(background, key, nil)
		must(t, err)
	}
	_, err := store.Append(background, "other", nil)
	must(t, err)
	list := func(prefix, from string) (keys []string) {
		for log, err := range store.ScanFrom(prefix, from) {
			must(t, err)
			equal(t, log.Bounds, Bounds{0, 1})
			keys = append(keys, log.Key)
		}
		return keys
	}
	equal(t, slices.Equal(list("log/", ""), want), true)
	equal(t, slices.Equal(list("log/", want[2990]+"\x00"), want[2991:]), true)
	equal(t, len(list("", "")), 3001)
	equal(t, len(list("none", "")), 0)
	for range store.Scan("") {
		break
	}
}

func TestTails(t *testing.T) {
	store := opened(t)
	ctx, cancel := context.WithCancel(background)
	defer cancel()
	var events []string
	write := func(err error) { must(t, err) }
	append1 := func(text string) { _, err := store.Append(background, "tail", []byte(text)); write(err) }
	steps := []func(){
		func() { append1("b"); append1("c") },
		func() {},
		func() { write(store.Truncate(background, "tail", 1)) },
		func() { append1("d") },
		func() { write(store.Delete(background, "tail")) },
		func() { append1(strings.Repeat("e", part)) },
		cancel,
	}
	go append1("a")
	for event, err := range store.Tail(ctx, "tail", 0) {
		if err != nil {
			equal(t, errors.Is(err, context.Canceled), true)
			events = append(events, "cancelled")
			break
		}
		events = append(events, fmt.Sprintf("%d:%d:%d", event.Kind, event.From, len(event.Entry.Payload)))
		steps[0]()
		steps = steps[1:]
	}
	want := fmt.Sprintf("[0:0:1 0:1:1 0:2:1 2:1:0 0:1:1 3:0:0 0:0:%d cancelled]", part)
	equal(t, fmt.Sprint(events), want)

	// A tail may begin behind entries that were dropped.
	write(store.BeginAt(background, "trimmed", 5))
	_, err := store.Append(background, "trimmed", nil)
	write(err)
	for event, err := range store.Tail(background, "trimmed", 2) {
		must(t, err)
		equal(t, event.Kind, TailTrimmed)
		equal(t, event.To, 5)
		break
	}
	must(t, store.WaitFor(background, "trimmed", 6))
	must(t, store.WaitFor(background, "none", 0))
	done := make(chan error)
	go func() { done <- store.WaitFor(background, "waited", 2) }()
	for range 2 {
		_, err := store.Append(background, "waited", nil)
		must(t, err)
	}
	must(t, <-done)
	short, stop := context.WithTimeout(background, time.Millisecond)
	defer stop()
	equal(t, errors.Is(store.WaitFor(short, "never", 1), context.DeadlineExceeded), true)
	// A loop that ends together with its context.
	one, end := context.WithCancel(background)
	defer end()
	for range store.Tail(one, "waited", 0) {
		end()
		break
	}
}

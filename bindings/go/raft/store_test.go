package brookletraft

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"brooklet"

	"github.com/hashicorp/raft"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// opener returns a function that opens the group, and closes its store before if it is open.
func opener(t testing.TB) func() *Store {
	path := filepath.Join(t.TempDir(), "raft.brooklet")
	var store *brooklet.Store
	t.Cleanup(func() { must(t, store.Close()) })
	return func() *Store {
		must(t, store.Close())
		var err error
		store, err = brooklet.Open(path, &brooklet.Options{RingSize: 4 << 20})
		must(t, err)
		group, err := Open(store, "raft/1")
		must(t, err)
		return group
	}
}

func entry(index uint64) *raft.Log {
	return &raft.Log{
		Index: index, Term: index / 10, Type: raft.LogType(index % 6), Data: fmt.Appendf(nil, "data %d", index),
		Extensions: bytes.Repeat([]byte{'e'}, int(index%3)), AppendedAt: time.Unix(int64(index), 7).UTC(),
	}
}

func entries(low, high uint64) (logs []*raft.Log) {
	for index := low; index <= high; index++ {
		logs = append(logs, entry(index))
	}
	return logs
}

// expect checks that the group has exactly the entries from low up to high.
func expect(t testing.TB, group *Store, low, high uint64) {
	t.Helper()
	first, err := group.FirstIndex()
	must(t, err)
	last, err := group.LastIndex()
	must(t, err)
	if first != low || last != high {
		t.Fatalf("entries %d to %d, and not %d to %d", first, last, low, high)
	}
	for index := low; index <= high && low > 0; index++ {
		var log raft.Log
		must(t, group.GetLog(index, &log))
		if want := entry(index); fmt.Sprint(log) != fmt.Sprint(*want) {
			t.Fatalf("%v, and not %v", log, *want)
		}
	}
	for _, index := range []uint64{low - 1, high + 1} {
		if err := group.GetLog(index, new(raft.Log)); !errors.Is(err, raft.ErrLogNotFound) {
			t.Fatalf("entry %d: %v", index, err)
		}
	}
}

func TestStoresEntries(t *testing.T) {
	open := opener(t)
	group := open()
	if !group.IsMonotonic() {
		t.Fatal("the log has no gaps")
	}
	expect(t, group, 0, 0)
	must(t, group.StoreLogs(nil))
	must(t, group.StoreLog(entry(1)))
	must(t, group.StoreLogs(entries(2, 50)))
	expect(t, group, 1, 50)
	group = open()
	expect(t, group, 1, 50)
	for _, refused := range [][]*raft.Log{{entry(50)}, {entry(52)}, {entry(7)}, {entry(51), entry(53)}, {entry(51), entry(51)}} {
		if err := group.StoreLogs(refused); err == nil {
			t.Fatal("a gap or an overlap is refused")
		}
		expect(t, group, 1, 50)
	}
	must(t, group.StoreLog(entry(51)))
	expect(t, group, 1, 51)
}

func TestALogBeginsAtAnyIndex(t *testing.T) {
	for _, begin := range []uint64{1, 2, 1000, 1 << 40} {
		open := opener(t)
		group := open()
		must(t, group.StoreLogs(entries(begin, begin+5)))
		expect(t, group, begin, begin+5)
		group = open()
		must(t, group.StoreLog(entry(begin+6)))
		expect(t, group, begin, begin+6)
	}
}

func TestDeletesRanges(t *testing.T) {
	const low, high = 10, 30
	for name, test := range map[string]struct{ from, to, first, last uint64 }{
		"head":               {low, 15, 16, high},
		"before the head":    {0, 15, 16, high},
		"one of the head":    {low, low, low + 1, high},
		"all but the last":   {low, high - 1, high, high},
		"tail":               {20, high, low, 19},
		"beyond the tail":    {20, 1000, low, 19},
		"all but the first":  {low + 1, high, low, low},
		"all":                {low, high, 0, 0},
		"more than all":      {0, 1 << 60, 0, 0},
		"nothing, before":    {1, low - 1, low, high},
		"nothing, behind":    {high + 1, 99, low, high},
		"nothing, backwards": {20, 19, low, high},
	} {
		t.Run(name, func(t *testing.T) {
			open := opener(t)
			group := open()
			must(t, group.DeleteRange(test.from, test.to))
			must(t, group.StoreLogs(entries(low, high)))
			must(t, group.DeleteRange(test.from, test.to))
			expect(t, group, test.first, test.last)
			group = open()
			expect(t, group, test.first, test.last)
			if test.last > 0 {
				must(t, group.StoreLog(entry(test.last+1)))
				expect(t, group, test.first, test.last+1)
				return
			}
			// The log goes on at any index: behind a snapshot, or before.
			for _, next := range []uint64{500, 3} {
				must(t, group.StoreLogs(entries(next, next+2)))
				expect(t, group, next, next+2)
				must(t, group.DeleteRange(next, next+2))
			}
		})
	}
	group := opener(t)()
	must(t, group.StoreLogs(entries(low, high)))
	if err := group.DeleteRange(15, 20); err == nil || !strings.Contains(err.Error(), "middle") {
		t.Fatal("entries in the middle stay", err)
	}
	expect(t, group, low, high)
}

func TestAConflictReplacesTheTail(t *testing.T) {
	open := opener(t)
	group := open()
	must(t, group.StoreLogs(entries(1, 9)))
	must(t, group.DeleteRange(5, 9))
	other := &raft.Log{Index: 5, Term: 99, Data: []byte("of another leader")}
	must(t, group.StoreLog(other))
	var log raft.Log
	must(t, open().GetLog(5, &log))
	if log.Term != 99 || string(log.Data) != "of another leader" || !log.AppendedAt.IsZero() || log.Extensions != nil {
		t.Fatal(log)
	}
}

func TestLargeBatchesAndEntries(t *testing.T) {
	group := opener(t)()
	logs := entries(1, 40)
	for at, log := range logs {
		log.Data = bytes.Repeat([]byte{byte(at)}, 600<<10)
	}
	must(t, group.StoreLogs(logs))
	for at, want := range logs {
		var log raft.Log
		must(t, group.GetLog(want.Index, &log))
		if !bytes.Equal(log.Data, want.Data) {
			t.Fatal("entry", at)
		}
	}
}

func TestABatchThatFailsLeavesNothing(t *testing.T) {
	for name, before := range map[string]func(t *testing.T, group *Store){
		"a new log": func(*testing.T, *Store) {},
		"an empty log": func(t *testing.T, group *Store) {
			must(t, group.StoreLogs(entries(500, 503)))
			must(t, group.DeleteRange(500, 503))
		},
		"an empty log of a number": func(t *testing.T, group *Store) {
			must(t, group.store.BeginAt(context.Background(), group.log, 700))
			group.change(bounds{}, errors.New("unknown"))
		},
		"entries": func(t *testing.T, group *Store) { must(t, group.StoreLogs(entries(1, 9))) },
	} {
		t.Run(name, func(t *testing.T) {
			open := opener(t)
			group := open()
			before(t, group)
			low, err := group.FirstIndex()
			must(t, err)
			high, err := group.LastIndex()
			must(t, err)
			logs := entries(high+1, high+30)
			for _, log := range logs {
				log.Data = make([]byte, 100<<10)
			}
			for _, at := range []int{29, 20, 8, 0} {
				good := logs[at].Data
				logs[at].Data = make([]byte, 20<<20) // More than a payload of the store may have.
				if err := group.StoreLogs(logs); !errors.Is(err, brooklet.ErrInvalid) {
					t.Fatal(err)
				}
				expect(t, group, low, high)
				logs[at].Data = good
			}
			must(t, group.StoreLogs(logs))
			last, err := open().LastIndex()
			must(t, err)
			if last != high+30 {
				t.Fatal(last)
			}
		})
	}
}

func TestStableState(t *testing.T) {
	open := opener(t)
	group := open()
	check := func(key, value string, number uint64) {
		t.Helper()
		got, err := group.Get([]byte(key))
		must(t, err)
		n, _ := group.GetUint64([]byte(key))
		if string(got) != value || n != number {
			t.Fatalf("%q has %q, %d", key, got, n)
		}
	}
	check("CurrentTerm", "", 0)
	for number := range uint64(100) {
		must(t, group.SetUint64([]byte("CurrentTerm"), number))
	}
	must(t, group.Set([]byte("LastVoteCand"), []byte("node 1")))
	must(t, group.Set([]byte("empty"), nil))
	must(t, group.Set([]byte{0, 255}, []byte{1}))
	must(t, group.StoreLogs(entries(1, 9)))
	must(t, group.DeleteRange(1, 9))
	for range 2 {
		check("CurrentTerm", "\x00\x00\x00\x00\x00\x00\x00c", 99)
		check("LastVoteCand", "node 1", 0)
		check("empty", "", 0)
		check("\x00\xff", "\x01", 0)
		group = open()
	}
	if _, err := group.GetUint64([]byte("LastVoteCand")); err == nil {
		t.Fatal("a text is no number")
	}
	if err := group.Set(make([]byte, 2000), nil); !errors.Is(err, brooklet.ErrInvalid) {
		t.Fatal("a key is too long", err)
	}
}

func TestReadersBesideAWriter(t *testing.T) {
	group := opener(t)()
	const last = 400
	var readers sync.WaitGroup
	for range 4 {
		readers.Add(1)
		go func() {
			defer readers.Done()
			for {
				low, err := group.FirstIndex()
				must(t, err)
				high, err := group.LastIndex()
				must(t, err)
				for index := low; index <= high && low > 0; index++ {
					var log raft.Log
					err := group.GetLog(index, &log)
					if err != nil && !errors.Is(err, raft.ErrLogNotFound) || err == nil && log.Term != index/10 {
						t.Error(log, err)
					}
				}
				if high == last {
					return
				}
			}
		}()
	}
	for index := uint64(1); index <= last; index++ {
		must(t, group.StoreLog(entry(index)))
		if index%50 == 0 {
			must(t, group.DeleteRange(1, index-20))
		}
	}
	readers.Wait()
	expect(t, group, last-19, last)
}

func TestASecondWriterIsRefused(t *testing.T) {
	group := opener(t)()
	second, err := Open(group.store, "raft/1")
	must(t, err)
	must(t, group.StoreLogs(entries(1, 3)))
	if err := second.StoreLog(entry(1)); !errors.Is(err, brooklet.ErrConflict) {
		t.Fatal(err)
	}
	expect(t, second, 1, 3) // It has read the log again.
	other, err := Open(group.store, "raft/2")
	must(t, err)
	expect(t, other, 0, 0)
}

func TestASecondWriterOfTheStateIsRefused(t *testing.T) {
	group := opener(t)()
	second, err := Open(group.store, "raft/1")
	must(t, err)
	term := []byte("CurrentTerm")
	is := func(group *Store, want uint64) {
		t.Helper()
		if found, err := group.GetUint64(term); err != nil || found != want {
			t.Fatalf("%d, %v, and not %d", found, err, want)
		}
	}
	refused := func(err error) {
		t.Helper()
		if !errors.Is(err, brooklet.ErrConflict) {
			t.Fatal(err)
		}
	}
	must(t, group.SetUint64(term, 5))
	refused(second.SetUint64(term, 3))
	is(group, 5)
	is(second, 5) // It has read the state again.
	// A handle of before that reads a state of after may not write it.
	third, err := Open(group.store, "raft/1")
	must(t, err)
	must(t, group.SetUint64(term, 6))
	is(third, 6)
	refused(third.SetUint64(term, 4))
	must(t, group.SetUint64(term, 7))
	is(group, 7)
	fresh, err := Open(group.store, "raft/1")
	must(t, err)
	is(fresh, 7)
	must(t, fresh.SetUint64(term, 8))
	refused(group.SetUint64(term, 9))
	is(group, 8)
}

func TestAClosedStoreAndDamagedEntries(t *testing.T) {
	group := opener(t)()
	must(t, group.StoreLogs(entries(1, 3)))
	for _, payload := range []string{"", "\x01", "\x02\x00\x00", "\x01\x00\x80", "\x01\x00\x01\x02\x03\x09"} {
		_, err := group.store.Append(context.Background(), group.log, []byte(payload))
		must(t, err)
		fresh, err := Open(group.store, "raft/1")
		must(t, err)
		last, err := fresh.LastIndex()
		must(t, err)
		if err := fresh.GetLog(last, new(raft.Log)); err == nil || !strings.Contains(err.Error(), "reading entry") {
			t.Fatalf("%q: %v", payload, err)
		}
	}
	must(t, group.store.Close())
	for _, err := range []error{group.StoreLog(entry(4)), group.DeleteRange(1, 2), group.Set(nil, nil), group.GetLog(1, new(raft.Log))} {
		if !errors.Is(err, brooklet.ErrStopped) {
			t.Fatal(err)
		}
	}
	if _, err := Open(group.store, "raft/1"); !errors.Is(err, brooklet.ErrStopped) {
		t.Fatal(err)
	}
}

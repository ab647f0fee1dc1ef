// Package bench runs the benchmark of logs of hashicorp/raft on three stores, all with durable writes.
package bench

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"brooklet"
	brookletraft "brooklet/raft"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	wal "github.com/hashicorp/raft-wal"
	raftbench "github.com/hashicorp/raft/bench"
)

type store interface {
	raft.LogStore
	raft.StableStore
}

// stores open a store each in a folder.
var stores = []struct {
	name string
	open func(b *testing.B, dir string) store
}{
	{"brooklet", func(b *testing.B, dir string) store {
		opened, err := brooklet.Open(filepath.Join(dir, "raft.brooklet"), nil)
		must(b, err)
		b.Cleanup(func() { must(b, opened.Close()) })
		group, err := brookletraft.Open(opened, "raft")
		must(b, err)
		return group
	}},
	{"raft-boltdb", func(b *testing.B, dir string) store {
		opened, err := raftboltdb.NewBoltStore(filepath.Join(dir, "raft.db"))
		must(b, err)
		b.Cleanup(func() { must(b, opened.Close()) })
		return opened
	}},
	{"raft-wal", func(b *testing.B, dir string) store {
		opened, err := wal.Open(dir)
		must(b, err)
		b.Cleanup(func() { must(b, opened.Close()) })
		return opened
	}},
}

func must(b *testing.B, err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

// each runs a benchmark on each store. The files are in the working directory, which is on a disk where
// the temporary folder may be in memory.
func each(b *testing.B, run func(b *testing.B, s store)) {
	for _, s := range stores {
		b.Run(s.name, func(b *testing.B) {
			dir, err := os.MkdirTemp(".", "store")
			must(b, err)
			b.Cleanup(func() { os.RemoveAll(dir) })
			opened := s.open(b, dir)
			b.ResetTimer()
			run(b, opened)
			b.StopTimer()
		})
	}
}

func logs(run func(b *testing.B, s raft.LogStore)) func(*testing.B, store) {
	return func(b *testing.B, s store) { run(b, s) }
}

func stable(run func(b *testing.B, s raft.StableStore)) func(*testing.B, store) {
	return func(b *testing.B, s store) { run(b, s) }
}

func BenchmarkFirstIndex(b *testing.B) { each(b, logs(raftbench.FirstIndex)) }
func BenchmarkLastIndex(b *testing.B)  { each(b, logs(raftbench.LastIndex)) }
func BenchmarkGetLog(b *testing.B)     { each(b, logs(raftbench.GetLog)) }
func BenchmarkStoreLog(b *testing.B)   { each(b, fromOne) }
func BenchmarkStoreLogs(b *testing.B)  { each(b, logs(raftbench.StoreLogs)) }
func BenchmarkSet(b *testing.B)        { each(b, stable(raftbench.Set)) }
func BenchmarkGet(b *testing.B)        { each(b, stable(raftbench.Get)) }
func BenchmarkSetUint64(b *testing.B)  { each(b, stable(raftbench.SetUint64)) }
func BenchmarkGetUint64(b *testing.B)  { each(b, stable(raftbench.GetUint64)) }

// one adds one to the index of each entry: hashicorp/raft's benchmark begins at 0, which raft-wal refuses. It
// measures each call: the mean has the growths of a new store, too.
type one struct {
	store
	took *[]time.Duration
}

func (o one) StoreLog(log *raft.Log) error {
	log.Index++
	start := time.Now()
	err := o.store.StoreLog(log)
	*o.took = append(*o.took, time.Since(start))
	return err
}

func fromOne(b *testing.B, s store) {
	took := make([]time.Duration, 0, b.N)
	b.ResetTimer()
	raftbench.StoreLog(b, one{s, &took})
	b.StopTimer()
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Nanoseconds()), "p50-ns")
	b.ReportMetric(float64(took[len(took)*9/10].Nanoseconds()), "p90-ns")
}

// hashicorp/raft's benchmark of DeleteRange makes a log with gaps, which only raft-boltdb stores. This
// one deletes from the head of a log without gaps.
func BenchmarkDeleteHead(b *testing.B) {
	each(b, func(b *testing.B, s store) {
		var all []*raft.Log
		for i := range 3 * (b.N + 1) {
			all = append(all, &raft.Log{Index: uint64(i + 1), Data: []byte("data")})
		}
		must(b, s.StoreLogs(all))
		b.ResetTimer()
		for n := range b.N {
			must(b, s.DeleteRange(uint64(3*n+1), uint64(3*n+3)))
		}
	})
}

// Batches as a busy leader stores them.
func BenchmarkStore64LogsOf1KiB(b *testing.B) {
	data := bytes.Repeat([]byte("0123456789abcdef"), 64)
	each(b, func(b *testing.B, s store) {
		next := uint64(1)
		for range b.N {
			batch := make([]*raft.Log, 64)
			for i := range batch {
				batch[i] = &raft.Log{Index: next, Term: 1, Data: data}
				next++
			}
			must(b, s.StoreLogs(batch))
		}
	})
}

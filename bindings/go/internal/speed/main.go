// Speed measures in Go the calls that bindings/c/examples/speed.rs measures in Rust. tests/speed runs
// both in turns. With the word "memory" behind the path, it makes many calls, and prints the memory
// of the process after each fifth of them.
package main

import (
	"bytes"
	"context"
	"fmt"
	"log"
	"os"
	"runtime"
	"strconv"
	"sync"
	"time"

	"brooklet"
)

const (
	appends = 200_000
	logs    = 10_000
	entries = 1_000
	reads   = 2_000
	waiters = 64
	each    = 1_000
)

var (
	ctx     = context.Background()
	payload = bytes.Repeat([]byte{'x'}, 200)
)

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func key(i int) string { return "log/" + strconv.Itoa(i%logs) }

func rate(name string, count int, start time.Time) {
	fmt.Printf("%s: %.0f\n", name, float64(count)/time.Since(start).Seconds())
}

func main() {
	var options *brooklet.Options
	forMemory := len(os.Args) > 2
	if forMemory {
		// Little of its own, so that growth shows.
		options = &brooklet.Options{RingSize: 4 << 20, MaxPayload: 1 << 20, MemoryBudget: 16 << 20, CacheBudget: 8 << 20}
	}
	store, err := brooklet.Open(os.Args[1], options)
	must(err)
	if forMemory {
		memory(store)
	} else {
		speed(store)
	}
	must(store.Close())
}

func speed(store *brooklet.Store) {
	// The first round makes the logs, and the ring grows.
	for round := range 2 {
		start := time.Now()
		for i := range appends {
			_, err := store.AppendAsync(ctx, key(i), payload)
			must(err)
		}
		must(store.Flush(ctx))
		if round == 1 {
			rate("appends/s that nobody waits for", appends, start)
		}
	}

	one := make([][]byte, entries)
	for i := range one {
		one[i] = payload
	}
	_, err := store.AppendMany(ctx, "one", one)
	must(err)
	start, sum := time.Now(), 0
	for range reads {
		for entry, err := range store.Read("one", 0, brooklet.End) {
			must(err)
			sum += len(entry.Payload)
		}
	}
	if sum != reads*entries*len(payload) {
		log.Fatal("bytes are missing")
	}
	rate(fmt.Sprintf("reads/s of a log of %d entries", entries), reads, start)

	start, sum = time.Now(), 0
	for range reads {
		for entry, err := range store.ReadLent("one", 0, brooklet.End) {
			must(err)
			sum += len(entry.Payload)
		}
	}
	if sum != reads*entries*len(payload) {
		log.Fatal("bytes are missing")
	}
	rate(fmt.Sprintf("lent reads/s of a log of %d entries", entries), reads, start)

	start = time.Now()
	var all sync.WaitGroup
	for w := range waiters {
		all.Add(1)
		go func() {
			defer all.Done()
			for i := range each {
				_, err := store.Append(ctx, key(i*waiters+w), payload)
				must(err)
			}
		}()
	}
	all.Wait()
	rate(fmt.Sprintf("waiting appends/s of %d", waiters), waiters*each, start)
}

// resident returns the memory of the process in bytes, where the system tells it.
func resident() (size int) {
	runtime.GC()
	status, _ := os.ReadFile("/proc/self/statm")
	var total, pages int
	if _, err := fmt.Sscan(string(status), &total, &pages); err != nil {
		log.Fatal("the system does not tell the memory of a process: ", err)
	}
	return pages * os.Getpagesize()
}

func memory(store *brooklet.Store) {
	const calls = 10_000_000
	var commit brooklet.Commit
	for i := range calls {
		var err error
		switch i % 5 {
		case 0:
			_, err = store.AppendAsync(ctx, key(i), payload)
		case 1:
			_, err = store.CommitAsync(ctx, commit.Clear().Append(key(i), payload).KeepLast(key(i), 1))
		case 2:
			_, err = store.Bounds("none")
			if err != nil {
				err = nil
			}
		case 3:
			for range store.Read(key(i), 0, brooklet.End) {
			}
		case 4:
			_, _, err = store.First(key(i))
		}
		must(err)
		if i%(calls/5) == 0 && i > 0 {
			fmt.Printf("bytes of memory after %d calls: %d\n", i, resident())
		}
	}
	fmt.Printf("bytes of memory after %d calls: %d\n", calls, resident())
}

package brooklet

// #include <stdlib.h>
// #include "shim.h"
import "C"

import (
	"context"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"unsafe"
)

// closedBit is set in core.refs once the store is being closed.
const closedBit = 1 << 62

// mostWaiting is the most calls that wait within the C library at once, each on a thread: for room,
// or for a checkpoint. More callers wait as goroutines.
const mostWaiting = 8

// mostDriving is the most goroutines that wait for the device on their threads. A thread that waits
// within the C library writes to the device itself, which is the fastest way for a few writers. More
// writers wait as goroutines.
const mostDriving = 4

// Store is an open store. Many goroutines may use it.
type Store struct{ *core }

// core holds the handles of C. It outlives the Store while calls use it.
type core struct {
	store *C.brooklet_store
	queue *C.brooklet_queue

	// refs counts the calls that use the handles. The last one after the close frees them.
	refs    atomic.Int64
	freed   atomic.Bool
	closing sync.Once
	failure error
	// released is closed once the handles are freed, and with them the file.
	released chan struct{}

	// driving has a place for each goroutine whose thread waits for the device itself.
	driving chan struct{}
	// waiting has a place for each call that may wait within the C library.
	waiting chan struct{}
	acks    acks
	notices notices
	watcher *watcher
}

// Open opens the store at path, or creates it. Options may be nil.
//
// Close the store at the end. A store that nobody refers to any more is closed by the garbage
// collector, at some time.
func Open(path string, options *Options) (*Store, error) {
	if strings.IndexByte(path, 0) >= 0 {
		return nil, invalid("the path has a zero byte")
	}
	given, err := options.inC()
	if err != nil {
		return nil, err
	}
	defer C.brooklet_options_free(given)
	text := C.CString(path)
	defer C.free(unsafe.Pointer(text))

	c := &core{driving: make(chan struct{}, mostDriving), waiting: make(chan struct{}, mostWaiting)}
	c.released = make(chan struct{})
	c.acks.groups, c.acks.failed = make(map[uint64]*group), make(map[uint64]error)
	c.notices.waiting = make(map[uint64]chan struct{})
	var told *C.brooklet_error
	if status := C.brooklet_queue_new(&c.queue, &told); told != nil {
		return nil, failed(status, told)
	}
	C.brooklet_queue_on_request(c.queue)
	if c.watcher, err = watch(c); err != nil {
		C.brooklet_queue_free(c.queue)
		return nil, err
	}
	if status := C.brooklet_open(text, given, &c.store, &told); told != nil {
		c.watcher.stop()
		C.brooklet_queue_free(c.queue)
		return nil, failed(status, told)
	}
	store := &Store{c}
	// The collector's own goroutine must not wait for the device.
	runtime.AddCleanup(store, func(c *core) { go c.close() }, c)
	return store, nil
}

// Close waits until all writes are on stable media, and releases the file. Later calls on the store
// return [ErrStopped]. Each call returns the same result. With [ErrFull], a space in memory had no
// room for its dump: the store is closed, and the space stays as in its last dump.
func (s *Store) Close() error {
	if s == nil || s.core == nil {
		return nil
	}
	return s.core.close()
}

func (c *core) close() error {
	c.closing.Do(func() {
		c.refs.Add(1)
		c.refs.Or(closedBit)
		defer c.release()
		var told *C.brooklet_error
		status := C.brooklet_close(c.store, &told)
		c.failure = failed(status, told)
	})
	// Another call may be the last one that uses the handles. None runs code of the user then.
	<-c.released
	return c.failure
}

// acquire lets the caller use the handles until it calls release.
func (c *core) acquire() error {
	if c == nil {
		return closed()
	}
	if c.refs.Add(1)&closedBit != 0 {
		c.release()
		return closed()
	}
	return nil
}

func (c *core) release() {
	// A call that comes late finds the store closed before it touches the handles.
	if c.refs.Add(-1) == closedBit && c.freed.CompareAndSwap(false, true) {
		c.free()
	}
}

// free frees the handles, once no call uses them.
func (c *core) free() {
	c.watcher.stop()
	C.brooklet_store_free(c.store)
	// Each write has ended, so those that failed complete at once.
	C.shim_request(c.queue, 0)
	c.take()
	c.acks.close()
	C.brooklet_queue_free(c.queue)
	close(c.released)
}

// enter takes a place among the calls that may wait within the C library.
func (c *core) enter(ctx context.Context) error {
	select {
	case c.waiting <- struct{}{}:
		return nil
	default:
	}
	select {
	case c.waiting <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (c *core) leave() { <-c.waiting }

// blocking runs a call that may wait for long within the C library. If the context ends before, the
// call goes on without its caller.
func (s *Store) blocking(ctx context.Context, call func(c *core) error) error {
	if err := ended(ctx); err != nil {
		return err
	}
	c := s.handles()
	defer runtime.KeepAlive(s)
	if err := c.acquire(); err != nil {
		return err
	}
	if err := c.enter(ctx); err != nil {
		c.release()
		return err
	}
	result := make(chan error, 1)
	go func() {
		defer c.release()
		defer c.leave()
		result <- call(c)
	}()
	select {
	case err := <-result:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// ended returns the error of a context that is no reason to begin a call.
func ended(ctx context.Context) error {
	if ctx == nil {
		return invalid("the context is nil")
	}
	return ctx.Err()
}

// handles returns the handles of a store. Its caller keeps the store alive (runtime.KeepAlive) until it
// needs them no more: the collector closes a store that nobody refers to, also in mid-call.
func (s *Store) handles() *core {
	if s == nil {
		return nil
	}
	return s.core
}

// Flush waits until every write so far is on stable media, deferred ones too.
func (s *Store) Flush(ctx context.Context) error {
	return s.blocking(ctx, func(c *core) error {
		var told *C.brooklet_error
		return failed(C.brooklet_flush(c.store, &told), told)
	})
}

// Checkpoint moves all entries from the ring into runs.
func (s *Store) Checkpoint(ctx context.Context) error {
	return s.blocking(ctx, func(c *core) error {
		var told *C.brooklet_error
		return failed(C.brooklet_checkpoint(c.store, &told), told)
	})
}

// Info has numbers about a store. Sizes are bytes.
type Info struct {
	// Format is the format version of the store.
	Format uint64
	// Epoch is how often the store was opened for writing.
	Epoch uint64
	// Size of the volume.
	Size uint64
	// HeapFree is the free space in the heap.
	HeapFree uint64
	// RingSize is the size that the ring may grow to.
	RingSize uint64
	// RingInUse is the size of the ring now.
	RingInUse uint64
	// MemtableLogs is the number of logs with entries in memory that are not in runs yet.
	MemtableLogs uint64
	// MemtableBytes is the memory of these entries.
	MemtableBytes uint64
	// Runs is the number of runs.
	Runs uint64
	// RunBytes is the size of the runs.
	RunBytes uint64
	// Checkpointing reports whether a checkpoint is running.
	Checkpointing bool
	// Compacting reports whether a compaction is running.
	Compacting bool
	// Stopped reports whether the store accepts no writes any more, after a failure.
	Stopped bool
}

// Info returns numbers about the store.
func (s *Store) Info() (Info, error) {
	c := s.handles()
	defer runtime.KeepAlive(s)
	if err := c.acquire(); err != nil {
		return Info{}, err
	}
	defer c.release()
	var info C.brooklet_info
	var told *C.brooklet_error
	if status := C.brooklet_store_info(c.store, &info, &told); told != nil {
		return Info{}, failed(status, told)
	}
	return Info{
		Format:        uint64(info.format),
		Epoch:         uint64(info.epoch),
		Size:          uint64(info.size),
		HeapFree:      uint64(info.heap_free),
		RingSize:      uint64(info.ring_size),
		RingInUse:     uint64(info.ring_in_use),
		MemtableLogs:  uint64(info.memtable_logs),
		MemtableBytes: uint64(info.memtable_bytes),
		Runs:          uint64(info.runs),
		RunBytes:      uint64(info.run_bytes),
		Checkpointing: bool(info.checkpointing),
		Compacting:    bool(info.compacting),
		Stopped:       bool(info.stopped),
	}, nil
}

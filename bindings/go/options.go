package brooklet

// #include <stdlib.h>
// #include "shim.h"
import "C"

import (
	"strings"
	"time"
	"unsafe"
)

// Create says how [Open] treats a path without a store.
type Create int

const (
	// CreateIfMissing creates a store.
	CreateIfMissing Create = iota
	// CreateNever fails.
	CreateNever
	// CreateNew creates a store, and fails if there is one.
	CreateNew
)

// Options of a store. The zero value of each field means the default.
type Options struct {
	// Create says how to treat a path without a store.
	Create Create
	// RingSize is the size of the ring in bytes: where commits are written first. Only a new store
	// uses it.
	RingSize uint64
	// RingAt is the path of a file or a device for the ring alone. Each opening of the store names it.
	RingAt string
	// Capacity is the most bytes of the store.
	Capacity uint64
	// MemoryBudget is the most bytes of memory for entries that are not in runs yet.
	MemoryBudget uint64
	// CacheBudget is the most bytes of memory for look-ups and reads.
	CacheBudget uint64
	// MaxPayload is the most bytes of one payload.
	MaxPayload uint64
	// Permissions of a new file, such as 0o600.
	Permissions uint32
	// Linger is the longest time for which the store collects commits before it writes them.
	Linger time.Duration
	// ReadOnly opens the store for reading. Nobody else may have it open for writing.
	ReadOnly bool
	// BesideWriter opens the store for reading, beside a process that has it open for writing. The
	// reader sees the entries that were on stable media when it opened the store.
	BesideWriter bool
}

// inC returns the options for the C library. The caller frees them.
func (o *Options) inC() (*C.brooklet_options, error) {
	if o == nil {
		return nil, nil
	}
	create := map[Create]C.uint32_t{CreateNever: 0, CreateIfMissing: 1, CreateNew: 2}
	mode, known := create[o.Create]
	if !known {
		return nil, invalid("Options.Create has an unknown value")
	}
	if o.Linger < 0 {
		return nil, invalid("Options.Linger is negative")
	}
	if strings.IndexByte(o.RingAt, 0) >= 0 {
		return nil, invalid("Options.RingAt has a zero byte")
	}
	options := C.brooklet_options_new()
	C.brooklet_options_create(options, mode, nil)
	if o.RingAt != "" {
		text := C.CString(o.RingAt)
		defer C.free(unsafe.Pointer(text))
		var told *C.brooklet_error
		if status := C.brooklet_options_ring_at(options, text, &told); told != nil {
			C.brooklet_options_free(options)
			return nil, failed(status, told)
		}
	}
	if o.Capacity != 0 {
		C.brooklet_options_capacity(options, C.uint64_t(o.Capacity))
	}
	if o.RingSize != 0 {
		C.brooklet_options_ring_size(options, C.uint64_t(o.RingSize))
	}
	if o.MemoryBudget != 0 {
		C.brooklet_options_memory_budget(options, C.size_t(o.MemoryBudget))
	}
	if o.CacheBudget != 0 {
		C.brooklet_options_cache_budget(options, C.size_t(o.CacheBudget))
	}
	if o.MaxPayload != 0 {
		C.brooklet_options_max_payload(options, C.size_t(o.MaxPayload))
	}
	if o.Permissions != 0 {
		C.brooklet_options_permissions(options, C.uint32_t(o.Permissions))
	}
	if o.Linger != 0 {
		C.brooklet_options_linger(options, C.uint64_t(o.Linger))
	}
	C.brooklet_options_read_only(options, C.bool(o.ReadOnly))
	C.brooklet_options_beside_writer(options, C.bool(o.BesideWriter))
	return options, nil
}

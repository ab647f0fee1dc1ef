package brooklet

// #include "shim.h"
import "C"

import (
	"encoding/binary"
	"errors"
	"iter"
	"runtime"
	"strings"
	"sync"
	"unsafe"
)

// Entry is an entry of a log.
type Entry struct {
	// Seq is the number of the entry.
	Seq uint64
	// Payload belongs to the caller, except that of [Store.ReadLent]. Payloads of neighbours may share
	// memory, so copy a payload that is kept for long beside others that are not (bytes.Clone).
	Payload []byte
}

// Bounds of a log.
type Bounds struct {
	// First is the number of the first entry.
	First uint64
	// Next is the number that the next entry will get.
	Next uint64
}

// Log is a log of a listing.
type Log struct {
	// Key of the log.
	Key string
	Bounds
}

// Sizes of the heads that precede an entry and a log in a buffer.
const (
	entryHead = 16
	logHead   = 24
)

// Sizes of buffers. The first part of a read is small, because many logs are.
const (
	firstPart = 16 << 10
	part      = 64 << 10
)

var scratch = sync.Pool{New: func() any {
	buffer := uncleared(part)
	return &buffer
}}

// uncleared returns memory that nobody has cleared. The C library fills it, and nobody reads more of it.
func uncleared(size int) []byte {
	var text strings.Builder
	text.Grow(size)
	text.WriteByte(0) // An empty text has no address.
	return unsafe.Slice(unsafe.StringData(text.String()), size)
}

// filled has the items that a call copied.
type filled struct {
	told  C.shim_filled
	items []byte
	// lends is the buffer that has the items, if they are lent.
	lends *[]byte
}

// giveBack ends the loan of the items.
func (f *filled) giveBack() {
	if f.lends != nil {
		scratch.Put(f.lends)
		f.items, f.lends = nil, nil
	}
}

// fill calls a function that copies items into a buffer, of size bytes at first, and of the size that
// the next item needs if that is more. The items belong to the caller, unless they are lent.
func fill(size int, lend bool, call func(buffer *C.uint8_t, size C.size_t) C.shim_filled) filled {
	buffer := scratch.Get().(*[]byte)
	result := call(bytesOf((*buffer)[:size]))
	if result.error == nil && result.count == 0 && result.used > 0 {
		scratch.Put(buffer)
		large := uncleared(int(result.used))
		if result = call(bytesOf(large)); result.count == 0 {
			return filled{told: result}
		}
		return filled{told: result, items: large[:result.used]}
	}
	return taken(result, buffer, lend)
}

// taken returns the items in a buffer. If they fill most of it, the buffer becomes the caller's, and
// otherwise they are copied: a payload that is kept keeps little more than the items.
func taken(result C.shim_filled, buffer *[]byte, lend bool) filled {
	if result.count == 0 {
		scratch.Put(buffer)
		return filled{told: result}
	}
	items := (*buffer)[:result.used:result.used]
	switch {
	case lend:
		return filled{result, items, buffer}
	case len(items) < part*3/4:
		items = append([]byte(nil), items...)
		scratch.Put(buffer)
	}
	return filled{told: result, items: items}
}

func number(bytes []byte) uint64 { return binary.NativeEndian.Uint64(bytes) }

// unpack returns the first one of packed entries, and the entries behind it.
func unpack(items []byte) (Entry, []byte) {
	end := entryHead + number(items[8:])
	return Entry{Seq: number(items), Payload: items[entryHead:end:end]}, items[end:]
}

// Read reads the entries of a log from number from on and before number to ([End]: to the end),
// those on stable media. The iterator yields an error as its last pair: [ErrNotFound] if the log or
// the range does not exist, [ErrDamaged] if an entry does not read back as it was written.
//
// The iterator shows the log as it is when the iteration begins.
func (s *Store) Read(key string, from, to uint64) iter.Seq2[Entry, error] {
	return s.read(key, from, to, false, false)
}

// ReadAvailable reads a log like [Store.Read], but leaves out entries outside of the log. An unknown
// log has none.
func (s *Store) ReadAvailable(key string, from, to uint64) iter.Seq2[Entry, error] {
	return s.read(key, from, to, true, false)
}

// ReadLent reads a log like [Store.Read], and lends the payloads: each is valid until the loop takes the
// next entry or ends, and its memory has other bytes afterwards. A loop over many entries needs no
// memory for them so, and leaves the garbage collector nothing. Copy a payload that is kept (bytes.Clone).
func (s *Store) ReadLent(key string, from, to uint64) iter.Seq2[Entry, error] {
	return s.read(key, from, to, false, true)
}

func (s *Store) read(key string, from, to uint64, available, lend bool) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		defer runtime.KeepAlive(s)
		got, err := s.begin(key, from, to, available, lend)
		if err != nil {
			yield(Entry{}, err)
			return
		}
		rest := (*C.brooklet_entries)(got.told.rest)
		defer func() {
			got.giveBack()
			if rest != nil {
				C.brooklet_entries_free(rest)
			}
		}()
		for {
			for items := got.items; len(items) > 0; {
				var entry Entry
				if entry, items = unpack(items); !yield(entry, nil) {
					return
				}
			}
			if got.told.status == C.BROOKLET_END {
				return
			}
			got.giveBack()
			got = more(rest, lend)
			if got.told.error != nil {
				yield(Entry{}, failed(got.told.status, got.told.error))
				return
			}
		}
	}
}

// begin reads the first part of a log. The caller frees the rest, and ends the loan.
func (s *Store) begin(key string, from, to uint64, available, lend bool) (filled, error) {
	c := s.handles()
	defer runtime.KeepAlive(s)
	if err := c.acquire(); err != nil {
		return filled{}, err
	}
	defer c.release()
	size := firstPart
	if lend {
		size = part
	}
	buffer := scratch.Get().(*[]byte)
	text, textLen := textOf(key)
	place, placeLen := bytesOf((*buffer)[:size])
	result := C.shim_read(c.store, text, textLen, C.uint64_t(from), C.uint64_t(to), C.bool(available), place, placeLen)
	if result.error != nil {
		scratch.Put(buffer)
		return filled{}, failed(result.status, result.error)
	}
	return taken(result, buffer, lend), nil
}

func more(entries *C.brooklet_entries, lend bool) filled {
	return fill(part, lend, func(buffer *C.uint8_t, size C.size_t) C.shim_filled {
		return C.shim_entries(entries, buffer, size)
	})
}

// Get returns one entry. The error is [ErrNotFound] if the log does not have it.
func (s *Store) Get(key string, seq uint64) (Entry, error) {
	if seq == End {
		return Entry{}, invalid("no entry has this number")
	}
	for entry, err := range s.Read(key, seq, seq+1) {
		return entry, err
	}
	return Entry{}, &Error{Kind: ErrNotFound, Message: "the log does not have the entry"}
}

// First returns the first entry of a log, and whether there is one.
func (s *Store) First(key string) (entry Entry, found bool, err error) {
	for entry, err := range s.ReadAvailable(key, 0, End) {
		return entry, err == nil, err
	}
	return Entry{}, false, nil
}

// Last returns the last entry of a log, and whether there is one.
func (s *Store) Last(key string) (entry Entry, found bool, err error) {
	for {
		bounds, err := s.Bounds(key)
		switch {
		case errors.Is(err, ErrNotFound):
			return Entry{}, false, nil
		case err != nil || bounds.First == bounds.Next:
			return Entry{}, false, err
		}
		for entry, err := range s.ReadAvailable(key, bounds.Next-1, bounds.Next) {
			return entry, err == nil, err
		}
		// The log lost that entry meanwhile.
	}
}

// Bounds returns the numbers of the first entry of a log and of its next one. The error is
// [ErrNotFound] if the log does not exist.
func (s *Store) Bounds(key string) (Bounds, error) {
	c := s.handles()
	defer runtime.KeepAlive(s)
	if err := c.acquire(); err != nil {
		return Bounds{}, err
	}
	defer c.release()
	text, textLen := textOf(key)
	bounds := C.shim_bounds_of(c.store, text, textLen)
	if bounds.error != nil {
		return Bounds{}, failed(bounds.status, bounds.error)
	}
	return Bounds{First: uint64(bounds.first), Next: uint64(bounds.next)}, nil
}

// Exists reports whether a log exists.
func (s *Store) Exists(key string) (bool, error) {
	_, err := s.Bounds(key)
	if errors.Is(err, ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}

// Scan lists the logs whose keys start with prefix, in the order of their keys. The iterator yields
// an error as its last pair.
func (s *Store) Scan(prefix string) iter.Seq2[Log, error] { return s.ScanFrom(prefix, "") }

// ScanFrom lists logs like [Store.Scan], from the key from on. To go on behind a key, pass the key
// and "\x00".
func (s *Store) ScanFrom(prefix, from string) iter.Seq2[Log, error] {
	return func(yield func(Log, error) bool) {
		defer runtime.KeepAlive(s)
		logs, err := s.scan(prefix, from)
		if err != nil {
			yield(Log{}, err)
			return
		}
		defer C.brooklet_logs_free(logs)
		var got filled
		defer func() { got.giveBack() }()
		for size := firstPart; ; size = part {
			got.giveBack()
			// A listing copies the keys.
			got = fill(size, true, func(buffer *C.uint8_t, size C.size_t) C.shim_filled {
				return C.shim_logs(logs, buffer, size)
			})
			if got.told.error != nil {
				yield(Log{}, failed(got.told.status, got.told.error))
				return
			}
			for items := got.items; len(items) > 0; {
				end := logHead + number(items[16:])
				log := Log{string(items[logHead:end]), Bounds{number(items), number(items[8:])}}
				if !yield(log, nil) {
					return
				}
				items = items[end:]
			}
			if got.told.status == C.BROOKLET_END {
				return
			}
		}
	}
}

func (s *Store) scan(prefix, from string) (*C.brooklet_logs, error) {
	c := s.handles()
	defer runtime.KeepAlive(s)
	if err := c.acquire(); err != nil {
		return nil, err
	}
	defer c.release()
	begin, beginLen := textOf(prefix)
	place, placeLen := textOf(from)
	logs := C.shim_scan(c.store, begin, beginLen, place, placeLen)
	if logs.error != nil {
		return nil, failed(logs.status, logs.error)
	}
	return logs.logs, nil
}

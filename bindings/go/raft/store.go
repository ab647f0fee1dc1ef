// Package brookletraft stores the logs and the stable state of Raft groups of hashicorp/raft in a
// Brooklet store. One store holds thousands of groups, and one write to the device makes the entries
// of many groups durable.
package brookletraft

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	"brooklet"

	"github.com/hashicorp/raft"
)

// mostAtOnce is the most bytes of one commit: this, or a sixth of the ring. A larger batch of entries
// becomes several commits.
const mostAtOnce = 4 << 20

// Store is the log and the stable state of one Raft group. Open each group once: the store refuses
// the writes of a second Store beside the first.
//
// It has two kinds of logs: "<group>/log" with the entries, whose numbers are the Raft indexes, and
// "<group>/state/<key>" for each key of the stable state, with one entry.
type Store struct {
	store *brooklet.Store
	log   string
	state string
	// most is the most bytes of one commit.
	most int

	// writing is held by the write under way.
	writing sync.Mutex

	// lock guards the bounds that are known; nil after a write that failed.
	lock  sync.RWMutex
	known *bounds

	// stable guards the stable state, as it is known. A key without a cell had no log when the group
	// was opened.
	stable sync.RWMutex
	cells  map[string]cell
}

// cell is the log of a key of the stable state, as this Store knows it.
type cell struct {
	// next is the number of the log's next entry, if the log exists.
	next   uint64
	exists bool
	// unknown reports that a write has failed: the log has to be read again.
	unknown bool
	// value is the last value, if it was stored or read.
	value []byte
	read  bool
}

// draft has the memory of a write. All groups share drafts, so that an idle group needs none.
type draft struct {
	commit brooklet.Commit
	entry  []byte
	// large reports that a batch was too large for one commit.
	large bool
}

// mostKept is the most bytes of a draft that waits for its next use.
const mostKept = 1 << 20

var drafts = sync.Pool{New: func() any { return new(draft) }}

func take() *draft {
	d := drafts.Get().(*draft)
	d.commit.Clear()
	return d
}

func (d *draft) giveBack() {
	if !d.large && d.commit.Size() <= mostKept && cap(d.entry) <= mostKept {
		drafts.Put(d)
	}
}

// bounds of the log: the index of the first entry, and that of the next one; equal if there is none.
type bounds struct {
	first, next uint64
	exists      bool
}

func (b bounds) empty() bool { return b.first == b.next }

var (
	_ raft.LogStore          = (*Store)(nil)
	_ raft.StableStore       = (*Store)(nil)
	_ raft.MonotonicLogStore = (*Store)(nil)
)

// Open opens a group of a store. A group that does not exist is empty, and begins to exist with its
// first write. The brooklet store stays the caller's: close it when all groups have ended.
func Open(store *brooklet.Store, group string) (*Store, error) {
	info, err := store.Info()
	if err != nil {
		return nil, fmt.Errorf("opening the Raft group %q: %w", group, err)
	}
	s := &Store{
		store: store,
		log:   group + "/log",
		state: group + "/state/",
		most:  int(min(mostAtOnce, info.RingSize/6)),
		cells: make(map[string]cell),
	}
	if _, err := s.bounds(); err != nil {
		return nil, err
	}
	for log, err := range store.Scan(s.state) {
		if err != nil {
			return nil, fmt.Errorf("listing the state %q: %w", s.state, err)
		}
		s.cells[log.Key[len(s.state):]] = cell{next: log.Next, exists: true}
	}
	return s, nil
}

func (s *Store) failed(doing string, err error) error {
	return fmt.Errorf("%s of the Raft log %q: %w", doing, s.log, err)
}

// bounds returns the bounds of the log, and reads them after a write that failed.
func (s *Store) bounds() (bounds, error) {
	s.lock.RLock()
	known := s.known
	s.lock.RUnlock()
	if known != nil {
		return *known, nil
	}
	s.lock.Lock()
	defer s.lock.Unlock()
	found, err := s.store.Bounds(s.log)
	exists := !errors.Is(err, brooklet.ErrNotFound)
	if err != nil && exists {
		return bounds{}, s.failed("reading the bounds", err)
	}
	s.known = &bounds{found.First, found.Next, exists}
	return *s.known, nil
}

// change records the bounds after a write; they are unknown if it failed.
func (s *Store) change(after bounds, err error) {
	s.lock.Lock()
	defer s.lock.Unlock()
	s.known = &after
	if err != nil {
		s.known = nil
	}
}

// IsMonotonic returns true: the indexes of the entries have no gaps. So hashicorp/raft removes all
// entries when it has restored a snapshot from elsewhere. The next entry then has any index.
func (s *Store) IsMonotonic() bool { return true }

// FirstIndex returns the index of the first entry; 0 if there is none.
func (s *Store) FirstIndex() (uint64, error) {
	known, err := s.bounds()
	if known.empty() {
		return 0, err
	}
	return known.first, err
}

// LastIndex returns the index of the last entry; 0 if there is none.
func (s *Store) LastIndex() (uint64, error) {
	known, err := s.bounds()
	if known.empty() {
		return 0, err
	}
	return known.next - 1, err
}

// GetLog reads the entry of an index. The error is [raft.ErrLogNotFound] if there is none.
func (s *Store) GetLog(index uint64, log *raft.Log) error {
	known, err := s.bounds()
	if err != nil {
		return err
	}
	if index < known.first || index >= known.next {
		return raft.ErrLogNotFound
	}
	entry, err := s.store.Get(s.log, index)
	if errors.Is(err, brooklet.ErrNotFound) {
		return raft.ErrLogNotFound // It was deleted meanwhile.
	}
	if err == nil {
		err = decode(index, entry.Payload, log)
	}
	if err != nil {
		return s.failed(fmt.Sprintf("reading entry %d", index), err)
	}
	return nil
}

// StoreLog stores an entry. It is on stable media when StoreLog returns.
func (s *Store) StoreLog(log *raft.Log) error { return s.StoreLogs([]*raft.Log{log}) }

// StoreLogs stores entries, which continue the log without a gap. An empty log begins at the first of
// them. They are on stable media when StoreLogs returns.
func (s *Store) StoreLogs(logs []*raft.Log) error {
	if len(logs) == 0 {
		return nil
	}
	s.writing.Lock()
	defer s.writing.Unlock()
	known, err := s.bounds()
	if err != nil {
		return err
	}
	begin := logs[0].Index
	after := bounds{known.first, begin + uint64(len(logs)), true}
	if known.empty() {
		after.first = begin
	} else if begin != known.next {
		why := fmt.Errorf("entry %d leaves a gap or overlaps: the next one is %d", begin, known.next)
		return s.failed("storing entries", why)
	}
	for at, log := range logs {
		if log.Index != begin+uint64(at) {
			return s.failed("storing entries", fmt.Errorf("entry %d follows entry %d", log.Index, logs[at-1].Index))
		}
	}
	d := take()
	defer d.giveBack()
	err = s.add(d, logs, known)
	s.change(after, err)
	if err != nil {
		return s.failed("storing entries", err)
	}
	return nil
}

// add appends entries in as few commits as their size allows, and waits for the last one: all before
// it are durable, too.
func (s *Store) add(d *draft, logs []*raft.Log, known bounds) error {
	begin := logs[0].Index
	switch {
	case known.exists && begin == known.next:
		d.commit.ExpectNext(s.log, begin)
	case known.exists:
		d.commit.ExpectNext(s.log, known.next).Delete(s.log).BeginAt(s.log, begin)
	default:
		d.commit.ExpectAbsent(s.log).BeginAt(s.log, begin)
	}
	size, front := 0, begin
	for at, log := range logs {
		d.entry = encode(d.entry[:0], log)
		if size += len(d.entry); size > s.most && size > len(d.entry) {
			if _, err := s.store.CommitAsync(context.Background(), &d.commit); err != nil {
				return s.takeBack(d, begin, front, err)
			}
			front, d.large = begin+uint64(at), true
			d.commit.Clear().ExpectNext(s.log, front)
			size = len(d.entry)
		}
		d.commit.Append(s.log, d.entry)
	}
	return s.takeBack(d, begin, front, s.finish(d))
}

// takeBack removes the entries from begin on and before front, if a commit behind them has failed: they
// are the front of a batch, and Raft stores the whole batch again.
func (s *Store) takeBack(d *draft, begin, front uint64, err error) error {
	if err == nil || front == begin {
		return err
	}
	d.commit.Clear().ExpectNext(s.log, front).Truncate(s.log, begin)
	if failure := s.finish(d); failure != nil {
		return fmt.Errorf("%w; entries %d to %d stay: %w", err, begin, front-1, failure)
	}
	return err
}

// finish makes the commit of a draft, and waits until it is on stable media, also in a space whose
// commits are deferred.
func (s *Store) finish(d *draft) error {
	d.commit.Durable()
	_, err := s.store.Commit(context.Background(), &d.commit)
	return err
}

// DeleteRange deletes the entries from index low up to high, high included: from the head of the log,
// from its tail, or all. Entries in the middle cannot be deleted, because the log has no gaps. The
// deletion is on stable media when DeleteRange returns.
func (s *Store) DeleteRange(low, high uint64) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	known, err := s.bounds()
	if err != nil {
		return err
	}
	if known.empty() || low > high || low >= known.next || high < known.first {
		return nil
	}
	d := take()
	defer d.giveBack()
	d.commit.ExpectNext(s.log, known.next)
	after := known
	switch fromHead, toTail := low <= known.first, high >= known.next-1; {
	case fromHead && toTail:
		// The next entry may then have any index, also a lower one.
		d.commit.Delete(s.log)
		after = bounds{}
	case fromHead:
		d.commit.Trim(s.log, high+1)
		after.first = high + 1
	case toTail:
		d.commit.Truncate(s.log, low)
		after.next = low
	default:
		why := fmt.Errorf("entries %d to %d are in the middle of %d to %d", low, high, known.first, known.next-1)
		return s.failed("deleting", why)
	}
	err = s.finish(d)
	s.change(after, err)
	if err != nil {
		return s.failed("deleting", err)
	}
	return nil
}

// Set stores the value of a key. It is on stable media when Set returns.
func (s *Store) Set(key, value []byte) error {
	s.stable.Lock()
	defer s.stable.Unlock()
	name, log := string(key), s.state+string(key)
	known, err := s.cell(name)
	if err != nil {
		return fmt.Errorf("reading the state %q: %w", log, err)
	}
	d := take()
	defer d.giveBack()
	if known.exists {
		d.commit.ExpectNext(log, known.next)
	} else {
		d.commit.ExpectAbsent(log)
	}
	d.commit.Snapshot(log, value)
	if err := s.finish(d); err != nil {
		s.cells[name] = cell{unknown: true} // It may be the old one or the new one.
		return fmt.Errorf("storing the state %q: %w", log, err)
	}
	s.cells[name] = cell{next: known.next + 1, exists: true, value: bytes.Clone(value), read: true}
	return nil
}

// cell returns the log of a key, and reads its bounds after a write that failed.
func (s *Store) cell(name string) (cell, error) {
	known := s.cells[name]
	if !known.unknown {
		return known, nil
	}
	found, err := s.store.Bounds(s.state + name)
	exists := !errors.Is(err, brooklet.ErrNotFound)
	if err != nil && exists {
		return cell{}, err
	}
	known = cell{next: found.Next, exists: exists}
	s.cells[name] = known
	return known, nil
}

// Get returns the value of a key; nil if it has none.
func (s *Store) Get(key []byte) ([]byte, error) {
	s.stable.RLock()
	known := s.cells[string(key)]
	s.stable.RUnlock()
	if known.read {
		return bytes.Clone(known.value), nil
	}
	s.stable.Lock()
	defer s.stable.Unlock()
	name, log := string(key), s.state+string(key)
	known, err := s.cell(name)
	var entry brooklet.Entry
	if err == nil {
		entry, _, err = s.store.First(log)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the state %q: %w", log, err)
	}
	known.value, known.read = entry.Payload, true
	s.cells[name] = known
	return bytes.Clone(entry.Payload), nil
}

// SetUint64 stores the number of a key, like [Store.Set].
func (s *Store) SetUint64(key []byte, value uint64) error {
	return s.Set(key, binary.BigEndian.AppendUint64(nil, value))
}

// GetUint64 returns the number of a key; 0 if it has none.
func (s *Store) GetUint64(key []byte) (uint64, error) {
	value, err := s.Get(key)
	if err != nil || value == nil {
		return 0, err
	}
	if len(value) != 8 {
		return 0, fmt.Errorf("the state %q has %d bytes, and is no number", s.state+string(key), len(value))
	}
	return binary.BigEndian.Uint64(value), nil
}

package brooklet

import (
	"bytes"
	"testing"
)

// same fails unless a payload has so many bytes of one value.
func same(t testing.TB, payload []byte, value byte, size int) {
	t.Helper()
	if len(payload) != size || bytes.Count(payload, []byte{value}) != size {
		t.Fatalf("%d bytes, %d of them %q, and not %d", len(payload), bytes.Count(payload, []byte{value}), value, size)
	}
}

// withLogs returns a store with a log of entries for each value.
func withLogs(t testing.TB, values string, entries, size int) *Store {
	t.Helper()
	store := opened(t)
	for _, value := range []byte(values) {
		for range entries {
			_, err := store.AppendAsync(background, string(value), bytes.Repeat([]byte{value}, size))
			must(t, err)
		}
	}
	must(t, store.Flush(background))
	return store
}

func TestPayloadsStayWhileLaterReadsFillBuffers(t *testing.T) {
	const entries, size = 1000, 200
	store := withLogs(t, "ab", entries, size)
	var kept [][]byte
	for range 3 {
		for _, key := range []string{"a", "b"} {
			for entry, err := range store.Read(key, 0, End) {
				must(t, err)
				kept = append(kept, entry.Payload)
			}
		}
	}
	equal(t, len(kept), 6*entries)
	for i, payload := range kept {
		same(t, payload, "ab"[i/entries%2], size)
	}
}

func TestLentReads(t *testing.T) {
	const entries, size = 1000, 200
	store := withLogs(t, "ab", entries, size)
	// Entries of the size of a buffer, and larger ones.
	sizes := []int{0, part - 17, part - 16, part - 15, 3, 1 << 19, 1}
	for _, size := range sizes {
		_, err := store.Append(background, "large", bytes.Repeat([]byte{'x'}, size))
		must(t, err)
	}
	seq := 0
	for entry, err := range store.ReadLent("large", 0, End) {
		must(t, err)
		equal(t, entry.Seq, uint64(seq))
		same(t, entry.Payload, 'x', sizes[seq])
		seq++
	}
	equal(t, seq, len(sizes))
	// A loop within a loop has a buffer of its own.
	seq = 0
	for entry, err := range store.ReadLent("a", 0, End) {
		must(t, err)
		if entry.Seq%100 == 0 {
			for other, err := range store.ReadLent("b", entry.Seq, entry.Seq+100) {
				must(t, err)
				same(t, other.Payload, 'b', size)
			}
		}
		same(t, entry.Payload, 'a', size)
		seq++
	}
	equal(t, seq, entries)
	for range 100 {
		for entry, err := range store.ReadLent("b", 3, End) {
			must(t, err)
			equal(t, entry.Seq, 3)
			break
		}
	}
	for _, err := range store.ReadLent("none", 0, End) {
		is(t, err, ErrNotFound, "none")
	}
}

package brookletraft

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/raft"
)

// version is the format that this package writes, and the newest one that it reads.
//
// An entry of the log is: the version (1 byte), the type (1 byte), the term (unsigned varint), the
// seconds and the nanoseconds of AppendedAt since 1970 (signed and unsigned varint; the zero time is
// that of Go, year 1), the bytes of the extensions (unsigned varint), the extensions, and the data.
// The number of the entry is the Raft index.
const version = 1

var errCut = errors.New("the entry is cut")

func encode(into []byte, log *raft.Log) []byte {
	into = append(into, version, byte(log.Type))
	into = binary.AppendUvarint(into, log.Term)
	into = binary.AppendVarint(into, log.AppendedAt.Unix())
	into = binary.AppendUvarint(into, uint64(log.AppendedAt.Nanosecond()))
	into = binary.AppendUvarint(into, uint64(len(log.Extensions)))
	into = append(into, log.Extensions...)
	return append(into, log.Data...)
}

// decode fills log. The bytes of the entry become those of the log.
func decode(index uint64, entry []byte, log *raft.Log) error {
	if len(entry) < 2 {
		return errCut
	}
	if entry[0] != version {
		return fmt.Errorf("the entry has format %d, and this package reads format %d", entry[0], version)
	}
	kind, rest := raft.LogType(entry[1]), entry[2:]
	next := func() uint64 {
		value, size := binary.Uvarint(rest)
		if size <= 0 {
			rest = nil
			return 1 << 63 // More than any rest has.
		}
		rest = rest[size:]
		return value
	}
	term := next()
	seconds, size := binary.Varint(rest)
	if size <= 0 {
		return errCut
	}
	rest = rest[size:]
	nanoseconds, extensions := next(), next()
	if extensions > uint64(len(rest)) {
		return errCut
	}
	*log = raft.Log{Index: index, Term: term, Type: kind, Data: rest[extensions:]}
	if at := time.Unix(seconds, int64(nanoseconds)).UTC(); !at.IsZero() {
		log.AppendedAt = at
	}
	if extensions > 0 {
		log.Extensions = rest[:extensions:extensions]
	}
	return nil
}

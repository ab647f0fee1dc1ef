package brooklet

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"iter"
	"os"
	"path/filepath"
	"testing"
)

// object is a JSON object. Numbers of the vectors are below 2^53, so that float64 holds them.
type object = map[string]any

// TestVectors plays ../vectors/vectors.json. The other libraries play the same file.
func TestVectors(t *testing.T) {
	file, err := os.ReadFile("../vectors/vectors.json")
	must(t, err)
	var cases []struct {
		Name  string
		Steps []object
	}
	must(t, json.Unmarshal(file, &cases))
	for _, one := range cases {
		t.Run(one.Name, func(t *testing.T) {
			p := &player{path: filepath.Join(t.TempDir(), "test.brooklet")}
			_, err := p.open(object{})
			must(t, err)
			defer func() { p.end(); must(t, p.store.Close()) }()
			for _, step := range one.Steps {
				played, err := p.play(step)
				if err != nil {
					played = object{"error": outline(err)}
				}
				equal(t, inJSON(played), inJSON(expected(step)))
			}
		})
	}
}

// player has a store, and the tail that is open.
type player struct {
	path  string
	store *Store
	next  func() (TailEvent, error, bool)
	stop  func()
}

func (p *player) end() {
	if p.stop != nil {
		p.stop()
		p.stop = nil
	}
}

func (p *player) open(how object) (object, error) {
	p.end()
	if p.store != nil {
		if err := p.store.Close(); err != nil {
			return nil, err
		}
	}
	options := *small
	options.ReadOnly = how["read_only"] == true
	options.Create = map[any]Create{nil: CreateIfMissing, "never": CreateNever, "new": CreateNew}[how["create"]]
	store, err := Open(p.path, &options)
	if err != nil {
		return nil, err
	}
	p.store = store
	return object{}, nil
}

// play plays a step, and returns what the store returned, in the form of the file.
func (p *player) play(step object) (object, error) {
	played := object{}
	for name, value := range step {
		switch name {
		case "reopen":
			return p.open(value.(object))
		case "call":
			seq, err := call(p.store, value.(object))
			if _, named := step["seq"]; named {
				played["seq"] = seq
			}
			return played, err
		case "commit":
			commit := new(Commit)
			for _, operation := range value.([]any) {
				add(commit, operation.(object))
			}
			seqs, err := p.store.Commit(background, commit)
			played["seqs"] = seqs
			return played, err
		case "read":
			entries, err := read(p.store, step)
			played["entries"] = entries
			return played, err
		case "bounds":
			bounds, err := p.store.Bounds(text(value))
			return object{"first": bounds.First, "next": bounds.Next}, err
		case "scan":
			start := ""
			if from, has := step["start"]; has {
				start = text(from)
			}
			logs := []any{}
			for log, err := range p.store.ScanFrom(text(value), start) {
				if err != nil {
					return nil, err
				}
				logs = append(logs, []any{inHex(log.Key), log.Bounds.First, log.Bounds.Next})
			}
			played["logs"] = logs
			return played, nil
		case "tail":
			p.end()
			p.next, p.stop = iter.Pull2(p.store.Tail(background, text(value), whole(step["from"])))
			return played, nil
		case "event":
			event, err, _ := p.next()
			played["event"] = eventOf(event)
			return played, err
		case "flush":
			return played, p.store.Flush(background)
		case "checkpoint":
			return played, p.store.Checkpoint(background)
		case "close":
			return played, p.store.Close()
		}
	}
	return nil, errors.New("an unknown step")
}

func read(store *Store, step object) ([]any, error) {
	to := uint64(End)
	if end, has := step["to"]; has {
		to = whole(end)
	}
	of := store.Read
	if step["available"] == true {
		of = store.ReadAvailable
	}
	entries := []any{}
	for entry, err := range of(text(step["read"]), whole(step["from"]), to) {
		if err != nil {
			return nil, err
		}
		entries = append(entries, []any{entry.Seq, inHex(string(entry.Payload))})
	}
	return entries, nil
}

func eventOf(event TailEvent) object {
	switch event.Kind {
	case TailEntry:
		return object{"entry": []any{event.Entry.Seq, inHex(string(event.Entry.Payload))}}
	case TailTrimmed:
		return object{"trimmed": []any{event.From, event.To}}
	case TailTruncated:
		return object{"truncated": event.From}
	default:
		return object{"deleted": true}
	}
}

// expected returns the results that a step names, with bytes as hexadecimal digits.
func expected(step object) object {
	if fails, has := step["error"]; has {
		return object{"error": fails}
	}
	if _, has := step["bounds"]; has {
		return object{"first": step["first"], "next": step["next"]}
	}
	found := object{}
	for name, value := range step {
		switch name {
		case "seq", "seqs":
			found[name] = value
		case "entries":
			entries := []any{}
			for _, entry := range value.([]any) {
				entries = append(entries, plain(entry))
			}
			found[name] = entries
		case "logs":
			logs := []any{}
			for _, log := range value.([]any) {
				log := log.([]any)
				logs = append(logs, []any{inHex(text(log[0])), log[1], log[2]})
			}
			found[name] = logs
		case "event":
			found[name] = value
			if entry, has := value.(object)["entry"]; has {
				found[name] = object{"entry": plain(entry)}
			}
		}
	}
	return found
}

func plain(entry any) []any {
	pair := entry.([]any)
	return []any{pair[0], inHex(text(pair[1]))}
}

// outline returns the kind of an error, and the bounds of the log where the error has them.
func outline(err error) object {
	var failure *Error
	if !errors.As(err, &failure) {
		return object{"kind": err.Error()}
	}
	kinds := map[error]string{
		ErrInvalid: "invalid", ErrNotFound: "not_found", ErrConflict: "conflict", ErrCannotOpen: "cannot_open", ErrStopped: "stopped",
	}
	found := object{"kind": kinds[failure.Kind]}
	if failure.HasFirst {
		found["first"] = failure.First
	}
	if failure.HasNext {
		found["next"] = failure.Next
	}
	return found
}

// call plays an operation by the store's own call.
func call(store *Store, operation object) (seq uint64, err error) {
	for name, value := range operation {
		switch name {
		case "append":
			return store.Append(background, text(value), []byte(text(operation["payload"])))
		case "snapshot":
			return store.Snapshot(background, text(value), []byte(text(operation["payload"])))
		case "trim":
			return 0, store.Trim(background, text(value), whole(operation["before"]))
		case "truncate":
			return 0, store.Truncate(background, text(value), whole(operation["from"]))
		case "keep_last":
			return 0, store.KeepLast(background, text(value), whole(operation["n"]))
		case "begin_at":
			return 0, store.BeginAt(background, text(value), whole(operation["first"]))
		case "delete":
			return 0, store.Delete(background, text(value))
		case "set_retention":
			return 0, store.SetRetention(background, text(value), Retention{Entries: whole(operation["entries"])})
		}
	}
	return 0, errors.New("an unknown operation")
}

func add(commit *Commit, operation object) {
	for name, value := range operation {
		switch name {
		case "append":
			commit.Append(text(value), []byte(text(operation["payload"])))
		case "snapshot":
			commit.Snapshot(text(value), []byte(text(operation["payload"])))
		case "trim":
			commit.Trim(text(value), whole(operation["before"]))
		case "expect_next":
			commit.ExpectNext(text(value), whole(operation["next"]))
		case "expect_absent":
			commit.ExpectAbsent(text(value))
		}
	}
}

func whole(value any) uint64 { return uint64(value.(float64)) }

// text returns the bytes that a value stands for: text, hexadecimal digits, or a repeated text.
func text(value any) string {
	switch value := value.(type) {
	case string:
		return value
	case object:
		if digits, has := value["hex"]; has {
			found, err := hex.DecodeString(digits.(string))
			if err != nil {
				panic(err)
			}
			return string(found)
		}
		return string(bytes.Repeat([]byte(value["repeat"].(string)), int(whole(value["times"]))))
	}
	panic("a value is neither a text nor bytes")
}

func inHex(text string) string { return hex.EncodeToString([]byte(text)) }

func inJSON(value any) string {
	found, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	return string(found)
}

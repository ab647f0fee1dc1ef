package brooklet_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"brooklet"
)

func temporary() (path string, remove func()) {
	dir, err := os.MkdirTemp("", "brooklet")
	if err != nil {
		log.Fatal(err)
	}
	return filepath.Join(dir, "documents.brooklet"), func() { os.RemoveAll(dir) }
}

func Example() {
	path, remove := temporary()
	defer remove()
	ctx := context.Background()
	store, err := brooklet.Open(path, nil) // one file is one store
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()

	first, err := store.Append(ctx, "doc/7", []byte("insert 'h' at 0")) // returns once it is durable
	if err != nil {
		log.Fatal(err)
	}

	var commit brooklet.Commit // many logs, one atomic commit
	commit.ExpectNext("doc/7", first+1).Append("doc/7", []byte("insert 'i' at 1")).Append("feed", []byte("doc 7"))
	if _, err := store.Commit(ctx, &commit); err != nil {
		log.Fatal(err)
	}

	for entry, err := range store.Read("doc/7", 0, brooklet.End) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%d: %s\n", entry.Seq, entry.Payload)
	}
	// Output:
	// 0: insert 'h' at 0
	// 1: insert 'i' at 1
}

// Many writes are under way at once; one wait at the end is enough, because the store makes writes
// durable in their order.
func ExampleStore_AppendAsync() {
	path, remove := temporary()
	defer remove()
	ctx := context.Background()
	store, err := brooklet.Open(path, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	var last brooklet.Ticket
	for i := range 1000 {
		if last, err = store.AppendAsync(ctx, "events", fmt.Appendf(nil, "event %d", i)); err != nil {
			log.Fatal(err)
		}
	}
	if err := last.Wait(ctx); err != nil {
		log.Fatal(err)
	}
	fmt.Println(last.Seq())
	// Output: 999
}

func ExampleError() {
	path, remove := temporary()
	defer remove()
	ctx := context.Background()
	store, err := brooklet.Open(path, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	store.Append(ctx, "doc/7", []byte("by another writer"))

	commit := new(brooklet.Commit).ExpectNext("doc/7", 0).Append("doc/7", []byte("mine"))
	_, err = store.Commit(ctx, commit)
	var told *brooklet.Error
	if errors.Is(err, brooklet.ErrConflict) && errors.As(err, &told) {
		fmt.Println("the log goes on at", told.Next)
	}
	// Output: the log goes on at 1
}

func ExampleStore_Tail() {
	path, remove := temporary()
	defer remove()
	ctx := context.Background()
	store, err := brooklet.Open(path, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	go store.AppendMany(ctx, "feed", [][]byte{[]byte("a"), []byte("b")})
	for event, err := range store.Tail(ctx, "feed", 0) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%d: %s\n", event.Entry.Seq, event.Entry.Payload)
		if event.Entry.Seq == 1 {
			break
		}
	}
	// Output:
	// 0: a
	// 1: b
}

package brooklet

// #include "shim.h"
import "C"

import (
	"os"
	"sync"
	"syscall"
)

// group is the set of writes that reach stable media together. One event ends them all.
type group struct {
	done chan struct{}
	// err is the result, once done is closed.
	err error
}

// endedGroup returns a group that has ended.
func endedGroup(err error) *group {
	g := &group{done: make(chan struct{}), err: err}
	close(g.done)
	return g
}

// acknowledged is the group of writes that ended before anybody could wait.
var acknowledged = endedGroup(nil)

// acks is the table of the groups that somebody waits for.
type acks struct {
	lock   sync.Mutex
	groups map[uint64]*group
	// failed has the groups that failed and that nobody waited for. It is whole once the store is closed.
	failed map[uint64]error
	closed bool
}

// at returns a group, and whether the caller is the first who waits for it.
func (a *acks) at(tag uint64) (*group, bool) {
	a.lock.Lock()
	defer a.lock.Unlock()
	if g := a.groups[tag]; g != nil {
		return g, false
	}
	if a.closed {
		return endedGroup(a.failed[tag]), false
	}
	g := &group{done: make(chan struct{})}
	a.groups[tag] = g
	return g, true
}

// end ends a group.
func (a *acks) end(tag uint64, err error) {
	a.lock.Lock()
	defer a.lock.Unlock()
	g := a.groups[tag]
	switch {
	case g != nil:
		delete(a.groups, tag)
		g.err = err
		close(g.done)
	case err != nil:
		a.failed[tag] = err
	}
}

// close ends the groups that are left. They are acknowledged, but for those that failed before somebody
// waited for them.
func (a *acks) close() {
	a.lock.Lock()
	defer a.lock.Unlock()
	for tag, g := range a.groups {
		delete(a.groups, tag)
		g.err = a.failed[tag]
		close(g.done)
	}
	a.closed = true
}

// group returns the group of a write. The C library completes groups on request, and the first one who
// waits makes it: the store need not hurry with writes that nobody waits for.
func (c *core) group(tag uint64) *group {
	if tag == 0 {
		return acknowledged
	}
	g, isFirst := c.acks.at(tag)
	// A close ends the group, too.
	if isFirst && c.acquire() == nil {
		defer c.release()
		requested := C.shim_request(c.queue, C.uint64_t(tag))
		if requested.error != nil || bool(requested.acknowledged) {
			c.acks.end(tag, failed(requested.status, requested.error))
		}
	}
	return g
}

// notices has the tails that wait for the next entry of their logs, and the calls that wait for a number.
type notices struct {
	lock    sync.Mutex
	made    uint64
	waiting map[uint64]chan struct{}
}

// add makes a place where the C library may leave a notice.
func (n *notices) add() (tag uint64, notice chan struct{}) {
	n.lock.Lock()
	defer n.lock.Unlock()
	n.made++
	notice = make(chan struct{}, 1)
	n.waiting[n.made] = notice
	return n.made, notice
}

func (n *notices) remove(tag uint64) {
	n.lock.Lock()
	defer n.lock.Unlock()
	delete(n.waiting, tag)
}

func (n *notices) leave(tag uint64) {
	n.lock.Lock()
	defer n.lock.Unlock()
	select {
	case n.waiting[tag] <- struct{}{}:
	default: // One notice is enough; nobody waits at a nil channel.
	}
}

// watcher is the goroutine that waits for the descriptor of the queue, by the poller of the runtime.
type watcher struct {
	file *os.File
	done chan struct{}
}

func watch(c *core) (*watcher, error) {
	// The queue's own descriptor stays with the queue.
	fd, err := syscall.Dup(int(C.brooklet_queue_fd(c.queue)))
	if err == nil {
		syscall.CloseOnExec(fd)
		err = syscall.SetNonblock(fd, true)
	}
	if err != nil {
		return nil, &Error{Kind: ErrIO, Message: "copying the descriptor of a queue: " + err.Error()}
	}
	w := &watcher{file: os.NewFile(uintptr(fd), "brooklet queue"), done: make(chan struct{})}
	conn, err := w.file.SyscallConn()
	if err != nil {
		w.file.Close()
		return nil, &Error{Kind: ErrIO, Message: "waiting for a queue: " + err.Error()}
	}
	go func() {
		defer close(w.done)
		// Returns once the file is closed. The queue's byte is read by the C library.
		_ = conn.Read(func(uintptr) bool {
			c.take()
			return false
		})
	}()
	return w, nil
}

// stop returns once the goroutine has ended.
func (w *watcher) stop() {
	w.file.Close()
	<-w.done
}

// take hands all completions over to those who wait.
func (c *core) take() {
	var completions [64]C.brooklet_completion
	for {
		var count C.size_t
		C.brooklet_queue_take(c.queue, &completions[0], C.size_t(len(completions)), 0, &count, nil)
		for _, completion := range completions[:count] {
			tag, err := uint64(completion.tag), failed(completion.status, completion.error)
			if tag>>63 == 0 {
				c.notices.leave(tag)
			} else {
				c.acks.end(tag, err)
			}
		}
		// The descriptor reports completions that come behind the last ones.
		if int(count) < len(completions) {
			return
		}
	}
}

package brookletraft

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"brooklet"

	"github.com/hashicorp/raft"
)

// machine is the list of all commands that were applied.
type machine struct {
	lock  sync.Mutex
	lines []string
}

func (m *machine) Apply(log *raft.Log) any {
	m.lock.Lock()
	defer m.lock.Unlock()
	m.lines = append(m.lines, string(log.Data))
	return nil
}

func (m *machine) text() string {
	m.lock.Lock()
	defer m.lock.Unlock()
	return strings.Join(m.lines, "\n")
}

func (m *machine) Snapshot() (raft.FSMSnapshot, error) { return snapshot(m.text()), nil }

func (m *machine) Restore(from io.ReadCloser) error {
	text, err := io.ReadAll(from)
	m.lock.Lock()
	defer m.lock.Unlock()
	m.lines = strings.Split(string(text), "\n")
	return err
}

type snapshot string

func (s snapshot) Persist(sink raft.SnapshotSink) error {
	if _, err := io.WriteString(sink, string(s)); err != nil {
		return sink.Cancel()
	}
	return sink.Close()
}

func (s snapshot) Release() {}

type node struct {
	*raft.Raft
	machine   *machine
	store     *brooklet.Store
	transport *raft.InmemTransport
}

// start starts a node with what its folder has.
func start(t *testing.T, dir string, id int) *node {
	name := fmt.Sprint("node", id)
	dir = filepath.Join(dir, name)
	must(t, os.MkdirAll(dir, 0o700))
	store, err := brooklet.Open(filepath.Join(dir, "raft.brooklet"), &brooklet.Options{RingSize: 4 << 20})
	must(t, err)
	group, err := Open(store, "raft")
	must(t, err)
	snapshots, err := raft.NewFileSnapshotStore(dir, 1, io.Discard)
	must(t, err)
	config := raft.DefaultConfig()
	config.LocalID, config.LogOutput = raft.ServerID(name), io.Discard
	config.TrailingLogs, config.SnapshotThreshold, config.SnapshotInterval = 10, 20, 50*time.Millisecond
	_, transport := raft.NewInmemTransport(raft.ServerAddress(name))
	n := &node{machine: new(machine), store: store, transport: transport}
	n.Raft, err = raft.NewRaft(config, n.machine, group, group, snapshots, transport)
	must(t, err)
	return n
}

func (n *node) stop(t *testing.T) {
	must(t, n.Shutdown().Error())
	must(t, n.store.Close())
}

func connect(nodes []*node) {
	for _, a := range nodes {
		for _, b := range nodes {
			a.transport.Connect(b.transport.LocalAddr(), b.transport)
		}
	}
}

// apply commits a command, by whichever node leads.
func apply(nodes []*node, command string) {
	for {
		for _, n := range nodes {
			if n.State() == raft.Leader && n.Apply([]byte(command), 0).Error() == nil {
				return
			}
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// A cluster writes on while each node is stopped in turn, long enough that it needs a snapshot when it
// comes back.
func TestAClusterKeepsItsLogs(t *testing.T) {
	dir := t.TempDir()
	nodes := []*node{start(t, dir, 0), start(t, dir, 1), start(t, dir, 2)}
	connect(nodes)
	var servers []raft.Server
	for _, n := range nodes {
		address := n.transport.LocalAddr()
		servers = append(servers, raft.Server{ID: raft.ServerID(address), Address: address})
	}
	must(t, nodes[0].BootstrapCluster(raft.Configuration{Servers: servers}).Error())
	count := 0
	write := func(nodes []*node, commands int) {
		for range commands {
			apply(nodes, fmt.Sprint("command ", count))
			count++
		}
	}
	write(nodes, 10)
	for id := range nodes {
		nodes[id].stop(t)
		rest := append(append([]*node{}, nodes[:id]...), nodes[id+1:]...)
		write(rest, 60)
		nodes[id] = start(t, dir, id)
		connect(nodes)
		write(nodes, 5)
	}
	// Each node comes to have all commands.
	last := fmt.Sprint("command ", count-1)
	for _, n := range nodes {
		for !strings.HasSuffix(n.machine.text(), last) {
			time.Sleep(5 * time.Millisecond)
		}
	}
	// A command whose acknowledgement was lost may be there twice; the nodes agree on it.
	for _, n := range nodes {
		if text := n.machine.text(); text != nodes[0].machine.text() {
			t.Error("the nodes differ")
		}
		for i := range count {
			if !strings.Contains(n.machine.text()+"\n", fmt.Sprintf("command %d\n", i)) {
				t.Error("a command is missing:", i)
			}
		}
		n.stop(t)
	}
}

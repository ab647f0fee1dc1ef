package brooklet

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// childEnv says to a process of this test that it is the child, and which store it writes.
const childEnv = "BROOKLET_TEST_CHILD"

func TestMain(m *testing.M) {
	if path := os.Getenv(childEnv); path != "" {
		child(path)
	}
	os.Exit(m.Run())
}

func childPayload(goroutine, number int) string {
	return fmt.Sprintf("goroutine %d, write %d, and some more", goroutine, number)
}

// child appends by several goroutines, and prints each entry once it is acknowledged. It ends when it
// is killed, or when its input ends: then with appends in flight.
func child(path string) {
	store, err := Open(path, small)
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	for g := range 8 {
		go func() {
			for number := 0; ; number++ {
				key, payload := fmt.Sprint("log/", (number*8+g)%50), childPayload(g, number)
				for range 3 {
					_, _ = store.AppendAsync(background, "in flight", make([]byte, 500))
				}
				seq, err := store.Append(background, key, []byte(payload))
				if err != nil {
					fmt.Println(err)
					os.Exit(1)
				}
				// One call a line: a kill may cut the last one.
				fmt.Printf("%s %d %d %d\n", key, seq, g, number)
			}
		}()
	}
	_, _ = os.Stdin.Read(make([]byte, 1))
	os.Exit(0)
}

// runChild returns the acknowledged entries of a child that is stopped after 300 of them.
func runChild(t *testing.T, path string, stop func(*exec.Cmd, *os.File) error) (acknowledged []string) {
	command := exec.Command(os.Args[0], "-test.run=^$")
	command.Env = append(os.Environ(), childEnv+"="+path)
	command.Stderr = os.Stderr
	out, err := command.StdoutPipe()
	must(t, err)
	in, input, err := os.Pipe()
	must(t, err)
	defer input.Close()
	command.Stdin = in
	must(t, command.Start())
	in.Close()
	for lines := bufio.NewReader(out); ; {
		line, err := lines.ReadString('\n')
		if err != nil {
			break // A line without its end was cut.
		}
		acknowledged = append(acknowledged, line)
		if len(acknowledged) == 300 {
			must(t, stop(command, input))
		}
	}
	_ = command.Wait()
	if len(acknowledged) < 300 {
		t.Fatalf("the child ended early: %q", acknowledged)
	}
	return acknowledged
}

func find(t *testing.T, path string, acknowledged []string) {
	t.Helper()
	store, err := Open(path, small)
	must(t, err)
	for _, line := range acknowledged {
		var key string
		var seq uint64
		var goroutine, number int
		_, err := fmt.Sscanf(line, "%s %d %d %d\n", &key, &seq, &goroutine, &number)
		must(t, err)
		entry, err := store.Get(key, seq)
		must(t, err)
		equal(t, string(entry.Payload), childPayload(goroutine, number))
	}
	must(t, store.Close())
}

func TestEachAcknowledgedEntryOutlivesKills(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kill.brooklet")
	var acknowledged []string
	for range 5 {
		more := runChild(t, path, func(command *exec.Cmd, _ *os.File) error { return command.Process.Kill() })
		acknowledged = append(acknowledged, more...)
		find(t, path, acknowledged)
	}
	t.Logf("%d acknowledged entries found", len(acknowledged))
}

func TestAProgramMayExitWithAppendsInFlight(t *testing.T) {
	path := filepath.Join(t.TempDir(), "exit.brooklet")
	find(t, path, runChild(t, path, func(_ *exec.Cmd, input *os.File) error { return input.Close() }))
}

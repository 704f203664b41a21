//go:build unix

package googleemu

import (
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

func TestStopKillsGrandchildren(t *testing.T) {
	p, life := startFamily(t)
	p.stop()
	awaitEOF(t, life)
}

func TestDescendantsDieWithTheTestProcess(t *testing.T) {
	p, life := startFamily(t)
	p.stdin.Close() // what the kernel does when this process is killed
	awaitEOF(t, life)
}

func TestDescendantsDieWithTheCommand(t *testing.T) {
	p, life := startFamily(t)
	if err := p.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	awaitEOF(t, life)
}

// startFamily starts a shell with a child and a grandchild that holds a named pipe open: a reader of life sees its end when that one is dead.
func startFamily(t *testing.T) (p *tree, life *os.File) {
	t.Helper()
	dir := t.TempDir()
	fifo := filepath.Join(dir, "life")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	const family = `(sh -c 'exec 9>"$LIFE"; echo up >&9; while :; do sleep 1000; done' & wait) & wait`
	p, err := startTree([]string{"sh", "-c", family}, append(os.Environ(), "LIFE="+fifo), filepath.Join(dir, "output.log"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.stop)
	life, err = os.Open(fifo) // waits for the writer
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { life.Close() })
	if _, err := io.ReadFull(life, make([]byte, len("up\n"))); err != nil {
		t.Fatalf("the family did not start: %v: %s", err, p.output())
	}
	return p, life
}

func awaitEOF(t *testing.T, life *os.File) {
	t.Helper()
	end := make(chan error, 1)
	go func() {
		_, err := io.ReadAll(life)
		end <- err
	}()
	select {
	case err := <-end:
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(30 * time.Second):
		life.Close()
		<-end
		t.Fatal("a descendant is still alive")
	}
}

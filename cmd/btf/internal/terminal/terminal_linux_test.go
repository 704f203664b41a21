package terminal

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"
)

// pseudoTerminal returns the two ends of a terminal: what is written to its screen is
// read from its keeper.
func pseudoTerminal(t *testing.T) (screen, keeper *os.File) {
	t.Helper()
	keeper, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Skip("the machine has no pseudo-terminals:", err)
	}
	t.Cleanup(func() { keeper.Close() })
	var number, unlock int32
	for request, value := range map[uintptr]*int32{syscall.TIOCSPTLCK: &unlock, syscall.TIOCGPTN: &number} {
		if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, keeper.Fd(), request, uintptr(unsafe.Pointer(value))); errno != 0 {
			t.Fatal(errno)
		}
	}
	screen, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Skip("the machine has no pseudo-terminals:", err)
	}
	t.Cleanup(func() { screen.Close() })
	return screen, keeper
}

// shown returns what was written to the screen.
func shown(t *testing.T, screen, keeper *os.File) string {
	t.Helper()
	const end = "<end>"
	if _, err := screen.WriteString(end); err != nil {
		t.Fatal(err)
	}
	var got []byte
	for !strings.HasSuffix(string(got), end) {
		buffer := make([]byte, 4096)
		n, err := keeper.Read(buffer)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, buffer[:n]...)
	}
	return strings.TrimSuffix(string(got), end)
}

func TestADumbTerminalGetsLinesAndNoTerminalGetsColours(t *testing.T) {
	for term, draws := range map[string]bool{"xterm": true, "dumb": false} {
		t.Setenv("TERM", term)
		t.Setenv("NO_COLOR", "1")
		screen, keeper := pseudoTerminal(t)
		if _, escapes := DataTo(screen).(*jsonEscaper); !escapes {
			t.Errorf("%s: records go to a terminal as they are", term)
		}
		p := NewProgress(screen)
		p.Show("10 rows", Problem{"a", "b\u202e"})
		p.Clear()
		b := NewCounter(screen, "rows", 2)
		b.progress.shown = time.Time{}
		b.Set(1)
		b.End()
		got := shown(t, screen, keeper)
		if strings.Contains(got, "\x1b[K") != draws {
			t.Errorf("TERM=%s: %q", term, got)
		}
		if !draws && strings.Contains(got, "\x1b") || strings.Contains(got, "\u202e") || strings.Contains(strings.ReplaceAll(got, "\x1b[K", ""), "\x1b[") {
			t.Errorf("TERM=%s: %q", term, got)
		}
	}
}

package linefile_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/bigtable-functions/bigtable-functions/cmd/btf/internal/linefile"
	"github.com/bigtable-functions/bigtable-functions/internal/relay"
)

func record(body string) []relay.Record { return []relay.Record{{Body: []byte(body)}} }

func TestAFileIsEmptiedOrContinuedAtItsLastWholeLine(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out.ndjson")
	for _, c := range []struct {
		before   string
		existing linefile.Existing
		want     string
	}{
		{"", linefile.Refuse, "new\n"},
		{"old\n", linefile.Empty, "new\n"},
		{"", linefile.Continue, "new\n"},
		{"old\n", linefile.Continue, "old\nnew\n"},
		{"old\ntorn", linefile.Continue, "old\nnew\n"},
		{"torn", linefile.Continue, "new\n"},
		{"old\n" + strings.Repeat("torn", 50_000), linefile.Continue, "old\nnew\n"},
		{strings.Repeat("a", 70_000) + "\n" + strings.Repeat("b", 200_000), linefile.Continue, strings.Repeat("a", 70_000) + "\nnew\n"},
	} {
		if err := os.WriteFile(path, []byte(c.before), 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := linefile.Open(path, c.existing)
		if err != nil {
			t.Fatal(err)
		}
		if got := contents(t, path); got != c.before || f.IsNew() {
			t.Errorf("opened, and not yet started: %.40q, want %.40q", got, c.before)
		}
		if err := f.Start(); err != nil {
			t.Fatal(err)
		}
		if errs := f.Send(t.Context(), record("new")); errs != nil {
			t.Fatal(errs)
		}
		got := contents(t, path) // before it is closed: it is durable
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		if got != c.want {
			t.Errorf("after %.20q, existing %d: %.40q, want %.40q", c.before, c.existing, got, c.want)
		}
	}
}

func contents(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestWholeLinesAreCountedBeforeAnythingIsWritten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out")
	for text, want := range map[string]int64{"": 0, "a": 0, "a\n": 1, "a\nb\nhalf": 2, strings.Repeat("0123456789\n", 100_000): 100_000} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := linefile.Open(path, linefile.Continue)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := f.Whole(); err != nil || got != want || !f.IsRegular() {
			t.Errorf("%d bytes: %d lines, %v, want %d", len(text), got, err, want)
		}
		if got, err := linefile.WholeLines(path); err != nil || got != want {
			t.Errorf("%d bytes by its name: %d lines, %v, want %d", len(text), got, err, want)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		if after, err := os.ReadFile(path); err != nil || string(after) != text {
			t.Errorf("counting has changed the file: %d bytes, %v", len(after), err)
		}
	}
	if _, err := linefile.WholeLines(path + "-"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("of no file: %v", err)
	}
}

func TestAFileThatHoldsDataIsLeftAlone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out.ndjson")
	if err := os.WriteFile(path, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := linefile.Open(path, linefile.Refuse); !errors.Is(err, linefile.ErrHoldsData) || !strings.Contains(err.Error(), path) {
		t.Errorf("%v, want %v", err, linefile.ErrHoldsData)
	}
	f, err := linefile.Open(path, linefile.Empty)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil { // nothing was started
		t.Fatal(err)
	}
	if got := contents(t, path); got != "precious" {
		t.Errorf("the file holds %q", got)
	}
}

func TestAFileThatWasOpenedForNothingIsGone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out.ndjson")
	f, err := linefile.Open(path, linefile.Refuse)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the file: %v, want none", err)
	}
	if f, err = linefile.Open(path, linefile.Refuse); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.Start(), f.Close()); err != nil || !f.IsNew() {
		t.Fatal(err, f.IsNew())
	}
	if got := contents(t, path); got != "" {
		t.Errorf("a result without a record is %q, want an empty file", got)
	}
}

func TestAFileThatIsBeingWrittenIsNoOthersToWrite(t *testing.T) {
	if runtime.GOOS != "linux" && runtime.GOOS != "darwin" {
		t.Skip("no lock for a whole file in the standard library")
	}
	path := filepath.Join(t.TempDir(), "out.ndjson")
	f, err := linefile.Open(path, linefile.Refuse)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range []linefile.Existing{linefile.Refuse, linefile.Empty, linefile.Continue} {
		if _, err := linefile.Open(path, e); !errors.Is(err, linefile.ErrInUse) {
			t.Errorf("existing %d: %v, want %v", e, err, linefile.ErrInUse)
		}
	}
	if _, err := os.Stat(path); err != nil {
		t.Errorf("who could not open the file removed it: %v", err)
	}
	if err := errors.Join(f.Start(), f.Close()); err != nil {
		t.Fatal(err)
	}
	if f, err = linefile.Open(path, linefile.Continue); err != nil {
		t.Fatalf("once it is closed: %v", err)
	}
	f.Close()
}

// One process gives a file up that it has made and another writes to it, at the same time:
// what is written stays, whoever was first.
func TestAFileThatIsGivenUpTakesNothingThatAnotherWrites(t *testing.T) {
	if runtime.GOOS != "linux" && runtime.GOOS != "darwin" {
		t.Skip("no lock for a whole file in the standard library")
	}
	path := filepath.Join(t.TempDir(), "out.ndjson")
	done := make(chan struct{})
	var others sync.WaitGroup
	for range 2 {
		others.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				if f, err := linefile.Open(path, linefile.Refuse); err == nil {
					if err := f.Close(); err != nil {
						t.Errorf("giving the file up: %v", err)
					}
				} else if !errors.Is(err, linefile.ErrInUse) && !errors.Is(err, linefile.ErrHoldsData) {
					t.Errorf("opening: %v", err)
				}
			}
		})
	}
	for written := 0; written < 300; {
		f, err := linefile.Open(path, linefile.Refuse)
		if err != nil {
			continue
		}
		if err := f.Start(); err != nil {
			t.Error(err)
		}
		if errs := f.Send(t.Context(), record("x")); errs != nil {
			t.Error(errs)
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
		if got, err := os.ReadFile(path); string(got) != "x\n" {
			t.Errorf("the file holds %q, %v", got, err)
			break
		}
		if err := os.Remove(path); err != nil {
			t.Error(err)
		}
		written++
	}
	close(done)
	others.Wait()
}

func TestAFileIsMadeWhereALinkPoints(t *testing.T) {
	dir := t.TempDir()
	path, target := filepath.Join(dir, "link"), filepath.Join(dir, "target")
	if err := os.Symlink(target, path); err != nil {
		t.Skip(err)
	}
	f, err := linefile.Open(path, linefile.Refuse)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(path); err != nil {
		t.Errorf("the link, which was there before: %v", err)
	}
	if f, err = linefile.Open(path, linefile.Refuse); err != nil {
		t.Fatal(err)
	}
	if err := f.Start(); err != nil {
		t.Error(err)
	}
	if errs := f.Send(t.Context(), record("x")); errs != nil {
		t.Error(errs)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	if got := contents(t, target); got != "x\n" {
		t.Errorf("the link's target holds %q", got)
	}
}

func TestADeviceIsWrittenToAsItIs(t *testing.T) {
	f, err := linefile.Open(os.DevNull, linefile.Refuse)
	if err != nil {
		t.Fatal(err)
	}
	if errs := f.Send(t.Context(), record("x")); errs != nil {
		t.Error(errs)
	}
	if err := errors.Join(f.Start(), f.Close()); err != nil {
		t.Error(err)
	}
	if _, err := linefile.Open(t.TempDir(), linefile.Empty); err == nil {
		t.Error("a directory was opened to be written")
	}
}

func TestAFullDiskFailsTheRecords(t *testing.T) {
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skip("this system has no /dev/full")
	}
	f, err := linefile.Open("/dev/full", linefile.Refuse)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if errs := f.Send(t.Context(), record("x")); len(errs) != 1 || !errors.Is(errs[0], syscall.ENOSPC) || !errors.Is(f.Err(), syscall.ENOSPC) {
		t.Errorf("errors %v, %v", errs, f.Err())
	}
}

func TestALineCarriesTheRecordsIDWhereThatIsAskedFor(t *testing.T) {
	records := []relay.Record{
		{Scope: "s", Key: "a", Index: relay.Single, Body: []byte(`{"n":1}`)},
		{Scope: "s", Key: "b", Index: 1, Body: []byte(`{}`)},
	}
	for _, ids := range []bool{false, true} {
		var out bytes.Buffer
		l := linefile.NewLines(&out)
		l.IDs = ids
		if errs := l.Send(t.Context(), records); errs != nil {
			t.Fatal(errs)
		}
		want := "{\"n\":1}\n{}\n"
		if ids {
			want = fmt.Sprintf("{\"recordId\":%q,\"n\":1}\n{\"recordId\":%q}\n", records[0].ID(), records[1].ID())
		}
		if out.String() != want {
			t.Errorf("ids %t: %s, want %s", ids, out.String(), want)
		}
	}
	l := linefile.NewLines(io.Discard)
	l.IDs = true
	if errs := l.Send(t.Context(), record("1")); len(errs) != 1 || errs[0] == nil {
		t.Errorf("a record that has no place for an id: %v", errs)
	}
}

func TestLinesOfTwoSendersNeverMix(t *testing.T) {
	var out bytes.Buffer
	l := linefile.NewLines(&out)
	var senders sync.WaitGroup
	for _, c := range []string{"a", "b", "c"} {
		senders.Go(func() {
			for range 100 {
				l.Send(t.Context(), []relay.Record{{Body: []byte(strings.Repeat(c, 1000))}, {Body: []byte(strings.Repeat(c, 10))}})
			}
		})
	}
	senders.Wait()
	n := 0
	for line := range strings.Lines(out.String()) {
		n++
		if text := strings.TrimSuffix(line, "\n"); strings.Count(text, text[:1]) != len(text) {
			t.Fatalf("a line of several senders: %.40s", text)
		}
	}
	if n != 600 {
		t.Errorf("%d lines of 600", n)
	}
}

func TestAClosedPipeFailsEverySendFromThenOn(t *testing.T) {
	r, w := io.Pipe()
	r.Close()
	l := linefile.NewLines(w)
	for range 2 {
		if errs := l.Send(t.Context(), record("x")); len(errs) != 1 || !errors.Is(errs[0], io.ErrClosedPipe) || !errors.Is(l.Err(), io.ErrClosedPipe) {
			t.Errorf("errors %v, %v", errs, l.Err())
		}
	}
}

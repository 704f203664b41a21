package journal

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"
)

func text(s string) func([]byte) []byte {
	return func(b []byte) []byte { return append(b, s...) }
}

// open returns the journal and the records it held.
func open(t interface{ Fatal(...any) }, dir string) (*Journal, []string) {
	var records []string
	j, err := Open(dir, true, func(r []byte) error {
		records = append(records, string(r))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return j, records
}

func write(t interface{ Fatal(...any) }, j *Journal, records ...string) {
	for _, r := range records {
		if err := j.Wait(j.Append(text(r))); err != nil {
			t.Fatal(err)
		}
	}
}

func TestWhatWasWaitedForIsThereAfterwards(t *testing.T) {
	dir := t.TempDir()
	j, _ := open(t, dir)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for n := range 50 {
				if err := j.Wait(j.Append(text(fmt.Sprintf("%d-%02d", i, n)))); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	// No Close: the process dies here.
	j.lock.Close()
	_, records := open(t, dir)
	if len(records) != 400 {
		t.Fatalf("%d records", len(records))
	}
	next := map[byte]int{}
	for _, r := range records {
		if r != fmt.Sprintf("%c-%02d", r[0], next[r[0]]) {
			t.Fatalf("%s is out of order", r)
		}
		next[r[0]]++
	}
}

func TestASnapshotTakesThePlaceOfOlderRecords(t *testing.T) {
	dir := t.TempDir()
	j, _ := open(t, dir)
	write(t, j, "a", "b")
	segment, err := j.Rotate()
	if err != nil {
		t.Fatal(err)
	}
	write(t, j, "c")
	// The process may die before the snapshot is complete.
	files := func() string {
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, e := range entries {
			names = append(names, strings.TrimLeft(e.Name(), "0"))
		}
		return strings.Join(names, " ")
	}
	failed := errors.New("disk full")
	if err := j.Snapshot(segment, func(put func(func([]byte) []byte) error) error {
		if err := put(text("half")); err != nil {
			return err
		}
		return failed
	}); !errors.Is(err, failed) {
		t.Fatal(err)
	}
	j.lock.Close()
	j, records := open(t, dir)
	if !slices.Equal(records, []string{"a", "b", "c"}) {
		t.Fatalf("%q in %s", records, files())
	}
	if err := j.Snapshot(segment, func(put func(func([]byte) []byte) error) error { return put(text("ab")) }); err != nil {
		t.Fatal(err)
	}
	write(t, j, "d")
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	if got := files(); strings.Count(got, segmentPrefix) != 1 || strings.Count(got, snapshotPrefix) != 1 || strings.Contains(got, unfinished) {
		t.Errorf("files: %s", got)
	}
	if _, records = open(t, dir); !slices.Equal(records, []string{"ab", "c", "d"}) {
		t.Errorf("%q", records)
	}
}

// However a write is torn, a prefix of the records survives and the journal
// goes on behind it.
func TestATornTailIsCutOff(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		dir, err := os.MkdirTemp("", "journal")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(dir)
		j, _ := open(t, dir)
		want := rapid.SliceOfN(rapid.StringN(1, 20, 40), 1, 10).Draw(t, "records")
		write(t, j, want...)
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, segmentPrefix+"0000000000000000")
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		cut := rapid.IntRange(0, len(b)).Draw(t, "cut")
		zeros := 0
		if cut >= len(magic) {
			zeros = rapid.IntRange(0, 30).Draw(t, "zeros")
		}
		torn := append(slices.Clone(b[:cut]), make([]byte, zeros)...)
		if err := os.WriteFile(path, torn, 0o600); err != nil {
			t.Fatal(err)
		}
		whole := 0
		for n := len(magic); whole < len(want); whole++ {
			if n += frameHeader + len(want[whole]); n > cut {
				break
			}
		}
		j, err = Open(dir, false, func([]byte) error { return nil })
		if err != nil {
			// Zeros right behind half a record look like that record, damaged:
			// that must not be taken for what was written.
			if errors.Is(err, errDamaged) {
				return
			}
			t.Fatal(err)
		}
		write(t, j, "after")
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
		j, got := open(t, dir)
		j.Close()
		if len(got) == 0 || got[len(got)-1] != "after" || !slices.Equal(got[:len(got)-1], want[:whole]) {
			t.Fatalf("%q, want %q and what came after", got, want[:whole])
		}
	})
}

func TestAFileOfAnotherKindIsRefused(t *testing.T) {
	for _, content := range []string{"not a journal", "x", "btfemu9\n"} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, segmentPrefix+"0000000000000000"), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(dir, false, func([]byte) error { return nil }); err == nil || !strings.Contains(err.Error(), "not a file of this emulator") {
			t.Errorf("%q: %v", content, err)
		}
	}
}

func TestDamageIsReportedNotSkipped(t *testing.T) {
	dir := t.TempDir()
	j, _ := open(t, dir)
	write(t, j, "first", "second", "third")
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, segmentPrefix+"0000000000000000")
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	b[len(magic)+frameHeader] ^= 1
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir, false, func([]byte) error { return nil }); !errors.Is(err, errDamaged) {
		t.Error(err)
	}
}

func TestAMissingSegmentIsReported(t *testing.T) {
	dir := t.TempDir()
	j, _ := open(t, dir)
	for range 2 {
		write(t, j, "x")
		if _, err := j.Rotate(); err != nil {
			t.Fatal(err)
		}
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(j.path(segmentPrefix, 1)); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir, false, func([]byte) error { return nil }); err == nil || !strings.Contains(err.Error(), "segment 1 is missing") {
		t.Error(err)
	}
}

func TestADirectoryHasOneUser(t *testing.T) {
	dir := t.TempDir()
	j, _ := open(t, dir)
	if _, err := Open(dir, false, func([]byte) error { return nil }); err == nil || !strings.Contains(err.Error(), "in use by another emulator") {
		t.Error(err)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	if err := j.Wait(j.Append(text("late"))); err == nil {
		t.Error("a closed journal took a record")
	}
}

func TestAWriteThatFailsEndsTheJournal(t *testing.T) {
	j, _ := open(t, t.TempDir())
	j.file.Close()
	position := j.Append(text("x"))
	for range 2 {
		if err := j.Wait(position); !errors.Is(err, os.ErrClosed) {
			t.Error(err)
		}
	}
	if _, err := j.Rotate(); err == nil {
		t.Error("rotated")
	}
}

// files are the contents of a directory's files, by name.
func files(t *testing.T, dir string) map[string]string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, e := range entries {
		b, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		out[e.Name()] = string(b)
	}
	return out
}

// A single flipped bit anywhere is an error that changes nothing, except in the bytes
// of the last record, where nothing tells it from a record that was being written.
func TestAFlippedBitIsNeverTakenForATornEnd(t *testing.T) {
	dir := t.TempDir()
	j, _ := open(t, dir)
	records := []string{"first", "second", strings.Repeat("third", 20), "last"}
	write(t, j, records...)
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	path := j.path(segmentPrefix, 0)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lastRecord := len(whole) - len("last") - 4 // with its checksum
	for bit := len(magic) * 8; bit < len(whole)*8; bit++ {
		b := slices.Clone(whole)
		b[bit/8] ^= 1 << (bit % 8)
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		before := files(t, dir)
		j, err := Open(dir, false, func([]byte) error { return nil })
		if bit/8 >= lastRecord {
			if err != nil {
				t.Fatalf("bit %d of the last record: %v", bit, err)
			}
			if torn := j.Torn(); torn.Bytes != int64(frameHeader+len("last")) || torn.File == "" {
				t.Fatalf("bit %d: %+v was cut off", bit, torn)
			}
			j.Close()
			continue
		}
		if !errors.Is(err, errDamaged) {
			t.Fatalf("bit %d: %v", bit, err)
		}
		if !maps.Equal(files(t, dir), before) {
			t.Fatalf("bit %d: the files have changed", bit)
		}
	}
}

// A file from whose middle a part is gone ends within a record, but not because the
// process died.
func TestARecordThatOthersFollowIsNotTorn(t *testing.T) {
	dir := t.TempDir()
	j, _ := open(t, dir)
	write(t, j, strings.Repeat("x", 1000), "second")
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	path := j.path(segmentPrefix, 0)
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, slices.Delete(b, 100, 200), 0o600); err != nil {
		t.Fatal(err)
	}
	before := files(t, dir)
	if _, err := Open(dir, false, func([]byte) error { return nil }); !errors.Is(err, errDamaged) || !maps.Equal(files(t, dir), before) {
		t.Error(err)
	}
}

func TestASnapshotWithoutItsSegmentIsReported(t *testing.T) {
	for name, lose := range map[string]func(path string) error{
		"missing": os.Remove,
		"empty":   func(path string) error { return os.Truncate(path, 0) },
	} {
		dir := t.TempDir()
		j, _ := open(t, dir)
		write(t, j, "a")
		segment, err := j.Rotate()
		if err != nil {
			t.Fatal(err)
		}
		if err := j.Snapshot(segment, func(put func(func([]byte) []byte) error) error { return put(text("a")) }); err != nil {
			t.Fatal(err)
		}
		write(t, j, "b")
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
		if err := lose(j.path(segmentPrefix, segment)); err != nil {
			t.Fatal(err)
		}
		before := files(t, dir)
		if _, err := Open(dir, false, func([]byte) error { return nil }); err == nil {
			t.Errorf("%s: opened", name)
		}
		if !maps.Equal(files(t, dir), before) {
			t.Errorf("%s: the files have changed", name)
		}
	}
}

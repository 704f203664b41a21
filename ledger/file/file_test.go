package file

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/bbolt"

	"github.com/bigtable-functions/bigtable-functions/ledger"
	"github.com/bigtable-functions/bigtable-functions/ledger/storetest"
)

func TestFileIsAStore(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger.db")
	storetest.Run(t, func(t *testing.T) ledger.Store { return open(t, path) })
}

func open(t *testing.T, path string) *Store {
	t.Helper()
	s, err := Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

var counter = ledger.Key{Collection: "c", ID: "counter"}

// increment adds one to the document counter.
func increment(ctx context.Context, s *Store) error {
	for {
		docs, err := s.Get(ctx, counter)
		if err != nil {
			return err
		}
		n, _ := strconv.Atoi(string(docs[0].Body)) // 0 where there is none
		_, err = s.Commit(ctx, []ledger.Write{{Key: counter, Version: docs[0].Version, Body: []byte(strconv.Itoa(n + 1))}})
		if !errors.Is(err, ledger.ErrConflict) {
			return err
		}
	}
}

func count(t *testing.T, s *Store) int {
	t.Helper()
	docs, err := s.Get(t.Context(), counter)
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(string(docs[0].Body))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestMain lets the test's binary be another process of the ledger: it increments
// the counter and prints a line for each time that this was acknowledged.
func TestMain(m *testing.M) {
	path, n := os.Getenv("LEDGER_TEST_PATH"), os.Getenv("LEDGER_TEST_TIMES")
	if path == "" {
		os.Exit(m.Run())
	}
	times, err := strconv.Atoi(n)
	if err == nil {
		err = child(path, times)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func child(path string, times int) error {
	s, err := Open(context.Background(), path)
	for range times {
		if err != nil {
			return err
		}
		if err = increment(context.Background(), s); err == nil {
			fmt.Println("one")
		}
	}
	return err
}

func command(t *testing.T, path string, times int) *exec.Cmd {
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), "LEDGER_TEST_PATH="+path, "LEDGER_TEST_TIMES="+strconv.Itoa(times))
	cmd.Stderr = os.Stderr
	return cmd
}

func TestProcessesShareTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger.db")
	const processes, times = 3, 20
	var running []*exec.Cmd
	for range processes {
		cmd := command(t, path, times)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		running = append(running, cmd)
	}
	for _, cmd := range running {
		if err := cmd.Wait(); err != nil {
			t.Fatal(err)
		}
	}
	if got := count(t, open(t, path)); got != processes*times {
		t.Errorf("counted %d, want %d", got, processes*times)
	}
}

func TestAKilledProcessLosesNothingAcknowledged(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger.db")
	cmd := command(t, path, 1_000_000)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	buf, acknowledged := make([]byte, 4096), 0
	for killed := false; ; {
		n, err := out.Read(buf)
		acknowledged += strings.Count(string(buf[:n]), "\n")
		if acknowledged >= 10 && !killed {
			killed = true
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
		}
		if err != nil {
			break
		}
	}
	if err := cmd.Wait(); err == nil {
		t.Fatal("the process ended by itself")
	}
	s := open(t, path)
	if got := count(t, s); got != acknowledged && got != acknowledged+1 {
		t.Errorf("counted %d, want the %d that were acknowledged, or one more", got, acknowledged)
	}
	if err := increment(t.Context(), s); err != nil {
		t.Errorf("the lock outlived its process: %v", err)
	}
}

// hold keeps the file's lock as another process would, until the test ends.
func hold(t *testing.T, path string, readOnly bool) {
	t.Helper()
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{ReadOnly: readOnly})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
}

func TestWaitingForTheLockEndsWithTheContext(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger.db")
	s := open(t, path)
	hold(t, path, false)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := s.Get(ctx, counter); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ledger.ErrUnavailable) {
		t.Errorf("get: %v, want %v", err, context.DeadlineExceeded)
	}
	if err := increment(ctx, s); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("commit: %v, want %v", err, context.DeadlineExceeded)
	}
}

func TestALockThatIsNeverReleasedIsAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "ledger.db")
		s := open(t, path)
		hold(t, path, false)
		if _, err := s.Get(t.Context(), counter); !errors.Is(err, ledger.ErrUnavailable) || !strings.Contains(err.Error(), "another process") {
			t.Errorf("get: %v, want %v", err, ledger.ErrUnavailable)
		}
	})
}

func TestReadersDoNotWaitForReaders(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger.db")
	s := open(t, path)
	hold(t, path, true)
	if _, err := s.Get(t.Context(), counter); err != nil {
		t.Errorf("get beside another reader: %v", err)
	}
}

// files counts the documents and the expiries that are in the file.
func files(t *testing.T, path string) (docs, expiring int) {
	t.Helper()
	db, err := bbolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if err := db.View(func(tx *bbolt.Tx) error {
		docs, expiring = tx.Bucket(documents).Stats().KeyN, tx.Bucket(expiries).Stats().KeyN
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return docs, expiring
}

func TestCommitsDeleteWhatHasExpired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "ledger.db")
		s := open(t, path)
		commit := func(id, version string, expiry time.Time) string {
			t.Helper()
			versions, err := s.Commit(t.Context(), []ledger.Write{
				{Key: ledger.Key{Collection: "c", ID: id}, Version: version, Body: []byte("1"), ExpireAt: expiry},
			})
			if err != nil {
				t.Fatal(err)
			}
			return versions[0]
		}
		soon, late := time.Now().Add(time.Hour), time.Now().Add(3*time.Hour)
		for i := range sweep + 10 {
			commit(fmt.Sprintf("old%d", i), "", soon)
		}
		commit("extended", commit("extended", "", soon), late)
		commit("kept", commit("kept", "", soon), time.Time{})
		if docs, expiring := files(t, path); docs != sweep+12 || expiring != sweep+11 {
			t.Fatalf("%d documents and %d expiries, want all", docs, expiring)
		}
		time.Sleep(2 * time.Hour)
		renewed := commit("new", "", late) // and a hundred are deleted
		if docs, _ := files(t, path); docs != 13 {
			t.Errorf("%d documents after one commit, want 10 old ones and 3", docs)
		}
		commit("new", renewed, late)
		if docs, expiring := files(t, path); docs != 3 || expiring != 2 {
			t.Errorf("%d documents and %d expiries, want 3 and 2", docs, expiring)
		}
	})
}

func TestAFileInTheLedgersPlaceIsAnError(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger.db")
	s := open(t, path)
	if err := increment(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Get(t.Context(), counter); err == nil {
		t.Error("a get found no file and no error")
	}
	if err := increment(t.Context(), s); err == nil {
		t.Error("a commit began a new ledger in silence")
	}
}

func TestAFileOfAnotherKindIsAnError(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger.db")
	for _, times := range []int{1, 10_000} {
		if err := os.WriteFile(path, []byte(strings.Repeat("not a ledger", times)), 0o600); err != nil {
			t.Fatal(err)
		}
		for doing, open := range map[string]func(context.Context, string) (*Store, error){"opening": Open, "reading": OpenToRead} {
			if _, err := open(t.Context(), path); err == nil || !strings.Contains(err.Error(), path+": the file is no ledger") {
				t.Errorf("%s: %v, want an error that names the file and says that it is none", doing, err)
			}
		}
	}
}

// What is misspelt must not make directories.
func TestADirectoryThatIsMissingIsAnErrorThatNamesIt(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new")
	if _, err := Open(t.Context(), filepath.Join(dir, "ledger.db")); err == nil || !strings.Contains(err.Error(), "its directory "+dir+" does not exist") {
		t.Errorf("opening: %v", err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the directory: %v, want none", err)
	}
}

func TestReadingMakesNothing(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new")
	path := filepath.Join(dir, "ledger.db")
	if _, err := OpenToRead(t.Context(), path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("opening no file: %v, want %v", err, fs.ErrNotExist)
	}
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the directory: %v, want none", err)
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := increment(t.Context(), open(t, path)); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o400); err != nil { // as on a disk that nobody may write to
		t.Fatal(err)
	}
	s, err := OpenToRead(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	if n := count(t, s); n != 1 {
		t.Errorf("reads %d, want 1", n)
	}
	if err := increment(t.Context(), s); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("a commit: %v, want an error that names the file", err)
	}
	if after, err := os.ReadFile(path); err != nil || !bytes.Equal(after, before) {
		t.Errorf("the file has changed: %v", err)
	}
	empty := filepath.Join(dir, "empty.db")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenToRead(t.Context(), empty); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("opening what is no ledger yet: %v, want %v", err, fs.ErrNotExist)
	}
}

// A process that dies while it makes a ledger leaves a database without buckets, and so does a
// store whose file is removed under it when it next commits.
func TestADatabaseOfNothingIsNoLedgerYetAndOneOfOtherThingsIsAnError(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger.db")
	s := open(t, path)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Commit(t.Context(), []ledger.Write{{Key: counter, Body: []byte("1")}}); err == nil {
		t.Fatal("a commit began a new ledger in silence")
	}
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("%v: this test shows nothing", err)
	}
	if _, err := OpenToRead(t.Context(), path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("opening a database of nothing: %v, want %v", err, fs.ErrNotExist)
	}
	db, err := bbolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		_, err := tx.CreateBucket([]byte("others"))
		return err
	})
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenToRead(t.Context(), path); err == nil || errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), path) {
		t.Errorf("opening a database of other things: %v, want an error that names the file", err)
	}
}

func TestOnlyTheOwnerReadsTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger.db")
	open(t, path)
	if info, err := os.Stat(path); err != nil || info.Mode().Perm()&0o077 != 0 {
		t.Errorf("mode %v, %v, want nothing for others", info.Mode(), err)
	}
}

func BenchmarkCommit(b *testing.B) {
	s, err := Open(b.Context(), filepath.Join(b.TempDir(), "ledger.db"))
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if err := increment(b.Context(), s); err != nil {
			b.Fatal(err)
		}
	}
}

// If the file is replaced by an older copy of it, no document gets a version that it had after the
// copy was made: what a process has read from then on is known to be out of date.
func TestVersionsDoNotComeAgainAfterARestore(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "ledger.db")
	s := open(t, path)
	versions := map[string]bool{}
	var copied []byte
	for round := range 2 {
		for i := range 20 {
			if i == 10 && round == 0 {
				var err error
				if copied, err = os.ReadFile(path); err != nil {
					t.Fatal(err)
				}
			}
			if err := increment(t.Context(), s); err != nil {
				t.Fatal(err)
			}
			docs, err := s.Get(t.Context(), counter)
			if err != nil || versions[docs[0].Version] {
				t.Fatalf("version %q of before, %v", docs[0].Version, err)
			}
			versions[docs[0].Version] = true
		}
		if err := os.WriteFile(path, copied, 0o600); err != nil {
			t.Fatal(err)
		}
		if n := count(t, s); n != 10 {
			t.Fatalf("%d, the copy has 10", n)
		}
	}
}

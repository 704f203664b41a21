package journal

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

const (
	segmentPrefix  = "journal-"
	snapshotPrefix = "snapshot-"
	unfinished     = ".tmp"
)

func (j *Journal) path(prefix string, n uint64) string {
	return filepath.Join(j.dir, fmt.Sprintf("%s%016x", prefix, n))
}

// numbers are those of the files with a prefix, in order.
func (j *Journal) numbers(prefix string) ([]uint64, error) {
	entries, err := os.ReadDir(j.dir)
	if err != nil {
		return nil, err
	}
	var out []uint64
	for _, e := range entries {
		if s, ok := strings.CutPrefix(e.Name(), prefix); ok && len(s) == 16 {
			if n, err := strconv.ParseUint(s, 16, 64); err == nil {
				out = append(out, n)
			}
		}
	}
	slices.Sort(out)
	return out, nil
}

// recover loads the latest snapshot and the segments from it on, and opens
// the last of them for appending.
func (j *Journal) recover(load func([]byte) error) error {
	snapshots, err := j.numbers(snapshotPrefix)
	if err != nil {
		return err
	}
	first := uint64(0)
	if n := len(snapshots); n > 0 {
		first = snapshots[n-1]
		if _, err := loadFile(j.path(snapshotPrefix, first), load); err != nil {
			return err
		}
	}
	segments, err := j.numbers(segmentPrefix)
	if err != nil {
		return err
	}
	segments = slices.DeleteFunc(segments, func(n uint64) bool { return n < first })
	for i, n := range segments {
		if n != first+uint64(i) {
			return fmt.Errorf("journal segment %d is missing", first+uint64(i))
		}
	}
	if len(snapshots) > 0 && len(segments) == 0 {
		return fmt.Errorf("journal segment %d is missing, which a snapshot was taken with", first)
	}
	if err := j.loadSegments(segments, len(snapshots) > 0, load); err != nil {
		return err
	}
	j.segment = first
	if n := len(segments); n > 0 {
		j.segment = segments[n-1]
	}
	if j.file, j.written, err = openSegment(j.path(segmentPrefix, j.segment)); err != nil {
		return err
	}
	if err := syncDir(j.dir); err != nil {
		return err
	}
	return j.removeBefore(first)
}

// openSegment opens a segment for appending and returns its size. A new one
// gets its magic.
func openSegment(path string) (*os.File, int64, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, 0, err
	}
	info, err := f.Stat()
	size := int64(len(magic))
	if err == nil && info.Size() == 0 {
		_, err = f.WriteString(magic)
	} else if err == nil {
		size = info.Size()
	}
	if err == nil {
		err = f.Sync()
	}
	if err != nil {
		f.Close()
		return nil, 0, err
	}
	return f, size, nil
}

// loadSegments loads segments in order. Only the last may end in a torn
// record, which is cut off. snapshot says whether the first one follows a
// snapshot: then it was there, with its magic, before the snapshot.
func (j *Journal) loadSegments(segments []uint64, snapshot bool, load func([]byte) error) error {
	for i, n := range segments {
		path := j.path(segmentPrefix, n)
		good, err := loadFile(path, load)
		if errors.Is(err, errTorn) && i == len(segments)-1 && (good > 0 || i > 0 || !snapshot) {
			err = j.cut(path, good)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// cut cuts a segment off behind its good bytes.
func (j *Journal) cut(path string, good int64) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if err := os.Truncate(path, good); err != nil {
		return err
	}
	j.torn = Torn{File: filepath.Base(path), At: good, Bytes: info.Size() - good}
	return nil
}

// loadFile loads a file's records and returns how many bytes of it are good.
func loadFile(path string, load func([]byte) error) (int64, error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	r := reader{r: bufio.NewReaderSize(f, 1<<20), file: f, size: info.Size()}
	if err := r.begin(); err != nil {
		return 0, fmt.Errorf("%s: %w", filepath.Base(path), err)
	}
	for {
		record, err := r.next()
		if err == io.EOF {
			return r.good, nil
		}
		if err == nil {
			err = load(record)
		}
		if err != nil {
			return r.good, fmt.Errorf("%s: %w", filepath.Base(path), err)
		}
	}
}

// writeFile writes records to a file that takes its name once it is complete.
func writeFile(path string, emit func(put func(encode func([]byte) []byte) error) error) (err error) {
	f, err := os.OpenFile(path+unfinished, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			f.Close()
			os.Remove(path + unfinished) // best effort: the next snapshot overwrites it
		}
	}()
	w, buf := bufio.NewWriterSize(f, 1<<20), []byte(nil)
	if _, err := w.WriteString(magic); err != nil {
		return err
	}
	err = emit(func(encode func([]byte) []byte) error {
		buf = appendFrame(buf[:0], encode)
		_, err := w.Write(buf)
		return err
	})
	if err != nil {
		return err
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	return os.Rename(path+unfinished, path)
}

// removeBefore removes the files that a snapshot has replaced.
func (j *Journal) removeBefore(n uint64) error {
	for _, prefix := range []string{segmentPrefix, snapshotPrefix} {
		numbers, err := j.numbers(prefix)
		if err != nil {
			return err
		}
		for _, old := range numbers {
			if old >= n {
				break
			}
			if err := os.Remove(j.path(prefix, old)); err != nil {
				return fmt.Errorf("removing a replaced file: %w", err)
			}
		}
	}
	return nil
}

// syncDir makes the names in a directory durable.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

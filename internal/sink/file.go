package sink

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/bigtable-functions/bigtable-functions/internal/relay"
)

// Lines writes one JSON text a line, for the command line. It is safe for concurrent
// use: lines of two senders never mix.
type Lines struct {
	mu   sync.Mutex
	out  *bufio.Writer
	sync func() error // nil: what is written is durable
	err  error        // once writing has failed it is over
}

// NewLines returns Lines that are durable when w has taken them.
func NewLines(w io.Writer) *Lines { return &Lines{out: bufio.NewWriterSize(w, 64<<10)} }

// File is Lines in a file. The caller closes it.
type File struct {
	*Lines
	file *os.File
}

// Create opens a file for writing, empty; or, to resume, with what it holds: up to its
// last whole line, since what comes after was never acknowledged.
func Create(path string, resume bool) (*File, error) {
	flags := os.O_RDWR | os.O_CREATE
	if !resume {
		flags |= os.O_TRUNC
	}
	f, err := os.OpenFile(path, flags, 0o666)
	if err != nil {
		return nil, fmt.Errorf("opening the output: %w", err)
	}
	if err := toLastLine(f); err != nil {
		return nil, errors.Join(fmt.Errorf("resuming the output: %w", err), f.Close())
	}
	lines := NewLines(f)
	lines.sync = f.Sync
	return &File{Lines: lines, file: f}, nil
}

// toLastLine cuts off what follows the last line end and goes there.
func toLastLine(f *os.File) error {
	end, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	buf := make([]byte, 64<<10)
	for end > 0 {
		n := min(end, int64(len(buf)))
		if _, err := f.ReadAt(buf[:n], end-n); err != nil {
			return err
		}
		if i := bytes.LastIndexByte(buf[:n], '\n'); i >= 0 {
			end += int64(i+1) - n
			break
		}
		end -= n
	}
	if err := f.Truncate(end); err != nil {
		return err
	}
	_, err = f.Seek(end, io.SeekStart)
	return err
}

// Close closes the file.
func (f *File) Close() error { return f.file.Close() }

// Send implements relay.Sink. After an error nothing is written any more.
func (l *Lines) Send(_ context.Context, records []relay.Record) []error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err == nil {
		l.err = l.write(records)
	}
	if l.err == nil {
		return nil
	}
	errs := make([]error, len(records))
	for i := range errs {
		errs[i] = fmt.Errorf("writing the output: %w", l.err)
	}
	return errs
}

func (l *Lines) write(records []relay.Record) error {
	for _, r := range records {
		if _, err := l.out.Write(r.Body); err != nil {
			return err
		}
		if err := l.out.WriteByte('\n'); err != nil {
			return err
		}
	}
	if err := l.out.Flush(); err != nil {
		return err
	}
	if l.sync == nil {
		return nil
	}
	return l.sync()
}

// Err returns why writing has failed, if it has.
func (l *Lines) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

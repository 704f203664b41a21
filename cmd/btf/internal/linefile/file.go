// Package linefile guarantees that what btf scan writes to a file or to stdout is whole lines, one
// JSON text each, that a file keeps what it holds until the output is started, and that two
// processes never write to the same file.
package linefile

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"sync"

	"github.com/bigtable-functions/bigtable-functions/internal/relay"
	"github.com/bigtable-functions/bigtable-functions/internal/sink"
)

// Lines writes one JSON text a line. It is safe for concurrent
// use: lines of two senders never mix.
type Lines struct {
	// IDs puts the record's id into each line, as its first field. Set it before the
	// first Send.
	IDs bool

	mu   sync.Mutex
	out  *bufio.Writer
	sync func() error // nil: what is written is durable
	err  error        // once writing has failed it is over
}

// NewLines returns Lines that are durable when w has taken them.
func NewLines(w io.Writer) *Lines { return &Lines{out: bufio.NewWriterSize(w, 64<<10)} }

// Existing says what becomes of a file that holds data before anything is written.
type Existing uint8

// Values of Existing.
const (
	Refuse   Existing = iota // it is left alone, and Open fails
	Empty                    // it is emptied
	Continue                 // it is kept up to its last whole line: what follows was never acknowledged
)

var (
	// ErrHoldsData: the file is there and is not empty.
	ErrHoldsData = errors.New("the file is there already and holds data")
	// ErrInUse: another process has the file open to write to it, as this package does.
	ErrInUse = errors.New("another process is writing to it")
)

// File is Lines in a file. The caller starts and closes it.
type File struct {
	*Lines
	file     *os.File
	regular  bool // else a device or a pipe, which has nothing to keep or empty
	existing Existing
	made     bool // by Open
	started  bool
}

// Open opens a file, which it makes where there is none, and keeps other processes from
// opening it so too. What the file holds stays until Start.
func Open(path string, e Existing) (*File, error) {
	f, err := open(path, e)
	if err != nil {
		return nil, fmt.Errorf("opening the output: %w", err)
	}
	return f, nil
}

func open(path string, e Existing) (*File, error) {
	for {
		file, made, err := openOrMake(path)
		if errors.Is(err, errGone) {
			continue
		} else if err != nil {
			return nil, err
		}
		f := &File{Lines: NewLines(file), file: file, existing: e, made: made}
		if err := f.claim(path); err != nil {
			// Nor is it this process's to remove.
			err = errors.Join(fmt.Errorf("%s: %w", path, err), file.Close())
			if errors.Is(err, errGone) {
				continue
			}
			return nil, err
		}
		return f, nil
	}
}

// errGone: another process has just removed the file.
var errGone = errors.New("the file is gone")

func openOrMake(path string) (file *os.File, made bool, err error) {
	file, err = os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o666)
	if !errors.Is(err, fs.ErrExist) {
		return file, err == nil, err
	}
	flags := os.O_RDWR
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		flags |= os.O_CREATE // where a symbolic link points
	case err != nil:
		return nil, false, err
	case !info.Mode().IsRegular() && !info.IsDir():
		flags = os.O_WRONLY // of a pipe that is closed, only a writer hears
	}
	file, err = os.OpenFile(path, flags, 0o666)
	if flags&os.O_CREATE == 0 && errors.Is(err, fs.ErrNotExist) {
		err = errGone
	}
	return file, false, err
}

// claim checks the file as it is once it is this process's alone.
func (f *File) claim(path string) error {
	info, err := f.file.Stat()
	if err != nil {
		return err
	}
	if f.regular = info.Mode().IsRegular(); !f.regular {
		return nil
	}
	f.sync = f.file.Sync
	if err := lock(f.file); err != nil {
		return err
	}
	if info, err = f.file.Stat(); err != nil {
		return err
	}
	if now, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) || err == nil && !os.SameFile(now, info) {
		return errGone // what is written to it now, nobody would find
	}
	if f.existing == Refuse && info.Size() > 0 {
		return ErrHoldsData
	}
	return nil
}

// Whole returns how many whole lines the file holds, which it reads to its end; 0 for a
// device or a pipe.
func (f *File) Whole() (int64, error) {
	if !f.regular {
		return 0, nil
	}
	n, err := countLines(io.NewSectionReader(f.file, 0, math.MaxInt64))
	if err != nil {
		return n, fmt.Errorf("counting the lines of the output: %w", err)
	}
	return n, nil
}

// IsRegular reports whether the file keeps what is written to it.
func (f *File) IsRegular() bool { return f.regular }

// WholeLines returns how many whole lines there are in the file at path.
func WholeLines(path string) (int64, error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, fmt.Errorf("counting the lines of the output: %w", err)
	}
	n, err := countLines(f)
	return n, errors.Join(err, f.Close())
}

func countLines(r io.Reader) (n int64, err error) {
	buf := make([]byte, 256<<10)
	for {
		read, err := r.Read(buf)
		n += int64(bytes.Count(buf[:read], []byte{'\n'}))
		if err == io.EOF {
			return n, nil
		} else if err != nil {
			return n, err
		}
	}
}

// IsNew reports whether there was no such file before.
func (f *File) IsNew() bool { return f.made }

// Start makes the file ready for the first Send: it is emptied or cut.
func (f *File) Start() error {
	f.started = true
	if !f.regular {
		return nil
	}
	var err error
	if f.existing == Continue {
		err = toLastLine(f.file)
	} else {
		err = f.file.Truncate(0)
	}
	if err != nil {
		return fmt.Errorf("preparing the output: %w", err)
	}
	return nil
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

// Close closes the file, and removes it where Open has made it and nothing was started:
// while it is locked, since later it may be another's.
func (f *File) Close() error {
	if !f.made || f.started {
		return f.file.Close()
	}
	removed := os.Remove(f.file.Name())
	err := f.file.Close()
	if removed != nil { // some systems, which have no lock either, remove no open file
		removed = os.Remove(f.file.Name())
	}
	return errors.Join(err, removed)
}

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
	for i := range records {
		if err := l.writeBody(&records[i]); err != nil {
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

func (l *Lines) writeBody(r *relay.Record) error {
	body := r.Body
	if l.IDs {
		fields, object := bytes.CutPrefix(body, []byte("{"))
		if !object {
			return errors.New("a record that is no JSON object has no field for its id")
		}
		comma := ","
		if fields[0] == '}' {
			comma = ""
		}
		if _, err := fmt.Fprintf(l.out, `{"%s":"%s"%s`, sink.IDAttribute, r.ID(), comma); err != nil {
			return err
		}
		body = fields
	}
	_, err := l.out.Write(body)
	return err
}

// Err returns why writing has failed, if it has.
func (l *Lines) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

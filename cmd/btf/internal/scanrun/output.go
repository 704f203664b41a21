package scanrun

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/bigtable-functions/bigtable-functions/cmd/btf/internal/linefile"
	"github.com/bigtable-functions/bigtable-functions/cmd/btf/internal/terminal"
	"github.com/bigtable-functions/bigtable-functions/cmd/internal/closers"
)

// output is where a scan's records go.
type output struct {
	lines *linefile.Lines // nil: the scan's own sink
	file  *linefile.File  // of lines; nil: they go to stdout
}

func openOutput(c Console, d *decision, open *closers.Stack) (*output, error) {
	switch d.to {
	case "":
		return &output{}, nil
	case "-":
		lines := linefile.NewLines(terminal.DataTo(c.Stdout))
		lines.IDs = d.ids
		return &output{lines: lines}, nil
	}
	existing := linefile.Refuse
	if d.overwrite {
		existing = linefile.Empty
	} else if d.seen != nil {
		existing = linefile.Continue
	}
	file, err := linefile.Open(d.to, existing)
	if errors.Is(err, linefile.ErrHoldsData) {
		return nil, fmt.Errorf("%w: --overwrite empties it, --resume ID goes on with it", err)
	} else if err != nil {
		return nil, err
	}
	open.Add(file.Close)
	file.IDs = d.ids
	out := &output{lines: file.Lines, file: file}
	return out, out.checkKept(d)
}

// err returns why lines cannot be written, if they cannot.
func (o *output) err() error {
	if o.lines == nil {
		return nil
	}
	return o.lines.Err()
}

// isUnread reports whether an error says that nobody reads stdout any more.
func (o *output) isUnread(err error) bool { return o.file == nil && errors.Is(err, syscall.EPIPE) }

// checkKept is an error where the output has fewer lines than were committed to it.
// More there may be: those since the last commit, after a crash.
func (o *output) checkKept(d *decision) error {
	if d.expected == 0 || !o.file.IsRegular() {
		return nil
	}
	lines, err := o.file.Whole()
	if err != nil {
		return err
	}
	if missing := d.expected - lines; missing > 0 {
		return fmt.Errorf("resuming %q: %s has %s, and %d of the scan are committed to it: %d are missing; "+
			"--to NEWFILE goes on in another file, and without --resume the scan begins again", d.id, d.to, terminal.Plural(int(lines), "line"), d.expected, missing)
	}
	return nil
}

// isPath reports whether an output is a file.
func isPath(to string) bool { return to != "" && to != "-" }

func describeOutput(to string) string {
	switch to {
	case "":
		return "its own sink"
	case "-":
		return "stdout"
	}
	return to
}

// absolute is an output as the ledger keeps it.
func absolute(to string) (string, error) {
	if !isPath(to) {
		return to, nil
	}
	path, err := filepath.Abs(to)
	if err != nil {
		return "", fmt.Errorf("finding the output: %w", err)
	}
	return path, nil
}

// sameOutput reports whether an output is the one that is remembered.
func sameOutput(to, remembered string) bool {
	if path, err := absolute(to); err != nil || path == remembered {
		return err == nil
	}
	a, errA := os.Stat(to)
	b, errB := os.Stat(remembered)
	return isPath(to) && isPath(remembered) && errA == nil && errB == nil && os.SameFile(a, b)
}

func isGone(path string) bool {
	_, err := os.Stat(path)
	return errors.Is(err, fs.ErrNotExist)
}

func holdsData(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Size() > 0
}

func isRegular(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

// Records is a number of records as a reader sees it.
func Records(n int64) string { return terminal.Plural(int(n), "record") }

package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"time"

	"github.com/bigtable-functions/bigtable-functions/cmd/btf/internal/terminal"
	"github.com/bigtable-functions/bigtable-functions/internal/scanjob"
	"github.com/bigtable-functions/bigtable-functions/internal/task"
	"github.com/bigtable-functions/bigtable-functions/ledger"
)

// This file is what a scan of the command line says when it ends.

// outcome says what has become of the scan, and how to go on with it.
func (s *scanner) outcome(ctx context.Context, done *task.ScanDone, err error) error {
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), parting)
	defer cancel()
	if done == nil { // perhaps it ended when the command did
		if scan, err := s.ledger.Scan(closing, s.id); err == nil && scan.Finished() {
			end := scanjob.Done(scan)
			done = &end
		}
	}
	switch {
	case done != nil && done.State != string(ledger.ScanDone):
		return fmt.Errorf("scan %s has failed: %s", s.id, done.Error)
	case s.isUnread(err):
		return s.ledger.EndRun(closing, s.id, holder(), nil)
	case done != nil:
		return err
	}
	cause := err
	if ctx.Err() != nil {
		err, cause = errors.New("stopped"), nil
	}
	if failed := s.ledger.EndRun(closing, s.id, holder(), cause); failed != nil {
		err = fmt.Errorf("%w; %w", err, failed)
	}
	return fmt.Errorf("%w; to go on: %s", err, resumption(s.file, s.name, s.id))
}

// isUnread reports whether nobody reads stdout any more.
func (s *scanner) isUnread(err error) bool { return s.output == nil && errors.Is(err, syscall.EPIPE) }

// parting is how long the ledger may take when the command ends.
const parting = 5 * time.Second

// tellDone sums up a scan that is done, and says what of it others have delivered.
func (s *scanner) tellDone(done *task.ScanDone, q *scanQueue, took time.Duration) {
	fmt.Fprintf(s.stderr, "%s, %s, %d dropped, in %.1f s (%.0f rows/s)\n", terminal.Plural(int(done.Rows), "row"), records(done.Records),
		done.Dropped, took.Seconds(), float64(q.rows.Load())/took.Seconds())
	if q.endedElsewhere() {
		fmt.Fprintln(s.stderr, "another process has finished the scan")
	}
	here := s.expected + q.records.Load()
	if s.lines != nil && here < done.Records-s.before {
		fmt.Fprintf(s.stderr, "%d of its %s went to %s, the others where another process sends them\n", here, records(done.Records), terminal.Escape(describeOutput(s.to)))
	}
}

// resumption is the command that goes on with a scan.
func resumption(file, name, id string) string {
	return strings.Join([]string{"btf", "scan", "-f", shellQuoted(file), shellQuoted(name), "--resume", shellQuoted(id)}, " ")
}

// shellQuoted returns an argument as a shell takes it.
func shellQuoted(s string) string {
	plain := func(r rune) bool {
		return strings.ContainsRune("-_./@:", r) || '0' <= r && r <= '9' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z'
	}
	if s != "" && strings.IndexFunc(s, func(r rune) bool { return !plain(r) }) < 0 {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

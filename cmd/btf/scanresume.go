package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/bigtable-functions/bigtable-functions/cmd/btf/internal/linefile"
	"github.com/bigtable-functions/bigtable-functions/cmd/btf/internal/terminal"
	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
	"github.com/bigtable-functions/bigtable-functions/internal/scanjob"
	"github.com/bigtable-functions/bigtable-functions/internal/task"
	"github.com/bigtable-functions/bigtable-functions/ledger"
)

// This file is what --resume decides before anything is written: that the scan is the
// one that was planned, and that its records go where the others are.

// known is what the ledger has of a scan.
type known struct {
	*ledger.Scan
	splits  int             // that are kept
	records int64           // that are committed
	live    []*ledger.Split // that others hold, who are not known to have died
	runner  string          // another process that runs the scan, and is known to; empty: none
}

// lookUp reads the scan of an id, in a ledger that must be there.
func (s *scanner) lookUp(ctx context.Context, p *pipeline.Pipeline, id string) (*known, error) {
	k := &known{}
	err := s.await(ctx, p, func(ctx context.Context) error {
		l, closer, err := readLedger(ctx, s.env.Ledger, p.Name)
		if err != nil {
			return err
		}
		return errors.Join(k.read(ctx, l, id), closer())
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%q: nothing has run yet here: %w", id, err)
	} else if errors.Is(err, ledger.ErrNotFound) {
		return nil, fmt.Errorf("%w; btf status -f %s lists those that are", err, shellQuoted(s.file))
	} else if err != nil {
		return nil, err
	}
	if k.Name != s.name {
		return nil, fmt.Errorf("%q belongs to scan %q of the file, not to %q", id, k.Name, s.name)
	}
	return k, nil
}

func (k *known) read(ctx context.Context, l *ledger.Ledger, id string) (err error) {
	if k.Scan, err = l.Scan(ctx, id); err != nil || k.Finished() {
		return err
	}
	now, own := time.Now(), holder()
	if r := k.Run; r != nil && r.Holder != own && alive(r.Holder) {
		k.runner = r.Holder
	}
	return l.Splits(ctx, k.Scan, func(split *ledger.Split) error {
		k.splits++
		k.records += split.Records
		if split.Holder != "" && split.Holder != own && split.Until.After(now) && !died(split.Holder) {
			k.live = append(k.live, split)
		}
		return nil
	})
}

// checkResume looks at the scan that is to go on.
func (s *scanner) checkResume(ctx context.Context, p *pipeline.Pipeline) error {
	k, err := s.lookUp(ctx, p, s.resume)
	if err != nil {
		return fmt.Errorf("resuming: %w", err)
	}
	s.id = s.resume
	switch k.State {
	case ledger.ScanDone:
		return s.checkDone(k)
	case ledger.ScanFailed:
		return fmt.Errorf("resuming: %q has failed: %s", s.id, k.Error)
	}
	if k.splits < k.Splits {
		return fmt.Errorf("resuming %q: the ledger has %d of its %d splits, the others were not worked on for %d days; without --resume the scan begins again",
			s.id, k.splits, k.Splits, ledger.Retention/(24*time.Hour))
	}
	s.seen = k
	def, err := scanjob.Find(p, s.name, optionsOf(k.Scan))
	if err != nil {
		return fmt.Errorf("resuming: scan %q: %w", s.name, err)
	}
	if err := scanjob.SameTable(k.Table, def); err != nil {
		return fmt.Errorf("resuming %q: %w; without --resume the scan begins again, over the table of now", s.id, err)
	}
	if err := s.chooseOutput(k); err != nil {
		return fmt.Errorf("resuming %q: %w", s.id, err)
	}
	return s.checkDefinition(k, def)
}

// optionsOf returns what the request of a scan has changed of the file's.
func optionsOf(scan *ledger.Scan) task.Options {
	request, err := task.DecodeScanRequest(scan.Request)
	if err != nil {
		return task.Options{} // it was kept by somebody else, and is the planner's to judge
	}
	return request.Options
}

// chooseOutput decides where the records go on to, and whether that is where the others
// are. What no flag says stays as it was.
func (s *scanner) chooseOutput(k *known) error {
	run := k.Run
	if run == nil { // begun by a version that kept none, or deployed
		s.fresh = isPath(s.to) && !holdsData(s.to)
		if s.to != "" {
			return k.onlyWriter()
		}
		return nil
	}
	if s.workers == 0 {
		s.workers = run.Workers
	}
	named := s.to != ""
	if !named {
		s.to = run.To
	}
	switch {
	case !sameOutput(s.to, run.To):
		if err := s.checkOther(k); err != nil {
			return err
		}
	case isPath(s.to) && isGone(s.to) && k.records > run.Before:
		if s.fresh = named; !named {
			return fmt.Errorf("%s, which has %s of the scan, is gone: --to FILE goes on in a file without them, and without --resume the scan begins again",
				s.to, records(k.records-run.Before))
		}
	case s.to == "-" && (k.runner != "" || slices.ContainsFunc(k.live, func(split *ledger.Split) bool { return alive(split.Holder) })):
		return k.onlyWriter()
	}
	if s.before = run.Before; s.fresh {
		s.before = k.records
	}
	s.expected = k.records - s.before
	// Until something is committed, all that the file holds was there before or comes again.
	s.overwrite = run.Overwrite && !s.fresh && s.expected == 0
	return s.chooseIDs(run)
}

// checkOther decides on an output that is not the one that was remembered: a new one, or
// the same in another place.
func (s *scanner) checkOther(k *known) error {
	if err := k.onlyWriter(); err != nil {
		return err
	}
	s.fresh = !isPath(s.to) || !holdsData(s.to)
	if old := k.Run.To; !s.fresh && (old == "" || isPath(old) && !isGone(old)) {
		return fmt.Errorf("%s holds data, and the scan's records go to %s: without --to it goes on there, with --to in a new file", s.to, describeOutput(old))
	}
	return nil
}

// chooseIDs takes what the lines of the output are, unless a flag says it.
func (s *scanner) chooseIDs(run *ledger.Run) error {
	switch {
	case !s.ids && !s.idsGiven:
		s.ids = run.IDs && s.to != ""
	case !s.fresh && s.ids != run.IDs && s.to != "":
		has, flag := "have no ids", "--ids"
		if run.IDs {
			has, flag = "have ids", "--ids=false"
		}
		return fmt.Errorf("the lines of %s %s: leave out %s, or begin a new file with --to", describeOutput(s.to), has, flag)
	}
	return nil
}

// onlyWriter is an error where another process may be writing what it reads of the scan
// to another output.
func (k *known) onlyWriter() error {
	switch {
	case len(k.live) == 0 && k.runner == "":
		return nil
	case len(k.live) == 0: // between two slices, or while it waits to try again
		return fmt.Errorf("%s goes on with it, and each of two outputs would have a part of the scan; let it go on, or stop it", shortHolder(k.runner))
	}
	slices.SortFunc(k.live, func(a, b *ledger.Split) int { return a.Index - b.Index })
	first := k.live[0]
	return fmt.Errorf("%s has split %d, for %s more unless it commits, and each of two outputs would have a part of the scan; let it go on, or stop it, or wait if it has died",
		shortHolder(first.Holder), first.Index, time.Until(first.Until).Round(time.Second))
}

// checkDefinition refuses to mix records of two definitions.
func (s *scanner) checkDefinition(k *known, def *pipeline.Scan) error {
	now := scanjob.Definition(def)
	s.changed = slices.DeleteFunc(scanjob.Changed(k.Definition, now), func(part string) bool {
		return part == scanjob.PartSink && s.to != ""
	})
	if len(s.changed) == 0 {
		return nil
	}
	s.definition = now
	if s.fresh || s.acceptChanges {
		return nil
	}
	return fmt.Errorf("resuming %q: the file has changed since it was planned: %s. --accept-changes goes on as the file says now, "+
		"--to NEWFILE does so in a new file, and without --resume the scan begins again; rows and limit stay those of the plan",
		s.id, strings.Join(s.changed, ", "))
}

// checkDone decides on a scan that is done: all is well where its records are where they
// are asked for.
func (s *scanner) checkDone(k *known) error {
	to, elsewhere := s.to, false
	if k.Run != nil {
		if to == "" {
			to = k.Run.To
		}
		elsewhere = !sameOutput(to, k.Run.To) && !(isPath(k.Run.To) && isGone(k.Run.To))
	}
	why := ""
	switch {
	case isPath(to) && isGone(to):
		why = fmt.Sprintf("%s is not there", to)
	case elsewhere:
		why = fmt.Sprintf("its records went to %s", describeOutput(k.Run.To))
	case isPath(to) && k.Run != nil && isRegular(to):
		lines, err := linefile.WholeLines(to)
		if err != nil {
			return err
		}
		if missing := k.Records - k.Run.Before - lines; missing > 0 {
			why = fmt.Sprintf("%s lacks %s of it", to, records(missing))
		}
	}
	if why != "" {
		return fmt.Errorf("scan %s is done already, and %s: leave out --resume to scan again", s.id, why)
	}
	return errFinished
}

// checkKept is an error where the output has fewer lines than were committed to it.
// More there may be: those since the last commit, after a crash.
func (s *scanner) checkKept() error {
	if s.expected == 0 || !s.output.IsRegular() {
		return nil
	}
	lines, err := s.output.Whole()
	if err != nil {
		return err
	}
	if missing := s.expected - lines; missing > 0 {
		return fmt.Errorf("resuming %q: %s has %s, and %d of the scan are committed to it: %d are missing; "+
			"--to NEWFILE goes on in another file, and without --resume the scan begins again", s.id, s.to, terminal.Plural(int(lines), "line"), s.expected, missing)
	}
	return nil
}

// checkUnmoved is an error where the scan has come on since it was looked at: another
// process may have written to the file until this one locked it, and what was decided
// (to empty the file, say) was decided without that.
func (s *scanner) checkUnmoved(ctx context.Context, p *pipeline.Pipeline) error {
	if s.output == nil || !s.output.IsRegular() {
		return nil
	}
	now := &known{}
	if err := s.await(ctx, p, func(ctx context.Context) error { return now.read(ctx, s.ledger, s.id) }); err != nil {
		return err
	}
	if now.State != s.seen.State || now.records != s.seen.records {
		return fmt.Errorf("resuming %q: another process has gone on with it just now: give the command again", s.id)
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

func records(n int64) string { return terminal.Plural(int(n), "record") }

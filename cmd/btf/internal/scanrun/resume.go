package scanrun

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/bigtable-functions/bigtable-functions/cmd/btf/internal/linefile"
	"github.com/bigtable-functions/bigtable-functions/cmd/btf/internal/process"
	"github.com/bigtable-functions/bigtable-functions/cmd/btf/internal/setup"
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
	settings *settings       // how it was run before; nil: deployed functions have begun it
	splits   int             // that are kept
	records  int64           // that are committed
	live     []*ledger.Split // those held by other processes that are not known to have died
	runner   ledger.Holder   // another process that runs the scan, and is known to; empty: none
}

// lookUp reads the scan of an id, in a ledger that must be there. name is the scan's in the file.
func lookUp(ctx context.Context, c Console, p *pipeline.Pipeline, file, name, id string) (*known, error) {
	k := &known{}
	err := c.await(ctx, p, func(ctx context.Context) error {
		l, closer, err := setup.ReadLedger(ctx, c.Env, p)
		if err != nil {
			return err
		}
		return errors.Join(k.read(ctx, l, id), closer())
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%q: nothing has run yet here: %w", id, err)
	} else if errors.Is(err, ledger.ErrNotFound) {
		return nil, fmt.Errorf("%w; btf status -f %s lists those that are", err, terminal.ShellQuoted(file))
	} else if err != nil {
		return nil, err
	}
	if k.Name != name {
		return nil, fmt.Errorf("%q belongs to scan %q of the file, not to %q", id, k.Name, name)
	}
	return k, nil
}

func (k *known) read(ctx context.Context, l *ledger.Ledger, id string) (err error) {
	if k.Scan, err = l.Scan(ctx, id); err != nil || k.Finished() {
		return err
	}
	now, own := time.Now(), process.Self()
	if r := k.Run; r != nil && r.Holder != own && process.Alive(r.Holder) {
		k.runner = r.Holder
	}
	return l.Splits(ctx, k.Scan, func(split *ledger.Split) error {
		k.splits++
		k.records += split.Records
		if split.Holder != "" && split.Holder != own && split.Until.After(now) && !process.Died(split.Holder) {
			k.live = append(k.live, split)
		}
		return nil
	})
}

// readSettings reads how the scan was run before.
func (k *known) readSettings() (err error) {
	if k.Run != nil {
		k.settings, err = settingsOf(k.Run)
	}
	return err
}

// resume decides how a scan that the ledger knows goes on. The error is errFinished if it is done,
// with its records where they are asked for.
func resume(t *target, k *known, r Request) (*decision, error) {
	if err := k.readSettings(); err != nil {
		return nil, fmt.Errorf("resuming %q: %w", k.ID, err)
	}
	switch k.State {
	case ledger.ScanDone:
		return nil, checkDone(k, r.To)
	case ledger.ScanFailed:
		return nil, fmt.Errorf("resuming: %q has failed: %s", k.ID, k.Error)
	}
	if k.splits < k.Splits {
		return nil, fmt.Errorf("resuming %q: the ledger has %d of its %d splits, the others were not worked on for %d days; without --resume the scan begins again",
			k.ID, k.splits, k.Splits, ledger.Retention/(24*time.Hour))
	}
	def, err := scanjob.Find(t.pipeline, t.scan.Name, optionsOf(k.Scan))
	if err != nil {
		return nil, fmt.Errorf("resuming: scan %q: %w", t.scan.Name, err)
	}
	if err := scanjob.SameTable(k.Table, def); err != nil {
		return nil, fmt.Errorf("resuming %q: %w; without --resume the scan begins again, over the table of now", k.ID, err)
	}
	d, err := chooseOutput(k, r)
	if err != nil {
		return nil, fmt.Errorf("resuming %q: %w", k.ID, err)
	}
	return d, d.compareDefinition(def, r.AcceptChanges)
}

// optionsOf returns what the request of a scan has changed of the file's.
func optionsOf(scan *ledger.Scan) task.Options {
	request, err := task.DecodeScanRequest(scan.Request)
	if err != nil {
		return task.Options{} // it was kept by somebody else, and is the planner's to judge
	}
	return request.Options
}

// chooseOutput decides on the output of the rest of the records, and whether it is that of
// the others. Without a flag a setting stays as it was.
func chooseOutput(k *known, r Request) (*decision, error) {
	d := &decision{id: k.ID, seen: k, to: r.To, ids: r.IDs, overwrite: r.Overwrite, workers: r.Workers}
	run := k.settings
	if run == nil { // deployed functions have begun it
		d.fresh = isPath(d.to) && !holdsData(d.to)
		if d.to != "" {
			return d, k.onlyWriter()
		}
		return d, nil
	}
	if d.workers == 0 {
		d.workers = run.Workers
	}
	named := d.to != ""
	if !named {
		d.to = run.To
	}
	switch {
	case !sameOutput(d.to, run.To):
		if err := d.checkOther(); err != nil {
			return nil, err
		}
	case isPath(d.to) && isGone(d.to) && k.records > run.Before:
		if d.fresh = named; !named {
			return nil, fmt.Errorf("%s, which has %s of the scan, is gone: --to FILE goes on in a file without them, and without --resume the scan begins again",
				d.to, Records(k.records-run.Before))
		}
	case d.to == "-" && (k.runner != "" || slices.ContainsFunc(k.live, func(split *ledger.Split) bool { return process.Alive(split.Holder) })):
		if err := k.onlyWriter(); err != nil {
			return nil, err
		}
	}
	if d.before = run.Before; d.fresh {
		d.before = k.records
	}
	d.expected = k.records - d.before
	// Until something is committed, all that the file holds was there before or comes again.
	d.overwrite = run.Overwrite && !d.fresh && d.expected == 0
	return d, d.chooseIDs(run, r.IDsGiven)
}

// checkOther decides on an output that is not the one that was remembered: a new one, or
// the same in another place.
func (d *decision) checkOther() error {
	if err := d.seen.onlyWriter(); err != nil {
		return err
	}
	d.fresh = !isPath(d.to) || !holdsData(d.to)
	if old := d.seen.settings.To; !d.fresh && (old == "" || isPath(old) && !isGone(old)) {
		return fmt.Errorf("%s holds data, and the scan's records go to %s: without --to it goes on there, with --to in a new file", d.to, describeOutput(old))
	}
	return nil
}

// chooseIDs takes what the lines of the output are, unless a flag says it.
func (d *decision) chooseIDs(run *settings, given bool) error {
	switch {
	case !d.ids && !given:
		d.ids = run.IDs && d.to != ""
	case !d.fresh && d.ids != run.IDs && d.to != "":
		has, flag := "have no ids", "--ids"
		if run.IDs {
			has, flag = "have ids", "--ids=false"
		}
		return fmt.Errorf("the lines of %s %s: leave out %s, or begin a new file with --to", describeOutput(d.to), has, flag)
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
		return fmt.Errorf("%s goes on with it, and each of two outputs would have a part of the scan; let it go on, or stop it", k.runner.String())
	}
	slices.SortFunc(k.live, func(a, b *ledger.Split) int { return a.Index - b.Index })
	first := k.live[0]
	return fmt.Errorf("%s has split %d, for %s more unless it commits, and each of two outputs would have a part of the scan; let it go on, or stop it, or wait if it has died",
		first.Holder.String(), first.Index, time.Until(first.Until).Round(time.Second))
}

// compareDefinition notes what has changed, and refuses to mix records of two definitions.
func (d *decision) compareDefinition(def *pipeline.Scan, accept bool) error {
	now := scanjob.Definition(def)
	d.changed = slices.DeleteFunc(scanjob.Changed(d.seen.Definition, now), func(part string) bool {
		return part == scanjob.PartSink && d.to != ""
	})
	if len(d.changed) == 0 {
		return nil
	}
	d.definition = now
	if d.fresh || accept {
		return nil
	}
	return fmt.Errorf("resuming %q: the file has changed since it was planned: %s. --accept-changes goes on as the file says now, "+
		"--to NEWFILE does so in a new file, and without --resume the scan begins again; rows and limit stay those of the plan",
		d.id, strings.Join(d.changed, ", "))
}

// errFinished: there is nothing left to resume.
var errFinished = errors.New("the scan is done already")

// checkDone decides on a scan that is done: nothing is left to do if its records are in the
// output that is asked for.
func checkDone(k *known, to string) error {
	elsewhere := false
	if k.settings != nil {
		if to == "" {
			to = k.settings.To
		}
		elsewhere = !sameOutput(to, k.settings.To) && !(isPath(k.settings.To) && isGone(k.settings.To))
	}
	why := ""
	switch {
	case isPath(to) && isGone(to):
		why = fmt.Sprintf("%s is not there", to)
	case elsewhere:
		why = fmt.Sprintf("its records went to %s", describeOutput(k.settings.To))
	case isPath(to) && k.settings != nil && isRegular(to):
		lines, err := linefile.WholeLines(to)
		if err != nil {
			return err
		}
		if missing := k.Records - k.settings.Before - lines; missing > 0 {
			why = fmt.Sprintf("%s lacks %s of it", to, Records(missing))
		}
	}
	if why != "" {
		return fmt.Errorf("scan %s is done already, and %s: leave out --resume to scan again", k.ID, why)
	}
	return errFinished
}

// checkUnmoved is an error where the scan has come on since it was looked at: another
// process may have written to the file until this one locked it, and what was decided
// (to empty the file, say) was decided without that.
func (j *job) checkUnmoved(ctx context.Context) error {
	if j.output.file == nil || !j.output.file.IsRegular() {
		return nil
	}
	now := &known{}
	if err := j.await(ctx, j.pipeline, func(ctx context.Context) error { return now.read(ctx, j.ledger, j.id) }); err != nil {
		return err
	}
	if now.State != j.seen.State || now.records != j.seen.records {
		return fmt.Errorf("resuming %q: another process has gone on with it just now: give the command again", j.id)
	}
	return nil
}

package scanrun

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/bigtable-functions/bigtable-functions/cmd/btf/internal/process"
	"github.com/bigtable-functions/bigtable-functions/cmd/btf/internal/terminal"
	"github.com/bigtable-functions/bigtable-functions/internal/retry"
	"github.com/bigtable-functions/bigtable-functions/internal/scanjob"
	"github.com/bigtable-functions/bigtable-functions/ledger"
)

// watch looks at a scan that runs: it tells how far it is and what it waits for, and
// frees the splits that dead processes hold.
type watch struct {
	ledger *ledger.Ledger
	id     string
	local  bool // the ledger is a file, so that its holders may be processes of this machine
	queue  *queue
	show   *progress
	probe  func(context.Context) error // asks Bigtable for something small; nil: it cannot

	settled time.Time // when the ledger was last asked whether something is left
	looked  time.Time
	pause   time.Duration // until the next look
	moved   time.Time     // when the scan last came on
	asked   time.Time     // when Bigtable last was
	answer  error
}

const (
	// stalled is after how long without progress something is said of it.
	stalled = 10 * time.Second
	// probing is how long Bigtable has to answer a probe.
	probing = 5 * time.Second
	// settling is how often the ledger is asked, where this process has nothing to do,
	// whether anything is left to do at all.
	settling = time.Second
)

// begin looks for the first time, before anything of the scan is read here.
func (w *watch) begin(ctx context.Context, out io.Writer) error {
	now, err := shareOf(ctx, w.ledger, w.id)
	if err != nil {
		return err
	}
	if _, err := w.free(ctx, now.held); err != nil {
		return err
	}
	w.show, w.moved, w.looked = newProgress(out, now), time.Now(), time.Now()
	return nil
}

// end tells of a scan that has stopped before its end where that is.
func (w *watch) end(stopped bool) {
	now := w.show.last
	if stopped {
		ctx, cancel := context.WithTimeout(context.Background(), parting)
		defer cancel()
		if latest, err := shareOf(ctx, w.ledger, w.id); err == nil {
			now = latest
		}
	}
	w.show.end(now, stopped)
}

// tick is called several times a second.
func (w *watch) tick(ctx context.Context) {
	if w.queue.idle() && time.Since(w.settled) >= settling {
		w.settle(ctx)
		w.settled = time.Now()
	}
	if time.Since(w.looked) < w.pause {
		return
	}
	keptOff, reason := w.queue.obstacle()
	var met terminal.Problem
	if reason != nil {
		met = terminal.Problem{About: reason.Error(), Text: reason.Error()}
	}
	if !keptOff && !w.show.Due(met) && time.Since(w.moved) < stalled {
		return
	}
	began := time.Now()
	asking, cancel := context.WithTimeout(ctx, probing)
	now, err := shareOf(asking, w.ledger, w.id)
	cancel()
	w.looked = time.Now()
	// Many splits take long to list, and their workers use the ledger too.
	w.pause = max(w.show.Pace(), 20*w.looked.Sub(began))
	if err != nil {
		silent := terminal.Problem{About: "the ledger does not answer", Text: "the ledger does not answer: " + err.Error()}
		if ctx.Err() == nil && w.show.Due(silent) {
			w.show.tell(w.show.last, silent)
		}
		return
	}
	if now.rows != w.show.last.rows || now.share != w.show.last.share {
		w.moved = w.looked
	}
	if reason == nil {
		met = w.problem(ctx, now, keptOff)
	}
	if w.show.Due(met) {
		w.show.tell(now, met)
	}
}

// settle is for when there is nothing to deliver and the scan has not told of its end
// here: another process reads what is left, or did and has told of the end itself. Where
// such a process has died, what it has left is this one's to read.
func (w *watch) settle(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, probing)
	defer cancel()
	scan, err := w.ledger.Scan(ctx, w.id)
	if err != nil {
		return // the next one may do better
	}
	if scan.Finished() {
		w.queue.end(scan)
		return
	}
	tasks, err := w.ledger.Unfinished(ctx, scan)
	if err != nil {
		return
	}
	for _, t := range tasks {
		// It only fails for what cannot be encoded.
		_ = w.queue.Publish(ctx, scanjob.Task(t, scan.Name, optionsOf(scan)))
	}
}

// problem says what the scan waits for if no worker has met an error.
func (w *watch) problem(ctx context.Context, now *share, keptOff bool) terminal.Problem {
	if keptOff {
		held, err := w.free(ctx, now.held)
		if err != nil {
			return terminal.Problem{About: err.Error(), Text: err.Error()}
		}
		if len(held) > 0 {
			return heldBy(held, w.looked)
		}
	}
	still := w.looked.Sub(w.moved)
	if still < stalled {
		return terminal.Problem{}
	}
	what, why := "nothing is delivered", ""
	if err := w.ask(ctx); err != nil {
		why = ": Bigtable answers a probe with " + retry.Classify(err).Code.String()
	}
	return terminal.Problem{About: what + why, Text: fmt.Sprintf("%s for %s%s", what, still.Round(time.Second), why)}
}

// ask probes Bigtable, now and then.
func (w *watch) ask(ctx context.Context) error {
	if w.probe != nil && time.Since(w.asked) >= stalled {
		ctx, cancel := context.WithTimeout(ctx, probing)
		defer cancel()
		w.answer = w.probe(ctx)
		w.asked = time.Now()
	}
	return w.answer
}

// free ends the leases of processes that are known to be dead, and returns the splits
// that others hold.
func (w *watch) free(ctx context.Context, held []*ledger.Split) ([]*ledger.Split, error) {
	var others []*ledger.Split
	own := process.Self()
	for _, split := range held {
		switch {
		case split.Holder == own:
		case w.local && process.Died(split.Holder):
			if err := w.ledger.Break(ctx, split.Task, split.Fence); err != nil {
				return nil, err
			}
		default:
			others = append(others, split)
		}
	}
	return others, nil
}

// heldBy tells who holds splits, and how long at most if they have died.
func heldBy(held []*ledger.Split, now time.Time) terminal.Problem {
	slices.SortFunc(held, func(a, b *ledger.Split) int { return cmp.Compare(a.Index, b.Index) })
	last := slices.MaxFunc(held, func(a, b *ledger.Split) int { return a.Until.Compare(b.Until) })
	about := fmt.Sprintf("split %d is leased by %s", held[0].Index, held[0].Holder.String())
	if len(held) > 1 {
		about = fmt.Sprintf("%d splits are leased by others, split %d by %s", len(held), held[0].Index, held[0].Holder.String())
	}
	left := max(0, last.Until.Sub(now)).Round(time.Second)
	return terminal.Problem{About: about, Text: fmt.Sprintf("%s, for %s more unless it commits", about, left)}
}

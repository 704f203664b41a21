package writer

import (
	"time"
)

const watchEvery = time.Minute

// watch looks at the writer once a minute while it has work, so that no request pays
// for it: it says what waits when nothing was answered, and drops what is idle.
type watch struct {
	timer *time.Timer
	armed bool
	last  time.Time // when the service last took or refused an entry, or work began
}

// arm starts the watch with the first work; the writer's lock is held.
func (w *watch) arm(wr *Writer) {
	if w.armed || wr.stopped {
		return
	}
	w.armed = true
	w.last = time.Now()
	w.timer = time.AfterFunc(watchEvery, func() { wr.look() })
}

func (w *watch) answered(now time.Time) { w.last = now }

func (w *watch) stop() {
	if w.timer != nil {
		w.timer.Stop()
	}
}

// look runs once a minute.
func (w *Writer) look() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stopped {
		return
	}
	now := time.Now()
	w.sweep(now)
	if w.held.entries == 0 {
		w.watch.last = now
		if len(w.tables) == 0 {
			w.watch.armed = false
			return
		}
	} else if now.Sub(w.watch.last) >= watchEvery {
		w.warnStall(now)
	}
	w.watch.timer.Reset(watchEvery)
}

func (w *Writer) warnStall(now time.Time) {
	waiting := w.waiting.list.Len() + w.clients.waiting.list.Len()
	for _, t := range w.tables {
		waiting += t.waiting.list.Len()
	}
	what := "outcomes"
	if waiting > 0 {
		what = "admission and outcomes"
	}
	w.log.Warn("Bigtable has answered no entry for a minute or more", "waitsFor", what,
		"since", now.Sub(w.watch.last).Round(time.Second).String(), "inFlightEntries", w.held.entries,
		"inFlightBytes", w.held.bytes, "waitingRequests", waiting, "liveTables", len(w.tables))
}

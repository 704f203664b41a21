package dev

import (
	"errors"
	"sync"
	"time"

	scanworker "github.com/bigtable-functions/bigtable-functions/functions/scan-worker"
	"github.com/bigtable-functions/bigtable-functions/internal/task"
	"github.com/bigtable-functions/bigtable-functions/ledger"
)

// splitEnds knows which splits of a scan were told to have ended, so that the end of the
// scan can be told behind them. A worker publishes that end before it tells of its task.
type splitEnds struct {
	mu    sync.Mutex
	scans map[string]*scanEnds
}

type scanEnds struct {
	splits map[int]bool
	failed bool
	most   int           // how many splits are waited for; 0: nobody waits
	all    chan struct{} // closed when they were told
	ended  bool
}

// endPatience is how long the end of a scan waits for the last split to be told. It
// never is where a limit has ended the scan before all splits were read.
const endPatience = time.Second

func (e *splitEnds) scan(id string) *scanEnds {
	if e.scans == nil {
		e.scans = map[string]*scanEnds{}
	}
	if e.scans[id] == nil {
		e.scans[id] = &scanEnds{splits: map[int]bool{}, all: make(chan struct{})}
	}
	return e.scans[id]
}

// told says that a line was printed about a task.
func (e *splitEnds) told(s scanworker.Summary) {
	if s.Outcome != scanworker.OutcomeDone && s.Outcome != scanworker.OutcomeFailed && !errors.Is(s.Reason, ledger.ErrFinished) {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	of := e.scan(s.Scan)
	of.splits[s.Split] = true
	of.failed = of.failed || s.Outcome == scanworker.OutcomeFailed
	of.check()
}

// check ends the waiting when there is no more to wait for.
func (s *scanEnds) check() {
	if s.ended || s.most == 0 || !s.failed && len(s.splits) < s.most {
		return
	}
	s.ended = true
	close(s.all)
}

// wait returns when all splits of a scan were told, or one that failed.
func (e *splitEnds) wait(done task.ScanDone) {
	if done.Splits == 0 {
		return
	}
	e.mu.Lock()
	of := e.scan(done.Scan)
	of.most = done.Splits
	of.check()
	e.mu.Unlock()
	select {
	case <-of.all:
	case <-time.After(endPatience):
	}
	e.mu.Lock()
	delete(e.scans, done.Scan)
	e.mu.Unlock()
}

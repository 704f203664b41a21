package dev

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/bigtable-functions/bigtable-functions/cmd/btf/internal/terminal"
	"github.com/bigtable-functions/bigtable-functions/functions/write"
)

// This file is how dev tells what happens.

const (
	// tellEvery is how often what comes in numbers is told of.
	tellEvery = time.Second
	// mostTold bounds the lines of one kind in that time.
	mostTold = 10
)

// teller prints what happens, one line at a time, from any goroutine.
type teller struct {
	mu  sync.Mutex
	out io.Writer
}

func (t *teller) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.out.Write(b)
}

// line prints one line. A terminal that is gone is no reason to stop.
func (t *teller) line(format string, args ...any) {
	p := &terminal.Printer{Out: t}
	p.Printf(format+"\n", args...)
}

// tally prints a line for the first delivery at once, and one line for all those of the
// second after it. It prints deliveries of which something was refused or failed at once,
// unless they are too many. It must be closed.
type tally struct {
	tell func(format string, args ...any)

	mu     sync.Mutex
	timer  *time.Timer // nil while nothing is new
	closed bool
	sum    write.Summary
	kinds  map[string]*kind
}

// kind are the lines that are alike, in this second.
type kind struct {
	told, left int
	last       string // of those left out
}

func newTally(tell func(format string, args ...any)) *tally {
	return &tally{tell: tell, kinds: map[string]*kind{}}
}

// delivery tells of one delivery to write.
func (s *tally) delivery(_ context.Context, d write.Summary) {
	s.mu.Lock()
	defer s.mu.Unlock()
	first := s.begin()
	switch {
	case d.Refused != nil:
		s.one("refused, and will come again", d.Refused.Error())
	case first, d.Failed > 0 && s.may("failed"):
		s.delivered(d)
	default:
		s.sum.Records += d.Records
		s.sum.Applied += d.Applied
		s.sum.Skipped += d.Skipped
		s.sum.Failed += d.Failed
		s.sum.DeadLettered += d.DeadLettered
	}
}

// line tells what is of a kind, unless there is too much of it.
func (s *tally) line(kind, text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.begin()
	s.one(kind, text)
}

// begin begins a second, unless one has begun.
func (s *tally) begin() (began bool) {
	if s.timer != nil || s.closed {
		return s.timer == nil
	}
	s.timer = time.AfterFunc(tellEvery, s.tick)
	return true
}

func (s *tally) one(name, text string) {
	if s.may(name) {
		s.tell("%s: %s", name, text)
		return
	}
	s.kinds[name].left++
	s.kinds[name].last = text
}

// may counts a line that is to be told.
func (s *tally) may(name string) bool {
	k := s.kinds[name]
	if k == nil {
		k = &kind{}
		s.kinds[name] = k
	}
	if k.told == mostTold {
		return false
	}
	k.told++
	return true
}

func (s *tally) delivered(d write.Summary) {
	s.tell("delivered: %s, %s applied, %d skipped, %d failed, %d kept as dead letters",
		terminal.Plural(d.Records, "record"), terminal.Plural(d.Applied, "row"), d.Skipped, d.Failed, d.DeadLettered)
}

// tick ends a second, and begins another where there was something to tell.
func (s *tally) tick() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.timer = nil
	if s.flush() {
		s.begin()
	}
}

func (s *tally) flush() (told bool) {
	if s.sum.Records > 0 {
		s.delivered(s.sum)
		told = true
	}
	s.sum = write.Summary{}
	for name, k := range s.kinds {
		if k.left > 0 {
			s.tell("%s: %d more; the last: %s", name, k.left, k.last)
			told = true
		}
	}
	clear(s.kinds)
	return told
}

// close tells what is not told yet.
func (s *tally) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	if s.timer != nil {
		s.timer.Stop()
		s.timer = nil
	}
	s.flush()
}

// lineHandler has a logger tell lines as dev does.
type lineHandler struct {
	line  func(kind, text string)
	attrs []slog.Attr
}

func (h *lineHandler) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelWarn }

func (h *lineHandler) Handle(_ context.Context, r slog.Record) error {
	reason, rest := "", []string{}
	add := func(a slog.Attr) bool {
		if value := a.Value.Resolve().String(); a.Key == "error" {
			reason = value
		} else if value != "" {
			rest = append(rest, a.Key+" "+value)
		}
		return true
	}
	for _, a := range h.attrs {
		add(a)
	}
	r.Attrs(add)
	text := reason
	if len(rest) > 0 {
		text = strings.TrimSpace(fmt.Sprintf("%s (%s)", reason, strings.Join(rest, ", ")))
	}
	level := "warning"
	if r.Level >= slog.LevelError {
		level = "error"
	}
	h.line(level+": "+r.Message, text)
	return nil
}

func (h *lineHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &lineHandler{line: h.line, attrs: append(h.attrs[:len(h.attrs):len(h.attrs)], attrs...)}
}

// WithGroup keeps names as they are: the groups of what dev runs are few.
func (h *lineHandler) WithGroup(string) slog.Handler { return h }

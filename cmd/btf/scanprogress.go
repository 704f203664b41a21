package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"os"
	"strings"
	"time"

	"golang.org/x/term"

	"github.com/bigtable-functions/bigtable-functions/internal/rowrange"
	"github.com/bigtable-functions/bigtable-functions/ledger"
)

// scanProgress tells how far a scan is: a bar on a terminal, a line now and then
// elsewhere.
type scanProgress struct {
	out      io.Writer
	terminal bool
	ledger   *ledger.Ledger
	id       string
	began    time.Time
	told     time.Time
	first    *scanShare // when this process began
}

// scanShare is how far a scan is.
type scanShare struct {
	share float64 // of the key space, from 0 to 1
	rows  int64
	open  int // splits that are not finished
	of    int
}

func newScanProgress(out io.Writer, l *ledger.Ledger, id string) *scanProgress {
	p := &scanProgress{out: out, ledger: l, id: id, began: time.Now(), told: time.Now()}
	if f, ok := out.(*os.File); ok {
		p.terminal = term.IsTerminal(int(f.Fd()))
	}
	return p
}

// update tells the state of now, and what the workers wait for, if something.
func (p *scanProgress) update(trouble error) {
	if p.first != nil && !p.terminal && time.Since(p.told) < plainEvery {
		return
	}
	now, err := shareOf(context.Background(), p.ledger, p.id)
	if err != nil {
		return // the next one may do better; the work itself meets the ledger too
	}
	if p.first == nil {
		p.first = now
	}
	if p.told = time.Now(); p.terminal {
		fmt.Fprintf(p.out, "\r%s\x1b[K", p.line(now, trouble))
	} else {
		fmt.Fprintln(p.out, p.line(now, trouble))
	}
}

const barWidth = 30

func (p *scanProgress) line(now *scanShare, trouble error) string {
	took := time.Since(p.began)
	filled := int(now.share * barWidth)
	text := fmt.Sprintf("[%s%s] %3.0f%%  %d of %d splits  %d rows  %.0f rows/s",
		strings.Repeat("#", filled), strings.Repeat(".", barWidth-filled), math.Floor(now.share*100), now.of-now.open, now.of, now.rows,
		float64(now.rows-p.first.rows)/took.Seconds())
	if gained := now.share - p.first.share; gained > 0 {
		left := time.Duration(float64(took) * (1 - now.share) / gained)
		text += fmt.Sprintf("  %s left", left.Round(time.Second))
	}
	if trouble != nil {
		text += "  (" + escaped(trouble.Error()) + ")"
	}
	return text
}

// end leaves the line of the bar.
func (p *scanProgress) end() {
	if p.terminal {
		fmt.Fprint(p.out, "\r\x1b[K")
	}
}

// shareOf reads how far a scan is.
func shareOf(ctx context.Context, l *ledger.Ledger, id string) (*scanShare, error) {
	scan, err := l.Scan(ctx, id)
	if err != nil {
		return nil, err
	}
	s := &scanShare{of: scan.Splits}
	sum := 0.0
	err = l.Splits(ctx, scan, func(split *ledger.Split) error {
		s.rows += split.Rows
		if !split.Finished() {
			s.open++
			sum += splitShare(split)
		} else {
			sum++
		}
		return nil
	})
	if s.of > 0 {
		s.share = sum / float64(s.of)
	}
	if scan.Finished() {
		s.share = 1
	}
	return s, err
}

// splitShare is how much of a split's key space is read, by its position.
func splitShare(s *ledger.Split) float64 {
	if s.Position == "" || len(s.Ranges) == 0 {
		return 0
	}
	sum := 0.0
	for _, r := range s.Ranges {
		sum += rangeShare(r, s.Position)
	}
	return sum / float64(len(s.Ranges))
}

// rangeShare is how much of a range lies up to key, if keys were spread evenly.
func rangeShare(r rowrange.Range, key string) float64 {
	rest := r.After(key)
	switch {
	case rest.IsEmpty():
		return 1
	case rest.Equal(r):
		return 0
	}
	common := 0
	for r.End != "" && common < len(r.Start) && common < len(r.End) && r.Start[common] == r.End[common] {
		common++
	}
	low, high, at := fraction(r.Start, common), 1.0, fraction(key, common)
	if r.End != "" {
		high = fraction(r.End, common)
	}
	if high <= low {
		return 0
	}
	return min(1, max(0, (at-low)/(high-low)))
}

// fraction reads the bytes of a key from some on as the digits of a number below 1.
func fraction(key string, from int) float64 {
	f, unit := 0.0, 1.0
	for i := from; i < len(key) && i < from+7; i++ {
		unit /= 256
		f += float64(key[i]) * unit
	}
	return f
}

package main

import (
	"fmt"
	"io"
	"math"
	"os"
	"strings"
	"time"
)

// scanProgress tells how far a scan is: a bar on a terminal, elsewhere a line now and
// then, ever more seldom.
type scanProgress struct {
	out   io.Writer
	width int // of the terminal; 0: there is none
	began time.Time
	told  time.Time
	every time.Duration // until the next line
	about string        // the trouble that was last told
	first *scanShare    // when this process began
	last  *scanShare
}

// mostSeldom is the longest time between two lines where there is no terminal.
const mostSeldom = time.Minute

// barEvery is the shortest time between two drawings of the bar.
const barEvery = 250 * time.Millisecond

func newScanProgress(out io.Writer, first *scanShare) *scanProgress {
	p := &scanProgress{out: out, began: time.Now(), told: time.Now(), first: first, last: first}
	p.width = terminalWidth(out, os.Getenv("TERM"))
	p.every = p.pace()
	return p
}

// pace is the shortest time between two that are told.
func (p *scanProgress) pace() time.Duration {
	if p.width > 0 {
		return barEvery
	}
	return plainEvery
}

// due reports whether it is time to tell. A trouble that was not told yet is sooner.
func (p *scanProgress) due(t trouble) bool {
	since := time.Since(p.told)
	return since >= p.every || since >= p.pace() && t.about != p.about && t.about != ""
}

// trouble is what keeps a scan from going on: the text, and what of it does not change
// with time. The zero value is none.
type trouble struct{ about, text string }

// tell tells the state of now, and what is the trouble, if something.
func (p *scanProgress) tell(now *scanShare, t trouble) {
	p.last, p.told = now, time.Now()
	isNew := t.about != p.about && t.about != ""
	p.about = t.about
	line := p.line(now, t.about == "")
	if p.width == 0 {
		p.every = min(2*p.every, mostSeldom)
		if t.text != "" {
			line += "  (" + escaped(t.text) + ")"
		}
		fmt.Fprintln(p.out, line)
		return
	}
	if isNew {
		fmt.Fprintf(p.out, "\r\x1b[K%s\n", escaped(t.text))
	}
	if t.text != "" {
		line += "  (waiting)"
	}
	// A line that wraps would not be drawn over.
	fmt.Fprintf(p.out, "\r%s\x1b[K", line[:min(len(line), p.width-1)])
}

const barWidth = 30

// line is the state of now; moving says whether it makes sense to say how long it takes.
func (p *scanProgress) line(now *scanShare, moving bool) string {
	took := time.Since(p.began)
	filled := int(now.share * barWidth)
	failed := ""
	if now.failed > 0 {
		failed = fmt.Sprintf(", %d failed", now.failed)
	}
	text := fmt.Sprintf("[%s%s] %3.0f%%  %d of %d splits%s  %s  %.0f rows/s", strings.Repeat("#", filled), strings.Repeat(".", barWidth-filled),
		math.Floor(now.share*100), now.of-now.open-now.failed, now.of, failed, plural(int(now.rows), "row"),
		float64(now.rows-p.first.rows)/took.Seconds())
	if gained := now.share - p.first.share; moving && gained > 0 && now.share < 1 {
		left := time.Duration(float64(took) * (1 - now.share) / gained)
		text += fmt.Sprintf("  %s left", left.Round(time.Second))
	}
	return text
}

// end leaves the line of the bar or, where there is none, tells the state that a scan
// has stopped in.
func (p *scanProgress) end(now *scanShare, stopped bool) {
	switch {
	case p.width > 0:
		fmt.Fprint(p.out, "\r\x1b[K")
	case stopped && now != nil && now.of > 0:
		fmt.Fprintln(p.out, p.line(now, false))
	}
}

package terminal

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

const (
	// BarPace is the shortest time between two drawings on a terminal.
	BarPace = 250 * time.Millisecond
	// plainPace is the shortest time between two lines where there is no terminal.
	plainPace = 2 * time.Second
	// slowestPace is the longest time between two lines where there is no terminal.
	slowestPace = time.Minute
)

// Problem is what keeps work from going on. The zero value is none.
type Problem struct {
	About string // the part of Text that does not change with time
	Text  string
}

// Progress shows how far work is: on a terminal in one line that it draws over, elsewhere as a
// line now and then, each time after twice as long as before, up to a minute.
type Progress struct {
	out   io.Writer
	width int // of the terminal; 0: there is none
	shown time.Time
	every time.Duration // until the next line
	about string        // of the problem that was last shown
}

// NewProgress begins to show progress on out.
func NewProgress(out io.Writer) *Progress {
	p := &Progress{out: out, width: widthOf(out, os.Getenv("TERM")), shown: time.Now()}
	p.every = p.Pace()
	return p
}

// IsDrawn reports whether there is a terminal to draw on.
func (p *Progress) IsDrawn() bool { return p.width > 0 }

// Pace is the shortest time between two states that are shown.
func (p *Progress) Pace() time.Duration {
	if p.IsDrawn() {
		return BarPace
	}
	return plainPace
}

// Due reports whether it is time to show the state. A problem that was not shown yet is due
// sooner.
func (p *Progress) Due(problem Problem) bool {
	since := time.Since(p.shown)
	return since >= p.every || since >= p.Pace() && problem.About != p.about && problem.About != ""
}

// Show shows the state as a line, and a problem with it.
func (p *Progress) Show(line string, problem Problem) {
	p.shown = time.Now()
	isNew := problem.About != p.about && problem.About != ""
	p.about = problem.About
	if !p.IsDrawn() {
		p.every = min(2*p.every, slowestPace)
		if problem.Text != "" {
			line += "  (" + Escape(problem.Text) + ")"
		}
		fmt.Fprintln(p.out, line)
		return
	}
	if isNew {
		fmt.Fprintf(p.out, "\r\x1b[K%s\n", Escape(problem.Text))
	}
	if problem.Text != "" {
		line += "  (waiting)"
	}
	// A line that wraps would not be drawn over.
	fmt.Fprintf(p.out, "\r%s\x1b[K", line[:min(len(line), p.width-1)])
}

// Clear removes the line from a terminal. Elsewhere it does nothing.
func (p *Progress) Clear() {
	if p.IsDrawn() {
		fmt.Fprint(p.out, "\r\x1b[K")
	}
}

const barWidth = 30

// Bar returns a bar of which a share from 0 to 1 is filled.
func Bar(share float64) string {
	filled := int(max(0, min(1, share)) * barWidth)
	return "[" + strings.Repeat("#", filled) + strings.Repeat(".", barWidth-filled) + "]"
}

// UnknownTotal is the total of a Counter if nobody knows it.
const UnknownTotal = -1

// Counter is Progress towards a total. Without a terminal a line comes at most every two
// seconds.
type Counter struct {
	progress *Progress
	what     string
	total    int
}

// NewCounter begins to count what was done, towards a total or UnknownTotal.
func NewCounter(out io.Writer, what string, total int) *Counter {
	return &Counter{progress: NewProgress(out), what: what, total: total}
}

// Set says that n are done. The last of them is always shown.
func (c *Counter) Set(n int) {
	p := c.progress
	if n != c.total && time.Since(p.shown) < p.Pace() {
		return
	}
	count := fmt.Sprintf("%s: %d", c.what, n)
	if c.total != UnknownTotal {
		count = fmt.Sprintf("%s of %d", count, c.total)
		if p.IsDrawn() && c.total > 0 {
			count = Bar(float64(n)/float64(c.total)) + "  " + count
		}
	}
	p.Show(count, Problem{})
}

// End leaves the line on a terminal.
func (c *Counter) End() {
	if c.progress.IsDrawn() {
		fmt.Fprintln(c.progress.out)
	}
}

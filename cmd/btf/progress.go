package main

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
)

// plainEvery is how often progress is told where there is no terminal.
const plainEvery = 2 * time.Second

// unknownTotal is the total where nobody knows it.
const unknownTotal = -1

// progress tells how much of a total is done: a bar on a terminal, a line now and
// then elsewhere.
type progress struct {
	out   io.Writer
	what  string
	total int
	bar   *progressbar.ProgressBar // nil without a terminal
	told  time.Time
}

func newProgress(out io.Writer, what string, total int) *progress {
	p := &progress{out: out, what: what, total: total, told: time.Now()}
	if terminalWidth(out, os.Getenv("TERM")) > 0 {
		p.bar = progressbar.NewOptions(total,
			progressbar.OptionSetWriter(out), progressbar.OptionSetDescription(what),
			progressbar.OptionShowCount(), progressbar.OptionThrottle(100*time.Millisecond))
	}
	return p
}

// set says that n are done.
func (p *progress) set(n int) {
	if p.bar != nil {
		// A bar that cannot be drawn is no reason to stop.
		_ = p.bar.Set(n)
		return
	}
	if n != p.total && time.Since(p.told) < plainEvery {
		return
	}
	p.told = time.Now()
	if p.total == unknownTotal {
		fmt.Fprintf(p.out, "%s: %d\n", p.what, n)
		return
	}
	fmt.Fprintf(p.out, "%s: %d of %d\n", p.what, n, p.total)
}

// end leaves the line of the bar.
func (p *progress) end() {
	if p.bar != nil {
		fmt.Fprintln(p.out)
	}
}

package scanrun

import (
	"fmt"
	"io"
	"math"
	"time"

	"github.com/bigtable-functions/bigtable-functions/cmd/btf/internal/terminal"
)

// progress shows how far a scan is.
type progress struct {
	*terminal.Progress
	out   io.Writer
	began time.Time
	first *share // when this process began
	last  *share
}

func newProgress(out io.Writer, first *share) *progress {
	return &progress{Progress: terminal.NewProgress(out), out: out, began: time.Now(), first: first, last: first}
}

// tell shows the state of now, and a problem, if there is one.
func (p *progress) tell(now *share, problem terminal.Problem) {
	p.last = now
	p.Show(p.line(now, problem.About == ""), problem)
}

// line is the state of now; moving says whether it makes sense to say how long it takes.
func (p *progress) line(now *share, moving bool) string {
	took := time.Since(p.began)
	failed := ""
	if now.failed > 0 {
		failed = fmt.Sprintf(", %d failed", now.failed)
	}
	text := fmt.Sprintf("%s %3.0f%%  %d of %d splits%s  %s  %.0f rows/s", terminal.Bar(now.share),
		math.Floor(now.share*100), now.of-now.open-now.failed, now.of, failed, terminal.Plural(int(now.rows), "row"),
		float64(now.rows-p.first.rows)/took.Seconds())
	if gained := now.share - p.first.share; moving && gained > 0 && now.share < 1 {
		left := time.Duration(float64(took) * (1 - now.share) / gained)
		text += fmt.Sprintf("  %s left", left.Round(time.Second))
	}
	return text
}

// end removes the line from a terminal. Elsewhere it tells the state that a scan has stopped in.
func (p *progress) end(now *share, stopped bool) {
	if p.Clear(); !p.IsDrawn() && stopped && now != nil && now.of > 0 {
		fmt.Fprintln(p.out, p.line(now, false))
	}
}

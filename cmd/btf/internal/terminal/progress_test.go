package terminal

import (
	"bytes"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestABarSaysAProblemOnceAndFitsItsLine(t *testing.T) {
	var out bytes.Buffer
	p := NewProgress(&out)
	p.width, p.every = 60, BarPace
	for i := range 3 {
		p.Show(fmt.Sprintf("%s   0%%  0 of 2 splits  %d rows  0 rows/s", Bar(0), i), Problem{"Bigtable is gone", fmt.Sprintf("Bigtable is gone for %ds", i)})
	}
	if n := strings.Count(out.String(), "Bigtable is gone for 0s\n"); n != 1 || strings.Contains(out.String(), "1s") {
		t.Errorf("drawn %q", out.String())
	}
	for _, line := range regexp.MustCompile("[\r\n]").Split(out.String(), -1) {
		if text := strings.ReplaceAll(line, "\x1b[K", ""); len(text) >= p.width {
			t.Errorf("a line of %d characters on %d: %q", len(text), p.width, text)
		}
	}
}

func TestACounterTellsNowAndThenAndTheLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		known, unknown := NewCounter(&out, "acknowledged", 5), NewCounter(&out, "replayed", UnknownTotal)
		for n := range 6 {
			known.Set(n)
			unknown.Set(n)
			time.Sleep(900 * time.Millisecond)
		}
		known.End()
		want := "acknowledged: 3 of 5\nreplayed: 3\nacknowledged: 5 of 5\n"
		if out.String() != want {
			t.Errorf("told %q, want %q", out.String(), want)
		}
		out.Reset()
		known.progress.width, known.progress.shown = 80, time.Now()
		known.Set(2)
		if out.Len() > 0 {
			t.Errorf("sooner than after %s: %q", BarPace, out.String())
		}
		time.Sleep(BarPace)
		known.Set(2)
		known.End()
		if want := "\r[############..................]  acknowledged: 2 of 5\x1b[K\n"; out.String() != want {
			t.Errorf("drawn %q, want %q", out.String(), want)
		}
	})
}

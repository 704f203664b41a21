package dev

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bigtable-functions/bigtable-functions/functions/write"
)

// tallying runs a test with a tally whose lines it reads.
func tallying(t *testing.T, test func(s *tally, lines func() string)) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		tell := &teller{out: &out}
		test(newTally(tell.line), func() string {
			synctest.Wait()
			tell.mu.Lock()
			defer tell.mu.Unlock()
			text := out.String()
			out.Reset()
			return text
		})
	})
}

func TestDeliveriesThatWentWellShareALineASecond(t *testing.T) {
	tallying(t, func(s *tally, lines func() string) {
		good := write.Summary{Records: 2, Applied: 1, Skipped: 1}
		one := "delivered: 2 records, 1 row applied, 1 skipped, 0 failed, 0 kept as dead letters\n"
		s.delivery(t.Context(), good)
		if got := lines(); got != one {
			t.Errorf("the first is told as %q", got)
		}
		for range 4 {
			for range 5000 {
				s.delivery(t.Context(), good)
			}
			if got := lines(); got != "" {
				t.Errorf("within the second it says %q", got)
			}
			time.Sleep(time.Second)
			if got := lines(); got != "delivered: 10000 records, 5000 rows applied, 5000 skipped, 0 failed, 0 kept as dead letters\n" {
				t.Errorf("after a second it says %q", got)
			}
		}
		time.Sleep(time.Minute)
		s.delivery(t.Context(), good)
		if got := lines(); got != one {
			t.Errorf("after a minute of nothing it says %q", got)
		}
		s.delivery(t.Context(), good)
		s.close()
		if got := lines(); got != one {
			t.Errorf("at its end it says %q", got)
		}
		time.Sleep(time.Minute)
		if got := lines(); got != "" {
			t.Errorf("after its end it says %q", got)
		}
	})
}

func TestRefusedAndFailedDeliveriesAreToldAtOnceButNotWithoutEnd(t *testing.T) {
	tallying(t, func(s *tally, lines func() string) {
		s.delivery(t.Context(), write.Summary{Records: 1, Applied: 1})
		lines()
		for i := range 500 {
			s.delivery(t.Context(), write.Summary{Records: 1, Refused: fmt.Errorf("reason %d", i)})
		}
		got := lines()
		if strings.Count(got, "\n") != mostTold || !strings.HasPrefix(got, "refused, and will come again: reason 0\n") {
			t.Errorf("at once it says %q", got)
		}
		for range 500 {
			s.delivery(t.Context(), write.Summary{Records: 1, Failed: 1, DeadLettered: 1})
		}
		got = lines()
		if strings.Count(got, "delivered: 1 record, 0 rows applied, 0 skipped, 1 failed, 1 kept as dead letters\n") != mostTold {
			t.Errorf("at once it says %q", got)
		}
		time.Sleep(time.Second)
		want := "delivered: 490 records, 0 rows applied, 0 skipped, 490 failed, 490 kept as dead letters\n" +
			"refused, and will come again: 490 more; the last: reason 499\n"
		if got := lines(); got != want {
			t.Errorf("after a second it says %q, want %q", got, want)
		}
		s.delivery(t.Context(), write.Summary{Refused: errors.New("again")})
		if got := lines(); got != "refused, and will come again: again\n" {
			t.Errorf("in the next second it says %q", got)
		}
		s.close()
	})
}

func TestWarningsAreLinesAsTheOthers(t *testing.T) {
	tallying(t, func(s *tally, lines func() string) {
		logger := slog.New(&lineHandler{line: s.line}).With("pipeline", "orders")
		logger.Info("nothing to see")
		logger.Warn("record cannot be written", "error", errors.New("no such key: status"), "messageId", "m1", "mapping", "", "place", "")
		logger.Error("it broke")
		want := "warning: record cannot be written: no such key: status (pipeline orders, messageId m1)\nerror: it broke: (pipeline orders)\n"
		if got := lines(); got != want {
			t.Errorf("it says %q, want %q", got, want)
		}
		for range 100 {
			logger.Warn("record cannot be written")
		}
		if got := lines(); strings.Count(got, "\n") != mostTold-1 {
			t.Errorf("at once it says %q", got)
		}
		s.close()
		if got := lines(); got != "warning: record cannot be written: 91 more; the last: (pipeline orders)\n" {
			t.Errorf("at the end it says %q", got)
		}
	})
}

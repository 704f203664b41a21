package scanjob_test

import (
	"testing"

	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
	"github.com/bigtable-functions/bigtable-functions/internal/scanjob"
)

func TestRunsInAYear(t *testing.T) {
	for cron, want := range map[string]int{
		"0 3 * * *": 365, "0 3 1 * *": 12, "30 6 31 * *": 7, "0 0 1 1 *": 1, "*/15 * * * *": 35_040, "0 9 * * mon-fri": 261,
		"0 0 1 * mon": 52 + 12 - 1, "0,30 8-9 * feb *": 28 * 4, "0 0 * * 7": 52, // one Monday of 2026 is the first of a month
	} {
		if got := scanjob.RunsInAYear(&pipeline.Schedule{Cron: cron, TimeZone: "Etc/UTC"}); got != want {
			t.Errorf("%s: %d runs, want %d", cron, got, want)
		}
	}
}

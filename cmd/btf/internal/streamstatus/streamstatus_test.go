package streamstatus

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/bigtable-functions/bigtable-functions/internal/changestream"
	"github.com/bigtable-functions/bigtable-functions/internal/rowrange"
	"github.com/bigtable-functions/bigtable-functions/ledger"
)

func keys(start, end string) rowrange.Range { return rowrange.Range{Start: start, End: end} }

// Every key is shown as read, completed, waiting or missing, with the oldest position first.
func TestTheStateOfAStreamSaysWhatBecomesOfEachKey(t *testing.T) {
	now := time.Date(2026, 8, 30, 10, 0, 0, 0, time.UTC)
	opening := func(r rowrange.Range, ago time.Duration) changestream.Opening {
		return changestream.Opening{Range: r, LowWatermark: now.Add(-ago)}
	}
	topology := &ledger.Topology{
		Stream: &ledger.Stream{
			StreamID: ledger.StreamID{Name: "feed", Table: "t"}, Start: now.Add(-time.Hour),
			Missing: []changestream.Missing{{Range: keys("g", "p"), FirstSeen: now.Add(-time.Minute), Seen: 2}},
		},
		Partitions: []*ledger.Partition{
			{PartitionID: ledger.PartitionID{Incarnation: "A"}, Opening: opening(keys("", "c"), 10*time.Second), Holder: "h", Left: time.Minute},
			{PartitionID: ledger.PartitionID{Incarnation: "B"}, Opening: opening(keys("p", "\xff"), time.Minute), Holder: "gone", LastError: "no", Fruitless: 3},
		},
		Pending: []changestream.Pending{{
			Target: keys("c", "g"), Tokens: []changestream.Token{{Range: keys("d", "g"), Value: "secret"}}, LowWatermark: now, UpdatedAt: now,
		}},
		Completed: []rowrange.Range{keys("\xff", "")},
		ReadAt:    now,
	}
	got, err := json.Marshal(Of(topology))
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"name":"feed","table":"t","begun":true,"start":"2026-08-30T09:00:00Z","partitions":[` +
		`{"id":"B","range":"[p, \\xff)","lowWatermark":"2026-08-30T09:59:00Z","ageSeconds":60,"fruitless":3,"lastError":"no"},` +
		`{"id":"A","range":"(*, c)","lowWatermark":"2026-08-30T09:59:50Z","ageSeconds":10,"holder":"h","leaseSeconds":60}],` +
		`"pending":[{"range":"[c, g)","tokens":["[d, g)"],"lowWatermark":"2026-08-30T10:00:00Z","updatedAt":"2026-08-30T10:00:00Z"}],` +
		`"missing":[{"range":"[g, p)","firstSeen":"2026-08-30T09:59:00Z","seen":2}],"completed":["[\\xff, *)"],"coverage":"#.?.#="}`
	if string(got) != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
}

func TestABarHidesNoGap(t *testing.T) {
	for _, c := range []struct {
		coverage string
		width    int
		want     string
	}{
		{"", 4, ""}, {"#", 4, "####"}, {"#.", 4, "##.."}, {"#?=", 6, "##??=="}, {"####.###", 4, "##.#"}, {"#=", 1, "="},
	} {
		if got := Bar(c.coverage, c.width); got != c.want {
			t.Errorf("%q in %d: %q, want %q", c.coverage, c.width, got, c.want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		coverage := rapid.StringMatching(`[#=?.]{1,40}`).Draw(t, "coverage")
		bar := Bar(coverage, rapid.IntRange(1, 50).Draw(t, "width"))
		for i := len(letters) - 1; i > 0; i-- {
			if strings.Contains(coverage, letters[i:i+1]) {
				if !strings.Contains(bar, letters[i:i+1]) {
					t.Fatalf("%q became %q", coverage, bar)
				}
				return
			}
		}
	})
}

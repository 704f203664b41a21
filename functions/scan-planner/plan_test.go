package scanplanner

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/bigtable-functions/bigtable-functions/internal/btrpc"
	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
	"github.com/bigtable-functions/bigtable-functions/internal/push"
	"github.com/bigtable-functions/bigtable-functions/internal/rowrange"
)

// texts prints splits in the reference's notation.
func texts(splits []*bundle) [][]string {
	var out [][]string
	for _, s := range splits {
		var rs []string
		for _, r := range s.ranges {
			rs = append(rs, r.String())
		}
		out = append(out, rs)
	}
	return out
}

func parse(t *testing.T, ranges ...string) []rowrange.Range {
	t.Helper()
	var out []rowrange.Range
	for _, s := range ranges {
		r, err := rowrange.Parse(s)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, r)
	}
	return out
}

const gib = 1 << 30

// covers: SC-02, SC-04
// issue-row: 12, 13, 14, 15
func TestSplitsAreCutAtTabletsAndWeighedByTheirBytes(t *testing.T) {
	for name, c := range map[string]struct {
		ranges      []string
		samples     []btrpc.Sample
		parallelism int
		want        [][]string
	}{
		"no sample":                    {[]string{"(*, *)"}, nil, 0, [][]string{{"(*, *)"}}},
		"the end of the table alone":   {[]string{"(*, *)"}, []btrpc.Sample{{Key: "", Bytes: 5 * gib}}, 0, [][]string{{"(*, *)"}}},
		"one boundary":                 {[]string{"(*, *)"}, []btrpc.Sample{{Key: "m", Bytes: gib}, {Key: "", Bytes: 2 * gib}}, 0, [][]string{{"(*, m)"}, {"[m, *)"}}},
		"without the end of the table": {[]string{"(*, *)"}, []btrpc.Sample{{Key: "m", Bytes: gib}}, 0, [][]string{{"(*, m)"}, {"[m, *)"}}},
		"small tablets share one":      {[]string{"(*, *)"}, []btrpc.Sample{{Key: "d", Bytes: 10 << 20}, {Key: "m", Bytes: 20 << 20}, {Key: "", Bytes: 30 << 20}}, 0, [][]string{{"(*, *)"}}},
		"a giant stays whole": {[]string{"(*, *)"}, []btrpc.Sample{{Key: "d", Bytes: 1 << 20}, {Key: "m", Bytes: 1<<20 + 50*gib}, {Key: "", Bytes: 2<<20 + 50*gib}}, 0,
			[][]string{{"(*, d)"}, {"[d, m)"}, {"[m, *)"}}},
		"parallelism is the number of splits": {[]string{"(*, *)"}, []btrpc.Sample{{Key: "d", Bytes: 100}, {Key: "m", Bytes: 200}, {Key: "", Bytes: 300}}, 3,
			[][]string{{"(*, d)"}, {"[d, m)"}, {"[m, *)"}}},
		"parallelism of one is one split": {[]string{"(*, *)"}, []btrpc.Sample{{Key: "d", Bytes: 100 * gib}, {Key: "m", Bytes: 200 * gib}, {Key: "", Bytes: 300 * gib}}, 1,
			[][]string{{"(*, *)"}}},
		"parallelism of two": {[]string{"(*, *)"}, []btrpc.Sample{{Key: "d", Bytes: 10}, {Key: "m", Bytes: 20}, {Key: "t", Bytes: 30}, {Key: "", Bytes: 40}}, 2,
			[][]string{{"(*, m)"}, {"[m, *)"}}},
		"a giant is one of them, the rest the others": {[]string{"(*, *)"}, []btrpc.Sample{{Key: "d", Bytes: 1}, {Key: "m", Bytes: 2}, {Key: "t", Bytes: 3}, {Key: "", Bytes: 100}}, 3,
			[][]string{{"(*, m)"}, {"[m, t)"}, {"[t, *)"}}},
		"more is asked than there are": {[]string{"(*, *)"}, []btrpc.Sample{{Key: "m", Bytes: 100}, {Key: "", Bytes: 200}}, 50, [][]string{{"(*, m)"}, {"[m, *)"}}},
		"boundaries outside and on the bounds do not cut": {[]string{"[d, m)"}, []btrpc.Sample{{Key: "a", Bytes: gib}, {Key: "d", Bytes: 2 * gib}, {Key: "m", Bytes: 3 * gib}, {Key: "z", Bytes: 4 * gib}}, 0,
			[][]string{{"[d, m)"}}},
		"a range of one key is not cut":        {[]string{`[a, a\x00)`}, []btrpc.Sample{{Key: "a", Bytes: gib}, {Key: "a\x00", Bytes: 2 * gib}}, 0, [][]string{{`[a, a\x00)`}}},
		"samples out of order and twice":       {[]string{"(*, *)"}, []btrpc.Sample{{Key: "m", Bytes: 2 * gib}, {Key: "d", Bytes: gib}, {Key: "m", Bytes: 2 * gib}, {Key: "", Bytes: 3 * gib}}, 0, [][]string{{"(*, d)"}, {"[d, m)"}, {"[m, *)"}}},
		"ranges of one tablet share its bytes": {[]string{"[a, b)", "[c, d)", "[e, f)"}, []btrpc.Sample{{Key: "", Bytes: 600 << 20}}, 0, [][]string{{"[a, b)"}, {"[c, d)"}, {"[e, f)"}}},
		"ranges apart within a split stay so":  {[]string{"[a, b)", "[c, d)", "[x, y)"}, []btrpc.Sample{{Key: "m", Bytes: 100}, {Key: "", Bytes: 200}}, 0, [][]string{{"[a, b)", "[c, d)", "[x, y)"}}},
	} {
		if got := texts(group(cut(parse(t, c.ranges...), c.samples), c.parallelism)); fmt.Sprint(got) != fmt.Sprint(c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// issue-row: 9
func TestManyRangesAreSpreadOverRequestsThatFit(t *testing.T) {
	for name, key := range map[string]func(i int) string{
		"60,000 short keys": func(i int) string { return fmt.Sprintf("%05d", i) },
		"1,000 long keys":   func(i int) string { return fmt.Sprintf("%03d%04090d", i, i) },
		"60,000 keys of 50": func(i int) string { return fmt.Sprintf("%05d%045d", i, i) },
	} {
		n := 60_000
		if len(key(0)) > 1000 {
			n = 1000
		}
		var ranges []rowrange.Range
		for i := range n {
			ranges = append(ranges, rowrange.Closed(key(i)))
		}
		total := 0
		for _, split := range group(cut(ranges, nil), 0) {
			request, document := 0, 0
			for _, r := range split.ranges {
				request += len(r.Start) + len(r.End) + 16
				document += (len(r.Start)+len(r.End))*4/3 + 64
			}
			total += len(split.ranges)
			if request > 400<<10 || document > 700_000 {
				t.Errorf("%s: a split of %d bytes in a request and %d in the ledger", name, request, document)
			}
		}
		if total != n {
			t.Errorf("%s: %d ranges in splits, want %d", name, total, n)
		}
	}
}

// covers: SC-02, SC-12
func TestSplitsHoldEveryKeyAskedForOnceAndInOrder(t *testing.T) {
	key := rapid.SliceOfN(rapid.SampledFrom([]byte{0, 'a', 'b', 0xff}), 1, 3)
	rapid.Check(t, func(t *rapid.T) {
		var asked []rowrange.Range
		for range rapid.IntRange(0, 5).Draw(t, "ranges") {
			asked = append(asked, rowrange.Range{
				Start: string(key.Draw(t, "start")), End: string(key.Draw(t, "end")), StartOpen: rapid.Bool().Draw(t, "open"), EndClosed: rapid.Bool().Draw(t, "closed"),
			})
		}
		if len(asked) == 0 {
			asked = []rowrange.Range{{}}
		}
		asked = rowrange.Merge(asked)
		var samples []btrpc.Sample
		bytes := int64(0)
		for range rapid.IntRange(0, 6).Draw(t, "samples") {
			bytes += rapid.Int64Range(-gib, gib).Draw(t, "bytes")
			samples = append(samples, btrpc.Sample{Key: string(rapid.SliceOfN(rapid.SampledFrom([]byte{0, 'a', 'b', 0xff}), 0, 3).Draw(t, "sample")), Bytes: bytes})
		}
		splits := group(cut(asked, samples), rapid.IntRange(0, 10).Draw(t, "parallelism"))
		var all []rowrange.Range
		for _, s := range splits {
			all = append(all, s.ranges...)
		}
		for i, r := range all {
			if r.IsEmpty() {
				t.Fatalf("an empty range in %v", texts(splits))
			}
			if i > 0 {
				if _, overlap := rowrange.Intersect(all[i-1], r); overlap || all[i-1].Start > r.Start {
					t.Fatalf("%s before %s", all[i-1], r)
				}
			}
		}
		if got := rowrange.Merge(all); !slices.EqualFunc(got, asked, rowrange.Range.Equal) {
			t.Fatalf("splits hold %v, want %v", got, asked)
		}
	})
}

func TestAScheduledRequestIsNamedByItsDueTime(t *testing.T) {
	for _, c := range []struct{ cron, zone, published, want string }{
		{"0 3 * * *", "Etc/UTC", "2026-08-30T03:00:04Z", "2026-08-30T03:00Z"},
		{"0 3 * * *", "Etc/UTC", "2026-08-30T03:59:59Z", "2026-08-30T03:00Z"}, // a retried job
		{"0 3 * * *", "Europe/Berlin", "2026-08-30T01:00:04Z", "2026-08-30T01:00Z"},
		{"*/15 * * * *", "Etc/UTC", "2026-08-30T03:44:59Z", "2026-08-30T03:30Z"},
		{"5/20 9-17 * * mon-fri", "Etc/UTC", "2026-08-31T09:30:00Z", "2026-08-31T09:25Z"},
		{"0 0 1 * sun", "Etc/UTC", "2026-08-30T00:10:00Z", "2026-08-30T00:00Z"}, // a Sunday, not the first
		{"0 0 1 * 7", "Etc/UTC", "2026-09-01T00:10:00Z", "2026-09-01T00:00Z"},   // the first, not a Sunday
		// The hour that summer time leaves out is never due, and the one that it repeats twice.
		{"30 2 * * *", "Europe/Berlin", "2026-03-29T01:00:10Z", "2026-03-29T01:00Z"},
		{"30 3 * * *", "Europe/Berlin", "2026-03-29T01:30:10Z", "2026-03-29T01:30Z"},
		{"30 2 * * *", "Europe/Berlin", "2026-10-25T01:29:59Z", "2026-10-25T00:30Z"},
		{"30 2 * * *", "Europe/Berlin", "2026-10-25T01:30:10Z", "2026-10-25T01:30Z"},
		{"0 0 * jan *", "Etc/UTC", "2026-08-30T03:10:30Z", "2026-08-30T03:10Z"}, // by hand
	} {
		published, err := time.Parse(time.RFC3339, c.published)
		if err != nil {
			t.Fatal(err)
		}
		p := &pipeline.Pipeline{Scans: []*pipeline.Scan{{Name: "archive", Schedule: &pipeline.Schedule{Cron: c.cron, TimeZone: c.zone}}}}
		id, err := scheduledID(p, "archive", push.Message{ID: "m", PublishTime: published})
		if err != nil || id != "archive@"+c.want {
			t.Errorf("%s in %s, published %s: %s, %v; want %s", c.cron, c.zone, c.published, id, err, c.want)
		}
	}
	if _, err := scheduledID(&pipeline.Pipeline{}, "archive", push.Message{ID: "m"}); err == nil {
		t.Error("a schedule of a scan that is not there was taken")
	}
}

// As many splits as are asked for, where there are as many tablets; of tablets of one size
// none has more than one more than another.
func TestParallelismIsTheNumberOfSplits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 60).Draw(t, "tablets")
		even := rapid.Bool().Draw(t, "even")
		var samples []btrpc.Sample
		bytes := int64(0)
		for i := range n {
			size := int64(gib)
			if !even {
				size = rapid.Int64Range(1, 100).Draw(t, "bytes") * gib
			}
			bytes += size
			s := btrpc.Sample{Key: fmt.Sprintf("%03d", i), Bytes: bytes}
			if i == n-1 {
				s.Key = ""
			}
			samples = append(samples, s)
		}
		asked := rapid.IntRange(1, 80).Draw(t, "parallelism")
		splits := group(cut([]rowrange.Range{{}}, samples), asked)
		if want := min(asked, n); len(splits) != want {
			t.Fatalf("%d splits of %d tablets, want %d", len(splits), n, want)
		}
		var most, sum int64
		least := int64(1) << 62
		for _, s := range splits {
			most, least, sum = max(most, s.weight), min(least, s.weight), sum+s.weight
			var sections int64
			for _, section := range s.sections {
				sections += section.Bytes
			}
			if sections != s.weight || len(s.sections) > maxSections || s.sections[len(s.sections)-1].End != s.ranges[len(s.ranges)-1].End {
				t.Fatalf("sections %v of a split of %d bytes up to %q", s.sections, s.weight, s.ranges[len(s.ranges)-1].End)
			}
		}
		if even && most-least > gib {
			t.Errorf("splits of %d to %d GiB", least/gib, most/gib)
		}
	})
}

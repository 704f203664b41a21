package scanplanner_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	sdk "go.opentelemetry.io/otel/sdk/metric"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	scanplanner "github.com/bigtable-functions/bigtable-functions/functions/scan-planner"
	"github.com/bigtable-functions/bigtable-functions/internal/btrpc"
	"github.com/bigtable-functions/bigtable-functions/internal/functest"
	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
	"github.com/bigtable-functions/bigtable-functions/internal/rowrange"
	"github.com/bigtable-functions/bigtable-functions/internal/task"
	"github.com/bigtable-functions/bigtable-functions/ledger"
	"github.com/bigtable-functions/bigtable-functions/ledger/storetest"
)

const file = `
version: 1
name: orders
bigtable: {project: my-project, instance: my-instance}
tables:
  orders:
    families: {cf: {columns: {status: string}}}
scans:
  all: {table: orders, to: {pubsub: {topic: out}}}
  boosted: {table: orders, appProfile: boost, to: {log: {}}}
  some: {table: orders, rows: {prefixes: [d, m]}, limit: 7, to: {log: {}}}
  keys: {table: orders, cells: {keysOnly: true}, to: {log: {}}}
  nightly: {table: orders, schedule: {cron: "0 3 * * *"}, to: {log: {}}}
`

// planner is the function over a ledger in memory and a table of three tablets.
type planner struct {
	t       *testing.T
	store   ledger.Store
	handler http.Handler
	log     bytes.Buffer

	tasks     []task.Scan
	done      []task.ScanDone
	publish   error // of the next messages
	sampled   []string
	samples   func() ([]btrpc.Sample, error)
	summaries []scanplanner.Summary
}

func threeTablets() ([]btrpc.Sample, error) {
	return []btrpc.Sample{{Key: "g", Bytes: 1 << 30}, {Key: "p", Bytes: 2 << 30}, {Bytes: 3 << 30}}, nil
}

func newPlanner(t *testing.T) *planner {
	p := &planner{t: t, samples: threeTablets}
	p.start(storetest.NewMemory())
	return p
}

// start is another process of the same function.
func (p *planner) start(store ledger.Store) { p.startWith(store, file) }

func (p *planner) startWith(store ledger.Store, text string) {
	p.t.Helper()
	parsed, err := pipeline.Parse([]byte(text), pipeline.Options{File: "p.yaml"})
	if err != nil {
		p.t.Fatal(err)
	}
	p.store = store
	p.handler, err = scanplanner.New(scanplanner.Config{
		Pipeline: parsed, Ledger: ledger.New(store, "orders", ledger.Options{}), Tasks: p, Done: p, Budget: time.Minute,
		Logger: slog.New(slog.NewTextHandler(&p.log, nil)),
		Sample: func(_ context.Context, s *pipeline.Scan) ([]btrpc.Sample, error) {
			t, profile := s.Table.Ref(), s.AppProfile
			p.sampled = append(p.sampled, t.Table+"/"+profile)
			return p.samples()
		},
		Report: func(_ context.Context, s scanplanner.Summary) { p.summaries = append(p.summaries, s) },
	})
	if err != nil {
		p.t.Fatal(err)
	}
}

// Publish keeps messages.
func (p *planner) Publish(_ context.Context, messages ...any) error {
	if p.publish != nil {
		return p.publish
	}
	for _, m := range messages {
		switch m := m.(type) {
		case task.Scan:
			p.tasks = append(p.tasks, m)
		case task.ScanDone:
			p.done = append(p.done, m)
		}
	}
	return nil
}

// ask delivers a request of a moment after three and returns the answer.
func (p *planner) ask(id, request string) int { return p.askAt("2026-08-30T03:00:04Z", id, request) }

func (p *planner) askAt(published, id, request string) int {
	body := functest.Delivery(p.t, id, published, []byte(request))
	w := httptest.NewRecorder()
	p.handler.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/", bytes.NewReader(body)))
	return w.Code
}

func (p *planner) ledger() *ledger.Ledger { return ledger.New(p.store, "orders", ledger.Options{}) }

func (p *planner) scan(id string) *ledger.Scan {
	p.t.Helper()
	s, err := p.ledger().Scan(p.t.Context(), id)
	if err != nil {
		p.t.Fatal(err)
	}
	return s
}

// ranges returns the ranges of a scan's splits, in order.
func (p *planner) ranges(id string) string {
	p.t.Helper()
	splits := map[int]string{}
	err := p.ledger().Splits(p.t.Context(), p.scan(id), func(s *ledger.Split) error {
		var rs []string
		for _, r := range s.Ranges {
			rs = append(rs, r.String())
		}
		splits[s.Index] = strings.Join(rs, " ")
		return nil
	})
	if err != nil {
		p.t.Fatal(err)
	}
	var out []string
	for i := range len(splits) {
		out = append(out, splits[i])
	}
	return strings.Join(out, " | ")
}

// covers: SC-02, SC-03, SC-07, SC-20, SC-24, MET-13
func TestARequestIsPlannedOnce(t *testing.T) {
	p := newPlanner(t)
	if code := p.ask("m-1", `{"scan":"boosted"}`); code != http.StatusNoContent {
		t.Fatalf("answer %d", code)
	}
	if got, want := p.ranges("m-1"), "(*, g) | [g, p) | [p, *)"; got != want {
		t.Errorf("splits %s, want %s", got, want)
	}
	scan := p.scan("m-1")
	if len(p.tasks) != 3 || p.tasks[1] != (task.Scan{Version: 1, Scan: "m-1", Name: "boosted", Attempt: scan.Attempt, Split: 1}) {
		t.Errorf("tasks %+v", p.tasks)
	}
	// Tablets move, and the request comes again: the splits stay valid as they are.
	p.samples = func() ([]btrpc.Sample, error) { return []btrpc.Sample{{Key: "c", Bytes: 1 << 30}}, nil }
	lease, err := p.ledger().Acquire(t.Context(), ledger.Task{Scan: "m-1", Attempt: scan.Attempt, Index: 1}, "w")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := lease.Finish(t.Context(), ledger.Progress{}); err != nil {
		t.Fatal(err)
	}
	p.tasks = nil
	if code := p.ask("m-1", `{"scan":"boosted"}`); code != http.StatusNoContent {
		t.Fatalf("answer %d", code)
	}
	if len(p.tasks) != 2 || p.tasks[0].Split != 0 || p.tasks[1].Split != 2 {
		t.Errorf("tasks %+v, want those of the two splits that are not finished", p.tasks)
	}
	if !slices.Equal(p.sampled, []string{"orders/boost"}) {
		t.Errorf("sampled %v, want once, under the scan's own profile", p.sampled)
	}
	if p.summaries[0].Samples != 1 || p.summaries[1].Samples != 0 {
		t.Errorf("samples taken %d and %d, want 1 and 0", p.summaries[0].Samples, p.summaries[1].Samples)
	}
}

// covers: SC-07
func TestAPlannerThatDiesAnywhereLeavesOnePlan(t *testing.T) {
	for dies := 1; ; dies++ {
		for _, fault := range []storetest.Fault{storetest.FaultCrash, storetest.FaultCrashAfter, storetest.FaultReplyLost, storetest.FaultLost} {
			p := newPlanner(t)
			memory, calls := p.store, 0
			synctest.Test(t, func(t *testing.T) { // for the ledger's backoff
				p.t = t
				p.start(&storetest.Faulty{Store: memory, Next: func(bool) storetest.Fault {
					if calls++; calls == dies {
						return fault
					}
					return storetest.FaultNone
				}})
				first := p.ask("m-1", `{"scan":"all"}`)
				p.start(memory)
				if code := p.ask("m-1", `{"scan":"all"}`); code != http.StatusNoContent {
					t.Fatalf("killed at call %d, then answered %d", dies, code)
				}
				scan := p.scan("m-1")
				if got, want := p.ranges("m-1"), "(*, g) | [g, p) | [p, *)"; got != want || scan.State != ledger.ScanRunning {
					t.Errorf("killed at call %d: %s, splits %s", dies, scan.State, got)
				}
				if n := len(p.tasks); n < 3 || first != http.StatusNoContent && n > 6 {
					t.Errorf("killed at call %d: %d tasks", dies, n)
				}
				for _, task := range p.tasks {
					if task.Attempt != scan.Attempt {
						t.Errorf("killed at call %d: a task of a plan that is not selected", dies)
					}
				}
			})
			if calls < dies { // it lived through
				return
			}
		}
	}
}

func TestTasksThatCannotBePublishedAreTheRequestsRetry(t *testing.T) {
	p := newPlanner(t)
	p.publish = errors.New("Pub/Sub is down")
	if code := p.ask("m-1", `{"scan":"all"}`); code != http.StatusServiceUnavailable {
		t.Errorf("answer %d, want a refusal", code)
	}
	p.publish = nil
	if code := p.ask("m-1", `{"scan":"all"}`); code != http.StatusNoContent || len(p.tasks) != 3 || len(p.sampled) != 1 {
		t.Errorf("answer %d, %d tasks, sampled %d times", code, len(p.tasks), len(p.sampled))
	}
}

// covers: SC-11, SC-13, SC-15, SQL-16, SQL-17
func TestABadRequestIsAFailureOnRecordAndAcknowledged(t *testing.T) {
	for request, want := range map[string]string{
		`{"scan":"nope"}`:                                               "pipeline orders has no scan of this name; it has: all, boosted, some, keys, nightly",
		`{"scan":"all","limti":3}`:                                      `no field "limti"`,
		`{"scan":"all","limit":-1}`:                                     "limit is negative",
		`{"scan":"all","scan":"some"}`:                                  "scan stands twice",
		`{"scan":"all","rows":{}}`:                                      "neither prefixes nor ranges",
		`{"scan":"all","rows":{"ranges":[{}]}}`:                         "rows.ranges[0] says neither start nor end",
		`{"scan":"all","rows":{"ranges":[{"start":"b","end":"a"}]}}`:    "rows.ranges[0] holds no key",
		`{"scan":"all","rows":{"ranges":[{"start":"b","end":"b"}]}}`:    "rows.ranges[0] holds no key",
		`{"scan":"all","rows":{"prefixes":[""]}}`:                       "rows.prefixes[0] is empty",
		`{"scan":"all","rows":{"prefixes":["YQ"],"encoding":"base64"}}`: "rows.prefixes[0] is no base64",
		`{"scan":"all","rows":{"prefixes":["a"],"encoding":"hex"}}`:     "rows.encoding is text or base64",
		`{"scan":"all","since":"2026-08-01T00:00:00.0001Z"}`:            "since is finer than a millisecond",
		`{"scan":"keys","since":"2026-08-01T00:00:00Z"}`:                "cannot stand beside the file's cells.filter or cells.keysOnly",
		`{"scan":"all","to":{}}`:                                        "exactly one of pubsub and log",
		`{"scan":"all","to":{"pubsub":{"topic":"orders-events"}}}`:      "one of the pipeline's own",
		`{"scan":"all","scheduled":true}`:                               "no scan of this name with one",
		`not json`:                                                      "not a JSON object",
	} {
		p := newPlanner(t)
		if code := p.ask("m-1", request); code != http.StatusNoContent {
			t.Errorf("%s: answer %d, want an acknowledgement", request, code)
			continue
		}
		scan := p.scan("m-1")
		if scan.State != ledger.ScanFailed || !strings.Contains(scan.Error, want) {
			t.Errorf("%s: %s, %q; want failed, %q", request, scan.State, scan.Error, want)
		}
		if s := p.summaries[0]; s.Rejected == nil || s.Rejected.Error() != scan.Error || s.Refused != nil || p.log.Len() > 0 {
			t.Errorf("%s: reported %v, refused %v, logged %s", request, s.Rejected, s.Refused, p.log.String())
		}
		if len(p.done) != 1 || p.done[0].State != "failed" || p.done[0].Error != scan.Error || !scan.Published || len(p.tasks) > 0 {
			t.Errorf("%s: announced %+v, tasks %v", request, p.done, p.tasks)
		}
		if code := p.ask("m-1", request); code != http.StatusNoContent || len(p.done) != 1 {
			t.Errorf("%s, again: answer %d, announced %d times", request, code, len(p.done))
		}
	}
}

func TestADeliveryThatIsNoMessageIsDropped(t *testing.T) {
	p := newPlanner(t)
	w := httptest.NewRecorder()
	p.handler.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/", strings.NewReader("secret")))
	if w.Code != http.StatusNoContent || len(p.summaries) != 1 || p.summaries[0].Malformed == nil || p.summaries[0].Refused != nil {
		t.Fatalf("answer %d, reported as %+v", w.Code, p.summaries)
	}
	scanplanner.Log(slog.New(slog.NewTextHandler(&p.log, nil)), "orders")(t.Context(), p.summaries[0])
	if !strings.Contains(p.log.String(), "level=ERROR") || strings.Contains(p.log.String(), "secret") {
		t.Errorf("log %s", p.log.String())
	}
}

// covers: SC-11, SC-12, LKP-04, SQL-14, SQL-16, SQL-17
func TestARequestNarrowsTheRowsOfTheFile(t *testing.T) {
	encoded := func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }
	for request, want := range map[string]string{
		`{"scan":"some"}`: "[d, e) [m, n)",
		`{"scan":"some","rows":{"prefixes":["d#1","d#","x"]}}`:                                   "[d#, d$)",
		`{"scan":"some","rows":{"ranges":[{"start":"db"}]}}`:                                     "[db, e) [m, n)",
		`{"scan":"some","rows":{"ranges":[{"start":"d1","end":"d1\u0000"}]}}`:                    `[d1, d1\x00)`, // a point read
		`{"scan":"some","rows":{"prefixes":["` + encoded("d\xff") + `"],"encoding":"base64"}}`:   `[d\xff, e)`,
		`{"scan":"all","rows":{"prefixes":["` + encoded("\xff\xff") + `"],"encoding":"base64"}}`: `[\xff\xff, *)`,
	} {
		p := newPlanner(t)
		p.samples = func() ([]btrpc.Sample, error) { return nil, nil }
		if code := p.ask("m-1", request); code != http.StatusNoContent || p.ranges("m-1") != want {
			t.Errorf("%s: answer %d, splits %s, want %s", request, code, p.ranges("m-1"), want)
		}
	}
}

// covers: LKP-04, SQL-14
func TestARequestOutsideTheFilesRowsIsAnEmptyResult(t *testing.T) {
	p := newPlanner(t)
	if code := p.ask("m-1", `{"scan":"some","rows":{"prefixes":["x"]}}`); code != http.StatusNoContent {
		t.Fatalf("answer %d", code)
	}
	if s := p.scan("m-1"); s.State != ledger.ScanDone || s.Splits != 0 || len(p.sampled) != 0 {
		t.Errorf("%s with %d splits, sampled %v", s.State, s.Splits, p.sampled)
	}
	if len(p.done) != 1 || p.done[0].State != "done" || p.done[0].Rows != 0 {
		t.Errorf("announced %+v", p.done)
	}
}

// covers: SC-21
func TestALimitRunsSplitsInKeyOrder(t *testing.T) {
	p := newPlanner(t)
	p.samples = func() ([]btrpc.Sample, error) {
		return []btrpc.Sample{{Key: "g", Bytes: 1 << 30}, {Bytes: 2 << 30}}, nil
	}
	p.ask("m-1", `{"scan":"some"}`)
	if s := p.scan("m-1"); s.Limit != 7 || s.Splits != 2 || len(p.tasks) != 1 || p.tasks[0].Split != 0 {
		t.Errorf("limit %d over %d splits, tasks %+v: want the first split's alone", s.Limit, s.Splits, p.tasks)
	}
	p.ask("m-2", `{"scan":"some","limit":3}`)
	if s := p.scan("m-2"); s.Limit != 3 {
		t.Errorf("limit %d, want the request's", s.Limit)
	}
}

func TestOptionsTravelWithTheTasks(t *testing.T) {
	p := newPlanner(t)
	p.ask("m-1", `{"scan":"all","until":"2026-08-01T00:00:00Z","to":{"pubsub":{"topic":"elsewhere"}}}`)
	if len(p.tasks) != 3 || p.tasks[2].To.PubSub.Topic != "elsewhere" || p.tasks[2].Until.Unix() != 1785542400 {
		t.Errorf("tasks %+v", p.tasks)
	}
}

func TestTwoRequestsOfOneScheduleAreOneScan(t *testing.T) {
	p := newPlanner(t)
	p.ask("m-1", `{"scan":"nightly","scheduled":true}`)
	p.ask("m-2", `{"scan":"nightly","scheduled":true}`)
	scans, err := p.ledger().Scans(t.Context())
	if err != nil || len(scans) != 1 || scans[0].ID != "nightly@2026-08-30T03:00Z" || len(p.sampled) != 1 {
		t.Errorf("%d scans, %v, sampled %d times", len(scans), err, len(p.sampled))
	}
}

// Whoever presses "force run" in the afternoon means a scan of its own, not the one of
// the night, which is done.
func TestAScheduledRequestLongAfterItsTimeIsAScanOfItsOwn(t *testing.T) {
	p := newPlanner(t)
	for published, want := range map[string]string{
		"2026-08-30T03:00:00Z":   "nightly@2026-08-30T03:00Z",
		"2026-08-30T04:05:00Z":   "nightly@2026-08-30T03:00Z", // repeated for an hour
		"2026-08-30T15:20:44.1Z": "nightly@2026-08-30T15:20Z",
		"2026-08-31T02:59:59Z":   "nightly@2026-08-31T02:59Z",
	} {
		p.askAt(published, "m-"+published, `{"scan":"nightly","scheduled":true}`)
		if s := p.scan(want); s.State != ledger.ScanRunning {
			t.Errorf("%s: scan %s is %s", published, want, s.State)
		}
	}
	if scans, err := p.ledger().Scans(t.Context()); err != nil || len(scans) != 3 {
		t.Errorf("%d scans, %v", len(scans), err)
	}
}

// covers: SC-04
// issue-row: 16
func TestMoreParallelismThanTabletsWarnsWithBothNumbers(t *testing.T) {
	p := newPlanner(t)
	p.ask("m-1", `{"scan":"all","parallelism":3}`)
	if p.log.Len() > 0 {
		t.Errorf("as much as there is, and the log says %s", p.log.String())
	}
	p.ask("m-2", `{"scan":"all","parallelism":50}`)
	if got := p.log.String(); !strings.Contains(got, "level=WARN") || !strings.Contains(got, "parallelism=50") || !strings.Contains(got, "splits=3") {
		t.Errorf("log %s", got)
	}
}

func TestSamplingThatFails(t *testing.T) {
	for name, c := range map[string]struct {
		fails int
		code  codes.Code
		want  int
		state ledger.ScanState
		calls int
	}{
		"passes after a while":  {2, codes.Unavailable, http.StatusNoContent, ledger.ScanRunning, 3},
		"does not pass":         {100, codes.Unavailable, http.StatusServiceUnavailable, ledger.ScanPlanning, 5},
		"there is no table":     {100, codes.NotFound, http.StatusNoContent, ledger.ScanFailed, 1},
		"the profile is no use": {100, codes.InvalidArgument, http.StatusNoContent, ledger.ScanFailed, 1},
		"the role is missing":   {100, codes.PermissionDenied, http.StatusServiceUnavailable, ledger.ScanPlanning, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPlanner(t)
				p.samples = func() ([]btrpc.Sample, error) {
					if len(p.sampled) <= c.fails {
						return nil, status.Error(c.code, "secret")
					}
					return threeTablets()
				}
				if code := p.ask("m-1", `{"scan":"all"}`); code != c.want {
					t.Errorf("answer %d, want %d", code, c.want)
				}
				if s := p.scan("m-1"); s.State != c.state || len(p.sampled) != c.calls || strings.Contains(s.Error, "secret") {
					t.Errorf("%s %q after %d calls, want %s after %d", s.State, s.Error, len(p.sampled), c.state, c.calls)
				}
			})
		})
	}
}

func TestAPlanOfTenThousandTabletsFitsTheLedger(t *testing.T) {
	p := newPlanner(t)
	p.samples = func() ([]btrpc.Sample, error) {
		var out []btrpc.Sample
		for i := range 9_999 {
			out = append(out, btrpc.Sample{Key: fmt.Sprintf("%04090d", i), Bytes: int64(i+1) << 30})
		}
		return out, nil
	}
	if code := p.ask("m-1", `{"scan":"all"}`); code != http.StatusNoContent || len(p.tasks) != 10_000 {
		t.Fatalf("answer %d, %d tasks", code, len(p.tasks))
	}
	var all []rowrange.Range
	if err := p.ledger().Splits(t.Context(), p.scan("m-1"), func(s *ledger.Split) error { all = append(all, s.Ranges...); return nil }); err != nil {
		t.Fatal(err)
	}
	if merged := rowrange.Merge(all); len(all) != 10_000 || len(merged) != 1 || !merged[0].Equal(rowrange.Range{}) {
		t.Errorf("%d ranges hold %v", len(all), merged)
	}
}

// covers: MET-12, MET-13
func TestSamplesAndPlannedSplitsAreCountedOnceForAPlan(t *testing.T) {
	reader := sdk.NewManualReader()
	m, err := scanplanner.NewMetrics(sdk.NewMeterProvider(sdk.WithReader(reader)).Meter("test"))
	if err != nil {
		t.Fatal(err)
	}
	p := newPlanner(t)
	p.ask("m-1", `{"scan":"all"}`)
	p.ask("m-1", `{"scan":"all"}`)
	for _, s := range p.summaries {
		m.Report(t.Context(), s)
	}
	want := map[string]int64{"btf.scan.samples.taken{scan=all}": 1, "btf.scan.splits.planned{scan=all}": 3, "btf.scan.tasks.published{scan=all}": 6}
	if got := functest.Readings(t, reader); !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// Whoever may publish a request decides its numbers, names and sizes.
func TestARequestThatIsOutOfAllBoundsIsAnswered(t *testing.T) {
	long := strings.Repeat("x", 2<<20)
	for request, want := range map[string]ledger.ScanState{
		`{"scan":"all","parallelism":4611686018427387904}`:                             ledger.ScanRunning, // times four is nothing
		`{"scan":"all","parallelism":9223372036854775807}`:                             ledger.ScanRunning,
		`{"scan":"all","limit":9223372036854775807}`:                                   ledger.ScanRunning,
		`{"scan":"` + long + `"}`:                                                      ledger.ScanFailed,
		`{"scan":"all","` + long + `":1}`:                                              ledger.ScanFailed,
		`{"scan":"all","to":{"pubsub":{"topic":"` + long + `"}}}`:                      ledger.ScanFailed,
		`{"scan":"all","rows":{"encoding":"` + long + `","prefixes":["a"]}}`:           ledger.ScanFailed,
		`{"scan":"all","since":"2026-08-01T00:00:00Z","until":"2026-08-01T00:00:00Z"}`: ledger.ScanFailed,
	} {
		p := newPlanner(t)
		if code := p.ask("m-1", request); code != http.StatusNoContent {
			t.Errorf("%.60s: answer %d", request, code)
			continue
		}
		if s := p.scan("m-1"); s.State != want || len(s.Name) > 100 || len(s.Error) > 1024 || want == ledger.ScanFailed && s.Error == "" {
			t.Errorf("%.60s: %s, name of %d bytes, error %.100s, want %s", request, s.State, len(s.Name), s.Error, want)
		}
		scanplanner.Log(slog.New(slog.NewTextHandler(&p.log, nil)), "orders")(t.Context(), p.summaries[0])
		if failed := strings.Contains(p.log.String(), "level=ERROR"); p.log.Len() > 10_000 || failed != (want == ledger.ScanFailed) {
			t.Errorf("%.60s: the log has %d bytes, an error: %t", request, p.log.Len(), failed)
		}
	}
}

func TestAScheduledRequestWithoutItsTimeIsNotTheScanOfAnotherTime(t *testing.T) {
	p := newPlanner(t)
	body := `{"message":{"messageId":"m-1","data":"` + base64.StdEncoding.EncodeToString([]byte(`{"scan":"nightly","scheduled":true}`)) + `"},"subscription":"projects/p/subscriptions/s"}`
	w := httptest.NewRecorder()
	p.handler.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/", strings.NewReader(body)))
	scans, err := p.ledger().Scans(t.Context())
	if err != nil || w.Code != http.StatusNoContent || len(scans) != 1 {
		t.Fatalf("answer %d, %d scans, %v", w.Code, len(scans), err)
	}
	if s := scans[0]; s.ID != "m-1" || s.State != ledger.ScanFailed || !strings.Contains(s.Error, "no publish time") {
		t.Errorf("scan %s is %s: %s", s.ID, s.State, s.Error)
	}
}

// The second request for one due time is the first one's scan, whatever it asks for:
// two tasks of one scan must not disagree about what is read, and to where.
func TestASecondRequestForAScanDoesNotChangeIt(t *testing.T) {
	p := newPlanner(t)
	p.ask("m-1", `{"scan":"nightly","scheduled":true,"to":{"pubsub":{"topic":"first"}}}`)
	p.ask("m-2", `{"scan":"nightly","scheduled":true,"to":{"pubsub":{"topic":"second"}}}`)
	if len(p.tasks) != 6 {
		t.Fatalf("%d tasks", len(p.tasks))
	}
	for _, task := range p.tasks {
		if task.To == nil || task.To.PubSub.Topic != "first" {
			t.Errorf("task %+v", task.To)
		}
	}
}

// The splits of a plan are keys of one table. The version of the file that it was made
// for may come back, so the request does, and no worker is told.
func TestARequestThatComesAgainIsRefusedWhenTheFileSaysAnotherTable(t *testing.T) {
	p := newPlanner(t)
	p.ask("m-1", `{"scan":"all"}`)
	if s := p.scan("m-1"); s.Table != "projects/my-project/instances/my-instance/tables/orders" || len(s.Definition) == 0 {
		t.Fatalf("the plan is for %q", s.Table)
	}
	p.startWith(p.store, strings.Replace(file, "my-instance}", "other}", 1))
	told := len(p.tasks)
	if code := p.ask("m-1", `{"scan":"all"}`); code != http.StatusServiceUnavailable || len(p.tasks) != told {
		t.Errorf("answer %d, %d tasks more", code, len(p.tasks)-told)
	}
	want := `scan "m-1": it was planned for table projects/my-project/instances/my-instance/tables/orders, ` +
		`and the pipeline file (with BIGTABLE_PROJECT and BIGTABLE_INSTANCE) now says projects/my-project/instances/other/tables/orders`
	if got := p.summaries[len(p.summaries)-1].Refused; got == nil || got.Error() != want {
		t.Errorf("refused because %v, want %s", got, want)
	}
	p.start(p.store)
	if code := p.ask("m-1", `{"scan":"all"}`); code != http.StatusNoContent || len(p.tasks) != told+3 {
		t.Errorf("when it came back: answer %d, %d tasks more", code, len(p.tasks)-told)
	}
}

func TestATableThatCannotBeSampledIsToldWithTheProfileIfThereIsOne(t *testing.T) {
	for scan, want := range map[string]string{
		"all":     "sampling the keys of table orders (projects/my-project/instances/my-instance/tables/orders): NotFound; check its name, project and instance",
		"boosted": `sampling the keys of table orders (projects/my-project/instances/my-instance/tables/orders), application profile "boost": NotFound; check both in the pipeline file`,
	} {
		p := newPlanner(t)
		p.samples = func() ([]btrpc.Sample, error) { return nil, status.Error(codes.NotFound, "secret") }
		p.ask("m-1", `{"scan":"`+scan+`"}`)
		if got := p.scan("m-1").Error; got != want {
			t.Errorf("%s: %s, want %s", scan, got, want)
		}
	}
}

// cancelling is a store that cancels a scan as soon as its plan is selected.
type cancelling struct {
	ledger.Store
	scan string
}

func (c *cancelling) Commit(ctx context.Context, writes []ledger.Write) ([]string, error) {
	versions, err := c.Store.Commit(ctx, writes)
	if err == nil && bytes.Contains(writes[0].Body, []byte(`"state":"running"`)) {
		if _, err := ledger.New(c.Store, "orders", ledger.Options{}).Cancel(ctx, c.scan); err != nil {
			return nil, err
		}
	}
	return versions, err
}

// There is no task then that would tell of it.
func TestAScanThatIsCancelledBeforeItsTasksAreToldIsAnnounced(t *testing.T) {
	p := newPlanner(t)
	p.start(&cancelling{Store: p.store, scan: "1"})
	if code := p.ask("1", `{"scan": "all"}`); code != http.StatusNoContent || len(p.tasks) != 0 {
		t.Fatalf("%d, %d tasks", code, len(p.tasks))
	}
	if len(p.done) != 1 || p.done[0].Error != ledger.Cancelled || !p.scan("1").Published {
		t.Errorf("announced %+v, want once that the scan was cancelled", p.done)
	}
	if last := p.summaries[len(p.summaries)-1]; last.State != ledger.ScanFailed {
		t.Errorf("the summary says %s", last.State)
	}
}

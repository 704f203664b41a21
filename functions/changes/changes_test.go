package changes_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	"google.golang.org/grpc/codes"

	"github.com/bigtable-functions/bigtable-functions/emulator"
	"github.com/bigtable-functions/bigtable-functions/functions/changes"
	"github.com/bigtable-functions/bigtable-functions/internal/functest"
	"github.com/bigtable-functions/bigtable-functions/internal/relay"
	"github.com/bigtable-functions/bigtable-functions/internal/retry"
	"github.com/bigtable-functions/bigtable-functions/internal/task"
)

const toLog = "to: {log: {}}"

// A stream that starts now misses nothing from then on, also where its first window has no
// change, and goes on through a split and a merge whose successors are read at once.
//
// covers: CS-01, CS-08, CS-09, CS-33
// stream-case: 1, 19, 20, 35, 52
func TestAStreamIsFollowedThroughASplitAndAMerge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, toLog)
		r.set("a", 0) // before the start
		time.Sleep(time.Second)
		r.round()
		if got := r.outcomes(); got != "idle" || len(r.values()) > 0 {
			t.Fatalf("%s, %v", got, r.values())
		}
		r.set("a", 1)
		r.set("m", 1)
		if err := r.emulator.SplitTablet(tableName, []byte("g")); err != nil {
			t.Fatal(err)
		}
		r.set("a", 2)
		r.set("m", 2)
		for range 3 {
			r.round()
		}
		if got := r.outcomes(); !strings.HasPrefix(got, "closed idle idle") {
			t.Errorf("visits ended %s", got)
		}
		if err := r.emulator.MergeTablets(tableName, []byte("g")); err != nil {
			t.Fatal(err)
		}
		r.set("a", 3)
		r.set("m", 3)
		for range 12 {
			r.round()
		}
		if got := r.values(); fmt.Sprint(got) != "map[a:[1 2 3] m:[1 2 3]]" {
			t.Errorf("%v: %s", got, r.log)
		}
		if err := r.held(); err != nil {
			t.Error(err)
		}
	})
}

// A partition without changes is visited less and less often, up to maxIdle; a change
// makes it due each minute again.
//
// covers: CS-07
// stream-case: 37
func TestIdlePartitionsAreVisitedLessOften(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, toLog)
		visits := func(minutes int) int {
			for range minutes {
				r.round()
			}
			return len(strings.Fields(r.outcomes()))
		}
		if n := visits(17); n > 6 {
			t.Errorf("%d visits in 17 idle minutes", n)
		}
		if n := visits(60); n < 5 || n > 6 {
			t.Errorf("%d visits in an idle hour, with maxIdle: 10m", n)
		}
		for range 30 * 60 { // longer than the table keeps its changes
			r.round()
		}
		r.set("a", 7)
		r.outcomes()
		visits(12)
		if got := r.values(); fmt.Sprint(got) != "map[a:[7]]" {
			t.Errorf("%v: %s", got, r.log)
		}
	})
}

// Ticks that come at once, and tasks that come twice, late or of another time, change
// nothing.
//
// covers: CS-03, CS-28, CSQ-20
// stream-case: 31, 42, 45
func TestTicksAndTasksThatComeTwiceAreHarmless(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, "maxStreams: 2, "+toLog, "c", "f", "k", "p", "t")
		var all sync.WaitGroup
		for range 5 {
			all.Go(r.tick)
		}
		all.Wait()
		if err := r.held(); err != nil {
			t.Fatal(err)
		}
		for i := range 20 {
			r.set(string(rune('a'+i)), 1)
		}
		tasks := r.take()
		for _, data := range tasks {
			if c, err := task.DecodeChanges(data); err != nil || len(c.Partitions) > 2 {
				t.Errorf("a task of %d partitions with maxStreams: 2: %v", len(c.Partitions), err)
			}
		}
		for range 3 {
			for _, data := range tasks {
				all.Go(func() { r.deliver(t.Context(), r.cfg, data) })
			}
		}
		all.Wait()
		if got := r.values(); len(got) != 20 {
			t.Errorf("changes of %d rows", len(got))
		}
		if len(r.records) != 20 {
			t.Errorf("%d records", len(r.records))
		}
		r.outcomes()
		for _, data := range append(tasks, []byte(`{"v":1,"stream":"feed","partitions":["../x","NONE"]}`), []byte(`{"v":1,"stream":"other","partitions":["A"]}`), []byte("x")) {
			r.deliver(t.Context(), r.cfg, data)
		}
		malformed := r.visits[len(r.visits)-1]
		if got := r.outcomes(); strings.Contains(got, "failed") {
			t.Errorf("%s", got)
		}
		var log functest.Log
		changes.Log(slog.New(slog.NewTextHandler(&log, nil)), "orders")(t.Context(), malformed)
		if malformed.Outcome != changes.OutcomeMalformed || !strings.Contains(log.String(), "level=ERROR") || !strings.Contains(log.String(), "messageId=m") {
			t.Errorf("what is no task is reported as %+v, and logged as %s", malformed, &log)
		}
	})
}

// A stream that breaks off goes on from the last change that was complete.
//
// covers: CS-29
// stream-case: 32, 33, 34
func TestABrokenStreamGoesOn(t *testing.T) {
	for name, fault := range map[string]emulator.Fault{
		"unavailable":     {Code: codes.Unavailable, Count: 3},
		"aborted":         {Code: codes.Aborted, Count: 3},
		"reset":           {Code: codes.Internal, Message: "Received RST_STREAM with code 2", Count: 3},
		"auth":            {Code: codes.Internal, Message: "Authentication backend internal server error. Please retry.", Count: 3},
		"between changes": {Cut: true, CutAfter: 2, Count: 3},
		"without a close": {Cut: true, CutAfter: 3, Code: codes.DeadlineExceeded, Count: 4},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, toLog)
				r.tick()
				for i := range 9 {
					r.set(string(rune('a'+i)), 1)
				}
				fault.Method = "ReadChangeStream"
				r.emulator.Inject(fault)
				r.work()
				if got := r.outcomes(); got != "idle" || len(r.values()) != 9 || len(r.records) != 9 {
					t.Errorf("%s, %d records: %s", got, len(r.records), r.log)
				}
			})
		})
	}
}

// A sink that fails keeps the position, and a refusal of the service is told.
//
// covers: CS-06
// stream-case: 34
func TestWhatFailsComesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, toLog)
		r.tick()
		r.set("a", 1)
		r.set("b", 1)
		r.refuse = func(records []relay.Record) []error {
			errs := make([]error, len(records))
			errs[len(errs)-1] = errors.New("not now")
			return errs
		}
		r.work()
		if got := r.outcomes(); got != "failed" {
			t.Errorf("%s", got)
		}
		r.refuse = nil
		r.emulator.Inject(emulator.Fault{Method: "ReadChangeStream", Code: codes.PermissionDenied, Message: "row secret", Count: 1})
		r.round()
		if got := r.outcomes(); got != "failed" || strings.Contains(r.log.String(), "secret") {
			t.Errorf("%s: %s", got, r.log)
		}
		r.round()
		if got := r.values(); fmt.Sprint(got) != "map[a:[1] b:[1]]" {
			t.Errorf("%v", got)
		}
	})
}

// A change that the sink will never take, or that is too large, stops its partition under
// fail, and lets it go on under the other policies.
//
// stream-case: 36
func TestAPoisonChangeIsTheFailurePolicys(t *testing.T) {
	for policy, want := range map[string]string{"fail": "map[a:[1]]", "drop": "map[a:[1] d:[1]]", "dead-letter": "map[a:[1] d:[1]]"} {
		t.Run(policy, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, "maxRecordBytes: 1KiB, onFailure: "+policy+", "+toLog)
				r.tick()
				r.set("a", 1)
				r.set("b", 1) // the sink refuses it
				r.mutate("c", setCell("cf", "total", strings.Repeat("x", 2000)))
				r.set("d", 1)
				r.refuse = func(records []relay.Record) []error {
					errs := make([]error, len(records))
					for i, rec := range records {
						if strings.Contains(string(rec.Body), `"rowKey":"b"`) {
							errs[i] = &retry.Rejected{Reason: "no b"}
						}
					}
					return errs
				}
				for range 3 {
					r.work()
					r.round()
				}
				if got := fmt.Sprint(r.values()); got != want {
					t.Errorf("%s, want %s: %s", got, want, r.log)
				}
				top, err := r.ledger(r.store).Topology(t.Context(), streamID)
				if err != nil {
					t.Fatal(err)
				}
				p := top.Partitions[0]
				if policy == "fail" && (p.Fruitless < 3 || !strings.Contains(p.LastError, "onFailure: fail")) || policy != "fail" && p.Fruitless > 0 {
					t.Errorf("%d visits in vain, %q", p.Fruitless, p.LastError)
				}
				if policy == "dead-letter" && (len(r.letters) != 2 || !strings.Contains(string(r.letters[1].Data), `"rowKey":"b"`) || string(r.letters[0].Data) != `{"rowKey":"c"}`) {
					t.Errorf("%d letters", len(r.letters))
				}
			})
		})
	}
}

func setCell(family, qualifier, value string) *bigtablepb.Mutation {
	return &bigtablepb.Mutation{Mutation: &bigtablepb.Mutation_SetCell_{SetCell: &bigtablepb.Mutation_SetCell{
		FamilyName: family, ColumnQualifier: []byte(qualifier), TimestampMicros: 1000, Value: []byte(value),
	}}}
}

// After an outage that is longer than the table keeps its changes, the position is kept
// under fail, and else the stream goes on where the file says.
//
// covers: CS-12, CS-15, CSQ-18
// stream-case: 38
func TestAnExpiredPositionIsTold(t *testing.T) {
	for policy, want := range map[string]string{"fail": "map[]", "earliest": "map[a:[2 3]]", "latest": "map[a:[3]]"} {
		t.Run(policy, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, "onExpired: "+policy+", "+toLog)
				r.tick()
				r.take() // nobody works
				r.set("a", 1)
				time.Sleep(25 * time.Hour)
				r.set("a", 2)
				time.Sleep(time.Second)
				r.round()
				r.set("a", 3)
				r.round()
				if got := fmt.Sprint(r.values()); got != want || policy != "fail" && !strings.Contains(r.log.String(), "changes are lost") {
					t.Errorf("%s, want %s: %s", got, want, r.log)
				}
				if got := r.outcomes(); (policy == "fail") != strings.Contains(got, "failed") {
					t.Errorf("%s", got)
				}
			})
		})
	}
}

// A stream starts where the file says, once, whatever the file says later.
//
// covers: CS-13, CS-14, CSQ-17
func TestAStreamStartsWhereTheFileSays(t *testing.T) {
	for start, want := range map[string]string{
		"latest": "map[a:[3]]", "earliest": "map[a:[1 2 3]]", "-30m": "map[a:[2 3]]", `"2000-01-02T01:45:00Z"`: "map[a:[2 3]]",
	} {
		t.Run(start, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, "start: "+start+", "+toLog)
				time.Sleep(25 * time.Hour) // the service takes no start from before the stream was turned on
				r.set("a", 1)
				time.Sleep(time.Hour)
				r.set("a", 2)
				time.Sleep(time.Minute)
				r.tick()
				r.set("a", 3)
				r.cfg.Pipeline.Changes[0].Start.Kind = "earliest" // a later version of the file
				r.work()
				r.round()
				if got := fmt.Sprint(r.values()); got != want {
					t.Errorf("%s, want %s: %s", got, want, r.log)
				}
			})
		})
	}
}

// What a window does not finish, the next one does; a stop ends a visit at once, with all
// that it has acknowledged committed.
//
// covers: CS-04
func TestAVisitEndsWithItsWindowOrItsProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, "idleStop: false, window: 20s, "+toLog)
		r.round()
		r.set("a", 1)
		if got := r.outcomes(); got != "window" {
			t.Errorf("%s", got)
		}
		r.tick()
		stopping, stop := context.WithCancel(t.Context())
		r.cfg.Stopping = stopping
		time.AfterFunc(3*time.Second, stop)
		began := time.Now()
		r.work()
		if d := time.Since(began); d > 4*time.Second || fmt.Sprint(r.values()) != "map[a:[1]]" {
			t.Errorf("%s, %v", d, r.values())
		}
		r.cfg.Stopping = t.Context()
		r.round()
		if len(r.records) != 1 {
			t.Errorf("%d records", len(r.records))
		}
	})
}

// A filter takes entries by family and qualifier; what is left keeps its order and place,
// and a change without entries is delivered, or not.
//
// covers: CS-17, CS-18, CS-19, CS-20
// stream-case: 35
func TestAFilterTakesEntries(t *testing.T) {
	for filter, want := range map[string]string{
		``:                                      "0:SET_CELL:cf:a 1:DELETE_CELLS:cf:b 2:DELETE_FAMILY:other: 3:SET_CELL:other:a | 0:SET_CELL:other:z",
		`filter: {families: {include: [cf]}}, `: "0:SET_CELL:cf:a 1:DELETE_CELLS:cf:b | ",
		`filter: {families: {include: [cf]}, dropEmpty: true}, `:                 "0:SET_CELL:cf:a 1:DELETE_CELLS:cf:b",
		`filter: {qualifiers: {include: ["cf:YQ=="]}}, `:                         "0:SET_CELL:cf:a 2:DELETE_FAMILY:other: | ",
		`filter: {qualifiers: {exclude: [".*:YQ=="]}}, `:                         "1:DELETE_CELLS:cf:b 2:DELETE_FAMILY:other: | 0:SET_CELL:other:z",
		`filter: {families: {exclude: ["oth"]}, qualifiers: {include: ["x"]}}, `: "2:DELETE_FAMILY:other: | ",
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, filter+toLog)
			r.tick()
			r.mutate("k", setCell("cf", "a", "1"),
				&bigtablepb.Mutation{Mutation: &bigtablepb.Mutation_DeleteFromColumn_{DeleteFromColumn: &bigtablepb.Mutation_DeleteFromColumn{FamilyName: "cf", ColumnQualifier: []byte("b")}}},
				&bigtablepb.Mutation{Mutation: &bigtablepb.Mutation_DeleteFromFamily_{DeleteFromFamily: &bigtablepb.Mutation_DeleteFromFamily{FamilyName: "other"}}},
				setCell("other", "a", "2"))
			r.mutate("l", setCell("other", "z", "3"))
			r.work()
			var texts []string
			for _, rec := range r.records {
				var c told
				if err := json.Unmarshal(rec.Body, &c); err != nil {
					t.Fatal(err)
				}
				var entries []string
				for _, e := range c.Entries {
					entries = append(entries, fmt.Sprintf("%d:%s:%s:%s", e.Index, e.Kind, e.Family, e.Qualifier))
				}
				texts = append(texts, strings.Join(entries, " "))
			}
			if got := strings.Join(texts, " | "); got != want {
				t.Errorf("%s\n%s, want\n%s", filter, got, want)
			}
			top, err := r.ledger(r.store).Topology(t.Context(), streamID)
			if err != nil || len(top.Partitions) != 1 || top.Partitions[0].MovedAt.IsZero() {
				t.Errorf("the position has not moved: %v", err)
			}
		})
	}
}

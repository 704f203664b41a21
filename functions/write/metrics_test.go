package write_test

import (
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	sdk "go.opentelemetry.io/otel/sdk/metric"
	"google.golang.org/grpc/codes"

	"github.com/bigtable-functions/bigtable-functions/emulator"
	"github.com/bigtable-functions/bigtable-functions/internal/functest"
)

const meteredFile = `
version: 1
name: orders
bigtable: {project: my-project, instance: my-instance}
tables:
  orders: {families: {cf: {}}}
  daily:
    idFrom: '"day-" + event.day'
    idMatches: ^day-\d+$
    create: if-needed
    families: {cf: {}, more: {}}
write:
  format: ndjson
  skip: has(event.heartbeat)
  onFailure: dead-letter
  mappings:
    - name: order
      when: has(event.id)
      table: orders
      rowKey: event.id
      mutations: [{set: {cf: {v: event.v}}}]
    - name: daily
      when: has(event.day)
      table: daily
      rowKey: event.day
      mutations: [{set: {cf: {v: event.v}, more: {v: event.v}}}]
`

// covers: MET-01, MET-02, MET-03, MET-04, MET-05, MET-06, MET-07, MET-08, MET-09, MET-11
func TestInstrumentsCountWhatTheReferenceCounts(t *testing.T) {
	reader := sdk.NewManualReader()
	provider := sdk.NewMeterProvider(sdk.WithReader(reader))
	h := newHarness(t, meteredFile, plainFamilies("cf"), func(h *harness) {
		h.service.CellBytes = 1000
		h.meter = provider.Meter("write")
	})
	h.emulator.Inject(emulator.Fault{Method: "MutateRows", Count: 1, Code: codes.Unavailable})
	lines := []string{
		`{"id":"a","v":"1"}`, `{"id":"b","v":"2"}`, `{"heartbeat":1}`, `{"id":"c","v":[]}`,
		`{"id":"d","v":"` + strings.Repeat("x", 2000) + `"}`, `{"day":"1","v":"3"}`, `{"day":"2","v":"4"}`,
	}
	if status := h.deliver("m-1", []byte(strings.Join(lines, "\n"))); status != 204 {
		t.Fatalf("%d\n%s", status, h.log)
	}
	got := functest.Readings(t, reader)
	if got["btf.write.bytes.sent"] < 2000 {
		t.Errorf("bytes sent: %d", got["btf.write.bytes.sent"])
	}
	delete(got, "btf.write.bytes.sent")
	unavailable := got["btf.write.errors{code=Unavailable}"]
	if unavailable < 1 || unavailable > 3 {
		t.Errorf("errors of the one injected fault: %d", unavailable)
	}
	delete(got, "btf.write.errors{code=Unavailable}")
	want := map[string]int64{
		"btf.write.entries.sent":                       5, // a, b, d, both days
		"btf.write.records.failed":                     2, // c of the mapping, d of the service
		"btf.write.records.skipped":                    1,
		"btf.write.entries.in_flight":                  0,
		"btf.write.bytes.in_flight":                    0,
		"btf.write.entries.parked":                     0,
		"btf.write.errors{code=InvalidArgument}":       1,
		"btf.write.errors{code=NotFound}":              2,
		"btf.write.tables.created":                     2,
		"btf.write.families.added":                     0,
		"btf.write.table.entries.sent{table=orders}":   3,
		"btf.write.table.entries.sent{table=daily}":    2,
		"btf.write.table.entries.failed{table=orders}": 2, // c and d
		"btf.write.dead_letters.published":             2,
		"btf.write.dead_letters.outstanding":           0,
		"btf.write.dead_letters.wait":                  1,
	}
	if !maps.Equal(got, want) {
		t.Errorf("\n got %v\nwant %v", got, want)
	}
}

// covers: MET-05, MET-06
func TestGaugesShowWhatWaitsWhileItWaits(t *testing.T) {
	reader := sdk.NewManualReader()
	provider := sdk.NewMeterProvider(sdk.WithReader(reader))
	var once sync.Once
	creating, release := make(chan struct{}), make(chan struct{})
	h := newHarness(t, meteredFile, plainFamilies("cf"), func(h *harness) {
		h.meter = provider.Meter("write")
		h.call = func(method string) {
			if method == "CreateTable" {
				once.Do(func() { close(creating) })
				<-release
			}
		}
	})
	done := make(chan int, 1)
	go func() { done <- h.deliver("m-1", []byte(`{"day":"1","v":"3"}`)) }()
	select {
	case <-creating:
	case <-time.After(time.Minute):
		t.Fatal("nothing is created")
	}
	got := functest.Readings(t, reader)
	if got["btf.write.entries.in_flight"] != 1 || got["btf.write.entries.parked"] != 1 || got["btf.write.bytes.in_flight"] == 0 {
		t.Errorf("%v", got)
	}
	close(release)
	if status := <-done; status != 204 {
		t.Errorf("%d\n%s", status, h.log)
	}
	got = functest.Readings(t, reader)
	if got["btf.write.entries.in_flight"] != 0 || got["btf.write.entries.parked"] != 0 {
		t.Errorf("%v", got)
	}
}

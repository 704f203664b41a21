package telemetry_test

import (
	"errors"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/metric"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/bigtable-functions/bigtable-functions/internal/telemetry"
)

func TestWhatHasCountedNothingHasNoSeries(t *testing.T) {
	reader := sdk.NewManualReader()
	made := telemetry.Instruments{Meter: sdk.NewMeterProvider(sdk.WithReader(reader)).Meter("test")}
	some, none := made.Counter("some", "{thing}", "Things."), made.Counter("none", "{thing}", "No things.")
	if err := made.Err("test"); err != nil {
		t.Fatal(err)
	}
	telemetry.Add(t.Context(), some, 0)
	telemetry.Add(t.Context(), some, 7)
	telemetry.Add(t.Context(), none, 0)
	var got metricdata.ResourceMetrics
	if err := reader.Collect(t.Context(), &got); err != nil {
		t.Fatal(err)
	}
	if len(got.ScopeMetrics) != 1 || len(got.ScopeMetrics[0].Metrics) != 1 {
		t.Fatalf("%+v", got)
	}
	m := got.ScopeMetrics[0].Metrics[0]
	points := m.Data.(metricdata.Sum[int64]).DataPoints
	if m.Name != "some" || m.Unit != "{thing}" || m.Description != "Things." || len(points) != 1 || points[0].Value != 7 {
		t.Errorf("%+v", m)
	}
}

// failing makes no counter.
type failing struct{ metric.Meter }

func (failing) Int64Counter(string, ...metric.Int64CounterOption) (metric.Int64Counter, error) {
	return nil, errors.New("no counters today")
}

func TestEveryInstrumentThatCannotBeMadeIsTold(t *testing.T) {
	made := telemetry.Instruments{Meter: failing{}}
	made.Counter("a", "1", "A.")
	made.Note(nil)
	made.Note(errors.New("no histograms either"))
	err := made.Err("scan-worker")
	if err == nil || !strings.Contains(err.Error(), "instruments of scan-worker: no counters today\nno histograms either") {
		t.Errorf("error %v", err)
	}
}

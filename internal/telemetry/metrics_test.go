package telemetry

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	collector "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	"google.golang.org/protobuf/proto"
)

func TestMetricsAreOffUnlessTheEnvironmentAsksForThem(t *testing.T) {
	for _, c := range []struct {
		env map[string]string
		on  bool
		err string
	}{
		{env: map[string]string{}},
		{env: map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x"}, on: true},
		{env: map[string]string{"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://x"}, on: true},
		{env: map[string]string{"OTEL_METRICS_EXPORTER": "otlp"}, on: true},
		{env: map[string]string{"OTEL_METRICS_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://x"}},
		{env: map[string]string{"OTEL_SDK_DISABLED": "true", "OTEL_METRICS_EXPORTER": "otlp"}},
		{env: map[string]string{"OTEL_METRICS_EXPORTER": "prometheus"}, err: "OTEL_METRICS_EXPORTER=prometheus"},
		{env: map[string]string{"OTEL_METRICS_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, err: "http/protobuf"},
		{env: map[string]string{"OTEL_METRICS_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc",
			"OTEL_EXPORTER_OTLP_METRICS_PROTOCOL": "http/protobuf"}, on: true},
	} {
		on, err := wantsMetrics(func(name string) string { return c.env[name] })
		if on != c.on || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%v: %v, %v", c.env, on, err)
		}
	}
}

func TestMetricsAreSentEveryTenSecondsAtMost(t *testing.T) {
	for set, want := range map[string]time.Duration{"": 10 * time.Second, "soon": 10 * time.Second, "100": 10 * time.Second, "60000": time.Minute} {
		if got := interval(func(string) string { return set }); got != want {
			t.Errorf("%q: %v, want %v", set, got, want)
		}
	}
}

func TestShutdownSendsTheLastMetrics(t *testing.T) {
	var total atomic.Int64
	var about atomic.Value
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		var request collector.ExportMetricsServiceRequest
		if err != nil || proto.Unmarshal(body, &request) != nil {
			t.Error("not a request of OTLP")
			return
		}
		for _, rm := range request.ResourceMetrics {
			about.Store(rm.Resource.String())
			for _, sm := range rm.ScopeMetrics {
				for _, m := range sm.Metrics {
					total.Add(m.GetSum().GetDataPoints()[0].GetAsInt())
				}
			}
		}
	}))
	defer server.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", server.URL)
	env := map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": server.URL}
	settings, err := ReadSettings(func(name string) string { return env[name] })
	if err != nil {
		t.Fatal(err)
	}
	meters, err := NewMeters(t.Context(), settings, "orders-write", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	counter, err := meters.Meter("test").Int64Counter("things")
	if err != nil {
		t.Fatal(err)
	}
	counter.Add(t.Context(), 7)
	if err := meters.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	text, _ := about.Load().(string)
	if total.Load() != 7 || !strings.Contains(text, "orders-write") || !strings.Contains(text, "service.instance.id") {
		t.Errorf("%d things from %s", total.Load(), text)
	}
}

package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	"google.golang.org/protobuf/proto"
)

// collected is a collector of OTLP that keeps the newest value of each series.
type collected struct {
	mu     sync.Mutex
	values map[string]int64
	about  string
}

func (c *collected) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	var request collector.ExportMetricsServiceRequest
	if err != nil || proto.Unmarshal(body, &request) != nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, rm := range request.ResourceMetrics {
		c.about = rm.Resource.String()
		for _, sm := range rm.ScopeMetrics {
			for _, m := range sm.Metrics {
				for _, p := range m.GetSum().GetDataPoints() {
					c.values[m.Name] += p.GetAsInt()
				}
			}
		}
	}
}

// Where OTEL_EXPORTER_OTLP_ENDPOINT is set, what an instance has counted is sent when it
// is told to stop, at the latest; by a name of the deployment.
//
// covers: MET-01, MET-03, MET-04, MET-09
func TestSIGTERMSendsTheLastMetrics(t *testing.T) {
	c := &collected{values: map[string]int64{}}
	server := httptest.NewServer(c)
	defer server.Close()
	b := startBigtable(t, "my-project", "my-instance", "orders", "cf")
	p := startChild(t, "function", "FUNCTION_TARGET=write", "BIGTABLE_EMULATOR_HOST="+b.addr,
		"OTEL_EXPORTER_OTLP_ENDPOINT="+server.URL,
		"PIPELINE="+strings.Replace(stallFile, "format: json", "format: json\n  onFailure: drop\n  skip: event.to == \"nowhere\"", 1))
	client := &http.Client{}
	defer client.CloseIdleConnections()
	bad := envelope(1, []byte(`{"to":"quick"}`))
	for _, body := range [][]byte{bad, bad, envelope(2, []byte(`{"to":"nowhere"}`))} {
		if status := post(client, p.url, body); status != http.StatusNoContent {
			t.Fatalf("answered %d\n%s", status, p.output())
		}
	}
	if code := p.stop(t); code != 0 {
		t.Errorf("exit code %d\n%s", code, p.output())
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.values["btf.write.records.failed"] != 2 || c.values["btf.write.records.skipped"] != 1 || !strings.Contains(c.about, "pair-write") {
		t.Errorf("%v of %s\n%s", c.values, c.about, p.output())
	}
}

func TestAWrongTelemetryVariableIsSaid(t *testing.T) {
	env := map[string]string{"PIPELINE": stallFile, "OTEL_METRICS_EXPORTER": "prometheus"}
	_, err := buildFrom(env, "write")
	if err == nil || !strings.Contains(err.Error(), "OTEL_METRICS_EXPORTER=prometheus") {
		t.Error(err)
	}
}

package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/bigtable-functions/bigtable-functions/internal/functest"
)

// The key file of a pipeline serves Pub/Sub and the ledger too: dead letters are published,
// and the ledger of scans is read, as the service account of the file, whatever the
// environment has.
//
// covers: CRED-02, FAIL-16
func TestTheCredentialsFileReachesPubSubAndTheLedger(t *testing.T) {
	google := functest.NewGoogle(t)
	t.Setenv("GOOGLE_APPLICATION_CREDENTIALS", functest.KeyFile(t, "default@p.iam.gserviceaccount.com"))
	const account = "file@p.iam.gserviceaccount.com"
	file := `
version: 1
name: orders
credentialsFile: ` + functest.KeyFile(t, account) + `
bigtable: {project: p, instance: i}
tables: {orders: {families: {cf: {}}}}
write:
  onFailure: dead-letter
  mappings: [{name: m, table: orders, rowKey: event.id, mutations: [{set: {cf: {v: event.v}}}]}]
scans:
  all: {table: orders, emit: {id: rowKey}, to: {pubsub: {topic: out}}}
`
	variables := map[string]string{"PIPELINE": file, "LEDGER": "firestore:p/(default)"}
	for target, method := range map[string]string{"write": "Publish", "scan-planner": "BatchGetDocuments"} {
		p, err := buildFrom(variables, target, func(e *environment) { e.google = google.Options() })
		if err != nil {
			t.Fatalf("%s: %v", target, err)
		}
		body := `{"message":{"messageId":"1","publishTime":"2026-08-30T10:00:00Z","data":"eyJzY2FuIjoiYWxsIn0="},"subscription":"s"}`
		r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(body))
		out := httptest.NewRecorder()
		p.handlers[target].ServeHTTP(out, r.WithContext(t.Context()))
		if got := google.Caller(method); got != account {
			t.Errorf("%s: %s was called by %q, want %q (answer %d)", target, method, got, account, out.Code)
		}
		if err := p.open.Close(); err != nil {
			t.Errorf("%s: %v", target, err)
		}
	}
	variables["PUBSUB_EMULATOR_HOST"] = "localhost:1"
	_, err := buildFrom(variables, "write")
	if err == nil || !strings.Contains(err.Error(), "PUBSUB_EMULATOR_HOST") || strings.Contains(err.Error(), "key.json") {
		t.Errorf("beside an emulator of Pub/Sub: %v", err)
	}
}

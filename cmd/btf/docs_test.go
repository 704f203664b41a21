package main

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"cloud.google.com/go/bigtable"

	"github.com/bigtable-functions/bigtable-functions/cmd/btf/internal/dev"
	"github.com/bigtable-functions/bigtable-functions/internal/lint"
	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
	"github.com/bigtable-functions/bigtable-functions/internal/task"
)

// blocks returns the fenced blocks of a section of docs/scans.md.
func blocks(t *testing.T, heading string) []string {
	t.Helper()
	text, err := os.ReadFile("../../docs/scans.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(text), "\n## "+heading+"\n")
	if !found {
		t.Fatalf("docs/scans.md has no section %q", heading)
	}
	section, _, _ = strings.Cut(section, "\n## ")
	var out []string
	for i, part := range strings.Split(section, "```") {
		if i%2 == 1 {
			_, block, _ := strings.Cut(part, "\n")
			out = append(out, block)
		}
	}
	return out
}

// The file of docs/scans.md passes its tests, and what is said to come of the request
// comes of it where the table has the tests' rows.
func TestTheScanOfTheDocumentationDoesWhatItSays(t *testing.T) {
	example := blocks(t, "A whole scan")
	if len(example) != 4 {
		t.Fatalf("%d blocks", len(example))
	}
	file, request, records, event := example[0], example[1], strings.Split(strings.TrimSpace(example[2]), "\n"), example[3]
	loaded, findings := lint.Load([]byte(file), pipeline.Options{File: "orders.yaml"})
	if loaded == nil || findings.Count(lint.Warning) > 0 {
		t.Fatal(findings)
	}
	d, running := startDevOf(t, file, dev.SystemClock())
	out, done := arrive(t, running, "paid-orders"), arrive(t, running, "orders-scan-done")
	fill(t, d.tables, loaded.Pipeline)
	d.ask(strings.TrimSpace(request))
	if got := out.wait(t, len(records)); !slices.Equal(got, records) {
		t.Errorf("records %q, the documentation has %q", got, records)
	}
	sameEvent(t, done.wait(t, 1)[0], strings.TrimSpace(event))
	if got, _, err := run(t, "test", "orders.yaml"); err != nil || strings.Count(got, "ok    ") != len(loaded.Pipeline.Tests) {
		t.Errorf("%v\n%s", err, got)
	}
	d.end()
}

// fill writes the rows of a file's tests.
func fill(t *testing.T, client *bigtable.Client, p *pipeline.Pipeline) {
	t.Helper()
	for _, test := range p.Tests {
		var key string
		if err := json.Unmarshal(test.Row.Key.JSON, &key); err != nil {
			t.Fatal(err)
		}
		m := bigtable.NewMutation()
		for _, c := range test.Row.Cells {
			var text string
			if err := json.Unmarshal(c.Value.JSON, &text); err != nil {
				t.Fatal(err)
			}
			value, err := c.Encoding.Append(nil, text, "")
			if err != nil {
				t.Fatal(err)
			}
			m.Set(c.Family.Name, c.Qualifier, 1000, value)
		}
		if err := client.Open(test.Row.Scan.Table.ID).Apply(t.Context(), key, m); err != nil {
			t.Fatal(err)
		}
	}
}

// sameEvent compares two completion events but for the scan's id and the times.
func sameEvent(t *testing.T, got, want string) {
	t.Helper()
	events := make([]task.ScanDone, 2)
	fields := make([][]string, 2)
	for i, text := range []string{got, want} {
		var err error
		if events[i], err = task.DecodeScanDone([]byte(text)); err != nil {
			t.Fatal(err)
		}
		var all map[string]any
		if err := json.Unmarshal([]byte(text), &all); err != nil {
			t.Fatal(err)
		}
		for name := range all {
			fields[i] = append(fields[i], name)
		}
		slices.Sort(fields[i])
		events[i].Scan, events[i].CreatedAt, events[i].FinishedAt = "", events[0].CreatedAt, events[0].CreatedAt
	}
	if events[0] != events[1] || !slices.Equal(fields[0], fields[1]) {
		t.Errorf("the event %s, the documentation has %s", got, want)
	}
}

func TestTheRequestsOfTheDocumentationAreRead(t *testing.T) {
	found := blocks(t, "Starting one")
	if len(found) != 2 {
		t.Fatalf("%d blocks", len(found))
	}
	for i, block := range found {
		r, err := task.DecodeScanRequest([]byte(block))
		if err != nil || r.Scheduled != (i == 1) {
			t.Errorf("%s: %+v, %v", block, r, err)
		}
	}
}

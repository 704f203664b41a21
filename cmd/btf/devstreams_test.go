package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2"

	"github.com/bigtable-functions/bigtable-functions/cmd/btf/internal/dev"
)

// rowsOf returns the row keys of records of changes.
func rowsOf(t *testing.T, records []string) string {
	t.Helper()
	var rows []string
	for _, r := range records {
		var record struct{ RowKey string }
		if err := json.Unmarshal([]byte(r), &record); err != nil {
			t.Fatal(err)
		}
		rows = append(rows, record.RowKey)
	}
	return strings.Join(rows, " ")
}

const withChanges = "changes:\n  feed: {table: orders, appProfile: one, window: 1s, start: latest, to: {pubsub: {topic: changed}}}\n"

// Dev reads the change streams of a file, through a split of the table and a new version of
// the file, and shows them in btf status.
func TestDevReadsTheChangesOfWhatItHasWritten(t *testing.T) {
	d, run := startDevOf(t, withValue("event.status")+withChanges, dev.SystemClock())
	d.said(`change stream feed of table orders: (records go to topic projects/local/topics/changed, to be pulled from projects/local/subscriptions/changed)`)
	waitForStream(t, "# read")
	out := arrive(t, run, "changed")
	d.publish(`{"id": "a", "status": "PAID"}`, `{"id": "z", "status": "NEW"}`)
	if got := rowsOf(t, out.wait(t, 2)); got != "a z" && got != "z a" {
		t.Errorf("changes of %s", got)
	}
	if err := run.Local.Emulator.SplitTablet("projects/my-project/instances/my-instance/tables/orders", []byte("m")); err != nil {
		t.Fatal(err)
	}
	d.publish(`{"id": "b", "status": "PAID"}`, `{"id": "y", "status": "NEW"}`)
	out.wait(t, 4)
	d.said(`change stream feed: (a partition has closed, 2 successors opened)`)
	d.edit(withValue(`"edited"`)+withChanges, `(reloaded)`)
	d.publish(`{"id": "c"}`)
	if got := out.wait(t, 5); !strings.Contains(strings.Join(got, ""), `"value":"edited"`) || len(got) != 5 {
		t.Errorf("%d records: %q", len(got), got)
	}
	client, err := run.Local.Cloud.Client(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if _, err := client.Publisher("orders-change-tasks").Publish(t.Context(), &pubsub.Message{Data: []byte("no task")}).Get(t.Context()); err != nil {
		t.Fatal(err)
	}
	d.said(`(a delivery to changes is no task of a change stream, and is dropped: )`)
	d.end()
}

// waitForStream waits until btf status shows something of a change stream.
func waitForStream(t *testing.T, text string) {
	t.Helper()
	for range 1200 {
		if out, _, err := run(t, "status", "-f", "orders.yaml"); err == nil && strings.Contains(out, text) {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Fatalf("status never shows %q", text)
}

// Changes that an edit adds are read from then on, and a table that has rows already gets a
// change stream.
func TestDevServesChangesThatAnEditAdds(t *testing.T) {
	d, run := startDevOf(t, withValue("event.status"), dev.SystemClock())
	d.publish(`{"id": "a", "status": "PAID"}`)
	d.said(`(1 row applied)`)
	d.edit(withValue("event.status")+withChanges, `(reloaded)`)
	waitForStream(t, "# read")
	out := arrive(t, run, "changed")
	d.publish(`{"id": "b", "status": "PAID"}`)
	if got := rowsOf(t, out.wait(t, 1)); got != "b" {
		t.Errorf("changes of %s", got)
	}
	d.edit(withValue("event.status"), `(kept the version before)`)
	d.end()
}

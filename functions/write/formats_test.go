package write_test

import (
	"encoding/json"
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/bigtable-functions/bigtable-functions/internal/deadletter"
	"github.com/bigtable-functions/bigtable-functions/internal/mapping"
	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
	"github.com/bigtable-functions/bigtable-functions/internal/push"
	"github.com/bigtable-functions/bigtable-functions/internal/replay"
)

const eventsFile = `
version: 1
name: orders
bigtable: {project: my-project, instance: my-instance}
tables:
  orders:
    families:
      cf: {columns: {status: string, total: int64}}
write:
  format: cloudevent
  onFailure: dead-letter
  mappings:
    - name: order
      table: orders
      rowKey: key(event.type, event.id)
      timestamp: timestamp(event.time)
      mutations:
        - set: {cf: {status: event.data.status, total: event.data.total}}
`

const lettersFile = `
version: 1
name: again
bigtable: {project: my-project, instance: my-instance}
tables:
  orders:
    families:
      cf: {columns: {status: string, total: int64}}
write:
  format: mutation
  onFailure: dead-letter
`

// lettersOf is the subscription with the dead letters of a pipeline.
func lettersOf(name string) string {
	return "projects/my-project/subscriptions/" + name + "-dead-letter"
}

// deliverWith posts a message with attributes and returns the status.
func (h *harness) deliverWith(id string, data []byte, attributes map[string]string) int {
	h.t.Helper()
	body, err := json.Marshal(map[string]any{
		"message": map[string]any{
			"data": data, "attributes": attributes, "messageId": id, "publishTime": "2026-08-30T10:15:31.456Z",
		},
		"subscription": "projects/my-project/subscriptions/orders-events",
	})
	if err != nil {
		h.t.Fatal(err)
	}
	return h.post(body)
}

func TestCloudEventsBecomeRowsAndFailedOnesCanBeReadAgain(t *testing.T) {
	h := newHarness(t, eventsFile, plainFamilies("cf"), nil)
	structured := `{"specversion":"1.0","id":"s","source":"/shop","type":"order","time":"2026-08-30T10:15:30Z","data":{"status":"PAID","total":9007199254740993}}`
	binary := map[string]string{"ce-specversion": "1.0", "ce-id": "b", "ce-source": "/shop", "ce-type": "order", "ce-time": "2026-08-30T10:15:30Z", "content-type": "application/json"}
	for _, status := range []int{
		h.deliverWith("m-1", []byte(structured), nil),
		h.deliverWith("m-2", []byte(`{"status":"NEW","total":1}`), binary),
		h.deliverWith("m-3", []byte(`{"status":7,"total":1}`), binary),
	} {
		if status != http.StatusNoContent {
			t.Errorf("status %d", status)
		}
	}
	rows := h.rows("orders")
	if len(rows) != 2 || rows["order#s"]["cf:total"] != "\x00\x20\x00\x00\x00\x00\x00\x01" || rows["order#b"]["cf:status"] != "NEW" {
		t.Errorf("rows %q", rows)
	}
	// The letter holds the event's attributes, which came beside its data.
	if len(h.letters.letters) != 1 || h.letters.letters[0].Kind != deadletter.KindRecord {
		t.Fatalf("letters %+v", h.letters.letters)
	}
	if l := h.letters.letters[0]; string(l.Data) != `{"status":7,"total":1}` || !maps.Equal(l.Origin.Attributes, binary) {
		t.Errorf("letter %s %+v", l.Data, l.Origin)
	}
	// Under a file that takes what was refused, a replay makes the row of it.
	p, err := pipeline.Parse([]byte(strings.Replace(eventsFile, "event.data.status", "string(event.data.status)", 1)), pipeline.Options{})
	if err != nil {
		t.Fatal(err)
	}
	replayer, err := replay.NewReader(p, mapping.ServiceLimits(), false)
	if err != nil {
		t.Fatal(err)
	}
	data, attributes := h.letters.letters[0].Encode()
	replay, err := replayer.Read(&push.Message{ID: "new", PublishTime: time.Now(), Data: data, Attributes: attributes, Subscription: lettersOf("orders")}, time.Now())
	if err != nil || len(replay.Rows) != 1 || string(replay.Rows[0].Entry.RowKey) != "order#b" {
		t.Errorf("replayed: %v %+v", err, replay)
	}
}

// Both kinds of work end in NAME-undelivered; a request must not become a row.
func TestAnUndeliveredScanRequestIsNotReplayedAsARecord(t *testing.T) {
	takesIt := strings.NewReplacer("rowKey: event.id", "rowKey: event.scan", "event.?status", "event.?scan")
	p, err := pipeline.Parse([]byte(takesIt.Replace(ordersFile("json", "fail", "fail"))), pipeline.Options{})
	if err != nil {
		t.Fatal(err)
	}
	replayer, err := replay.NewReader(p, mapping.ServiceLimits(), false)
	if err != nil {
		t.Fatal(err)
	}
	m := &push.Message{ID: "new", Data: []byte(`{"scan":"archive"}`), Attributes: map[string]string{
		"CloudPubSubDeadLetterSourceTopicPublishTime": "2026-08-30T10:15:31Z", "CloudPubSubDeadLetterSourceSubscription": "orders-scan-requests",
	}}
	replay, err := replayer.Read(m, time.Now())
	if err == nil || !strings.Contains(err.Error(), "publish it again to orders-scan-requests") || len(replay.Rows) > 0 {
		t.Errorf("%v, %+v", err, replay)
	}
}

// covers: FAIL-09
func TestDeadLettersBecomeRowsAndRefusedOnesStayWhatTheyAre(t *testing.T) {
	// A cell over the service's limit but under the function's: the service refuses it.
	first := newHarness(t, ordersFile("json", "dead-letter", "fail"), plainFamilies("cf", "extra"), func(h *harness) { h.service.CellBytes = 100 })
	if status := first.deliver("m-1", []byte(`{"id":"a","status":"`+strings.Repeat("x", 200)+`"}`)); status != http.StatusNoContent {
		t.Fatalf("status %d", status)
	}
	if len(first.letters.letters) != 1 || first.letters.letters[0].Kind != deadletter.KindEntry {
		t.Fatalf("letters %+v", first.letters.letters)
	}
	letter := first.letters.letters[0]

	again := newHarness(t, lettersFile, plainFamilies("cf"), nil)
	data, attributes := letter.Encode()
	if status := again.deliverWith("m-2", data, attributes); status != http.StatusNoContent {
		t.Fatalf("status %d", status)
	}
	if rows := again.rows("orders"); len(rows) != 1 || len(rows["a"]["cf:status"]) != 200 {
		t.Errorf("rows %q", rows)
	}
	// An entry for a table of another file is given up again, as it came.
	letter.Table += "-other"
	data, attributes = letter.Encode()
	if status := again.deliverWith("m-3", data, attributes); status != http.StatusNoContent {
		t.Fatalf("status %d", status)
	}
	kept := again.letters.letters
	if len(kept) != 1 || kept[0].Kind != deadletter.KindEntry || kept[0].Table != letter.Table || kept[0].MessageID != "m-1" || string(kept[0].Data) != string(letter.Data) {
		t.Errorf("kept %+v", kept)
	}
}

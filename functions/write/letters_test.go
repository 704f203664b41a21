package write_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/bigtable-functions/bigtable-functions/internal/deadletter"
	"github.com/bigtable-functions/bigtable-functions/internal/push"
)

// partsFile writes the parts of each record, under what the message says beside them.
const partsFile = `
version: 1
name: orders
bigtable: {project: my-project, instance: my-instance}
tables:
  orders:
    families:
      cf: {columns: {status: string}}
write:
  format: json
  onFailure: dead-letter
  mappings:
    - name: part
      forEach: 'type(event) == list ? event : [event]'
      table: orders
      rowKey: key(message.attributes.tenant, item.id)
      mutations:
        - set:
            cf:
              status: STATUS
`

const (
	refusing = `'[string(item.n)][item.n - 5]'`
	taking   = `'string(item.n) + " " + message.orderingKey + " " + message.subscription'`
)

// replayed maps the letters under a file, and returns the rows and what is refused.
func replayed(t *testing.T, file string, letters []deadletter.Letter) (rows map[string]string, refused []error) {
	t.Helper()
	rows = map[string]string{}
	r := replayer(t, file)
	for _, l := range letters {
		data, attributes := l.Encode()
		x, err := r.Read(&push.Message{ID: "new", PublishTime: time.Now(), Data: data, Attributes: attributes, Subscription: lettersOf("orders")}, time.Now())
		if err != nil {
			refused = append(refused, err)
			continue
		}
		refused = append(refused, x.Refused...)
		for _, row := range x.Rows {
			set := row.Entry.Mutations[0].GetSetCell()
			rows[string(row.Entry.RowKey)] += fmt.Sprintf("%s @ %d;", set.Value, set.TimestampMicros)
		}
	}
	return rows, refused
}

// A letter holds what a mapping may read of the message, and its record is one again.
func TestARecordIsReplayedWithAllThatItsMessageHad(t *testing.T) {
	h := newHarness(t, strings.Replace(partsFile, "STATUS", refusing, 1), plainFamilies("cf"), nil)
	body, err := json.Marshal(map[string]any{
		"message": map[string]any{
			"data": []byte(`[[{"id":"a","n":1},{"id":"b","n":2}],{"id":"c","n":5},[[{"id":"d"}]],{"id":"e","n":3}]`), "messageId": "m-1", "publishTime": "2026-08-30T10:15:31.456Z",
			"orderingKey": "key", "attributes": map[string]string{"tenant": "acme"},
		},
		"subscription": "projects/p/subscriptions/s",
	})
	if err != nil {
		t.Fatal(err)
	}
	if status := h.post(body); status != http.StatusNoContent {
		t.Fatalf("status %d", status)
	}
	if rows := h.rows("orders"); len(rows) != 1 || rows["acme#c"]["cf:status"] != "5" {
		t.Errorf("rows %v", rows)
	}
	places := []int{}
	for _, l := range h.letters.letters {
		places = append(places, l.Origin.Place)
	}
	if fmt.Sprint(places) != "[0 2 3]" {
		t.Fatalf("letters of the records %v", places)
	}
	rows, refused := replayed(t, strings.Replace(partsFile, "STATUS", taking, 1), h.letters.letters)
	const at = " key projects/p/subscriptions/s @ 1788084931456000;"
	if len(rows) != 3 || rows["acme#a"] != "1"+at || rows["acme#b"] != "2"+at || rows["acme#e"] != "3"+at {
		t.Errorf("rows %v", rows)
	}
	if len(refused) != 1 || !strings.Contains(refused[0].Error(), "mapping part: rowKey") { // an array has no id
		t.Errorf("refused %v", refused)
	}
}

// A message may be its attributes alone.
func TestAMessageOfAttributesAloneIsKeptWhole(t *testing.T) {
	h := newHarness(t, strings.Replace(partsFile, "STATUS", taking, 1), plainFamilies("cf"), nil)
	if status := h.deliverWith("m-1", nil, map[string]string{"tenant": "acme", "status": "PAID"}); status != http.StatusNoContent {
		t.Fatalf("status %d", status)
	}
	if l := h.letters.letters; len(l) != 1 || l[0].Origin.Attributes["status"] != "PAID" || !l[0].Origin.Whole {
		t.Errorf("letters %+v", l)
	}
}

// A request that is no message holds no record, and nothing is made of it, however much of
// a message could be read.
func TestARequestThatIsNoMessageIsNotReplayed(t *testing.T) {
	h := newHarness(t, strings.Replace(partsFile, "STATUS", taking, 1), plainFamilies("cf"), nil)
	for _, body := range []string{
		`{"id":"a","n":1}`,
		`{"message":{"messageId":"m-1","publishTime":"2026-08-30T10:15:31Z","data":"{}"},"subscription":"s"}`,
	} {
		if status := h.post([]byte(body)); status != http.StatusNoContent {
			t.Fatalf("status %d", status)
		}
	}
	rows, refused := replayed(t, strings.Replace(partsFile, "STATUS", taking, 1), h.letters.letters)
	if len(rows) > 0 || len(refused) != 2 || !strings.Contains(refused[1].Error(), "no message of Pub/Sub") {
		t.Errorf("rows %v, refused %v", rows, refused)
	}
}

// What no message can hold is not lost: the delivery is refused, and says why.
func TestALetterThatPubSubCannotTakeRefusesTheDelivery(t *testing.T) {
	h := newHarness(t, strings.Replace(partsFile, "STATUS", taking, 1), plainFamilies("cf"), nil)
	attributes := map[string]string{"tenant": "acme"}
	for i := range 99 {
		attributes[fmt.Sprint("a", i)] = strings.Repeat("x", 1024)
	}
	if status := h.deliverWith("m-1", []byte(`{}`), attributes); status != http.StatusServiceUnavailable || len(h.letters.letters) > 0 {
		t.Errorf("status %d, letters %d", status, len(h.letters.letters))
	}
	if log := h.log.String(); !strings.Contains(log, "it cannot be kept as a dead letter, for its message's attributes take more than") || strings.Contains(log, "acme") {
		t.Errorf("log:\n%s", log)
	}
}

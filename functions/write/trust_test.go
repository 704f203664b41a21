package write_test

import (
	"encoding/json"
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	"cloud.google.com/go/bigtable/apiv2/bigtablepb"

	"github.com/bigtable-functions/bigtable-functions/internal/deadletter"
	"github.com/bigtable-functions/bigtable-functions/internal/mapping"
	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
	"github.com/bigtable-functions/bigtable-functions/internal/push"
	"github.com/bigtable-functions/bigtable-functions/internal/replay"
)

// movedBy are the attributes that Pub/Sub gives a message which it moves.
func movedBy(subscription string, attributes map[string]string) map[string]string {
	out := maps.Clone(attributes)
	if out == nil {
		out = map[string]string{}
	}
	out["CloudPubSubDeadLetterSourceTopicPublishTime"] = "2026-08-30T10:15:31Z"
	out["CloudPubSubDeadLetterSourceSubscription"] = subscription
	out["CloudPubSubDeadLetterSourceSubscriptionProject"] = "my-project"
	return out
}

// deletion is a letter that deletes a row of the orders.
func deletion(table string) (data []byte, attributes map[string]string) {
	l := deadletter.Letter{Mapping: "order", Error: "refused", Time: time.Unix(9, 0), MessageID: "m-1", PublishTime: time.Unix(7, 0)}
	l.SetRow(name(table), &bigtablepb.MutateRowsRequest_Entry{RowKey: []byte("victim"), Mutations: []*bigtablepb.Mutation{
		{Mutation: &bigtablepb.Mutation_DeleteFromRow_{DeleteFromRow: &bigtablepb.Mutation_DeleteFromRow{}}},
	}}, nil)
	return l.Encode()
}

type name string

func (n name) String() string { return instance + "/tables/" + string(n) }

func replayer(t *testing.T, file string) *replay.Reader {
	t.Helper()
	p, err := pipeline.Parse([]byte(file), pipeline.Options{})
	if err != nil {
		t.Fatal(err)
	}
	r, err := replay.NewReader(p, mapping.ServiceLimits(), true)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// What a publisher sends is a message, whatever attributes it has: only the function
// writes letters, and only what it wrote is one.
func TestAPublishersMessageIsNeverReadAsALetter(t *testing.T) {
	data, attributes := deletion("orders")
	r := replayer(t, ordersFile("json", "dead-letter", "fail"))
	undelivered := "projects/my-project/subscriptions/orders-undelivered"
	for name, m := range map[string]*push.Message{
		"undelivered":                         {Attributes: movedBy("orders-events", attributes), Subscription: undelivered},
		"undelivered, without Pub/Sub's word": {Attributes: attributes, Subscription: undelivered},
		"moved to the letters":                {Attributes: movedBy("orders-events", attributes), Subscription: lettersOf("orders")},
		"another pipeline's letters":          {Attributes: attributes, Subscription: lettersOf("more-orders")},
		"no subscription":                     {Attributes: attributes},
	} {
		m.ID, m.Data, m.PublishTime = "new", data, time.Now()
		x, err := r.Read(m, time.Now())
		if err == nil && len(x.Refused) == 0 || len(x.Rows) > 0 || x.Letter.Kind != "" {
			t.Errorf("%s: %v, %+v", name, err, x)
		}
	}
	// A record in such clothes is written as a record.
	x, err := r.Read(&push.Message{ID: "new", Data: []byte(`{"id":"a","status":"NEW"}`), Attributes: movedBy("orders-events", attributes), Subscription: undelivered}, time.Now())
	if err != nil || len(x.Rows) != 1 || string(x.Rows[0].Entry.RowKey) != "a" {
		t.Errorf("%v, %+v", err, x)
	}
	// Under format: mutation such a message is what it says.
	x, err = replayer(t, lettersFile).Read(&push.Message{ID: "new", Data: data, Attributes: movedBy("again-events", attributes), Subscription: undelivered}, time.Now())
	if err != nil || len(x.Rows) != 1 || string(x.Rows[0].Entry.RowKey) != "victim" {
		t.Errorf("%v, %+v", err, x)
	}
}

// A letter is held against the pipeline file as it is now, as every record is.
func TestALettersContentIsChecked(t *testing.T) {
	set := func(family string, value int, micros int64) *bigtablepb.Mutation {
		return &bigtablepb.Mutation{Mutation: &bigtablepb.Mutation_SetCell_{SetCell: &bigtablepb.Mutation_SetCell{
			FamilyName: family, TimestampMicros: micros, Value: make([]byte, value),
		}}}
	}
	passAll := &bigtablepb.RowFilter{Filter: &bigtablepb.RowFilter_PassAllFilter{PassAllFilter: true}}
	r := replayer(t, ordersFile("json", "dead-letter", "fail"))
	for _, c := range []struct {
		name   string
		table  string
		key    int
		set    *bigtablepb.Mutation
		unless *bigtablepb.RowFilter
		want   string // empty: it is taken
	}{
		{"what the function writes", "orders", 1, set("cf", 1, 1000), nil, ""},
		{"another table", "other", 1, set("cf", 1, 1000), nil, "a table that the pipeline file does not have"},
		{"an undeclared family", "orders", 1, set("secret", 1, 1000), nil, "a family that table orders does not declare"},
		{"a long key", "orders", 5000, set("cf", 1, 1000), nil, "a row key of 5000 bytes"},
		{"no key", "orders", 0, set("cf", 1, 1000), nil, "a row key of 0 bytes"},
		{"the service's clock", "orders", 1, set("cf", 1, -1), nil, "a cell time"},
		{"another condition", "orders", 1, set("cf", 1, 1000), passAll, "its condition"},
	} {
		l := deadletter.Letter{Time: time.Unix(9, 0), MessageID: "m-1", PublishTime: time.Unix(7, 0)}
		l.SetRow(name(c.table), &bigtablepb.MutateRowsRequest_Entry{RowKey: make([]byte, c.key), Mutations: []*bigtablepb.Mutation{c.set}}, c.unless)
		data, attributes := l.Encode()
		x, err := r.Read(&push.Message{ID: "new", Data: data, Attributes: attributes, Subscription: lettersOf("orders")}, time.Now())
		if c.want == "" && (err != nil || len(x.Rows) != 1) || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) || len(x.Rows) > 0) {
			t.Errorf("%s: %v, %+v", c.name, err, x)
		}
	}
}

// Attributes are what a publisher wrote: no line of the log repeats one, nor what a header
// carries of one.
func TestNoAttributeReachesTheLog(t *testing.T) {
	data, attributes := deletion("secret")
	secrets := func(change map[string]string) map[string]string {
		out := maps.Clone(attributes)
		maps.Copy(out, map[string]string{"mapping": "secret", "messageId": "secret", "error": "secret", "extra": "secret", "secret": "x"})
		maps.Copy(out, change)
		return out
	}
	h := newHarness(t, lettersFile, plainFamilies("cf"), nil)
	for _, change := range []map[string]string{
		nil, {"kind": "secret"}, {"kind": "record"}, {"kind": "output"}, {"kind": "check-and-mutate"}, {"table": "secret"},
		{"time": "secret"}, {"publishTime": "secret"}, {"table": instance + "/tables/orders"},
	} {
		h.deliverWith("m", data, secrets(change))
	}
	events := newHarness(t, eventsFile, plainFamilies("cf"), nil)
	for _, change := range []map[string]string{
		{"ce-specversion": "secret"}, {"ce-type": "secret\xff"}, {"ce-data": "secret"}, {"content-type": "application/secret"}, {"ce-Secret": "secret"},
	} {
		all := map[string]string{"ce-specversion": "1.0", "ce-id": "secret", "ce-source": "/secret", "ce-type": "secret", "ce-time": "2026-08-30T10:15:30Z"}
		maps.Copy(all, change)
		events.deliverWith("m", []byte(`{}`), all)
	}
	// The service's refusal of an entry, under a mapping that the message names.
	refused := newHarness(t, strings.Replace(lettersFile, "onFailure: dead-letter", "onFailure: fail", 1), plainFamilies("cf"), func(h *harness) { h.service.CellBytes = 10 })
	l := deadletter.Letter{Mapping: "secret", Time: time.Unix(9, 0), MessageID: "secret", PublishTime: time.Unix(7, 0)}
	l.SetRow(name("orders"), &bigtablepb.MutateRowsRequest_Entry{RowKey: []byte("secret"), Mutations: []*bigtablepb.Mutation{{
		Mutation: &bigtablepb.Mutation_SetCell_{SetCell: &bigtablepb.Mutation_SetCell{FamilyName: "cf", Value: make([]byte, 100)}},
	}}}, nil)
	data, attributes = l.Encode()
	if status := refused.deliverWith("m", data, attributes); status != http.StatusServiceUnavailable {
		t.Errorf("status %d", status)
	}
	for name, h := range map[string]*harness{"letters": h, "events": events, "refused": refused} {
		h.server.Close()
		log := h.log.String()
		if !strings.Contains(log, "record cannot be written") || strings.Contains(log, "secret") {
			t.Errorf("%s:\n%s", name, log)
		}
		for line := range strings.Lines(log) {
			if !json.Valid([]byte(line)) {
				t.Errorf("%s", line)
			}
		}
	}
}

// A push without a publish time is a record as long as nothing reads the time.
func TestAPushWithoutAPublishTimeIsARecordWhereNothingReadsIt(t *testing.T) {
	const body = `{"message":{"data":"eyJpZCI6ImEiLCJzdGF0dXMiOiJORVcifQ==","messageId":"m-1"},"subscription":"s"}`
	own := ordersFile("json", "dead-letter", "fail")
	read := strings.Replace(own, `timestamp: timestamp(event.?at.orValue("2026-08-30T10:15:30.123Z"))`, "timestamp: millis(message.publishTime)", 1)
	by := strings.Replace(own, `timestamp: timestamp(event.?at.orValue("2026-08-30T10:15:30.123Z"))`, "", 1)
	for name, c := range map[string]struct{ file, want string }{
		"a time of its own":   {own, ""},
		"the time is read":    {read, "mapping order: timestamp: the message has no publish time"},
		"the time is implied": {by, "mapping order: timestamp: the message has no publish time, which is the default: give the mapping a timestamp"},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHarness(t, c.file, plainFamilies("cf", "extra"), nil)
			if status := h.post([]byte(body)); status != http.StatusNoContent {
				t.Fatalf("status %d", status)
			}
			letters := h.letters.letters
			if c.want == "" && (len(letters) > 0 || h.rows("orders")["a"]["cf:status"] != "NEW") ||
				c.want != "" && (len(letters) != 1 || letters[0].Error != c.want || len(h.rows("orders")) > 0) {
				t.Errorf("rows %v, letters %+v", h.rows("orders"), letters)
			}
		})
	}
}

// A record that becomes too large in memory is refused in a replay too, whether it stands in a
// letter alone, in a message or as an entry.
func TestAReplayBoundsTheMemoryOfARecord(t *testing.T) {
	file := strings.Replace(ordersFile("json", "dead-letter", "fail"), "  format: json", "  format: json\n  limits: {inFlight: {maxRecordBytes: 8KiB}}", 1)
	r := replayer(t, file)
	data := []byte(`{"id":"a","status":"NEW","extra":"` + strings.Repeat("x", 10<<10) + `"}`)
	for _, whole := range []bool{false, true} {
		l := deadletter.Letter{
			Kind: deadletter.KindRecord, Data: data, Time: time.Unix(9, 0), MessageID: "m-1", PublishTime: time.Unix(7, 0),
			Origin: &deadletter.Origin{Whole: whole},
		}
		content, attributes := l.Encode()
		x, err := r.Read(&push.Message{ID: "new", Data: content, Attributes: attributes, Subscription: lettersOf("orders")}, time.Now())
		if err != nil || len(x.Rows) > 0 || len(x.Refused) != 1 || !strings.Contains(x.Refused[0].Error(), "maxRecordBytes") {
			t.Errorf("whole: %v: %v, %+v", whole, err, x.Refused)
		}
	}
	l := deadletter.Letter{Time: time.Unix(9, 0), MessageID: "m-1", PublishTime: time.Unix(7, 0)}
	l.SetRow(name("orders"), &bigtablepb.MutateRowsRequest_Entry{RowKey: []byte("a"), Mutations: []*bigtablepb.Mutation{{
		Mutation: &bigtablepb.Mutation_SetCell_{SetCell: &bigtablepb.Mutation_SetCell{FamilyName: "cf", TimestampMicros: 1000, Value: data}},
	}}}, nil)
	content, attributes := l.Encode()
	x, err := r.Read(&push.Message{ID: "new", Data: content, Attributes: attributes, Subscription: lettersOf("orders")}, time.Now())
	if err == nil || !strings.Contains(err.Error(), "maxRecordBytes") || len(x.Rows) > 0 {
		t.Errorf("an entry: %v", err)
	}
}

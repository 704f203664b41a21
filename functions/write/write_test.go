package write_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/bigtable-functions/bigtable-functions/internal/deadletter"
	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
)

// secret stands in every bad record's data: it may be nowhere in the log.
const secret = "s3cr3t"

// fault is one way a record can be bad.
type fault struct {
	name    string
	body    string // the whole request, where it is not a good envelope
	line    string // the bad record between two good ones, as NDJSON
	applied bool   // the record is good after all
	whole   bool   // the fault takes the whole message with it
	change  func(*harness)
	missing bool // the table lacks a family: never given to the policy
}

func faults() []fault {
	lowCell := func(h *harness) { h.limits.CellBytes = 1000 }
	return []fault{
		{name: "malformed body", body: `{"message":` + secret, whole: true},
		{name: "unknown shape", body: `{"Message":{"data":"` + secret + `"},"subscription":"x"}`, whole: true},
		{name: "wrong type of a value", line: `{"id":"b","total":"` + secret + `"}`},
		{name: "wrong type of the key", line: `{"id":7,"status":"` + secret + `"}`},
		{name: "missing field", line: `{"status":"` + secret + `"}`},
		{name: "bad timestamp", line: `{"id":"b","at":"` + secret + `"}`},
		{name: "empty key", line: `{"id":"","status":"` + secret + `"}`},
		{name: "a key of 5,000 bytes", line: `{"id":"` + strings.Repeat(secret, 834) + `"}`},
		{name: "oversize cell", line: `{"id":"b","status":"` + strings.Repeat(secret, 200) + `"}`, change: lowCell},
		{name: "two JSON values in one record", line: `{"id":"b","status":"` + secret + `"} {"id":"c"}`},
		{name: "broken JSON", line: `{"id":"b","status":"` + secret},
		{name: "an integer above 2^64", line: `{"id":"b","status":"` + secret + `","total":18446744073709551616}`},
		{name: "an integer above 2^53", line: `{"id":"b","status":"x","total":9007199254740993}`, applied: true},
		{name: "a family that the table lacks", line: `{"id":"b","status":"x","extra":"` + secret + `"}`, missing: true},
	}
}

// covers: FAIL-01, FAIL-06, FAIL-07, FAIL-08, FAIL-09, FAIL-20, SNK-05
func TestABadRecordUnderEachPolicy(t *testing.T) {
	for _, policy := range []pipeline.Policy{pipeline.PolicyFail, pipeline.PolicyDrop, pipeline.PolicyDeadLetter} {
		for _, f := range faults() {
			t.Run(string(policy)+"/"+f.name, func(t *testing.T) {
				families := plainFamilies("cf")
				if !f.missing {
					families = plainFamilies("cf", "extra")
				}
				h := newHarness(t, ordersFile("ndjson", string(policy), "fail"), families, f.change)
				status := deliverFault(h, f)
				checkResponse(t, h, f, policy, status)
				checkNeighbours(t, h, f)
				checkLetters(t, h, f, policy)
				if strings.Contains(h.log.String(), secret) {
					t.Errorf("the log quotes the record:\n%s", h.log)
				}
			})
		}
	}
}

func deliverFault(h *harness, f fault) int {
	if f.body != "" {
		return h.post([]byte(f.body))
	}
	return h.deliver("m-1", []byte(`{"id":"good-1","status":"A"}`+"\n"+f.line+"\n"+`{"id":"good-2","status":"B"}`+"\n"))
}

func checkResponse(t *testing.T, h *harness, f fault, policy pipeline.Policy, status int) {
	refuse := !f.applied && (policy == pipeline.PolicyFail || f.missing)
	if refused := status != http.StatusNoContent; refused != refuse {
		t.Errorf("answered %d\n%s", status, h.log)
	}
}

func checkNeighbours(t *testing.T, h *harness, f fault) {
	rows := h.rows("orders")
	if f.body != "" {
		if len(rows) != 0 {
			t.Errorf("rows of a malformed body: %v", rows)
		}
		return
	}
	if rows["good-1"]["cf:status"] != "A" || rows["good-2"]["cf:status"] != "B" {
		t.Errorf("the good neighbours are not there: %v\n%s", rows, h.log)
	}
	if _, there := rows["b"]; there != f.applied {
		t.Errorf("the record's row: %v", rows)
	}
}

func checkLetters(t *testing.T, h *harness, f fault, policy pipeline.Policy) {
	want := 0
	if policy == pipeline.PolicyDeadLetter && !f.applied && !f.missing {
		want = 1
	}
	if len(h.letters.letters) != want {
		t.Fatalf("%d dead letters, want %d: %v", len(h.letters.letters), want, h.letters.letters)
	}
	if want == 0 {
		return
	}
	l := h.letters.letters[0]
	content, kind := f.line, deadletter.KindRecord
	if f.body != "" {
		content, kind = f.body, deadletter.KindRequest
	} else if l.MessageID != "m-1" || l.PublishTime.IsZero() {
		t.Errorf("the letter does not name its message: %+v", l)
	}
	if l.Kind != kind || string(l.Data) != content {
		t.Errorf("the letter keeps %s %q, want %q", l.Kind, l.Data, content)
	}
}

func TestADeadLetterThatCannotBeKeptRefusesTheDelivery(t *testing.T) {
	h := newHarness(t, ordersFile("json", "dead-letter", "fail"), plainFamilies("cf", "extra"), nil)
	h.letters.err = errors.New("topic gone")
	if status := h.deliver("m-1", []byte(`{"status":"x"}`)); status == http.StatusNoContent {
		t.Error("acknowledged")
	}
	h.letters.err = nil
	if status := h.deliver("m-1", []byte(`{"status":"x"}`)); status != http.StatusNoContent || len(h.letters.letters) != 1 {
		t.Errorf("the second delivery: %d, %d letters", status, len(h.letters.letters))
	}
}

func TestRecordsOfOneRowBecomeOneEntryAndTheLastWins(t *testing.T) {
	h := newHarness(t, ordersFile("ndjson", "fail", "fail"), plainFamilies("cf", "extra"), nil)
	status := h.deliver("m-1", []byte(`{"id":"k","status":"first"}`+"\n"+`{"id":"other","status":"o"}`+"\n"+`{"id":"k","status":"last"}`))
	if got := h.rows("orders")["k"]["cf:status"]; status != http.StatusNoContent || got != "last" {
		t.Errorf("%d, status = %q\n%s", status, got, h.log)
	}
	if !strings.Contains(h.log.String(), `"applied":2`) {
		t.Errorf("two rows in: %s", h.log)
	}
}

// The mapping's own limits catch what the service would refuse; where they do not, the
// service's verdict falls on the guilty record of a merged entry alone.
func TestAMergedEntryThatIsRefusedIsTakenApart(t *testing.T) {
	h := newHarness(t, ordersFile("ndjson", "dead-letter", "fail"), plainFamilies("cf", "extra"), func(h *harness) { h.service.CellBytes = 1000 })
	status := h.deliver("m-1", []byte(`{"id":"k","status":"first"}`+"\n"+`{"id":"k","extra":"`+strings.Repeat("x", 2000)+`"}`+"\n"+`{"id":"k","total":3}`))
	row := h.rows("orders")["k"]
	if status != http.StatusNoContent || row["cf:status"] != "first" || row["cf:total"] != "\x00\x00\x00\x00\x00\x00\x00\x03" || row["extra:blob"] != "" {
		t.Errorf("%d, %q\n%s", status, row, h.log)
	}
	if len(h.letters.letters) != 1 || h.letters.letters[0].Kind != deadletter.KindEntry || h.letters.letters[0].Mapping != "order" {
		t.Errorf("letters: %+v", h.letters.letters)
	}
}

func TestUnmatchedRecords(t *testing.T) {
	for policy, want := range map[string]int{"fail": http.StatusServiceUnavailable, "skip": http.StatusNoContent, "dead-letter": http.StatusNoContent} {
		h := newHarness(t, ordersFile("json", "fail", policy), plainFamilies("cf", "extra"), nil)
		if status := h.deliver("m-1", []byte(`{"id":"x","type":"view"}`)); status != want {
			t.Errorf("%s: %d, want %d", policy, status, want)
		}
		if (len(h.letters.letters) == 1) != (policy == "dead-letter") {
			t.Errorf("%s: letters %v", policy, h.letters.letters)
		}
	}
}

func TestAPipelineNamingAnUndeclaredFamilyDoesNotLoad(t *testing.T) {
	file := strings.Replace(ordersFile("json", "fail", "fail"), "extra: {blob", "ghost: {blob", 1)
	_, err := pipeline.Parse([]byte(file), pipeline.Options{File: "pipeline.yaml"})
	if err == nil || !strings.Contains(err.Error(), "ghost") {
		t.Errorf("%v does not name the family", err)
	}
}

func TestASecondDeliveryChangesNothing(t *testing.T) {
	h := newHarness(t, ordersFile("json", "fail", "fail"), plainFamilies("cf", "extra"), nil)
	for range 3 {
		if status := h.deliver("m-1", []byte(`{"id":"k","status":"A","total":1}`)); status != http.StatusNoContent {
			t.Fatal(status)
		}
	}
	if got, want := fmt.Sprintf("%q", h.rows("orders")), `map["k":map["cf:status":"A" "cf:total":"\x00\x00\x00\x00\x00\x00\x00\x01"]]`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

package demo

import (
	"bytes"
	"cmp"
	"encoding/json"
	"regexp"
	"slices"
	"testing"

	scanworker "github.com/bigtable-functions/bigtable-functions/functions/scan-worker"
	"github.com/bigtable-functions/bigtable-functions/internal/push"
	"github.com/bigtable-functions/bigtable-functions/ledger"
)

// The object's fields are a contract: their order, too, for scripts that match text.
func TestTheFieldsOfDemosResultStayInOrder(t *testing.T) {
	got, err := json.Marshal(Result{})
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"published":0,"acked":0,"applied":0,"skipped":0,"failed":0,"deadLettered":0,"rows":0,"seconds":0,` +
		`"scanned":0,"splits":0,"workers":0,"scanSeconds":0,` +
		`"changes":0,"changesRepeated":0,"readersKilled":0,"closed":0,"changeSeconds":0}`
	if string(got) != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestDemoFindsEveryRecordThatIsNotAsItsEventSays(t *testing.T) {
	f, err := loadFlights()
	if err != nil {
		t.Fatal(err)
	}
	expected, err := expectedRecords("s", f.events[:3])
	if err != nil {
		t.Fatal(err)
	}
	var good []push.Message
	for id, record := range expected {
		body, err := json.Marshal(record)
		if err != nil {
			t.Fatal(err)
		}
		good = append(good, push.Message{Attributes: map[string]string{"recordId": id}, Data: body})
	}
	if n, err := compareRecords(expected, good); n != 3 || err != nil {
		t.Fatalf("%d of the right ones, %v", n, err)
	}
	with := func(id, old, new string) []push.Message {
		m := slices.Clone(good)
		m[1] = push.Message{Attributes: map[string]string{"recordId": cmp.Or(id, m[1].Attributes["recordId"])}, Data: bytes.Replace(m[1].Data, []byte(old), []byte(new), 1)}
		return m
	}
	distance := regexp.MustCompile(`"distance":(\d+)`).FindSubmatch(good[1].Data)
	for name, messages := range map[string][]push.Message{
		"one is missing":          good[1:],
		"one came twice":          append(slices.Clone(good), good[0]),
		"a number is a text":      with("", string(distance[0]), `"distance":"`+string(distance[1])+`"`),
		"a number is another":     with("", string(distance[1]), "1"),
		"a field is missing":      with("", string(distance[0])+",", ""),
		"a field is too much":     with("", "{", `{"date":"2001",`),
		"an id is another scan's": with("other", "", ""),
		"it is no JSON":           with("", "{", ""),
	} {
		if n, err := compareRecords(expected, messages); n != 2 || err == nil {
			t.Errorf("%s: %d equal, %v", name, n, err)
		}
	}
}

func TestDemoFindsEveryChangeThatIsNotAsItsRowSays(t *testing.T) {
	rows := map[string]cells{}
	var good []push.Message
	for _, row := range []string{"a", "b", "c"} {
		rows[row] = cells{"cf:q": {Value: []byte("1")}, "cf:r": {Value: []byte("2")}}
		good = append(good, push.Message{Attributes: map[string]string{"recordId": row}, Data: []byte(`{"rowKey":"` + row + `","type":"USER","lowWatermark":"early","entries":[` +
			`{"kind":"SET_CELL","family":"cf","qualifier":"q","valueBase64":"MQ=="},{"kind":"SET_CELL","family":"cf","qualifier":"r","valueBase64":"Mg=="}]}`)})
	}
	with := func(i int, id, old, new string) push.Message {
		return push.Message{Attributes: map[string]string{"recordId": id}, Data: bytes.Replace(good[i].Data, []byte(old), []byte(new), 1)}
	}
	again := append(slices.Clone(good), with(1, "b", "early", "late"))
	if n, repeated, err := compareChanges(rows, again); n != 3 || repeated != 1 || err != nil {
		t.Fatalf("%d of the right ones, %d again, %v", n, repeated, err)
	}
	for name, messages := range map[string][]push.Message{
		"one is missing":               good[:2],
		"one is of another row":        {good[0], good[1], with(2, "c", `"c"`, `"d"`)},
		"a value is another":           {good[0], good[1], with(2, "c", "MQ==", "Mg==")},
		"a cell is missing":            {good[0], good[1], with(2, "c", `,{"kind":"SET_CELL","family":"cf","qualifier":"r","valueBase64":"Mg=="}`, "")},
		"a cell is set twice":          {good[0], good[1], with(2, "c", `"r","valueBase64":"Mg=="`, `"q","valueBase64":"MQ=="`)},
		"a cell is deleted":            {good[0], good[1], with(2, "c", "SET_CELL", "DELETE_CELLS")},
		"it is of garbage collection":  {good[0], good[1], with(2, "c", "USER", "GARBAGE_COLLECTION")},
		"it is no JSON":                {good[0], good[1], with(2, "c", "{", "")},
		"one has a second id":          {good[0], good[1], with(1, "other", "", "")},
		"a repeated one is not itself": {good[0], good[1], with(0, "b", "", "")},
	} {
		if n, _, err := compareChanges(rows, messages); n != 2 || err == nil {
			t.Errorf("%s: %d equal, %v", name, n, err)
		}
	}
}

func TestOnlyTheDemosOwnScanMovesItsBar(t *testing.T) {
	var s scanning
	rows := 0
	s.begin(func(n int) { rows = n })
	summary := scanworker.Summary{Fence: 1, Counts: ledger.Counts{Rows: 10}}
	s.add(0, summary)
	s.end()
	s.add(1, summary)
	if rows != 10 {
		t.Errorf("the bar is at %d, and the demo's scan has read 10", rows)
	}
}

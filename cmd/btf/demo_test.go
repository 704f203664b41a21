package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bigtable-functions/bigtable-functions/internal/push"
)

// output collects what a command prints while it runs.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// covers: SC-01
func TestDemoWritesScansAndFollowsEveryFlight(t *testing.T) {
	var stdout, stderr output
	cmd := root(&stdout, &stderr)
	cmd.SetArgs([]string{"demo", "--json"})
	if err := cmd.ExecuteContext(t.Context()); err != nil {
		t.Fatalf("%v\n%s", err, stderr.String())
	}
	var got demoResult
	if err := json.Unmarshal([]byte(stdout.String()), &got); err != nil {
		t.Fatalf("stdout is no JSON object: %q: %v", stdout.String(), err)
	}
	want := demoResult{
		Published: 2000, Acked: 2000, Applied: 2000, Rows: 2000, Seconds: got.Seconds,
		Scanned: 2000, Splits: 12, Workers: 3, ScanSeconds: got.ScanSeconds,
		Changes: 2000, ChangesRepeated: got.ChangesRepeated, ReadersKilled: 1, Closed: 3, ChangeSeconds: got.ChangeSeconds,
	}
	if got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// The object's fields are a contract: their order, too, for scripts that match text.
func TestTheFieldsOfDemosResultStayInOrder(t *testing.T) {
	got, err := json.Marshal(demoResult{})
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

// covers: EMU-12
func TestCbtReadsTheRowsOfAHeldDemo(t *testing.T) {
	if _, err := exec.LookPath("cbt"); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("cbt is not installed, and CI must have it: ", err)
		}
		t.Skip("cbt is not installed: ", err)
	}
	var stdout, stderr output
	cmd := root(&stdout, &stderr)
	cmd.SetArgs([]string{"demo", "--hold"})
	ctx, interrupt := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- cmd.ExecuteContext(ctx) }()
	host := waitForText(t, &stderr, regexp.MustCompile(`BIGTABLE_EMULATOR_HOST=(\S+)`), done)

	cbt := exec.CommandContext(ctx, "cbt", "-project", "demo", "-instance", "demo", "count", "flights")
	cbt.Env = append(os.Environ(), "BIGTABLE_EMULATOR_HOST="+host)
	if out, err := cbt.CombinedOutput(); err != nil || !strings.Contains(string(out), "2000") {
		t.Errorf("cbt count: %v\n%s", err, out)
	}
	cbt = exec.CommandContext(ctx, "cbt", "-project", "demo", "-instance", "demo", "lookup", "flights", "LAX#BNA#2001/01/01 06:55")
	cbt.Env = append(os.Environ(), "BIGTABLE_EMULATOR_HOST="+host)
	if out, err := cbt.CombinedOutput(); err != nil || !strings.Contains(string(out), "flight:destination") || !strings.Contains(string(out), `"BNA"`) {
		t.Errorf("cbt lookup: %v\n%s", err, out)
	}
	interrupt()
	if err := <-done; err != nil {
		t.Errorf("an interrupt ends the demo with %v", err)
	}
}

// waitForText returns the first group of what a running command prints.
func waitForText(t *testing.T, out *output, re *regexp.Regexp, done <-chan error) string {
	t.Helper()
	var m []string
	waitUntil(t, out, done, func(text string) bool {
		m = re.FindStringSubmatch(text)
		return m != nil
	})
	return m[1]
}

// waitUntil waits until what a running command prints is as wanted.
func waitUntil(t *testing.T, out *output, done <-chan error, wanted func(text string) bool) {
	t.Helper()
	for range 1200 {
		if wanted(out.String()) {
			return
		}
		select {
		case err := <-done:
			t.Fatalf("it ended: %v\n%s", err, out)
		case <-time.After(50 * time.Millisecond):
		}
	}
	t.Fatalf("it does not say what it should:\n%s", out)
}

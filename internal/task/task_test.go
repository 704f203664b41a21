package task

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestATaskReadsBackAsItWasWritten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := Scan{
			Version: Version, Scan: rapid.StringN(1, 20, -1).Draw(t, "scan"), Name: rapid.StringN(1, 20, -1).Draw(t, "name"),
			Attempt: rapid.StringN(1, 20, -1).Draw(t, "attempt"), Split: rapid.IntRange(0, 1<<30).Draw(t, "split"),
		}
		if rapid.Bool().Draw(t, "windowed") {
			in.Since = time.UnixMilli(rapid.Int64Range(0, 1<<41).Draw(t, "since")).UTC()
		}
		if rapid.Bool().Draw(t, "redirected") {
			in.To = &To{PubSub: &PubSub{Topic: "t"}}
		}
		b, err := Encode(in)
		if err != nil {
			t.Fatal(err)
		}
		out, err := DecodeScan(b)
		if err != nil {
			t.Fatalf("%s: %v", b, err)
		}
		if !reflect.DeepEqual(out, in) {
			t.Fatalf("%+v came back as %+v", in, out)
		}
	})
}

func TestARequestThatIsNotUnderstoodIsRefused(t *testing.T) {
	for body, want := range map[string]string{
		`{"scan":"archive"}`: "",
		`{"scan":"archive","rows":{"prefixes":["a"]},"limit":3,"since":"2026-08-01T00:00:00Z","to":{"log":{}}}`: "",
		` {"v":1,"scan":"archive","scheduled":true} ` + "\n":                                                    "",
		`{"v":2,"scan":"archive"}`:                                          "version 2",
		`{"scan":"archive","limti":3}`:                                      `it has no field "limti": use scan, scheduled, rows, limit, parallelism, since, until, to`,
		`{"scan":"archive","Limit":1}`:                                      `it has no field "Limit"`,
		`{"Scan":"archive"}`:                                                `it has no field "Scan"`,
		`{"scan":"slow","scan":"secret"}`:                                   "scan stands twice",
		`{"scan":"a","rows":{"prefixes":["secret"],"prefixes":["secret"]}}`: "rows.prefixes stands twice",
		`{"scan":"a","to":{"gcs":{"bucket":"secret"}}}`:                     `to has no field "gcs": use pubsub, log`,
		`{"scan":"a","to":{"log":{"x":1}}}`:                                 `to.log has no field "x": it has none`,
		`{"scan":"a","to":{"pubsub":{"topik":"t"}}}`:                        `to.pubsub has no field "topik": use topic`,
		`{"scan":"a","rows":{"ranges":[{},{"from":"secret"}]}}`:             `rows.ranges[1] has no field "from": use start, end`,
		`{"scan":"a","` + strings.Repeat("secret", 30) + `":1}`:             "it has no field whose name has 180 bytes",
		`{"scan":"archive","limit":"secret"}`:                               "limit takes a whole number",
		`{"scan":"archive","limit":1.5}`:                                    "limit takes a whole number",
		`{"scan":"archive","limit":99999999999999999999}`:                   "limit takes a whole number",
		`{"scan":"archive","limit":-1}`:                                     "limit is negative",
		`{"scan":"archive","parallelism":-1}`:                               "parallelism is negative",
		`{"scan":"archive","parallelism":[8]}`:                              "parallelism takes a whole number, not a list",
		`{"scan":"archive","scheduled":"secret"}`:                           "scheduled takes true or false",
		`{"scan":["secret"]}`:                                               "scan takes text, not a list",
		`{"scan":"a","rows":"secret"}`:                                      "rows takes an object",
		`{"scan":"a","rows":["secret"]}`:                                    "rows takes an object, not a list",
		`{"scan":"a","rows":{"prefixes":"secret"}}`:                         "rows.prefixes takes a list",
		`{"scan":"a","rows":{"prefixes":["a",7]}}`:                          "rows.prefixes[1] takes text",
		`{"scan":"a","rows":{"ranges":[{"start":{}}]}}`:                     "rows.ranges[0].start takes text, not an object",
		`{"scan":"archive"} secret`:                                         "after the JSON object",
		`{"scan":"archive"}{}`:                                              "after the JSON object",
		`{"scan":"archive","since":"tomorrow"}`:                             "since takes a time such as 2026-08-01T00:00:00Z",
		`{"scan":"archive","until":7}`:                                      "until takes a time such as",
		`{}`:                                                                "names no scan",
		`secret`:                                                            "not a JSON object",
		``:                                                                  "not a JSON object",
		`null`:                                                              "not a JSON object",
		`["a"]`:                                                             "not a JSON object",
		`"secre"`:                                                           "not a JSON object",
		`{"scan":"secret`:                                                   "not a JSON object",
		"{\"scan\":\"secret\xff\"}":                                         "not a JSON object",
	} {
		_, err := DecodeScanRequest([]byte(body))
		switch {
		case want == "" && err != nil:
			t.Errorf("%s: %v", body, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: error %v, want one that says %q", body, err, want)
		case err != nil && strings.Contains(err.Error(), "secret"):
			t.Errorf("%s: the error quotes the data: %v", body, err)
		}
	}
}

func TestATaskWithoutItsSplitIsRefused(t *testing.T) {
	for _, body := range []string{`{"v":1}`, `{"v":1,"scan":"s","name":"n","split":0}`, `{"v":1,"scan":"s","name":"n","attempt":"a","split":-1}`, `{"scan":"s","name":"n","attempt":"a"}`} {
		if _, err := DecodeScan([]byte(body)); err == nil {
			t.Errorf("%s was taken", body)
		}
	}
}

// What another version of the program has sent is known as such, whatever else it holds:
// it must not be thrown away.
func TestAMessageOfAnotherVersionIsKnownAsOne(t *testing.T) {
	const rest = `,"scan":"s","name":"n","attempt":"a","split":0`
	for body, want := range map[string]bool{
		`{"v":2` + rest + `}`:    true,
		`{"v":0` + rest + `}`:    true,
		`{"v":2,"splits":[0,1]}`: true,
		`{"v":2,"scan":{"id":"s"},"name":"n","attempt":"a","split":"0"}`: true,
		`{"v":"2"` + rest + `}`:                               true,
		`{"v":1` + rest + `,"region":"eu"}`:                   true,
		`{"v":1` + rest + `}`:                                 false,
		`{"v":1,"scan":7,"name":"n","attempt":"a","split":0}`: false,
		`{"v":1` + rest + `} {}`:                              false,
		`{"v":2`:                                              false,
		`secret`:                                              false,
		`null`:                                                false,
	} {
		_, err := DecodeScan([]byte(body))
		if got := errors.Is(err, ErrUnknown); got != want {
			t.Errorf("%s: %v, want one of another version: %t", body, err, want)
		}
	}
}

func TestATaskOfAChangeStreamReadsBack(t *testing.T) {
	in := Changes{Version: Version, Stream: "feed", Partitions: []string{"A", "B"}}
	b, err := Encode(in)
	if err != nil {
		t.Fatal(err)
	}
	if out, err := DecodeChanges(b); err != nil || !reflect.DeepEqual(out, in) {
		t.Errorf("%s came back as %+v, %v", b, out, err)
	}
	for _, body := range []string{`{"v":1}`, `{"v":1,"stream":"s"}`, `{"v":1,"stream":"s","partitions":[]}`, `{"v":1,"stream":"s","partitions":[""]}`, `{"v":1,"partitions":["A"]}`, `{"stream":"s","partitions":["A"]}`} {
		if _, err := DecodeChanges([]byte(body)); err == nil {
			t.Errorf("%s was taken", body)
		}
	}
	if _, err := DecodeChanges([]byte(`{"v":2,"stream":"s","partitions":["A"]}`)); !errors.Is(err, ErrUnknown) {
		t.Errorf("of another version: %v", err)
	}
}

package task

import (
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
		`{"v":2,"scan":"archive"}`:              "version 2",
		`{"scan":"archive","limti":3}`:          `no field "limti"`,
		`{"scan":"archive","limit":"secret"}`:   "limit is no int64",
		`{"scan":"archive"} secret`:             "after the JSON object",
		`{"scan":"archive","since":"tomorrow"}`: "since and until are times",
		`{}`:                                    "names no scan",
		`secret`:                                "not a JSON object",
		``:                                      "not a JSON object",
		`["a"]`:                                 "not a JSON object",
		`"secre"`:                               "not a JSON object",
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

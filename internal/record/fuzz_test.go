package record

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"

	"github.com/bigtable-functions/bigtable-functions/internal/deadletter"
)

// FuzzCloudEvents looks for messages that panic, yield a value beside an error, or read
// differently from the dead letter that keeps them.
func FuzzCloudEvents(f *testing.F) {
	f.Add([]byte(`{"specversion":"1.0","id":"e","source":"/s","type":"t","data":{"a":1}}`), "", "", "")
	f.Add([]byte(`[{"specversion":"1.0","id":"e","source":"/s","type":"t","data_base64":"e30="}]`), "application/cloudevents-batch+json", "", "")
	f.Add([]byte(`{"a":1}`), "application/json", "e", "2026-08-30T10:15:30Z")
	f.Add([]byte("hi"), "text/plain; charset=utf-8", "e", "")
	f.Add([]byte{0xff}, "application/octet-stream", "e", "")
	f.Fuzz(func(t *testing.T, data []byte, declared, id, at string) {
		attributes := map[string]string{}
		if declared != "" {
			attributes["content-type"] = declared
		}
		if id != "" {
			attributes["ce-specversion"], attributes["ce-id"], attributes["ce-source"], attributes["ce-type"] = "1.0", id, "/s", "t"
		}
		if at != "" {
			attributes["ce-time"] = at
		}
		var d Decoder
		records := d.CloudEvents(data, attributes)
		for i := range records {
			r := &records[i]
			if r.Err != nil && r.Value != nil {
				t.Fatalf("a value beside the error %v", r.Err)
			}
			again := readAgain(t, "cloudevent", r, i, attributes)
			if (again.Err == nil) != (r.Err == nil) || !reflect.DeepEqual(again.Value, r.Value) {
				t.Fatalf("first %#v, again %#v", r.Value, again)
			}
		}
	})
}

// FuzzMutation looks for messages that panic or are neither an entry nor an error.
func FuzzMutation(f *testing.F) {
	for _, kind := range []deadletter.Kind{deadletter.KindEntry, deadletter.KindCheckAndMutate, deadletter.KindRecord} {
		l := entryLetter(nil)
		l.Kind = kind
		data, attributes := l.Encode()
		f.Add(data, attributes["kind"], attributes["table"], attributes["time"])
	}
	f.Fuzz(func(t *testing.T, data []byte, kind, table, at string) {
		got := one(data, map[string]string{"kind": kind, "table": table, "time": at})
		if len(got) != 1 || (got[0].Err == nil) == (got[0].Entry == nil) || got[0].Value != nil {
			t.Fatalf("%+v", got)
		}
		l := deadletter.Letter{Time: time.Unix(1, 0)}
		got[0].Keep(&l)
		if string(l.Data) != string(data) {
			t.Fatalf("kept %q of %q", l.Data, data)
		}
	})
}

// FuzzNDJSON holds lines against the standard library, one by one.
func FuzzNDJSON(f *testing.F) {
	f.Add([]byte("{\"a\":1}\r\n\n[1,2]\n\"\\ud800\"\n1e5"))
	f.Fuzz(func(t *testing.T, data []byte) {
		var d Decoder
		for _, r := range d.NDJSON(data) {
			if r.Err == nil && !json.Valid(r.Raw) {
				t.Fatalf("accepted what is no JSON: %q", r.Raw)
			}
		}
	})
}

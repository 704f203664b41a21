package mapping

import (
	"encoding/json"
	"os"
	"reflect"
	"testing"
	"time"

	"github.com/linkedin/goavro/v2"

	"github.com/bigtable-functions/bigtable-functions/internal/changestream"
)

// The records of changes are what docs/changes.avsc says: a reader that knows nothing else
// takes each field of them, and makes the same JSON of what it has read.
//
// covers: CSQ-03
func TestRecordsOfChangesAreAsTheAvroSchemaSays(t *testing.T) {
	schema, err := os.ReadFile("../../docs/changes.avsc")
	if err != nil {
		t.Fatal(err)
	}
	codec, err := goavro.NewCodecForStandardJSONFull(string(schema))
	if err != nil {
		t.Fatal(err)
	}
	m, err := compiledChanges(t, "table: orders, to: {pubsub: {topic: out, orderBy: rowKey}}")
	if err != nil {
		t.Fatal(err)
	}
	at := time.Date(2026, 8, 30, 10, 15, 31, 123_456_789, time.UTC)
	records := []*changestream.Record{wholeRecord(at)}
	collected := wholeRecord(at)
	collected.Type, collected.Cluster, collected.RowKey, collected.Entries = changestream.GarbageCollection, "", "text", nil
	for _, r := range append(records, collected) {
		body, _, err := m.Body(r)
		if err != nil {
			t.Fatal(err)
		}
		native, rest, err := codec.NativeFromTextual(body)
		if err != nil || len(rest) > 0 {
			t.Fatalf("%v; %d bytes are left of %s", err, len(rest), body)
		}
		binary, err := codec.BinaryFromNative(nil, native)
		if err != nil {
			t.Fatal(err)
		}
		back, rest, err := codec.NativeFromBinary(binary)
		if err != nil || len(rest) > 0 {
			t.Fatal(err, len(rest))
		}
		text, err := codec.TextualFromNative(nil, back)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := withoutNulls(t, text), withoutNulls(t, body); !reflect.DeepEqual(got, want) {
			t.Errorf("%v\nwant\n%v", got, want)
		}
	}
}

// withoutNulls decodes JSON and leaves out the fields that are null: Avro has a null where
// the record has no field.
func withoutNulls(t *testing.T, b []byte) any {
	t.Helper()
	var v any
	if err := json.Unmarshal(b, &v); err != nil {
		t.Fatal(err)
	}
	var prune func(v any) any
	prune = func(v any) any {
		switch v := v.(type) {
		case map[string]any:
			for k, field := range v {
				if field == nil {
					delete(v, k)
				} else {
					v[k] = prune(field)
				}
			}
		case []any:
			for i := range v {
				v[i] = prune(v[i])
			}
		}
		return v
	}
	return prune(v)
}

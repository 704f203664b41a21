package record

import (
	"encoding/base64"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bigtable-functions/bigtable-functions/internal/deadletter"
)

func TestACloudEventIsReadInEveryMode(t *testing.T) {
	attributes := `"specversion":"1.0","id":"e-1","source":"//shop/orders","type":"order.created","subject":"a-1","time":"2026-08-30T10:15:30.123Z","tenant":"acme"`
	want := func(data any, more ...string) map[string]any {
		m := map[string]any{
			"specversion": "1.0", "id": "e-1", "source": "//shop/orders", "type": "order.created", "subject": "a-1",
			"time": "2026-08-30T10:15:30.123Z", "tenant": "acme",
		}
		if data != nil {
			m["data"] = data
		}
		for i := 0; i < len(more); i += 2 {
			m[more[i]] = more[i+1]
		}
		return m
	}
	binary := map[string]string{
		"ce-specversion": "1.0", "ce-id": "e-1", "ce-source": "//shop/orders", "ce-type": "order.created", "ce-subject": "a-1",
		"ce-time": "2026-08-30T10:15:30.123Z", "ce-tenant": "acme",
	}
	with := func(name, value string) map[string]string {
		m := map[string]string{name: value}
		for k, v := range binary {
			m[k] = v
		}
		return m
	}
	exact := map[string]any{"n": int64(9007199254740993), "u": uint64(18446744073709551615)}
	const exactText = `{"n":9007199254740993,"u":18446744073709551615}`
	for _, c := range []struct {
		name, data string
		attributes map[string]string
		want       []any
	}{
		{"structured, undeclared", `{` + attributes + `,"data":` + exactText + `}`, nil, []any{want(exact)}},
		{"structured, declared", `{` + attributes + `,"data":"x"}`, map[string]string{"Content-Type": "application/cloudevents+json; charset=utf-8"}, []any{want("x")}},
		{"structured beats binary", `{` + attributes + `}`, map[string]string{"content-type": "application/cloudevents+json", "ce-id": "other"}, []any{want(nil)}},
		{"payload in base64", `{` + attributes + `,"data_base64":"` + base64.StdEncoding.EncodeToString([]byte(exactText)) + `"}`, nil, []any{want(exact)}},
		{"text in base64", `{` + attributes + `,"datacontenttype":"text/plain","data_base64":"aGk="}`, nil, []any{want("hi", "datacontenttype", "text/plain")}},
		{"bytes in base64", `{` + attributes + `,"datacontenttype":"image/png","data_base64":"/w=="}`, nil, []any{want([]byte{0xff}, "datacontenttype", "image/png")}},
		{"null attribute is absent", `{` + attributes + `,"dataschema":null,"traceparent":null,"data_base64":null}`, nil, []any{want(nil)}},
		{"batch", `[{` + attributes + `},{` + attributes + `,"data":1}]`, map[string]string{"content-type": "application/cloudevents-batch+json"}, []any{want(nil), want(int64(1))}},
		{"empty batch", `[]`, map[string]string{"content-type": "application/cloudevents-batch+json"}, []any{}},
		{"binary, undeclared", exactText, binary, []any{want(exact)}},
		{"binary JSON", exactText, with("content-type", "application/vnd.order+json"), []any{want(exact, "datacontenttype", "application/vnd.order+json")}},
		{"binary text", "hi", with("Content-Type", "text/csv; charset=utf-8"), []any{want("hi", "datacontenttype", "text/csv; charset=utf-8")}},
		{"binary bytes", "\xff", with("content-type", "application/octet-stream"), []any{want([]byte{0xff}, "datacontenttype", "application/octet-stream")}},
		{"binary without payload", "", binary, []any{want(nil)}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var d Decoder
			got := []any{}
			for _, r := range d.CloudEvents([]byte(c.data), c.attributes) {
				if r.Err != nil {
					t.Fatal(r.Err)
				}
				got = append(got, r.Value)
			}
			if !reflect.DeepEqual(got, c.want) {
				t.Errorf("got  %#v\nwant %#v", got, c.want)
			}
		})
	}
}

func TestABrokenCloudEventIsRefusedWithoutQuotingIt(t *testing.T) {
	head := `"specversion":"1.0","id":"secret","source":"/secret","type":"secret"`
	ce := func(pairs ...string) map[string]string {
		m := map[string]string{"ce-specversion": "1.0", "ce-id": "secret", "ce-source": "/secret", "ce-type": "secret"}
		for i := 0; i < len(pairs); i += 2 {
			m[pairs[i]] = pairs[i+1]
			if pairs[i+1] == "" {
				delete(m, pairs[i])
			}
		}
		return m
	}
	for _, c := range []struct {
		data       string
		attributes map[string]string
		want       string
	}{
		{`{"id":"secret","source":"/secret","type":"secret"}`, nil, "specversion is not 1.0"},
		{`{"specversion":"0.3","id":"secret","source":"/secret","type":"secret"}`, nil, "specversion is not 1.0"},
		{`{"specversion":"1.0","source":"/secret","type":"secret"}`, nil, "attribute id"},
		{`{"specversion":"1.0","id":"secret","type":"secret"}`, nil, "attribute source"},
		{`{"specversion":"1.0","id":7,"source":"/s","type":"secret"}`, nil, "attribute id"},
		{`{` + head + `,"time":"yesterday, secret"}`, nil, "attribute time"},
		{`{` + head + `,"subject":""}`, nil, "attribute subject"},
		{`{` + head + `,"dataschema":"relative"}`, nil, "attribute dataschema"},
		{`{` + head + `,"datacontenttype":"nonsense type"}`, nil, "attribute datacontenttype"},
		{`{` + head + `,"data":1,"data_base64":"MQ=="}`, nil, "data and data_base64"},
		{`{` + head + `,"data_base64":"MQ"}`, nil, "padded standard base64"},
		{`{` + head + `,"data_base64":7}`, nil, "padded standard base64"},
		{`{` + head + `,"data_base64":"e30ge30="}`, nil, "something after the value at offset 3"},
		{`{` + head + `,"data":{"a":1,"a":2}}`, nil, "duplicate key"},
		{`{` + head + `,"data":123456789012345678901}`, nil, "more than 64 bits"},
		{`{` + head + `,"type":"other"}`, nil, "duplicate key"},
		{`{` + head + `,"extension":{"secret":1}}`, nil, "extension"},
		{`{` + head + `,"ext-secret":"x"}`, nil, "letters and digits"},
		{`"secret"`, nil, "no JSON object"},
		{`secret`, map[string]string{"content-type": "application/cloudevents+avro"}, "no format that can be read"},
		{`{}`, ce("ce-id", ""), "attribute id"},
		{`{}`, ce("ce-specversion", ""), "specversion"},
		{`{`, ce(), "ends too early"},
		{`{"a":1,"a":1}`, ce(), "duplicate key"},
		{"\xff", ce("content-type", "text/plain"), "not UTF-8"},
		{`{}`, ce("ce-data", "1"), "named like its data"},
		{`{}`, ce("ce-id", "secret\xff"), "not UTF-8"},
	} {
		var d Decoder
		got := d.CloudEvents([]byte(c.data), c.attributes)
		if len(got) != 1 || got[0].Err == nil || got[0].Value != nil {
			t.Errorf("%s: %+v, want one error", c.data, got)
			continue
		}
		if text := got[0].Err.Error(); !strings.Contains(text, c.want) || strings.Contains(text, "secret") {
			t.Errorf("%s: %q, want %q and nothing of the event", c.data, text, c.want)
		}
	}
}

func TestABrokenEventOfABatchLeavesItsNeighbours(t *testing.T) {
	const good = `{"specversion":"1.0","id":"e","source":"/s","type":"t"}`
	var d Decoder
	got := d.CloudEvents([]byte(`[`+good+`,{"specversion":"1.0"},`+good+`]`), nil)
	if len(got) != 3 || got[0].Err != nil || got[2].Err != nil || got[1].Err == nil || !strings.HasPrefix(got[1].Err.Error(), "element 1: ") {
		t.Fatalf("%+v", got)
	}
	if string(got[1].Raw) != `{"specversion":"1.0"}` {
		t.Errorf("raw %s", got[1].Raw)
	}
}

// readAgain reads a record from the letter that keeps it, as a replay does.
func readAgain(t testing.TB, format string, r *Record, place int, attributes map[string]string) Record {
	t.Helper()
	l := deadletter.Letter{Time: time.Unix(9, 0), MessageID: "m", Origin: &deadletter.Origin{Attributes: attributes, Place: place}}
	r.Keep(&l)
	if err := l.Check(); err != nil {
		t.Skip(err)
	}
	back, err := deadletter.Decode(l.Encode())
	if err != nil || back.Kind != deadletter.KindRecord || back.Origin == nil || back.Origin.Place != place {
		t.Fatalf("%+v: %v", back, err)
	}
	all, err := ByFormat(format)
	if err != nil {
		t.Fatal(err)
	}
	one, err := OneByFormat(format)
	if err != nil {
		t.Fatal(err)
	}
	if !back.Origin.Whole {
		return one(back.Data, back.Origin.Attributes, Memory{})
	}
	records := slices.Collect(all(back.Data, back.Origin.Attributes))
	if len(records) != 1 {
		t.Fatalf("%d records of one", len(records))
	}
	return records[0]
}

// What is one record of a message is one record again, also where it is an array in an
// array, and what is wrong with a whole message is wrong with it again.
func TestARecordIsReplayedAsWhatItWas(t *testing.T) {
	const event = `{"specversion":"1.0","id":"e","source":"/s","type":"t","data":[[1],[2]]}`
	batch := map[string]string{"Content-Type": "application/cloudevents-batch+json"}
	for _, c := range []struct {
		format, data string
		attributes   map[string]string
		records      int
	}{
		{"json", `[[{"a":1},{"a":2}],[],{"a":3}]`, nil, 3},
		{"json", "\ufeff [[[1]]]", nil, 1},
		{"json", `{"a":[1,2]}`, nil, 1},
		{"json", `[1,`, nil, 1},
		{"json", `[{"a":1,"a":2},[{"a":1,"a":2}]]`, nil, 2},
		{"json", ``, nil, 1},
		{"ndjson", "[1,2]\n[3]\n[,]\n", nil, 3},
		{"cloudevent", event, nil, 1},
		{"cloudevent", "[" + event + "," + event + `,[` + event + `],{"specversion":"1.0"}]`, batch, 4},
		{"cloudevent", "[" + event + "]", nil, 1},
		{"cloudevent", "[1,2]", map[string]string{"ce-specversion": "1.0", "ce-id": "e", "ce-source": "/s", "ce-type": "t"}, 1},
	} {
		decode, err := ByFormat(c.format)
		if err != nil {
			t.Fatal(err)
		}
		records := slices.Collect(decode([]byte(c.data), c.attributes))
		if len(records) != c.records {
			t.Errorf("%s %s: %d records", c.format, c.data, len(records))
		}
		for i := range records {
			r := &records[i]
			again := readAgain(t, c.format, r, i, c.attributes)
			if !reflect.DeepEqual(again.Value, r.Value) || (again.Err == nil) != (r.Err == nil) || string(again.Raw) != string(r.Raw) {
				t.Errorf("%s %s, record %d: %+v, again %+v", c.format, c.data, i, r, again)
			}
		}
	}
}

// An event of binary mode has half of itself in the message's attributes.
func TestACloudEventReadsTheSameFromItsDeadLetter(t *testing.T) {
	for _, c := range []struct{ contentType, data string }{
		{"", `{"n":9007199254740993,"t":"<&>"}`},
		{"application/json", `{"a":1,"a":2}`},
		{"application/json", `{"a":`},
		{"application/json", "\"\xff\""},
		{"text/plain", `hi "you"`},
		{"text/plain", "\xff"},
		{"application/octet-stream", "\x00\xff"},
		{"", ""},
		{"text/plain; x=\xff", ""},
	} {
		attributes := map[string]string{"ce-specversion": "1.0", "ce-id": "e-1", "ce-source": "/s", "ce-type": "t", "ce-seq": "7"}
		if c.contentType != "" {
			attributes["content-type"] = c.contentType
		}
		var d Decoder
		first := d.CloudEvents([]byte(c.data), attributes)[0]
		again := readAgain(t, "cloudevent", &first, 0, attributes)
		if !reflect.DeepEqual(again.Value, first.Value) || (again.Err == nil) != (first.Err == nil) {
			t.Errorf("%s %q: first %#v, %v; again %+v", c.contentType, c.data, first.Value, first.Err, again)
		}
	}
}

// Which of two content types a map gives first is chance.
func TestTwoContentTypesAreNotGuessed(t *testing.T) {
	ce := map[string]string{"ce-specversion": "1.0", "ce-id": "secret", "ce-source": "/s", "ce-type": "t"}
	for range 50 {
		ce["content-type"], ce["Content-Type"] = "text/secret", "application/json"
		var d Decoder
		got := d.CloudEvents([]byte(`{}`), ce)
		if len(got) != 1 || got[0].Err == nil || !strings.Contains(got[0].Err.Error(), "differ in case only") || strings.Contains(got[0].Err.Error(), "secret") {
			t.Fatalf("%+v", got)
		}
		ce["content-type"] = "application/json"
		if got := d.CloudEvents([]byte(`{}`), ce); len(got) != 1 || got[0].Err != nil {
			t.Fatalf("one type under two names: %+v", got)
		}
	}
}

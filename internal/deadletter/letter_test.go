package deadletter

import (
	"bytes"
	"errors"
	"log/slog"
	"maps"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"
)

type tableName string

func (t tableName) String() string { return string(t) }

const orders = tableName("projects/p/instances/i/tables/orders")

var (
	publishTime = time.Date(2026, 8, 30, 10, 15, 31, 123456789, time.UTC)
	row         = &bigtablepb.MutateRowsRequest_Entry{
		RowKey: []byte("order#1\xff"),
		Mutations: []*bigtablepb.Mutation{{Mutation: &bigtablepb.Mutation_SetCell_{
			SetCell: &bigtablepb.Mutation_SetCell{FamilyName: "cf", ColumnQualifier: []byte("q"), Value: []byte("v")},
		}}},
		Idempotency: &bigtablepb.Idempotency{Token: []byte("0123456789abcdef")},
	}
	filter = &bigtablepb.RowFilter{Filter: &bigtablepb.RowFilter_PassAllFilter{PassAllFilter: true}}
)

// covers: FAIL-09
func TestAnEntryComesBackAsItWas(t *testing.T) {
	l := Letter{Mapping: "m", Error: "refused", Time: publishTime.Add(time.Second), MessageID: "17", PublishTime: publishTime}
	if !l.SetRow(orders, row, nil) {
		t.Fatal("refused")
	}
	got, err := Decode(l.Encode())
	if err != nil {
		t.Fatal(err)
	}
	if got.Kind != KindEntry || got.Table != string(orders) || got.Mapping != "m" || got.MessageID != "17" ||
		!got.PublishTime.Equal(publishTime) || !got.Time.Equal(l.Time) || got.Error != "refused" {
		t.Errorf("%+v", got)
	}
	back, unless, err := got.Row()
	if err != nil || unless != nil || !proto.Equal(back, row) {
		t.Errorf("%v %v %v", back, unless, err)
	}
}

func TestAConditionSurvives(t *testing.T) {
	var l Letter
	if !l.SetRow(orders, row, filter) {
		t.Fatal("refused")
	}
	got, err := Decode(l.Encode())
	if err != nil {
		t.Fatal(err)
	}
	back, unless, err := got.Row()
	if err != nil || got.Kind != KindCheckAndMutate || !proto.Equal(unless, filter) {
		t.Fatalf("%v %v %v", got.Kind, unless, err)
	}
	if !bytes.Equal(back.RowKey, row.RowKey) || len(back.Mutations) != 1 || !proto.Equal(back.Mutations[0], row.Mutations[0]) {
		t.Errorf("%v", back)
	}
}

// covers: FAIL-17
func TestTheEnvelopeIsTheDocumentedOne(t *testing.T) {
	_, attributes := Letter{
		Kind: KindRecord, Table: "t", Mapping: "m", Error: "e", Time: publishTime, MessageID: "1", PublishTime: publishTime, Data: []byte("x"),
		Origin: &Origin{Attributes: map[string]string{"b": "<2>", "a": "\xff"}, OrderingKey: "k", Subscription: "s", Place: 3, Whole: true},
	}.Encode()
	want := map[string]string{
		"kind": "record", "table": "t", "mapping": "m", "error": "e", "messageId": "1",
		"time": "2026-08-30T10:15:31.123456789Z", "publishTime": "2026-08-30T10:15:31.123456789Z",
		"message": `{"place":3,"whole":true,"orderingKey":"k","subscription":"s","attributes":{"a":{"base64":"/w=="},"b":"<2>"}}`,
	}
	if !maps.Equal(attributes, want) {
		t.Errorf("%v", attributes)
	}
}

func TestAnOversizeEntryStaysARecord(t *testing.T) {
	big := proto.Clone(row).(*bigtablepb.MutateRowsRequest_Entry)
	big.Mutations[0].GetSetCell().Value = make([]byte, MaxEntry)
	l := Letter{Kind: KindRecord, Data: []byte("raw")}
	if l.SetRow(orders, big, nil) || l.Kind != KindRecord || string(l.Data) != "raw" {
		t.Errorf("%v", l.Kind)
	}
}

// covers: FAIL-17
func TestTheErrorIsCutAtACharacter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := strings.Repeat(rapid.String().Draw(t, "s"), rapid.IntRange(1, 200).Draw(t, "n"))
		got := cut(s)
		if len(got) > MaxError || !utf8.ValidString(got) {
			t.Fatalf("%d bytes, valid %v", len(got), utf8.ValidString(got))
		}
		if len(s) <= MaxError && utf8.ValidString(s) && got != s {
			t.Fatal("short text is changed")
		}
		if len(s) > MaxError && utf8.ValidString(s) && (!strings.HasSuffix(got, "...") || !strings.HasPrefix(s, strings.TrimSuffix(got, "..."))) {
			t.Fatalf("%q", got)
		}
	})
}

func TestOtherMessagesAreNoLetters(t *testing.T) {
	for name, attributes := range map[string]map[string]string{
		"none":         nil,
		"its own kind": {"kind": "order"},
		"moved by Pub/Sub": {"CloudPubSubDeadLetterSourceTopicPublishTime": "2026-08-30T10:15:31Z",
			"CloudPubSubDeadLetterSourceSubscription": "s", "kind": "record"},
		"unknown kind": {"kind": "letter", "time": "2026-08-30T10:15:31Z"},
	} {
		if _, err := Decode([]byte("x"), attributes); !errors.Is(err, ErrNoLetter) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, attributes := range map[string]map[string]string{
		"time":         {"kind": "record", "time": "yesterday"},
		"publish time": {"kind": "record", "time": "2026-08-30T10:15:31Z", "publishTime": "soon"},
		"table":        {"kind": "entry", "time": "2026-08-30T10:15:31Z"},
		"message":      {"kind": "record", "time": "2026-08-30T10:15:31Z", "message": `{"place":1`},
		"place":        {"kind": "record", "time": "2026-08-30T10:15:31Z", "message": `{"place":-1}`},
	} {
		if _, err := Decode(nil, attributes); err == nil || errors.Is(err, ErrNoLetter) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestALetterLogsOnlySizes(t *testing.T) {
	var b strings.Builder
	l := Letter{Kind: KindRecord, Mapping: "m", Data: []byte("secret"), MessageID: "1"}
	slog.New(slog.NewTextHandler(&b, nil)).Info("x", "letter", l)
	if strings.Contains(b.String(), "secret") || !strings.Contains(b.String(), "bytes=6") {
		t.Error(b.String())
	}
}

func FuzzDecode(f *testing.F) {
	var entry, conditional Letter
	entry.SetRow(orders, row, nil)
	conditional.SetRow(orders, row, filter)
	for _, l := range []Letter{entry, conditional, {Kind: KindRecord, Data: []byte("{}")}} {
		f.Add(l.Data, string(l.Kind), l.Table, "m", "e", "2026-08-30T10:15:31.1Z", "1", "2026-08-30T10:15:31+02:00")
	}
	f.Fuzz(func(t *testing.T, data []byte, kind, table, mapping, reason, at, id, published string) {
		l, err := Decode(data, map[string]string{"kind": kind, "table": table, "mapping": mapping,
			"error": reason, "time": at, "messageId": id, "publishTime": published})
		if err != nil {
			return
		}
		if l.Check() != nil {
			return
		}
		again, err := Decode(l.Encode())
		if err != nil {
			t.Fatalf("a letter does not come back: %v", err)
		}
		if l.Kind != KindEntry && l.Kind != KindCheckAndMutate && again.Table == "" { // it may be cut
			l.Table = ""
		}
		if again.Kind != l.Kind || again.Table != l.Table || again.Mapping != l.Mapping || again.MessageID != l.MessageID ||
			!again.Time.Equal(l.Time) || !again.PublishTime.Equal(l.PublishTime) || !bytes.Equal(again.Data, l.Data) {
			t.Fatalf("%+v became %+v", l, again)
		}
		_, _, _ = l.Row() // must not panic
	})
}

func TestALetterOfAnOutputKeepsTheBodyOrTheKey(t *testing.T) {
	key := []byte(`{"rowKey":"a"}`)
	whole := bytes.Repeat([]byte("x"), MaxEntry)
	for name, tc := range map[string]struct{ body, want []byte }{
		"a record":           {[]byte(`{"total":1}`), []byte(`{"total":1}`)},
		"no record":          {nil, key},
		"the largest record": {whole, whole},
		"a larger record":    {append(whole, 'x'), key},
	} {
		var l Letter
		if l.SetOutput(tc.body, key); l.Kind != KindOutput || !bytes.Equal(l.Data, tc.want) {
			t.Errorf("%s: a letter of kind %s with %d bytes", name, l.Kind, len(l.Data))
		}
	}
}

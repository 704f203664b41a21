package record

import (
	"slices"
	"strings"
	"testing"
	"time"

	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	"google.golang.org/protobuf/proto"

	"github.com/bigtable-functions/bigtable-functions/internal/deadletter"
)

type tableName string

func (n tableName) String() string { return string(n) }

const ordersTable = tableName("projects/p/instances/i/tables/orders")

func entryLetter(unless *bigtablepb.RowFilter) deadletter.Letter {
	row := &bigtablepb.MutateRowsRequest_Entry{RowKey: []byte("k"), Mutations: []*bigtablepb.Mutation{
		{Mutation: &bigtablepb.Mutation_DeleteFromRow_{DeleteFromRow: &bigtablepb.Mutation_DeleteFromRow{}}},
	}}
	l := deadletter.Letter{Mapping: "order", Error: "refused", Time: time.Unix(9, 0).UTC(), MessageID: "m-1", PublishTime: time.Unix(7, 0).UTC()}
	l.SetRow(ordersTable, row, unless)
	return l
}

// covers: FAIL-09
func TestADeadLetterIsAnEntryAgain(t *testing.T) {
	for name, unless := range map[string]*bigtablepb.RowFilter{
		"entry":            nil,
		"check-and-mutate": {Filter: &bigtablepb.RowFilter_PassAllFilter{PassAllFilter: true}},
	} {
		l := entryLetter(unless)
		got := one(l.Encode())
		if len(got) != 1 || got[0].Err != nil || got[0].Entry == nil {
			t.Fatalf("%s: %+v", name, got)
		}
		e := got[0].Entry
		if e.Table != ordersTable.String() || string(e.Row.RowKey) != "k" || len(e.Row.Mutations) != 1 || !proto.Equal(e.Unless, unless) {
			t.Errorf("%s: %+v", name, e)
		}
		// What is given up again is kept as what it was, under the ids it came with.
		kept := deadletter.Letter{Error: "refused again", Time: time.Unix(20, 0), MessageID: "m-2", PublishTime: time.Unix(19, 0)}
		got[0].Keep(&kept)
		if kept.Kind != l.Kind || kept.Table != l.Table || kept.Mapping != "order" || kept.MessageID != "m-1" ||
			!kept.PublishTime.Equal(l.PublishTime) || string(kept.Data) != string(l.Data) || kept.Error != "refused again" {
			t.Errorf("%s kept as %+v", name, kept)
		}
	}
}

func TestWhatIsNoMutationSaysWhatItIs(t *testing.T) {
	now := time.Unix(9, 0)
	entry := entryLetter(nil)
	broken := entry
	broken.Data = []byte("\xff")
	for _, c := range []struct {
		letter deadletter.Letter
		want   string
	}{
		{deadletter.Letter{Kind: deadletter.KindRecord, Time: now, Data: []byte(`{}`)}, "kind record holds no mutation"},
		{deadletter.Letter{Kind: deadletter.KindOutput, Time: now}, "kind output holds no mutation"},
		{broken, "no MutateRowsRequest.Entry"},
	} {
		got := one(c.letter.Encode())
		if len(got) != 1 || got[0].Entry != nil || got[0].Err == nil || !strings.Contains(got[0].Err.Error(), c.want) {
			t.Errorf("%s: %+v", c.want, got)
		}
		var kept deadletter.Letter
		got[0].Keep(&kept)
		if kept.Kind != c.letter.Kind || kept.Table != c.letter.Table {
			t.Errorf("%s: kept as %+v", c.want, kept)
		}
	}
	got := one([]byte("x"), map[string]string{"kind": "entry"})
	if got[0].Err == nil || !strings.Contains(got[0].Err.Error(), "the message is no mutation") {
		t.Errorf("a message without a letter's marks: %v", got[0].Err)
	}
}

func TestEveryFormatOfThePipelineFileHasADecoder(t *testing.T) {
	for _, format := range []string{"json", "ndjson", "cloudevent", "mutation"} {
		decode, err := ByFormat(format)
		if err != nil || len(slices.Collect(decode([]byte(`{"a":1}`), nil))) != 1 {
			t.Errorf("%s: %v", format, err)
		}
	}
	if _, err := ByFormat("avro"); err == nil {
		t.Error("avro is taken")
	}
}

func one(data []byte, attributes map[string]string) []Record {
	return []Record{Mutation(data, attributes)}
}

package changestream

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	"google.golang.org/protobuf/types/known/timestamppb"
	"pgregory.net/rapid"
)

// Short names for the responses that tests build.
type (
	response   = bigtablepb.ReadChangeStreamResponse
	dataChange = bigtablepb.ReadChangeStreamResponse_DataChange
	chunk      = bigtablepb.ReadChangeStreamResponse_MutationChunk
	chunkInfo  = bigtablepb.ReadChangeStreamResponse_MutationChunk_ChunkInfo
)

func wrap(dc *dataChange) *response {
	return &response{StreamRecord: &bigtablepb.ReadChangeStreamResponse_DataChange_{DataChange: dc}}
}

func first(chunks ...*chunk) *dataChange {
	return &dataChange{
		Type: bigtablepb.ReadChangeStreamResponse_DataChange_USER, SourceClusterId: "c1", RowKey: []byte("row"),
		CommitTimestamp: timestamppb.New(noon), Tiebreaker: 7, Chunks: chunks,
	}
}

func continued(chunks ...*chunk) *dataChange {
	return &dataChange{Type: bigtablepb.ReadChangeStreamResponse_DataChange_CONTINUATION, Chunks: chunks}
}

func done(dc *dataChange) *dataChange {
	dc.Done, dc.Token, dc.EstimatedLowWatermark = true, "token", timestamppb.New(noon.Add(-time.Second))
	return dc
}

func set(qualifier, value string) *bigtablepb.Mutation {
	return &bigtablepb.Mutation{Mutation: &bigtablepb.Mutation_SetCell_{SetCell: &bigtablepb.Mutation_SetCell{
		FamilyName: "cf", ColumnQualifier: []byte(qualifier), TimestampMicros: 1000, Value: []byte(value),
	}}}
}

func whole(m *bigtablepb.Mutation) *chunk { return &chunk{Mutation: m} }

// piece is a part of a cell: size and offset in all, the part's own value.
func piece(size, offset int32, last bool, qualifier, value string) *chunk {
	return &chunk{Mutation: set(qualifier, value), ChunkInfo: &chunkInfo{ChunkedValueSize: size, ChunkedValueOffset: offset, LastChunk: last}}
}

func beat() *response {
	return &response{StreamRecord: &bigtablepb.ReadChangeStreamResponse_Heartbeat_{Heartbeat: &bigtablepb.ReadChangeStreamResponse_Heartbeat{
		ContinuationToken: &bigtablepb.StreamContinuationToken{
			Partition: &bigtablepb.StreamPartition{RowRange: ProtoRange(rangeOf("a-b"))}, Token: "beat",
		},
		EstimatedLowWatermark: timestamppb.New(noon),
	}}}
}

func deleteFamily(family string) *bigtablepb.Mutation {
	return &bigtablepb.Mutation{Mutation: &bigtablepb.Mutation_DeleteFromFamily_{
		DeleteFromFamily: &bigtablepb.Mutation_DeleteFromFamily{FamilyName: family}}}
}

// add feeds the responses and returns the last item.
func add(t *testing.T, a *Assembler, responses ...*response) Item {
	t.Helper()
	var item Item
	for i, r := range responses {
		if item.Record != nil {
			t.Fatalf("a record before response %d", i)
		}
		var err error
		if item, err = a.Add(r); err != nil {
			t.Fatalf("response %d: %v", i, err)
		}
	}
	return item
}

// A record comes out once, whole, however it is cut.
//
// covers: CS-01
// stream-case: 12
func TestARecordIsPutTogether(t *testing.T) {
	cell := func(qualifier, value string) Entry {
		return Entry{Kind: SetCell, Family: "cf", Qualifier: qualifier, Timestamp: 1000, Value: []byte(value)}
	}
	family := Entry{Kind: DeleteFamily, Family: "cf"}
	for _, c := range []struct {
		name      string
		responses []*dataChange
		want      []Entry
	}{
		{"no chunk", []*dataChange{done(first(whole(set("a", "x"))))}, []Entry{cell("a", "x")}},
		{"an empty cell", []*dataChange{done(first(whole(set("a", ""))))}, []Entry{cell("a", "")}},
		{"two chunks", []*dataChange{first(piece(4, 0, false, "a", "xy")), done(continued(piece(4, 2, true, "", "z!")))}, []Entry{cell("a", "xyz!")}},
		{"three chunks", []*dataChange{
			first(piece(5, 0, false, "a", "xy")), continued(piece(5, 2, false, "", "z")), done(continued(piece(5, 3, true, "", "!?"))),
		}, []Entry{cell("a", "xyz!?")}},
		{"two chunked cells", []*dataChange{
			first(piece(2, 0, false, "a", "x")), continued(piece(2, 1, true, "", "y"), piece(2, 0, false, "b", "1")), done(continued(piece(2, 1, true, "", "2"))),
		}, []Entry{cell("a", "xy"), cell("b", "12")}},
		{"a cell in one chunk", []*dataChange{done(first(piece(2, 0, true, "a", "xy"), whole(deleteFamily("cf"))))}, []Entry{cell("a", "xy"), family}},
		{"other mutations beside chunks", []*dataChange{
			first(whole(deleteFamily("cf")), whole(set("a", "x")), piece(2, 0, false, "b", "1")),
			done(continued(piece(2, 1, true, "", "2"), whole(deleteFamily("cf")))),
		}, []Entry{family, cell("a", "x"), cell("b", "12"), family}},
		{"mutations over several responses", []*dataChange{
			first(whole(set("a", "x"))), continued(whole(deleteFamily("cf"))), done(continued(whole(set("b", "y")))),
		}, []Entry{cell("a", "x"), family, cell("b", "y")}},
		{"done without a mutation", []*dataChange{first(whole(set("a", "x"))), done(continued())}, []Entry{cell("a", "x")}},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := NewAssembler(0)
			var responses []*response
			for i, dc := range c.responses {
				if i < len(c.responses)-1 { // a token before the end means nothing yet
					dc.Token, dc.EstimatedLowWatermark = "early", timestamppb.New(noon)
				}
				responses = append(responses, wrap(dc))
			}
			r := add(t, a, responses...).Record
			if r == nil {
				t.Fatal("no record")
			}
			if r.RowKey != "row" || r.Type != User || r.Cluster != "c1" || !r.CommitTime.Equal(noon) || r.TieBreaker != 7 ||
				r.Token != "token" || !r.LowWatermark.Equal(noon.Add(-time.Second)) {
				t.Errorf("%+v", r)
			}
			if fmt.Sprint(r.Entries) != fmt.Sprint(c.want) {
				t.Errorf("%v, want %v", r.Entries, c.want)
			}
			if h := add(t, a, beat()).Heartbeat; h == nil || h.Position.Token != "beat" || h.Token.Range != rangeOf("a-b") {
				t.Errorf("%+v", h)
			}
		})
	}
}

// stream-case: 13, 15
func TestABrokenRecordIsAnErrorAndNothingFollowsIt(t *testing.T) {
	change := func(dc *dataChange, edit func(*dataChange)) *response {
		edit(dc)
		return wrap(dc)
	}
	good := func() *dataChange { return done(first(whole(set("a", "x")))) }
	for name, responses := range map[string][]*response{
		"no row key":      {change(good(), func(d *dataChange) { d.RowKey = nil })},
		"no commit time":  {change(good(), func(d *dataChange) { d.CommitTimestamp = nil })},
		"no such time":    {change(good(), func(d *dataChange) { d.CommitTimestamp = &timestamppb.Timestamp{Nanos: -1} })},
		"no token":        {change(good(), func(d *dataChange) { d.Token = "" })},
		"no watermark":    {change(good(), func(d *dataChange) { d.EstimatedLowWatermark = nil })},
		"no mutation":     {change(good(), func(d *dataChange) { d.Chunks = nil })},
		"no type":         {change(good(), func(d *dataChange) { d.Type = 0 })},
		"unknown type":    {change(good(), func(d *dataChange) { d.Type = 9 })},
		"begins midway":   {change(good(), func(d *dataChange) { d.Type = bigtablepb.ReadChangeStreamResponse_DataChange_CONTINUATION })},
		"no cluster":      {change(good(), func(d *dataChange) { d.SourceClusterId = "" })},
		"GC of a cluster": {change(good(), func(d *dataChange) { d.Type = bigtablepb.ReadChangeStreamResponse_DataChange_GARBAGE_COLLECTION })},
		"empty mutation":  {wrap(done(first(whole(&bigtablepb.Mutation{}))))},
		"no mutation set": {wrap(done(first(&chunk{})))},
		"a deleted row": {wrap(done(first(whole(&bigtablepb.Mutation{Mutation: &bigtablepb.Mutation_DeleteFromRow_{
			DeleteFromRow: &bigtablepb.Mutation_DeleteFromRow{}}}))))},
		"no family":                 {wrap(done(first(whole(deleteFamily("")))))},
		"heartbeat within":          {wrap(first(whole(set("a", "x")))), beat()},
		"close within":              {wrap(first(whole(set("a", "x")))), {StreamRecord: &bigtablepb.ReadChangeStreamResponse_CloseStream_{}}},
		"no response":               {{}},
		"size changes":              {wrap(first(piece(4, 0, false, "a", "xy"))), wrap(done(continued(piece(5, 2, true, "", "z!"))))},
		"too little":                {wrap(first(piece(4, 0, false, "a", "xy"))), wrap(done(continued(piece(4, 2, true, "", "z"))))},
		"too much":                  {wrap(first(piece(4, 0, false, "a", "xy"))), wrap(done(continued(piece(4, 2, true, "", "z!?"))))},
		"more than there is":        {wrap(first(piece(4, 0, false, "a", "xyz!?")))},
		"no size":                   {wrap(first(piece(0, 0, false, "a", "")))},
		"begins in the middle":      {wrap(first(piece(4, 2, true, "a", "xy")))},
		"two begin":                 {wrap(first(piece(4, 0, false, "a", "xy"))), wrap(continued(piece(4, 0, false, "b", "xy")))},
		"stops within a response":   {wrap(first(piece(4, 0, false, "a", "xy"), whole(set("b", "x"))))},
		"goes on after another":     {wrap(first(piece(4, 0, false, "a", "xy"))), wrap(continued(whole(set("b", "x")), piece(4, 2, true, "", "z!")))},
		"another mutation within":   {wrap(first(piece(4, 0, false, "a", "xy"))), wrap(done(continued(whole(set("b", "x")))))},
		"a chunk of no cell":        {wrap(first(&chunk{Mutation: deleteFamily("cf"), ChunkInfo: &chunkInfo{ChunkedValueSize: 1}}))},
		"heartbeat without token":   {{StreamRecord: &bigtablepb.ReadChangeStreamResponse_Heartbeat_{Heartbeat: &bigtablepb.ReadChangeStreamResponse_Heartbeat{}}}},
		"a range of times reversed": {wrap(done(first(whole(deleted(2000, 1000)))))},
	} {
		t.Run(name, func(t *testing.T) {
			a := NewAssembler(0)
			var err error
			for i, r := range responses {
				var item Item
				if item, err = a.Add(r); err != nil && i < len(responses)-1 {
					t.Fatalf("response %d: %v", i, err)
				}
				if item != (Item{}) {
					t.Fatalf("%+v", item)
				}
			}
			if !errors.Is(err, ErrProtocol) {
				t.Fatalf("%v", err)
			}
			if strings.Contains(err.Error(), "xy") || strings.Contains(err.Error(), "row\"") {
				t.Errorf("quotes data: %v", err)
			}
			if item, again := a.Add(wrap(good())); again == nil || item != (Item{}) {
				t.Errorf("after the error: %+v %v", item, again)
			}
		})
	}
}

func deleted(start, end int64) *bigtablepb.Mutation {
	return &bigtablepb.Mutation{Mutation: &bigtablepb.Mutation_DeleteFromColumn_{DeleteFromColumn: &bigtablepb.Mutation_DeleteFromColumn{
		FamilyName: "cf", ColumnQualifier: []byte("q"), TimeRange: &bigtablepb.TimestampRange{StartTimestampMicros: start, EndTimestampMicros: end},
	}}}
}

// covers: CS-30
// stream-case: 16, 17
func TestEveryKindOfMutationIsRead(t *testing.T) {
	raw := func(b string) *bigtablepb.Value {
		return &bigtablepb.Value{Kind: &bigtablepb.Value_RawValue{RawValue: []byte(b)}}
	}
	at := &bigtablepb.Value{Kind: &bigtablepb.Value_RawTimestampMicros{RawTimestampMicros: 5000}}
	number := &bigtablepb.Value{Kind: &bigtablepb.Value_IntValue{IntValue: -3}}
	adding := func(q, at, input *bigtablepb.Value) *bigtablepb.Mutation {
		return &bigtablepb.Mutation{Mutation: &bigtablepb.Mutation_AddToCell_{
			AddToCell: &bigtablepb.Mutation_AddToCell{FamilyName: "sum", ColumnQualifier: q, Timestamp: at, Input: input}}}
	}
	merging := &bigtablepb.Mutation{Mutation: &bigtablepb.Mutation_MergeToCell_{
		MergeToCell: &bigtablepb.Mutation_MergeToCell{FamilyName: "sum", ColumnQualifier: raw("q"), Timestamp: at, Input: raw("\x00\x01")}}}
	for _, c := range []struct {
		mutation *bigtablepb.Mutation
		want     Entry // zero: refused
	}{
		{deleted(0, 0), Entry{Kind: DeleteCells, Family: "cf", Qualifier: "q"}},
		{deleted(1000, 0), Entry{Kind: DeleteCells, Family: "cf", Qualifier: "q", Start: 1000}},
		{deleted(0, 2000), Entry{Kind: DeleteCells, Family: "cf", Qualifier: "q", End: 2000}},
		{&bigtablepb.Mutation{Mutation: &bigtablepb.Mutation_DeleteFromColumn_{
			DeleteFromColumn: &bigtablepb.Mutation_DeleteFromColumn{FamilyName: "cf", ColumnQualifier: []byte("q")}}},
			Entry{Kind: DeleteCells, Family: "cf", Qualifier: "q"}},
		{adding(raw("q"), at, number), Entry{Kind: AddToCell, Family: "sum", Qualifier: "q", Timestamp: 5000, Number: -3, IsNumber: true}},
		{adding(raw("q"), at, raw("x")), Entry{Kind: AddToCell, Family: "sum", Qualifier: "q", Timestamp: 5000, Value: []byte("x")}},
		{merging, Entry{Kind: MergeToCell, Family: "sum", Qualifier: "q", Timestamp: 5000, Value: []byte("\x00\x01")}},
		{adding(number, at, number), Entry{}},
		{adding(raw("q"), number, number), Entry{}},
		{adding(raw("q"), at, &bigtablepb.Value{Kind: &bigtablepb.Value_BoolValue{}}), Entry{}},
		{adding(raw("q"), at, nil), Entry{}},
	} {
		got, err := new(entryReader).read(c.mutation)
		if !reflect.DeepEqual(got, c.want) || (err != nil) != reflect.DeepEqual(c.want, Entry{}) {
			t.Errorf("%v: %+v %v", c.mutation, got, err)
		}
	}
}

// chunks cuts a record at random, as a service may.
func cut(t *rapid.T, mutations []*bigtablepb.Mutation) []*response {
	var out []*dataChange
	var at []*chunk
	flush := func() {
		if len(out) == 0 {
			out = append(out, first(at...))
		} else {
			out = append(out, continued(at...))
		}
		at = nil
	}
	for _, m := range mutations {
		value := m.GetSetCell().GetValue()
		if len(value) == 0 || !rapid.Bool().Draw(t, "chunked") {
			at = append(at, whole(m))
		} else {
			for offset := 0; offset < len(value); {
				n := rapid.IntRange(1, len(value)-offset).Draw(t, "part")
				last := offset+n == len(value)
				qualifier := ""
				if offset == 0 {
					qualifier = string(m.GetSetCell().ColumnQualifier)
				}
				at = append(at, piece(int32(len(value)), int32(offset), last, qualifier, string(value[offset:offset+n])))
				if offset += n; !last {
					flush()
				}
			}
		}
		if rapid.Bool().Draw(t, "next response") {
			flush()
		}
	}
	if len(at) > 0 || len(out) == 0 {
		flush()
	}
	done(out[len(out)-1])
	var responses []*response
	for _, dc := range out {
		responses = append(responses, wrap(dc))
	}
	return responses
}

func drawMutations(t *rapid.T) []*bigtablepb.Mutation {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) *bigtablepb.Mutation {
		if rapid.IntRange(0, 3).Draw(t, "kind") == 0 {
			return deleteFamily("cf")
		}
		return set(rapid.SampledFrom([]string{"", "a", "\xff"}).Draw(t, "qualifier"), string(rapid.SliceOfN(rapid.Byte(), 0, 20).Draw(t, "value")))
	}), 1, 8).Draw(t, "mutations")
}

// However the service cuts a record, and whatever the limit, its content, its size and its
// id are the same.
func TestChunksLeaveNoTrace(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		mutations := drawMutations(t)
		assemble := func(limit int64) *Record {
			a := NewAssembler(limit)
			var record *Record
			for i, r := range cut(t, mutations) {
				item, err := a.Add(r)
				if err != nil || record != nil {
					t.Fatalf("response %d: %v", i, err)
				}
				record = item.Record
			}
			return record
		}
		one, two := assemble(0), assemble(0)
		if len(one.Entries) != len(mutations) || fmt.Sprint(one) != fmt.Sprint(two) {
			t.Fatalf("%+v and %+v", one, two)
		}
		for i, e := range one.Entries {
			if want, _ := new(entryReader).read(mutations[i]); e.Kind != want.Kind || e.Qualifier != want.Qualifier || !bytes.Equal(e.Value, want.Value) {
				t.Fatalf("entry %d: %+v, want %+v", i, e, want)
			}
		}
		limit := rapid.Int64Range(1, one.Bytes+1).Draw(t, "limit")
		limited := assemble(limit)
		if limited.Oversize != (one.Bytes > limit) || limited.Bytes != one.Bytes || limited.Oversize != (limited.Entries == nil) {
			t.Fatalf("limit %d: %+v", limit, limited)
		}
		if limited.ID("t") != one.ID("t") {
			t.Fatal("the id depends on the limit")
		}
	})
}

// stream-case: 53
func TestDifferentRecordsHaveDifferentIDs(t *testing.T) {
	base := func() *Record {
		return &Record{RowKey: "r", Type: User, Cluster: "c", CommitTime: noon, TieBreaker: 1, Entries: []Entry{
			{Kind: SetCell, Family: "f", Qualifier: "q", Timestamp: 1, Value: []byte("v")},
		}}
	}
	ids := map[string]string{}
	for name, edit := range map[string]func(r *Record){
		"as it is":       func(*Record) {},
		"row key":        func(r *Record) { r.RowKey = "s" },
		"type":           func(r *Record) { r.Type = GarbageCollection },
		"cluster":        func(r *Record) { r.Cluster = "d" },
		"commit time":    func(r *Record) { r.CommitTime = noon.Add(time.Nanosecond) },
		"tie breaker":    func(r *Record) { r.TieBreaker = 2 },
		"kind":           func(r *Record) { r.Entries[0].Kind = MergeToCell },
		"family":         func(r *Record) { r.Entries[0].Family, r.Entries[0].Qualifier = "fq", "" },
		"qualifier":      func(r *Record) { r.Entries[0].Qualifier = "p" },
		"cell time":      func(r *Record) { r.Entries[0].Timestamp = 2 },
		"value":          func(r *Record) { r.Entries[0].Value = []byte("w") },
		"no value":       func(r *Record) { r.Entries[0].Value = nil },
		"start":          func(r *Record) { r.Entries[0].Start = 1 },
		"end":            func(r *Record) { r.Entries[0].End = 1 },
		"number":         func(r *Record) { r.Entries[0].Number = 1 },
		"is a number":    func(r *Record) { r.Entries[0].IsNumber = true },
		"one more entry": func(r *Record) { r.Entries = append(r.Entries, r.Entries[0]) },
		"no entry":       func(r *Record) { r.Entries = nil },
	} {
		r := base()
		edit(r)
		id := r.ID("projects/p/instances/i/tables/t")
		if len(id) != 32 {
			t.Errorf("%q", id)
		}
		if other, taken := ids[id]; taken {
			t.Errorf("%s and %s have one id", name, other)
		}
		ids[id] = name
	}
	if got := base().ID("t"); got != "44b9e5f15ecb938d03a1531242945127" {
		t.Errorf("%s: records have had another id so far", got)
	}
	if base().ID("t") == base().ID("u") {
		t.Error("the id does not depend on the table")
	}
	moved := base()
	moved.Position = Position{Token: "elsewhere", LowWatermark: noon}
	if moved.ID("t") != base().ID("t") {
		t.Error("the id depends on where the record was read")
	}
}

// stream-case: 14
func TestLargeRecordsCostTheirLimitAtMost(t *testing.T) {
	const size = 100 << 20
	part := strings.Repeat("x", 1<<20)
	a := NewAssembler(9 << 20)
	var record *Record
	for offset := int32(0); offset < size; offset += 1 << 20 {
		dc := continued(piece(size, offset, offset+1<<20 == size, "", part))
		if offset == 0 {
			dc = first(piece(size, 0, false, "q", part))
		}
		if offset+1<<20 == size {
			done(dc)
		}
		item, err := a.Add(wrap(dc))
		if err != nil {
			t.Fatal(err)
		}
		if len(a.partial) > 9<<20 {
			t.Fatalf("%d bytes are held", len(a.partial))
		}
		record = item.Record
	}
	if record == nil || !record.Oversize || record.Bytes != size+int64(len("rowcfq")) {
		t.Fatalf("%+v", record)
	}

	many := make([]*chunk, 100_000)
	for i := range many {
		many[i] = whole(set("q", "v"))
	}
	if r := add(t, NewAssembler(0), wrap(done(first(many...)))).Record; len(r.Entries) != len(many) {
		t.Errorf("%d entries", len(r.Entries))
	}
}

func BenchmarkAssembleAndIdentify(b *testing.B) {
	resp := wrap(done(first(whole(set("status", strings.Repeat("x", 100))), whole(set("total", "12345678")))))
	a := NewAssembler(9 << 20)
	for b.Loop() {
		item, err := a.Add(resp)
		if err != nil {
			b.Fatal(err)
		}
		item.Record.ID("projects/p/instances/i/tables/t")
	}
}

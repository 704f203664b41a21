package store

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"cloud.google.com/go/bigtable/admin/apiv2/adminpb"
	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"pgregory.net/rapid"
)

func sumType() *adminpb.Type {
	return aggregateType(&adminpb.Type_Aggregate{Aggregator: &adminpb.Type_Aggregate_Sum_{Sum: &adminpb.Type_Aggregate_Sum{}}})
}

func aggregateType(a *adminpb.Type_Aggregate) *adminpb.Type {
	if a.InputType == nil {
		a.InputType = &adminpb.Type{Kind: &adminpb.Type_Int64Type{Int64Type: &adminpb.Type_Int64{Encoding: &adminpb.Type_Int64_Encoding{
			Encoding: &adminpb.Type_Int64_Encoding_BigEndianBytes_{BigEndianBytes: &adminpb.Type_Int64_Encoding_BigEndianBytes{}},
		}}}}
	}
	return &adminpb.Type{Kind: &adminpb.Type_AggregateType{AggregateType: a}}
}

func testSchema(t interface{ Fatal(...any) }) *Schema {
	s := &Schema{Unit: 1000, Families: map[string]*Family{}}
	for name, p := range map[string]*adminpb.ColumnFamily{
		"a": {}, "b": {}, "c": {}, "sum": {ValueType: sumType()},
	} {
		f, err := NewFamily(name, p)
		if err != nil {
			t.Fatal(err)
		}
		s = s.With(f)
	}
	return s
}

func testLimits() *Limits {
	return &Limits{RowKeyBytes: 4096, QualifierBytes: 16, CellBytes: 64, EntryMutations: 1000}
}

func set(family, qualifier string, ts int64, value string) *bigtablepb.Mutation {
	return &bigtablepb.Mutation{Mutation: &bigtablepb.Mutation_SetCell_{SetCell: &bigtablepb.Mutation_SetCell{
		FamilyName: family, ColumnQualifier: []byte(qualifier), TimestampMicros: ts, Value: []byte(value)}}}
}

func raw(s string) *bigtablepb.Value {
	return &bigtablepb.Value{Kind: &bigtablepb.Value_RawValue{RawValue: []byte(s)}}
}

func micros(n int64) *bigtablepb.Value {
	return &bigtablepb.Value{Kind: &bigtablepb.Value_RawTimestampMicros{RawTimestampMicros: n}}
}

func number(n int64) *bigtablepb.Value {
	return &bigtablepb.Value{Kind: &bigtablepb.Value_IntValue{IntValue: n}}
}

func add(family, qualifier string, ts int64, input *bigtablepb.Value) *bigtablepb.Mutation {
	return &bigtablepb.Mutation{Mutation: &bigtablepb.Mutation_AddToCell_{AddToCell: &bigtablepb.Mutation_AddToCell{
		FamilyName: family, ColumnQualifier: raw(qualifier), Timestamp: micros(ts), Input: input}}}
}

func merge(family, qualifier string, ts int64, input *bigtablepb.Value) *bigtablepb.Mutation {
	return &bigtablepb.Mutation{Mutation: &bigtablepb.Mutation_MergeToCell_{MergeToCell: &bigtablepb.Mutation_MergeToCell{
		FamilyName: family, ColumnQualifier: raw(qualifier), Timestamp: micros(ts), Input: input}}}
}

func deleteColumn(family, qualifier string, start, end int64) *bigtablepb.Mutation {
	return &bigtablepb.Mutation{Mutation: &bigtablepb.Mutation_DeleteFromColumn_{DeleteFromColumn: &bigtablepb.Mutation_DeleteFromColumn{
		FamilyName: family, ColumnQualifier: []byte(qualifier),
		TimeRange: &bigtablepb.TimestampRange{StartTimestampMicros: start, EndTimestampMicros: end}}}}
}

func deleteFamily(family string) *bigtablepb.Mutation {
	return &bigtablepb.Mutation{Mutation: &bigtablepb.Mutation_DeleteFromFamily_{DeleteFromFamily: &bigtablepb.Mutation_DeleteFromFamily{FamilyName: family}}}
}

func deleteWholeRow() *bigtablepb.Mutation {
	return &bigtablepb.Mutation{Mutation: &bigtablepb.Mutation_DeleteFromRow_{DeleteFromRow: &bigtablepb.Mutation_DeleteFromRow{}}}
}

// model is a row as data.proto describes it, one mutation at a time.
type model map[cellName]string

type cellName struct {
	family, qualifier string
	ts                int64
}

func (m model) apply(mut *bigtablepb.Mutation, now int64) {
	switch k := mut.Mutation.(type) {
	case *bigtablepb.Mutation_SetCell_:
		ts := k.SetCell.TimestampMicros
		if ts == -1 {
			ts = now / 1000 * 1000
		}
		m[cellName{k.SetCell.FamilyName, string(k.SetCell.ColumnQualifier), ts}] = string(k.SetCell.Value)
	case *bigtablepb.Mutation_AddToCell_:
		name := cellName{k.AddToCell.FamilyName, string(k.AddToCell.ColumnQualifier.GetRawValue()), k.AddToCell.Timestamp.GetRawTimestampMicros()}
		sum := k.AddToCell.Input.GetIntValue()
		if old, ok := m[name]; ok {
			sum += int64(binary.BigEndian.Uint64([]byte(old)))
		}
		m[name] = string(binary.BigEndian.AppendUint64(nil, uint64(sum)))
	case *bigtablepb.Mutation_DeleteFromColumn_:
		d := k.DeleteFromColumn
		maps.DeleteFunc(m, func(n cellName, _ string) bool {
			r := d.TimeRange
			return n.family == d.FamilyName && n.qualifier == string(d.ColumnQualifier) &&
				n.ts >= r.StartTimestampMicros && (r.EndTimestampMicros == 0 || n.ts < r.EndTimestampMicros)
		})
	case *bigtablepb.Mutation_DeleteFromFamily_:
		maps.DeleteFunc(m, func(n cellName, _ string) bool { return n.family == k.DeleteFromFamily.FamilyName })
	case *bigtablepb.Mutation_DeleteFromRow_:
		clear(m)
	}
}

func (m model) String() string {
	names := slices.SortedFunc(maps.Keys(m), func(x, y cellName) int {
		return CompareCells(&Cell{Family: x.family, Qualifier: x.qualifier, Timestamp: x.ts}, &Cell{Family: y.family, Qualifier: y.qualifier, Timestamp: y.ts})
	})
	var b strings.Builder
	for _, n := range names {
		fmt.Fprintf(&b, "%s:%s@%d=%q ", n.family, n.qualifier, n.ts, m[n])
	}
	return b.String()
}

func show(r *Row) string {
	var b strings.Builder
	for _, c := range CellsOf(r) {
		fmt.Fprintf(&b, "%s:%s@%d=%q ", c.Family, c.Qualifier, c.Timestamp, c.Value)
	}
	return b.String()
}

func drawMutation(t *rapid.T) *bigtablepb.Mutation {
	family := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "family")
	qualifier := rapid.SampledFrom([]string{"", "q", "r", "s", "t"}).Draw(t, "qualifier")
	if rapid.IntRange(0, 9).Draw(t, "wide") == 0 {
		qualifier = fmt.Sprint(rapid.IntRange(0, 40).Draw(t, "column")) // enough to need the index
	}
	ts := 1000 * rapid.Int64Range(0, 5).Draw(t, "ts")
	switch rapid.IntRange(0, 11).Draw(t, "kind") {
	case 0:
		return deleteFamily(family)
	case 1:
		return deleteWholeRow()
	case 2:
		return deleteColumn(family, qualifier, 0, 0)
	case 3:
		return deleteColumn(family, qualifier, ts, ts+1000*rapid.Int64Range(1, 3).Draw(t, "span"))
	case 4, 5:
		return add("sum", qualifier, ts, number(rapid.Int64().Draw(t, "n")))
	case 6:
		return set(family, qualifier, -1, "server time")
	default:
		return set(family, qualifier, ts, rapid.StringN(0, 3, 8).Draw(t, "value"))
	}
}

// Apply must agree with the obvious model; replaying what the change log
// records must give the same row; and the old row must not change.
func TestApplyAgreesWithTheModelAndItsChangesReplayIt(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, in := testSchema(t), &Interner{}
		m, now := model{}, int64(5_000_000)
		var row, replayed *Row
		for range rapid.IntRange(1, 6).Draw(t, "entries") {
			now += 1500
			var muts []*bigtablepb.Mutation
			for range rapid.IntRange(1, 60).Draw(t, "mutations") {
				mut := drawMutation(t)
				m.apply(mut, now)
				muts = append(muts, mut)
			}
			if r := Validate(s, testLimits(), muts); r != nil {
				t.Fatalf("refused: %+v", r)
			}
			before := show(row)
			a := Apply(s, in, "key", row, muts, now)
			if show(row) != before {
				t.Fatal("the old row changed")
			}
			row = a.Row
			if show(row) != m.String() {
				t.Fatalf("got  %s\nwant %s", show(row), m)
			}
			if row != nil && NewRow("key", row.Cells).Size != row.Size {
				t.Fatal("size")
			}
			for _, c := range a.Changes {
				if c.GetDeleteFromRow() != nil || c.GetSetCell() != nil && c.GetSetCell().TimestampMicros < 0 {
					t.Fatalf("the change log would record %v", c)
				}
			}
			replayed = Apply(s, nil, "key", replayed, a.Changes, 1).Row
			if show(replayed) != show(row) {
				t.Fatalf("replay\ngot  %s\nwant %s", show(replayed), show(row))
			}
		}
	})
}

func TestDeleteFromRowIsRecordedAsADeleteOfEachFamilyThatHoldsData(t *testing.T) {
	s := testSchema(t)
	row := Apply(s, nil, "k", nil, []*bigtablepb.Mutation{set("a", "q", 0, "1"), set("c", "q", 0, "2")}, 0).Row
	got := Apply(s, nil, "k", row, []*bigtablepb.Mutation{set("b", "x", 0, "3"), deleteFamily("c"), deleteWholeRow()}, 0)
	want := []*bigtablepb.Mutation{set("b", "x", 0, "3"), deleteFamily("c"), deleteFamily("a"), deleteFamily("b")}
	if got.Row != nil || !slices.EqualFunc(got.Changes, want, func(a, b *bigtablepb.Mutation) bool { return proto.Equal(a, b) }) {
		t.Errorf("row %v, changes %v", got.Row, got.Changes)
	}
	if a := Apply(s, nil, "k", nil, []*bigtablepb.Mutation{deleteWholeRow()}, 0); a.Row != nil || len(a.Changes) != 0 {
		t.Errorf("deleting nothing: %+v", a)
	}
}

// covers: SNK-06, SNK-43
func TestMutationsOfAnEntryApplyInOrder(t *testing.T) {
	s := testSchema(t)
	row := Apply(s, nil, "k", nil, []*bigtablepb.Mutation{set("a", "q", 1000, "old"), set("a", "q", 2000, "older")}, 0).Row
	row = Apply(s, nil, "k", row, []*bigtablepb.Mutation{deleteColumn("a", "q", 0, 0), set("a", "q", 1000, "new")}, 0).Row
	if got := show(row); got != `a:q@1000="new" ` {
		t.Error(got)
	}
}

func TestAFullEntryAppliesInReasonableTime(t *testing.T) {
	s := testSchema(t)
	var muts []*bigtablepb.Mutation
	for i := range 33_000 { // the keep-latest idiom on a wide row, newest column first
		q := fmt.Sprintf("%06d", 33_000-i)
		muts = append(muts, deleteColumn("a", q, 0, 0), set("a", q, 1000, "v"), set("b", "versions", int64(i)*1000, "v"))
	}
	row := Apply(s, nil, "k", nil, muts, 0).Row
	if len(row.Cells) != 66_000 || row.Cells[0].Qualifier != "000001" || row.Cells[33_000].Timestamp != 32_999_000 {
		t.Error(len(row.Cells), row.Cells[0], row.Cells[33_000])
	}
}

// covers: SNK-40
func TestAggregatesCombineExactly(t *testing.T) {
	int64s := func(values ...int64) []*bigtablepb.Value {
		var out []*bigtablepb.Value
		for _, v := range values {
			out = append(out, number(v))
		}
		return out
	}
	for name, test := range map[string]struct {
		agg    *adminpb.Type_Aggregate
		inputs []*bigtablepb.Value
		want   int64
	}{
		"sum":         {&adminpb.Type_Aggregate{Aggregator: &adminpb.Type_Aggregate_Sum_{}}, int64s(5, -7, 1<<62), 1<<62 - 2},
		"sum wraps":   {&adminpb.Type_Aggregate{Aggregator: &adminpb.Type_Aggregate_Sum_{}}, int64s(1<<62, 1<<62), -1 << 63},
		"min":         {&adminpb.Type_Aggregate{Aggregator: &adminpb.Type_Aggregate_Min_{}}, int64s(5, -7, 100), -7},
		"max":         {&adminpb.Type_Aggregate{Aggregator: &adminpb.Type_Aggregate_Max_{}}, int64s(-5, -7, -100), -5},
		"a single in": {&adminpb.Type_Aggregate{Aggregator: &adminpb.Type_Aggregate_Max_{}}, int64s(-9), -9},
	} {
		f, err := NewFamily("agg", &adminpb.ColumnFamily{ValueType: aggregateType(test.agg)})
		if err != nil {
			t.Fatal(err)
		}
		s := testSchema(t).With(f)
		inOne, stepwise := []*bigtablepb.Mutation{}, (*Row)(nil)
		for _, v := range test.inputs {
			m := add("agg", "q", 1000, v)
			inOne = append(inOne, m)
			stepwise = Apply(s, nil, "k", stepwise, []*bigtablepb.Mutation{m}, 0).Row
		}
		for how, row := range map[string]*Row{"one entry": Apply(s, nil, "k", nil, inOne, 0).Row, "many": stepwise} {
			if got := int64(binary.BigEndian.Uint64(row.Cells[0].Value)); got != test.want || len(row.Cells) != 1 {
				t.Errorf("%s, %s: %d", name, how, got)
			}
		}
	}
}

// covers: SNK-41
func TestMergeJoinsAccumulatorsSentAsBytes(t *testing.T) {
	s := testSchema(t)
	state := func(n int64) *bigtablepb.Value {
		return &bigtablepb.Value{Kind: &bigtablepb.Value_BytesValue{BytesValue: binary.BigEndian.AppendUint64(nil, uint64(n))}}
	}
	null := &bigtablepb.Value{}
	muts := []*bigtablepb.Mutation{merge("sum", "q", 0, state(40)), add("sum", "q", 0, number(2)), merge("sum", "q", 0, null), merge("sum", "other", 0, null)}
	if r := Validate(s, testLimits(), muts); r != nil {
		t.Fatal(r)
	}
	row := Apply(s, nil, "k", nil, muts, 0).Row
	if len(row.Cells) != 1 || int64(binary.BigEndian.Uint64(row.Cells[0].Value)) != 42 {
		t.Error(show(row))
	}
	for name, bad := range map[string]*bigtablepb.Value{
		"raw_value":    raw("12345678"),
		"int_value":    number(3),
		"seven bytes":  {Kind: &bigtablepb.Value_BytesValue{BytesValue: []byte("1234567")}},
		"string_value": {Kind: &bigtablepb.Value_StringValue{StringValue: "12345678"}},
	} {
		if r := Validate(s, testLimits(), []*bigtablepb.Mutation{merge("sum", "q", 0, bad)}); r == nil {
			t.Errorf("%s was taken", name)
		}
	}
}

func TestDistinctCountsAreExactWhenSmallAndCloseWhenLarge(t *testing.T) {
	f, err := NewFamily("hll", &adminpb.ColumnFamily{ValueType: aggregateType(&adminpb.Type_Aggregate{
		InputType:  &adminpb.Type{Kind: &adminpb.Type_StringType{StringType: &adminpb.Type_String{}}},
		Aggregator: &adminpb.Type_Aggregate_HllppUniqueCount{HllppUniqueCount: &adminpb.Type_Aggregate_HyperLogLogPlusPlusUniqueCount{}},
	})})
	if err != nil {
		t.Fatal(err)
	}
	s := testSchema(t).With(f)
	var muts []*bigtablepb.Mutation
	for i := range 20_000 {
		v := &bigtablepb.Value{Kind: &bigtablepb.Value_StringValue{StringValue: fmt.Sprint("user", i)}}
		q := "small"
		if i >= 300 {
			q = "large"
		}
		muts = append(muts, add("hll", q, 0, v), add("hll", q, 0, v))
	}
	row := Apply(s, nil, "k", nil, muts, 0).Row
	for _, c := range row.Cells {
		n, err := HLLCount(c.Value)
		want, slack := 300.0, 0.0
		if c.Qualifier == "large" {
			want, slack = 19_700, 0.05
		}
		if err != nil || float64(n) < want*(1-slack) || float64(n) > want*(1+slack) {
			t.Errorf("%s: %d, want about %v (%v)", c.Qualifier, n, want, err)
		}
	}
	small, large := Column(row.Cells, "hll", "small")[0].Value, Column(row.Cells, "hll", "large")[0].Value
	if !bytes.Equal(hllMerge(small, large), hllMerge(large, small)) {
		t.Error("a merge depends on its order")
	}
	if n, _ := HLLCount(hllMerge(large, small)); n < 19_000 || n > 21_000 {
		t.Error("merged count", n)
	}
	if _, err := HLLCount([]byte("x")); err == nil {
		t.Error("counted what is no sketch")
	}
}

func TestGarbageCollectionFollowsTheRules(t *testing.T) {
	versions := func(n int32) *adminpb.GcRule {
		return &adminpb.GcRule{Rule: &adminpb.GcRule_MaxNumVersions{MaxNumVersions: n}}
	}
	age := func(d time.Duration) *adminpb.GcRule {
		return &adminpb.GcRule{Rule: &adminpb.GcRule_MaxAge{MaxAge: durationpb.New(d)}}
	}
	union := func(r ...*adminpb.GcRule) *adminpb.GcRule {
		return &adminpb.GcRule{Rule: &adminpb.GcRule_Union_{Union: &adminpb.GcRule_Union{Rules: r}}}
	}
	both := func(r ...*adminpb.GcRule) *adminpb.GcRule {
		return &adminpb.GcRule{Rule: &adminpb.GcRule_Intersection_{Intersection: &adminpb.GcRule_Intersection{Rules: r}}}
	}
	// Five cells, aged 1 to 5 seconds.
	const now = 10_000_000
	for name, test := range map[string]struct {
		rule *adminpb.GcRule
		keep int
	}{
		"none":                 {nil, 5},
		"versions":             {versions(2), 2},
		"more versions":        {versions(9), 5},
		"age":                  {age(3 * time.Second), 3},
		"young enough":         {age(time.Hour), 5},
		"all too old":          {age(time.Millisecond), 0},
		"union":                {union(versions(4), age(2*time.Second)), 2},
		"intersection":         {both(versions(4), age(2*time.Second)), 4},
		"intersection of none": {both(), 5},
		"nested":               {both(versions(1), union(age(2*time.Second), versions(3))), 2},
	} {
		f, err := NewFamily("a", &adminpb.ColumnFamily{GcRule: test.rule})
		if err != nil {
			t.Fatal(name, err)
		}
		s := testSchema(t).With(f)
		var muts []*bigtablepb.Mutation
		for i := int64(1); i <= 5; i++ {
			muts = append(muts, set("a", "q", now-i*1_000_000, "v"))
		}
		row := Apply(s, nil, "k", nil, append(muts, set("b", "q", 0, "kept")), 0).Row
		collected := Collect(s, row, now)
		for _, m := range collected {
			if m.GetDeleteFromColumn() == nil {
				t.Errorf("%s: %v", name, m)
			}
		}
		if got := len(Apply(s, nil, "k", row, collected, now).Row.Cells) - 1; got != test.keep {
			t.Errorf("%s: %d cells left, want %d", name, got, test.keep)
		}
	}
	for name, rule := range map[string]*adminpb.GcRule{
		"no version": versions(0), "no age": age(time.Microsecond), "in a union": union(versions(-1)), "too large": union(slices.Repeat([]*adminpb.GcRule{age(time.Hour)}, 100)...),
	} {
		if _, err := NewFamily("a", &adminpb.ColumnFamily{GcRule: rule}); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
}

func TestTheLastTimestampIsCollectedToo(t *testing.T) {
	const last = 1<<63 - 1 - (1<<63-1)%1000
	f, err := NewFamily("a", &adminpb.ColumnFamily{GcRule: &adminpb.GcRule{Rule: &adminpb.GcRule_MaxAge{MaxAge: durationpb.New(time.Millisecond)}}})
	if err != nil {
		t.Fatal(err)
	}
	m := deleteOlder(&Cell{Family: "a", Qualifier: "q", Timestamp: last}, 1000)
	s := testSchema(t).With(f)
	row := Apply(s, nil, "k", nil, []*bigtablepb.Mutation{set("a", "q", last, "v")}, 0).Row
	if a := Apply(s, nil, "k", row, []*bigtablepb.Mutation{m}, 0); a.Row != nil {
		t.Error(show(a.Row))
	}
}

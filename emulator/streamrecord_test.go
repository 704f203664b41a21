package emulator_test

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"cloud.google.com/go/bigtable/admin/apiv2/adminpb"
	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	"pgregory.net/rapid"

	"github.com/bigtable-functions/bigtable-functions/emulator"
)

func clearFamily(family string) *bigtablepb.Mutation {
	return &bigtablepb.Mutation{Mutation: &bigtablepb.Mutation_DeleteFromFamily_{DeleteFromFamily: &bigtablepb.Mutation_DeleteFromFamily{FamilyName: family}}}
}

// described is a record's mutations in short.
func described(c *dataChange) string {
	var out []string
	for _, chunk := range c.Chunks {
		switch m := chunk.Mutation.Mutation.(type) {
		case *bigtablepb.Mutation_SetCell_:
			s := m.SetCell
			out = append(out, fmt.Sprintf("set %s:%s@%d=%s", s.FamilyName, s.ColumnQualifier, s.TimestampMicros, s.Value))
		case *bigtablepb.Mutation_DeleteFromFamily_:
			out = append(out, "drop "+m.DeleteFromFamily.FamilyName)
		case *bigtablepb.Mutation_DeleteFromColumn_:
			d := m.DeleteFromColumn
			out = append(out, fmt.Sprintf("delete %s:%s[%d,%d)", d.FamilyName, d.ColumnQualifier, d.TimeRange.GetStartTimestampMicros(), d.TimeRange.GetEndTimestampMicros()))
		default:
			out = append(out, fmt.Sprintf("%T", m))
		}
	}
	return string(c.RowKey) + ": " + strings.Join(out, ", ")
}

// Change-stream cases: 9, 10, 11.
func TestRecordsSayWhatEachAtomicRequestDid(t *testing.T) {
	f := startStreamed(t)
	family := func(rule *adminpb.GcRule) *adminpb.ColumnFamily { return &adminpb.ColumnFamily{GcRule: rule} }
	_, err := f.admin.ModifyColumnFamilies(t.Context(), &adminpb.ModifyColumnFamiliesRequest{Name: tableT, Modifications: []*adminpb.ModifyColumnFamiliesRequest_Modification{
		{Id: "one", Mod: &adminpb.ModifyColumnFamiliesRequest_Modification_Create{Create: family(&adminpb.GcRule{Rule: &adminpb.GcRule_MaxNumVersions{MaxNumVersions: 1}})}}}})
	if err != nil {
		t.Fatal(err)
	}
	column := &bigtablepb.Mutation{Mutation: &bigtablepb.Mutation_DeleteFromColumn_{DeleteFromColumn: &bigtablepb.Mutation_DeleteFromColumn{FamilyName: "a", ColumnQualifier: []byte("q")}}}
	f.write(t, entry("k", setCell("b", "q", -1, []byte("x")), setCell("a", "q", 5000, []byte("y")), clearFamily("b"), setCell("b", "q", -1, []byte("z"))))
	f.write(t, entry("l", setCell("a", "q", 1000, []byte("1"))), entry("l", column))
	f.write(t, entry("k", deleteFromRow()))
	f.write(t, entry("gone", deleteFromRow()))
	if _, err := f.data.CheckAndMutateRow(t.Context(), &bigtablepb.CheckAndMutateRowRequest{TableName: tableT, RowKey: []byte("c"),
		TrueMutations: []*bigtablepb.Mutation{setCell("a", "q", 0, []byte("yes"))}, FalseMutations: []*bigtablepb.Mutation{setCell("a", "q", 0, []byte("no"))}}); err != nil {
		t.Fatal(err)
	}
	if _, err := f.data.ReadModifyWriteRow(t.Context(), &bigtablepb.ReadModifyWriteRowRequest{TableName: tableT, RowKey: []byte("c"), Rules: []*bigtablepb.ReadModifyWriteRule{
		{FamilyName: "a", ColumnQualifier: []byte("q"), Rule: &bigtablepb.ReadModifyWriteRule_AppendValue{AppendValue: []byte("!")}}}}); err != nil {
		t.Fatal(err)
	}
	f.write(t, entry("g", setCell("one", "q", 1000, nil), setCell("one", "q", 2000, nil), setCell("a", "q", 0, nil)))
	if n, err := f.CollectGarbage(t.Context()); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	if _, err := f.admin.DropRowRange(t.Context(), &adminpb.DropRowRangeRequest{Name: tableT, Target: &adminpb.DropRowRangeRequest_RowKeyPrefix{RowKeyPrefix: []byte("g")}}); err != nil {
		t.Fatal(err)
	}
	if _, err := f.admin.DropRowRange(t.Context(), &adminpb.DropRowRangeRequest{Name: tableT, Target: &adminpb.DropRowRangeRequest_DeleteAllDataFromTable{DeleteAllDataFromTable: true}}); err != nil {
		t.Fatal(err)
	}
	r := f.open(t, ",", fromTime(noon))
	last := int64(0)
	for i, want := range []string{
		fmt.Sprintf("k: set b:q@%d=x, set a:q@5000=y, drop b, set b:q@%[1]d=z", noonMicros),
		"l: set a:q@1000=1",
		"l: delete a:q[0,0)",
		"k: drop a, drop b",
		"c: set a:q@0=no",
		fmt.Sprintf("c: set a:q@%d=no!", noonMicros),
		"g: set one:q@1000=, set one:q@2000=, set a:q@0=",
		"g: delete one:q[0,2000)",
		"g: drop a, drop one",
		"c: drop a",
	} {
		c := r.record(t)
		if got := described(c); got != want {
			t.Errorf("record %d: %s, want %s", i, got, want)
		}
		kind, cluster := bigtablepb.ReadChangeStreamResponse_DataChange_USER, emulator.Cluster
		if i == 7 {
			kind, cluster = bigtablepb.ReadChangeStreamResponse_DataChange_GARBAGE_COLLECTION, ""
		}
		if c.Type != kind || c.SourceClusterId != cluster {
			t.Errorf("record %d: %v", i, c)
		}
		if at := c.CommitTimestamp.AsTime().UnixMicro(); at <= last {
			t.Errorf("record %d is not later than the one before", i)
		} else {
			last = at
		}
	}
}

// Change-stream cases: 9. The clock moves each time that it is read.
func TestAServerTimestampIsTheSameInAllOfAMutation(t *testing.T) {
	var ticks atomic.Int64
	f := start(t, emulator.Options{Clock: func() time.Time { return noon.Add(time.Duration(ticks.Add(1)) * time.Second) }})
	f.create(t, streamed())
	began := f.Now()
	var muts []*bigtablepb.Mutation
	for i := range 3 {
		muts = append(muts, setCell("a", fmt.Sprint(i), -1, []byte("v")))
	}
	if _, err := f.data.MutateRow(t.Context(), &bigtablepb.MutateRowRequest{TableName: tableT, RowKey: []byte("k"), Mutations: muts}); err != nil {
		t.Fatal(err)
	}
	f.set(t, "k", "next")
	r := f.open(t, ",", fromTime(began))
	c := r.record(t)
	if len(c.Chunks) != 3 {
		t.Fatalf("%v", c)
	}
	at := c.Chunks[0].Mutation.GetSetCell().GetTimestampMicros()
	if at < began.UnixMicro() || at > f.Now().UnixMicro() {
		t.Errorf("%v", c)
	}
	want := fmt.Sprintf("k: set a:0@%d=v, set a:1@%[1]d=v, set a:2@%[1]d=v", at)
	if got := described(c); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	rows, err := read(t.Context(), f.data, &bigtablepb.ReadRowsRequest{TableName: tableT, RowsLimit: 1})
	if stored := fmt.Sprintf("k a:0@%d=v a:1@%[1]d=v a:2@%[1]d=v a:q@1000=next", at); err != nil || !slices.Equal(rows, []string{stored}) {
		t.Errorf("%q, %v, want %q", rows, err, stored)
	}
	if got := described(r.record(t)); got != "k: set a:q@1000=next" {
		t.Errorf("the next record is %s", got)
	}
}

// Change-stream cases: 44, 53.
func TestChangesOfSeveralClustersHaveEqualCommitTimesWhenAsked(t *testing.T) {
	f := startStreamed(t)
	for _, cluster := range []string{"c1", "c2"} {
		_, err := f.insts.CreateAppProfile(t.Context(), &adminpb.CreateAppProfileRequest{Parent: instance, AppProfileId: cluster, AppProfile: &adminpb.AppProfile{
			RoutingPolicy: &adminpb.AppProfile_SingleClusterRouting_{SingleClusterRouting: &adminpb.AppProfile_SingleClusterRouting{ClusterId: cluster}}}})
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := f.SetStream(tableT, emulator.StreamSettings{EqualCommitTimes: true}); err != nil {
		t.Fatal(err)
	}
	for _, profile := range []string{"c1", "c1", "c2", "c1"} {
		if _, err := f.data.MutateRow(t.Context(), &bigtablepb.MutateRowRequest{TableName: tableT, AppProfileId: profile, RowKey: []byte("k"),
			Mutations: []*bigtablepb.Mutation{setCell("a", "q", 0, []byte(profile))}}); err != nil {
			t.Fatal(err)
		}
	}
	f.AdvanceClock(time.Second)
	f.set(t, "k", "later")
	r := f.open(t, ",", fromTime(noon))
	var got []string
	for range 5 {
		c := r.record(t)
		got = append(got, fmt.Sprintf("%s %v %d", c.SourceClusterId, c.CommitTimestamp.AsTime().Sub(noon.Truncate(time.Microsecond)), c.Tiebreaker))
	}
	equal(t, "changes", got, []string{"c1 0s 0", "c1 0s 0", "c2 0s 1", "c1 0s 2", emulator.Cluster + " 1s 0"})
}

// message is a message of a record in short: each mutation or part of a value.
func message(c *dataChange) string {
	var out []string
	for _, chunk := range c.Chunks {
		m, info := chunk.Mutation, chunk.ChunkInfo
		switch {
		case m.GetSetCell() == nil:
			out = append(out, "drop")
		case info == nil:
			out = append(out, string(m.GetSetCell().Value))
		default:
			part := fmt.Sprintf("%d/%d:%s", info.ChunkedValueOffset, info.ChunkedValueSize, m.GetSetCell().Value)
			if info.LastChunk {
				part += "."
			}
			out = append(out, part)
		}
	}
	if c.Done {
		out = append(out, "done")
	}
	return strings.Join(out, " ")
}

// Change-stream cases: 12. These are the forms in which the fixtures of Google's Java
// client have records.
func TestRecordsComeInTheFormsThatClientsMustTake(t *testing.T) {
	for name, c := range map[string]struct {
		chunk int
		muts  []*bigtablepb.Mutation
		want  []string
	}{
		"no chunk":          {0, []*bigtablepb.Mutation{setCell("a", "q", 0, []byte("abcdefgh"))}, []string{"abcdefgh done"}},
		"two chunks":        {5, []*bigtablepb.Mutation{setCell("a", "q", 0, []byte("abcdefgh"))}, []string{"0/8:abcde", "5/8:fgh. done"}},
		"three chunks":      {3, []*bigtablepb.Mutation{setCell("a", "q", 0, []byte("abcdefgh"))}, []string{"0/8:abc", "3/8:def", "6/8:gh. done"}},
		"two chunked cells": {3, []*bigtablepb.Mutation{setCell("a", "q", 0, []byte("abcd")), setCell("a", "r", 0, []byte("efgh"))}, []string{"0/4:abc", "3/4:d. 0/4:ef", "2/4:gh. done"}},
		"mixed":             {30, []*bigtablepb.Mutation{setCell("a", "q", 0, []byte("x")), setCell("a", "r", 0, []byte(strings.Repeat("y", 31))), setCell("a", "s", 0, []byte("z"))}, nil},
		"no cell is cut":    {5, []*bigtablepb.Mutation{clearFamily("a"), setCell("a", "q", 0, []byte("v")), clearFamily("b")}, []string{"drop", "v", "drop done"}},
	} {
		t.Run(name, func(t *testing.T) {
			f := startStreamed(t)
			if err := f.SetStream(tableT, emulator.StreamSettings{ChunkBytes: c.chunk}); err != nil {
				t.Fatal(err)
			}
			f.write(t, entry("k", c.muts...))
			r := f.open(t, ",", fromTime(noon))
			var got []string
			for {
				m := r.next(t).GetDataChange()
				first, last := len(got) == 0, m.Done
				got = append(got, message(m))
				if (m.Type == bigtablepb.ReadChangeStreamResponse_DataChange_USER) != first || (len(m.RowKey) > 0) != first || (m.CommitTimestamp != nil) != first ||
					(m.Token != "") != last || (m.EstimatedLowWatermark != nil) != last {
					t.Errorf("%v", m)
				}
				if last {
					break
				}
			}
			if c.want != nil {
				equal(t, "messages", got, c.want)
			} else if len(got) != 2 || !strings.HasPrefix(got[0], "x 0/31:y") || !strings.HasSuffix(got[1], ". z done") {
				t.Errorf("%q", got)
			}
		})
	}
}

// Whatever its size, a record is put together again to what was written.
func TestChunksMakeTheRecordWhole(t *testing.T) {
	f := startStreamed(t)
	rapid.Check(t, func(rt *rapid.T) {
		if err := f.SetStream(tableT, emulator.StreamSettings{ChunkBytes: rapid.IntRange(1, 60).Draw(rt, "chunk")}); err != nil {
			rt.Fatal(err)
		}
		f.AdvanceClock(time.Second)
		began := f.Now()
		var muts []*bigtablepb.Mutation
		var want []string
		for range rapid.IntRange(1, 8).Draw(rt, "mutations") {
			if rapid.Bool().Draw(rt, "drop") {
				muts, want = append(muts, clearFamily("a")), append(want, "drop a")
				continue
			}
			v := rapid.StringMatching("[a-z]{0,100}").Draw(rt, "value")
			muts, want = append(muts, setCell("a", "q", 1000, []byte(v))), append(want, "set a:q@1000="+v)
		}
		f.write(t, entry("k", muts...))
		r := f.open(t, ",", fromTime(began))
		defer r.stop()
		whole := &dataChange{RowKey: []byte("k")}
		for done := false; !done; {
			m := r.next(t).GetDataChange()
			for i, chunk := range m.Chunks {
				info := chunk.ChunkInfo
				if info.GetChunkedValueOffset() == 0 {
					whole.Chunks = append(whole.Chunks, chunk)
				} else {
					cell := whole.Chunks[len(whole.Chunks)-1].Mutation.GetSetCell()
					if i != 0 || int(info.ChunkedValueOffset) != len(cell.Value) {
						rt.Fatalf("part %d of a message: %v", i, chunk)
					}
					cell.Value = append(cell.Value, chunk.Mutation.GetSetCell().Value...)
				}
				if info != nil && !info.LastChunk && i != len(m.Chunks)-1 {
					rt.Fatal("a cut cell does not end its message")
				}
			}
			done = m.Done
		}
		if got := described(whole); got != "k: "+strings.Join(want, ", ") {
			rt.Fatalf("%s, want %q", got, want)
		}
	})
}

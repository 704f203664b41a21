// Package conformance drives a running emulator with the official Go client,
// as ./run starts it. It uses nothing of the emulator's own.
package conformance

import (
	"context"
	"encoding/binary"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"cloud.google.com/go/bigtable"
)

func clients(t *testing.T) (*bigtable.AdminClient, *bigtable.Client) {
	t.Helper()
	if os.Getenv("CONFORMANCE") == "" {
		t.Skip("emulator/conformance/run starts the emulator that this test needs")
	}
	admin, err := bigtable.NewAdminClient(t.Context(), "conformance", "go")
	if err != nil {
		t.Fatal(err)
	}
	client, err := bigtable.NewClient(t.Context(), "conformance", "go")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		client.Close()
		admin.Close()
	})
	return admin, client
}

func int64Type() bigtable.Int64Type {
	return bigtable.Int64Type{Encoding: bigtable.BigEndianBytesEncoding{}}
}

func create(t *testing.T, admin *bigtable.AdminClient, id string) {
	t.Helper()
	err := admin.CreateTableFromConf(t.Context(), &bigtable.TableConf{
		TableID: id,
		ColumnFamilies: map[string]bigtable.Family{
			"cf":  {GCPolicy: bigtable.MaxVersionsPolicy(3)},
			"sum": {ValueType: bigtable.AggregateType{Input: int64Type(), Aggregator: bigtable.SumAggregator{}}},
			"min": {ValueType: bigtable.AggregateType{Input: int64Type(), Aggregator: bigtable.MinAggregator{}}},
			"max": {ValueType: bigtable.AggregateType{Input: int64Type(), Aggregator: bigtable.MaxAggregator{}}},
			"hll": {ValueType: bigtable.AggregateType{Input: int64Type(), Aggregator: bigtable.HllppUniqueCountAggregator{}}},
		},
		SplitKeys:             []string{"m"},
		ChangeStreamRetention: 24 * time.Hour,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		if err := admin.UpdateTableDisableChangeStream(ctx, id); err != nil {
			t.Error(err)
		}
		if err := admin.DeleteTable(ctx, id); err != nil {
			t.Error(err)
		}
	})
}

func TestAdminWithAggregateTypesAndRetention(t *testing.T) {
	admin, client := clients(t)
	create(t, admin, "admin")
	info, err := admin.TableInfo(t.Context(), "admin")
	if err != nil || info.ChangeStreamRetention != 24*time.Hour || len(info.FamilyInfos) != 5 {
		t.Fatalf("%+v, %v", info, err)
	}
	tbl := client.Open("admin")
	for _, n := range []int64{7, -3, 5} {
		m := bigtable.NewMutation()
		for _, family := range []string{"sum", "min", "max", "hll"} {
			m.AddIntToCell(family, "q", 0, n)
		}
		if err := tbl.Apply(t.Context(), "r", m); err != nil {
			t.Fatal(err)
		}
	}
	row, err := tbl.ReadRow(t.Context(), "r")
	if err != nil {
		t.Fatal(err)
	}
	for family, want := range map[string]int64{"sum": 9, "min": -3, "max": 7} {
		if got := int64(binary.BigEndian.Uint64(row[family][0].Value)); got != want {
			t.Errorf("%s is %d, not %d", family, got, want)
		}
	}
	if len(row["hll"]) != 1 {
		t.Errorf("hll: %v", row["hll"])
	}
}

func TestReadRowsWithEveryFilter(t *testing.T) {
	admin, client := clients(t)
	create(t, admin, "filters")
	tbl := client.Open("filters")
	var keys []string
	var muts []*bigtable.Mutation
	for _, key := range []string{"a1", "a2", "b1"} {
		m := bigtable.NewMutation()
		m.Set("cf", "q", 1000, []byte("old"))
		m.Set("cf", "q", 2000, []byte("new"+key))
		m.Set("cf", "r", 1000, []byte("x"))
		keys, muts = append(keys, key), append(muts, m)
	}
	if errs, err := tbl.ApplyBulk(t.Context(), keys, muts); errs != nil || err != nil {
		t.Fatal(errs, err)
	}
	for name, test := range map[string]struct {
		filter bigtable.Filter
		want   string // cells of all rows
	}{
		"key":          {bigtable.RowKeyFilter("a.*"), "newa1 old x newa2 old x"},
		"family":       {bigtable.FamilyFilter("s.*"), ""},
		"column":       {bigtable.ColumnFilter("r"), "x x x"},
		"value":        {bigtable.ValueFilter("new.2"), "newa2"},
		"latest":       {bigtable.LatestNFilter(1), "newa1 x newa2 x newb1 x"},
		"times":        {bigtable.TimestampRangeFilterMicros(2000, 3000), "newa1 newa2 newb1"},
		"columns":      {bigtable.ColumnRangeFilter("cf", "r", ""), "x x x"},
		"values":       {bigtable.ValueRangeFilter([]byte("newa2"), []byte("newb2")), "newa2 newb1"},
		"limit":        {bigtable.CellsPerRowLimitFilter(1), "newa1 newa2 newb1"},
		"offset":       {bigtable.CellsPerRowOffsetFilter(2), "x x x"},
		"strip":        {bigtable.ChainFilters(bigtable.ColumnFilter("r"), bigtable.StripValueFilter()), "  "},
		"label":        {bigtable.ChainFilters(bigtable.ColumnFilter("r"), bigtable.LabelFilter("l")), "x#l x#l x#l"},
		"interleave":   {bigtable.ChainFilters(bigtable.RowKeyFilter("b1"), bigtable.InterleaveFilters(bigtable.ColumnFilter("r"), bigtable.ColumnFilter("r"))), "x x"},
		"condition":    {bigtable.ConditionFilter(bigtable.ValueFilter("newb1"), bigtable.LatestNFilter(1), bigtable.BlockAllFilter()), "newb1 x"},
		"pass":         {bigtable.ChainFilters(bigtable.PassAllFilter(), bigtable.RowKeyFilter("b1")), "newb1 old x"},
		"block":        {bigtable.BlockAllFilter(), ""},
		"random of .9": {bigtable.ChainFilters(bigtable.RowSampleFilter(0.9), bigtable.BlockAllFilter()), ""},
	} {
		var got []string
		err := tbl.ReadRows(t.Context(), bigtable.InfiniteRange(""), func(r bigtable.Row) bool {
			for _, item := range r["cf"] {
				got = append(got, string(item.Value)+strings.Join(append([]string{""}, item.Labels...), "#"))
			}
			return true
		}, bigtable.RowFilter(test.filter))
		if err != nil || strings.Join(got, " ") != test.want {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	var reversed []string
	err := tbl.ReadRows(t.Context(), bigtable.PrefixRange("a"), func(r bigtable.Row) bool {
		reversed = append(reversed, r.Key())
		return true
	}, bigtable.ReverseScan())
	if err != nil || !slices.Equal(reversed, []string{"a2", "a1"}) {
		t.Errorf("reversed: %q, %v", reversed, err)
	}
	var stats *bigtable.FullReadStats
	err = tbl.ReadRows(t.Context(), bigtable.InfiniteRange(""), func(bigtable.Row) bool { return true },
		bigtable.WithFullReadStats(func(s *bigtable.FullReadStats) { stats = s }))
	if err != nil || stats == nil || stats.ReadIterationStats.RowsReturnedCount != 3 {
		t.Errorf("stats: %+v, %v", stats, err)
	}
}

func TestConditionalAndReadModifyWrite(t *testing.T) {
	admin, client := clients(t)
	create(t, admin, "conditional")
	tbl := client.Open("conditional")
	set := bigtable.NewMutation()
	set.Set("cf", "q", 1000, []byte("v"))
	for _, want := range []bool{false, true} {
		var matched bool
		cond := bigtable.NewCondMutation(bigtable.ValueFilter("v"), nil, set)
		if err := tbl.Apply(t.Context(), "r", cond, bigtable.GetCondMutationResult(&matched)); err != nil || matched != want {
			t.Errorf("matched %v, %v", matched, err)
		}
	}
	rmw := bigtable.NewReadModifyWrite()
	rmw.Increment("cf", "n", 40)
	rmw.AppendValue("cf", "q", []byte("+"))
	for range 2 {
		if _, err := tbl.ApplyReadModifyWrite(t.Context(), "r", rmw); err != nil {
			t.Fatal(err)
		}
	}
	row, err := tbl.ReadRow(t.Context(), "r", bigtable.RowFilter(bigtable.LatestNFilter(1)))
	if err != nil || binary.BigEndian.Uint64(row["cf"][0].Value) != 80 || string(row["cf"][1].Value) != "v++" {
		t.Errorf("%v, %v", row, err)
	}
}

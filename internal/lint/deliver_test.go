package lint

import (
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"cloud.google.com/go/bigtable"
	"cloud.google.com/go/bigtable/admin/apiv2/adminpb"
	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	"google.golang.org/api/option"
	"google.golang.org/grpc"

	"github.com/bigtable-functions/bigtable-functions/emulator"
	"github.com/bigtable-functions/bigtable-functions/internal/expr"
	"github.com/bigtable-functions/bigtable-functions/internal/mapping"
	"github.com/bigtable-functions/bigtable-functions/internal/record"
)

// bench is a Bigtable with the table of the rig.
type bench struct {
	t    *testing.T
	conn *grpc.ClientConn
	data bigtablepb.BigtableClient
}

const (
	benchInstance = "projects/my-project/instances/my-instance"
	benchTable    = benchInstance + "/tables/orders"
)

func newBench(t *testing.T) *bench {
	t.Helper()
	e, err := emulator.New(emulator.Options{}) // functest has this, and imports lint
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	conn, err := e.Dial(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	_, err = adminpb.NewBigtableTableAdminClient(conn).CreateTable(t.Context(), &adminpb.CreateTableRequest{
		Parent: benchInstance, TableId: "orders",
		Table: &adminpb.Table{ColumnFamilies: map[string]*adminpb.ColumnFamily{
			"cf": {}, "seen": {},
			"sums":   aggregate(&adminpb.Type_Aggregate{Aggregator: &adminpb.Type_Aggregate_Sum_{Sum: &adminpb.Type_Aggregate_Sum{}}}),
			"least":  aggregate(&adminpb.Type_Aggregate{Aggregator: &adminpb.Type_Aggregate_Min_{Min: &adminpb.Type_Aggregate_Min{}}}),
			"sketch": aggregate(&adminpb.Type_Aggregate{Aggregator: &adminpb.Type_Aggregate_HllppUniqueCount{HllppUniqueCount: &adminpb.Type_Aggregate_HyperLogLogPlusPlusUniqueCount{}}}),
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return &bench{t, conn, bigtablepb.NewBigtableClient(conn)}
}

func aggregate(a *adminpb.Type_Aggregate) *adminpb.ColumnFamily {
	a.InputType = &adminpb.Type{Kind: &adminpb.Type_Int64Type{Int64Type: &adminpb.Type_Int64{
		Encoding: &adminpb.Type_Int64_Encoding{Encoding: &adminpb.Type_Int64_Encoding_BigEndianBytes_{BigEndianBytes: &adminpb.Type_Int64_Encoding_BigEndianBytes{}}},
	}}}
	return &adminpb.ColumnFamily{ValueType: &adminpb.Type{Kind: &adminpb.Type_AggregateType{AggregateType: a}}}
}

// deliver applies what a record becomes, as the function write does.
func (b *bench) deliver(w *mapping.Write, id string, published time.Time, event string) {
	b.t.Helper()
	decoder := &record.Decoder{}
	result := w.Map(&expr.Message{ID: id, PublishTime: published}, decoder.JSON([]byte(event)), published)
	for _, r := range result.Rejected {
		b.t.Fatal(r)
	}
	for _, row := range append(result.Rows, result.Last...) {
		if row.Unless != nil {
			_, err := b.data.CheckAndMutateRow(b.t.Context(), &bigtablepb.CheckAndMutateRowRequest{
				TableName: benchTable, RowKey: row.Entry.RowKey, PredicateFilter: row.Unless, FalseMutations: row.Entry.Mutations,
			})
			if err != nil {
				b.t.Fatal(err)
			}
			continue
		}
		b.mutate(row.Entry)
	}
}

func (b *bench) mutate(entries ...*bigtablepb.MutateRowsRequest_Entry) {
	b.t.Helper()
	stream, err := b.data.MutateRows(b.t.Context(), &bigtablepb.MutateRowsRequest{TableName: benchTable, Entries: entries})
	if err != nil {
		b.t.Fatal(err)
	}
	for {
		response, err := stream.Recv()
		if err == io.EOF {
			return
		}
		if err != nil {
			b.t.Fatal(err)
		}
		for _, e := range response.Entries {
			if e.Status.GetCode() != 0 {
				b.t.Fatal(e.Status)
			}
		}
	}
}

// newer writes to the row what no event of the test did.
func (b *bench) newer(at time.Time) {
	b.t.Helper()
	hour := at.Truncate(time.Hour)
	b.mutate(&bigtablepb.MutateRowsRequest_Entry{RowKey: []byte("x"), Mutations: []*bigtablepb.Mutation{
		{Mutation: &bigtablepb.Mutation_SetCell_{SetCell: &bigtablepb.Mutation_SetCell{
			FamilyName: "cf", ColumnQualifier: []byte("status"), TimestampMicros: at.UnixMicro(), Value: []byte("newer"),
		}}},
		{Mutation: &bigtablepb.Mutation_AddToCell_{AddToCell: &bigtablepb.Mutation_AddToCell{
			FamilyName: "sums", ColumnQualifier: &bigtablepb.Value{Kind: &bigtablepb.Value_RawValue{RawValue: []byte("views")}},
			Timestamp: &bigtablepb.Value{Kind: &bigtablepb.Value_RawTimestampMicros{RawTimestampMicros: hour.UnixMicro()}},
			Input:     &bigtablepb.Value{Kind: &bigtablepb.Value_IntValue{IntValue: 5}},
		}}},
	}})
}

// state reads the newest version of every cell, but for the markers.
func (b *bench) state() string {
	b.t.Helper()
	client, err := bigtable.NewClientWithConfig(context.Background(), "my-project", "my-instance",
		bigtable.ClientConfig{MetricsProvider: bigtable.NoopMetricsProvider{}}, option.WithGRPCConn(b.conn))
	if err != nil {
		b.t.Fatal(err)
	}
	row, err := client.Open("orders").ReadRow(b.t.Context(), "x", bigtable.RowFilter(bigtable.LatestNFilter(1)))
	if err != nil {
		b.t.Fatal(err)
	}
	var cells []string
	for _, family := range slices.Sorted(maps.Keys(row)) {
		for _, c := range row[family] {
			if family != "seen" {
				cells = append(cells, fmt.Sprintf("%s@%d=%q", c.Column, c.Timestamp, c.Value))
			}
		}
	}
	return strings.Join(cells, "\n")
}

// What is said of a mapping is what happens: an event, a later one, with or without
// newer data from elsewhere, and the first event again.
//
// covers: SQL-23, SNK-10, SNK-13, SNK-42
func TestASecondDeliveryDoesWhatIsSaidOfIt(t *testing.T) {
	first := time.Date(2026, 8, 30, 10, 15, 0, 0, time.UTC)
	event := func(at time.Time, id string, n int) string {
		return fmt.Sprintf(`{"type": "m", "id": "x", "event_id": %q, "at": %q, "since": "2026-08-30T10:00:00Z", "until": "2026-08-30T11:00:00Z", "s": "status %[3]d", "n": %[3]d, "acc": %[4]q,
			"items": [1]}`, id, at.Format(time.RFC3339), n, base64.StdEncoding.EncodeToString([]byte{0, 0, 0, 0, 0, 0, 0, byte(n)}))
	}
	for _, c := range replayCases() {
		// A sketch cannot be written by hand. What a token does to the other mutations
		// of its entry is not known of the service; the emulator withholds them.
		if strings.Contains(c.mutation, "sketch") || c.name == "window guards what is added alone" {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			l, _ := load(t, strings.Replace(c.file(), "dedupeId: event.id", "dedupeId: event.event_id", 1))
			changes := ""
			for _, newer := range []bool{false, true} {
				b := newBench(t)
				b.deliver(l.Write, "1", first, event(first, "e-1", 1))
				b.deliver(l.Write, "2", first.Add(time.Minute), event(first.Add(time.Minute), "e-2", 2))
				if newer {
					b.newer(first.Add(2 * time.Minute))
				}
				before := b.state()
				b.deliver(l.Write, "1", first, event(first, "e-1", 1))
				if after := b.state(); after != before {
					changes += fmt.Sprintf("from\n%s\nto\n%s\n", before, after)
				}
			}
			harmless := c.want == NoOp || c.want == NoOpButTies || c.want == ByWindow || c.want == ByMarker
			if harmless != (changes == "") {
				t.Errorf("said to be %s; a second delivery changes %q", c.want, changes)
			}
		})
	}
}

//go:build realgcp

package realgcp

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"cloud.google.com/go/bigtable"
	admin "cloud.google.com/go/bigtable/admin/apiv2"
	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// fact is something that the documents call unverified.
type fact struct {
	name, doc string // where it stands
	says      string // the answer that the documents give, as ask prints it
	ask       func(context.Context, *facts) string
}

// facts asks the service.
type facts struct {
	*cloud
	client bigtablepb.BigtableClient
	admin  *admin.BigtableTableAdminClient
}

// Each fact is printed with what was observed. What is otherwise than the documents say is no failure
// of ours: it is to be written there.
//
// covers: TST-10
func TestFactsThatTheDocumentsCallUnverified(t *testing.T) {
	c := newCloud(t)
	ctx := t.Context()
	c.must(c.tables.CreateTableFromConf(ctx, &bigtable.TableConf{
		TableID: "facts", ChangeStreamRetention: 24 * time.Hour,
		ColumnFamilies: map[string]bigtable.Family{"cf": {}, "sums": {ValueType: bigtable.AggregateType{Input: bigtable.Int64Type{}, Aggregator: bigtable.SumAggregator{}}}},
	}))
	c.must(c.tables.CreateTableFromConf(ctx, &bigtable.TableConf{TableID: "quiet", ColumnFamilies: map[string]bigtable.Family{"cf": {}}}))
	f := &facts{c, bigtablepb.NewBigtableClient(c.data), c.tables.TableAdminClientV2()}
	same := 0
	for _, fact := range knownFacts() {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		got := fact.ask(ctx, f)
		cancel()
		verdict := "OTHERWISE"
		if got == fact.says {
			verdict = "as documented"
			same++
		}
		t.Logf("FACT %s (%s): %s\n    documented: %s\n    observed:   %s", fact.name, fact.doc, verdict, fact.says, got)
	}
	t.Logf("%d of %d facts are as documented", same, len(knownFacts()))
	// Against our own emulator all are, or the documents are wrong about it.
	if c.emulated && same != len(knownFacts()) {
		t.Error("the emulator answers otherwise than it is documented")
	}
}

// code is the status of an error, with its text only where the documents give one.
func code(err error) string { return status.Code(err).String() }

// mutate sends one entry and returns the status of the request, or of its entry.
func (f *facts) mutate(ctx context.Context, profile string, entries ...*bigtablepb.MutateRowsRequest_Entry) []string {
	stream, err := f.client.MutateRows(f.through(ctx, "facts", profile), &bigtablepb.MutateRowsRequest{TableName: f.table("facts"), AppProfileId: profile, Entries: entries})
	out := make([]string, len(entries))
	for err == nil {
		var r *bigtablepb.MutateRowsResponse
		if r, err = stream.Recv(); err == nil {
			for _, e := range r.Entries {
				out[e.Index] = status.FromProto(e.Status).Code().String()
			}
		}
	}
	if !errors.Is(err, io.EOF) {
		return []string{"the request: " + code(err)}
	}
	return out
}

// one is mutate for a single mutation of a row.
func (f *facts) one(ctx context.Context, profile, key string, m *bigtablepb.Mutation) string {
	return strings.Join(f.mutate(ctx, profile, entry(key, m)), " ")
}

func entry(key string, mutations ...*bigtablepb.Mutation) *bigtablepb.MutateRowsRequest_Entry {
	return &bigtablepb.MutateRowsRequest_Entry{RowKey: []byte(key), Mutations: mutations}
}

func set(family, qualifier string, micros int64, value string) *bigtablepb.Mutation {
	return &bigtablepb.Mutation{Mutation: &bigtablepb.Mutation_SetCell_{SetCell: &bigtablepb.Mutation_SetCell{
		FamilyName: family, ColumnQualifier: []byte(qualifier), TimestampMicros: micros, Value: []byte(value),
	}}}
}

func number(n int64) *bigtablepb.Value {
	return &bigtablepb.Value{Kind: &bigtablepb.Value_IntValue{IntValue: n}}
}

func rawValue(b []byte) *bigtablepb.Value {
	return &bigtablepb.Value{Kind: &bigtablepb.Value_RawValue{RawValue: b}}
}

func add(n int64) *bigtablepb.Mutation {
	return &bigtablepb.Mutation{Mutation: &bigtablepb.Mutation_AddToCell_{AddToCell: &bigtablepb.Mutation_AddToCell{
		FamilyName: "sums", ColumnQualifier: rawValue([]byte("n")), Timestamp: &bigtablepb.Value{Kind: &bigtablepb.Value_RawTimestampMicros{}}, Input: number(n),
	}}}
}

// cells reads the values of a row, the newest of each column first.
func (f *facts) cells(ctx context.Context, key string) (out [][]byte, err error) {
	stream, err := f.client.ReadRows(f.through(ctx, "facts", "single"), &bigtablepb.ReadRowsRequest{
		TableName: f.table("facts"), AppProfileId: "single", Rows: &bigtablepb.RowSet{RowKeys: [][]byte{[]byte(key)}},
	})
	for err == nil {
		var r *bigtablepb.ReadRowsResponse
		if r, err = stream.Recv(); err == nil {
			for _, chunk := range r.Chunks {
				out = append(out, chunk.Value)
			}
		}
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return out, err
}

// sum reads the one aggregate cell of a row.
func (f *facts) sum(ctx context.Context, key string) string {
	values, err := f.cells(ctx, key)
	if err != nil || len(values) != 1 || len(values[0]) != 8 {
		return fmt.Sprintf("%x %v", values, err)
	}
	return fmt.Sprint(binary.BigEndian.Uint64(values[0]))
}

// read returns the status of a read.
func (f *facts) read(ctx context.Context, req *bigtablepb.ReadRowsRequest) string {
	req.TableName, req.AppProfileId = f.table("facts"), "single"
	stream, err := f.client.ReadRows(f.through(ctx, "facts", "single"), req)
	for err == nil {
		_, err = stream.Recv()
	}
	if errors.Is(err, io.EOF) {
		return "OK"
	}
	return code(err)
}

// stream reads the change stream of a table until something comes, and returns the kind of it, or the
// status.
func (f *facts) stream(ctx context.Context, table, profile string, req *bigtablepb.ReadChangeStreamRequest) string {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	req.TableName, req.AppProfileId = f.table(table), profile
	req.Partition = &bigtablepb.StreamPartition{RowRange: &bigtablepb.RowRange{
		StartKey: &bigtablepb.RowRange_StartKeyClosed{}, EndKey: &bigtablepb.RowRange_EndKeyOpen{},
	}}
	if req.HeartbeatDuration == nil {
		req.HeartbeatDuration = durationpb.New(time.Second)
	}
	s, err := f.client.ReadChangeStream(f.through(ctx, table, profile), req)
	if err != nil {
		return code(err)
	}
	r, err := s.Recv()
	switch {
	case err != nil:
		return code(err)
	case r.GetHeartbeat() != nil:
		return "a heartbeat"
	case r.GetCloseStream() != nil:
		return "a close: " + status.FromProto(r.GetCloseStream().Status).Code().String()
	}
	return "a change"
}

func startAt(t time.Time) *bigtablepb.ReadChangeStreamRequest {
	return &bigtablepb.ReadChangeStreamRequest{StartFrom: &bigtablepb.ReadChangeStreamRequest_StartTime{StartTime: timestamppb.New(t)}}
}

package changeread_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"cloud.google.com/go/bigtable/admin/apiv2/adminpb"
	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/bigtable-functions/bigtable-functions/emulator"
	"github.com/bigtable-functions/bigtable-functions/internal/btrpc"
	"github.com/bigtable-functions/bigtable-functions/internal/changeread"
	"github.com/bigtable-functions/bigtable-functions/internal/changestream"
	"github.com/bigtable-functions/bigtable-functions/internal/functest"
	"github.com/bigtable-functions/bigtable-functions/internal/retry"
)

const table = "projects/p/instances/i/tables/t"

// newReader returns a Reader of an emulated table in which the rows 0 to 9 were set.
func newReader(t *testing.T) (*emulator.Emulator, *changeread.Reader) {
	t.Helper()
	e, conn := functest.Bigtable(t, emulator.Options{})
	_, err := adminpb.NewBigtableTableAdminClient(conn).CreateTable(t.Context(), &adminpb.CreateTableRequest{
		Parent: "projects/p/instances/i", TableId: "t", Table: &adminpb.Table{
			ColumnFamilies:     map[string]*adminpb.ColumnFamily{"cf": {}},
			ChangeStreamConfig: &adminpb.ChangeStreamConfig{RetentionPeriod: durationpb.New(24 * time.Hour)},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	for i := range 10 {
		_, err := bigtablepb.NewBigtableClient(conn).MutateRow(t.Context(), &bigtablepb.MutateRowRequest{
			TableName: table, RowKey: fmt.Appendf(nil, "%d", i), Mutations: []*bigtablepb.Mutation{{Mutation: &bigtablepb.Mutation_SetCell_{
				SetCell: &bigtablepb.Mutation_SetCell{FamilyName: "cf", TimestampMicros: 1000},
			}}},
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return e, &changeread.Reader{
		Table: btrpc.NewTable(table, ""), Conn: conn, Heartbeat: time.Second, Opening: changestream.Opening{Start: start},
	}
}

// A reading that was ended, broke off or failed goes on behind the last change that was
// taken, and takes none twice.
func TestAReaderGoesOnBehindWhatWasTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, r := newReader(t)
		var got []string
		e.Inject(emulator.Fault{Method: "ReadChangeStream", Cut: true, CutAfter: 2, Code: codes.Unavailable, Count: 2})
		closed, err := r.Read(t.Context(), func(item changestream.Item) (bool, error) {
			if item.Record == nil || item.Record.RowKey == "6" {
				return false, nil
			}
			got = append(got, item.Record.RowKey)
			return true, nil
		})
		if closed != nil || err != nil || len(got) != 6 {
			t.Fatalf("%v, %v, %q", closed, err, got)
		}
		e.Inject(emulator.Fault{Method: "ReadChangeStream", Code: codes.PermissionDenied, Message: "of row 6", Count: 1})
		if _, err = r.Read(t.Context(), nil); retry.Classify(err).Code != codes.PermissionDenied || strings.Contains(err.Error(), "row 6") {
			t.Fatalf("%v", err)
		}
		enough := errors.New("enough")
		_, err = r.Read(t.Context(), func(item changestream.Item) (bool, error) {
			if item.Record == nil {
				return false, enough
			}
			got = append(got, item.Record.RowKey)
			return true, nil
		})
		if want := []string{"0", "1", "2", "3", "4", "5", "6", "7", "8", "9"}; err != enough || !slices.Equal(got, want) {
			t.Errorf("%v, %q", err, got)
		}
	})
}

// An outage that does not end is an error after as many attempts as the service's own client
// makes.
func TestAReaderGivesUpAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, r := newReader(t)
		e.Inject(emulator.Fault{Method: "ReadChangeStream", Code: codes.Unavailable})
		_, err := r.Read(t.Context(), nil)
		if retry.Classify(err).Code != codes.Unavailable || r.Position().Token != "" {
			t.Errorf("%v at %q", err, r.Position().Token)
		}
		if n := e.Faults()[0].Hits; n != 10 {
			t.Errorf("%d attempts", n)
		}
	})
}

// A stream that breaks off, or ends, within a change that comes in several messages is read
// again from the begin of the change: it is taken once, and whole.
//
// stream-case: 32, 33
func TestAChangeThatBreaksOffIsReadAgainWhole(t *testing.T) {
	for _, cut := range []emulator.Fault{{CutAfter: 3, Count: 1}, {CutAfter: 4, Count: 4}, {CutAfter: 3, Code: codes.DeadlineExceeded, Count: 3}} {
		synctest.Test(t, func(t *testing.T) {
			e, r := newReader(t)
			if err := e.SetStream(table, emulator.StreamSettings{ChunkBytes: 10}); err != nil {
				t.Fatal(err)
			}
			var want []string
			for _, text := range []string{"one", strings.Repeat("x", 55), "three"} {
				want = append(want, text)
				_, err := bigtablepb.NewBigtableClient(r.Conn).MutateRow(t.Context(), &bigtablepb.MutateRowRequest{
					TableName: table, RowKey: []byte("z"), Mutations: []*bigtablepb.Mutation{{Mutation: &bigtablepb.Mutation_SetCell_{
						SetCell: &bigtablepb.Mutation_SetCell{FamilyName: "cf", TimestampMicros: 1000, Value: []byte(text)},
					}}},
				})
				if err != nil {
					t.Fatal(err)
				}
			}
			if _, err := r.Read(t.Context(), func(item changestream.Item) (bool, error) { return item.Record.RowKey != "9", nil }); err != nil {
				t.Fatal(err)
			}
			cut.Method, cut.Cut = "ReadChangeStream", true
			e.Inject(cut) // of a stream that begins with 9 and the first of z
			var got []string
			_, err := r.Read(t.Context(), func(item changestream.Item) (bool, error) {
				if item.Record != nil && item.Record.RowKey == "z" {
					got = append(got, string(item.Record.Entries[0].Value))
				}
				return item.Record != nil, nil
			})
			if err != nil || !slices.Equal(got, want) || r.Opens < 2+int64(cut.Count) {
				t.Errorf("%v, %q in %d openings, want %q", err, got, r.Opens, want)
			}
		})
	}
}

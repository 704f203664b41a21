package changes_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"cloud.google.com/go/bigtable/admin/apiv2/adminpb"
	"google.golang.org/grpc/codes"

	"github.com/bigtable-functions/bigtable-functions/emulator"
	"github.com/bigtable-functions/bigtable-functions/functions/changes"
	"github.com/bigtable-functions/bigtable-functions/internal/functest"
	"github.com/bigtable-functions/bigtable-functions/ledger"
)

// How long a table keeps its changes is read anew after five minutes, is nobody's business
// without the permission, and an error where the table has no stream.
//
// covers: CSQ-23
func TestTheRetentionIsRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, toLog)
		c := r.cfg.Pipeline.Changes[0]
		read := func(in *changes.Retentions, want time.Duration, fails string) {
			t.Helper()
			got, err := in.Retention(t.Context(), c)
			if got != want || (err == nil) != (fails == "") || err != nil && !strings.Contains(err.Error(), fails) {
				t.Errorf("%s, %v, want %s %s", got, err, want, fails)
			}
		}
		known := changes.NewRetentions(r.conn, time.Now)
		read(known, retention, "")
		r.emulator.Inject(emulator.Fault{Method: "GetTable", Code: codes.Unavailable, Count: 1})
		read(changes.NewRetentions(r.conn, time.Now), 0, "Unavailable")
		r.emulator.Inject(emulator.Fault{Method: "GetTable", Code: codes.PermissionDenied, Count: 1})
		read(changes.NewRetentions(r.conn, time.Now), 0, "")
		if _, err := adminpb.NewBigtableTableAdminClient(r.conn).DeleteTable(t.Context(), &adminpb.DeleteTableRequest{Name: tableName}); err != nil {
			t.Fatal(err)
		}
		_, err := adminpb.NewBigtableTableAdminClient(r.conn).CreateTable(t.Context(), &adminpb.CreateTableRequest{Parent: instance, TableId: "orders", Table: &adminpb.Table{}})
		if err != nil {
			t.Fatal(err)
		}
		read(known, retention, "")
		time.Sleep(6 * time.Minute)
		read(known, 0, "no change stream")
	})
}

func TestAVisitIsOneLine(t *testing.T) {
	var log functest.Log
	report := changes.Log(slog.New(slog.NewTextHandler(&log, nil)), "orders")
	report(context.Background(), changes.Visit{Stream: "feed", Incarnation: "A", Outcome: changes.OutcomeHeld})
	report(context.Background(), changes.Visit{Stream: "feed", Incarnation: "A", Outcome: changes.OutcomeIdle}) // without a lease
	report(context.Background(), changes.Visit{
		Stream: "feed", Incarnation: "A", Outcome: changes.OutcomeFailed, Counts: ledger.Counts{Rows: 3, Records: 2}, Reason: errors.New("no"),
	})
	text := log.String()
	if strings.Count(text, "\n") != 1 || !strings.Contains(text, "level=ERROR") || !strings.Contains(text, "outcome=failed stream=feed partition=A changes=3 records=2 dropped=0") || !strings.Contains(text, "reason=no") {
		t.Error(text)
	}
}

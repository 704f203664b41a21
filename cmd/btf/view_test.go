package main

import (
	"slices"
	"testing"

	"cloud.google.com/go/bigtable/admin/apiv2/adminpb"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"github.com/bigtable-functions/bigtable-functions/internal/lint"
)

const viewedFile = `version: 1
name: viewed
bigtable: {project: my-project, instance: my-instance}
tables:
  orders:
    authorizedView: in
    families: {cf: {columns: {status: string}}}
write:
  onFailure: dead-letter
  mappings:
    - name: orders
      table: orders
      rowKey: event.id
      timestamp: timestamp("2026-01-01T00:00:00Z")
      mutations:
        - set: {cf: {status: event.status}}
scans:
  all:
    table: orders
    to: {log: {}}
`

// A table with authorizedView is written and scanned through the view, for which the grants
// on the view that lint prints are enough.
func TestATableIsWrittenAndScannedThroughItsAuthorizedView(t *testing.T) {
	loaded, grants := bigtableGrants(t, []byte(viewedFile))
	if len(grants) != 3 || slices.ContainsFunc(grants, func(g lint.Grant) bool { return g.On.Kind != "authorizedView" || g.Command == "" }) {
		t.Fatalf("%+v", grants)
	}
	d := deployPrivileged(t, []byte(viewedFile), grants)
	conn, err := d.Emulator.Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	// The view shows rows that begin with "in#" only.
	_, err = adminpb.NewBigtableTableAdminClient(conn).UpdateAuthorizedView(t.Context(), &adminpb.UpdateAuthorizedViewRequest{
		AuthorizedView: &adminpb.AuthorizedView{Name: grants[0].On.Name, AuthorizedView: &adminpb.AuthorizedView_SubsetView_{SubsetView: &adminpb.AuthorizedView_SubsetView{
			RowPrefixes: [][]byte{[]byte("in#")},
		}}},
		UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"subset_view.row_prefixes"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	events := [][]byte{[]byte(`{"id":"in#1","status":"new"}`), []byte(`{"id":"in#2","status":"new"}`)}
	denied := d.work(events, func() bool { return d.written.Load() == 2 && d.scanned.Load() == 1 })
	if denied != "" || d.scanRecords.Load() != 2 {
		t.Errorf("%q was refused something; %d records came", denied, d.scanRecords.Load())
	}
	if rows := readTable(t, d.Deployment, loaded.Pipeline.Tables[0]); len(rows) != 2 {
		t.Errorf("%v", rows)
	}
}

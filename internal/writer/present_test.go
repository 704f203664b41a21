package writer

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	"google.golang.org/grpc/codes"

	"github.com/bigtable-functions/bigtable-functions/emulator"
)

// pack is an entry that writes columns, unless one of them is there.
func pack(key string, columns ...string) Entry {
	e := Entry{Table: orders, Row: &bigtablepb.MutateRowsRequest_Entry{RowKey: []byte(key)}, Tell: true}
	filters := &bigtablepb.RowFilter_Interleave{}
	for _, c := range append(columns, "never") {
		filters.Filters = append(filters.Filters, column("cf", c))
	}
	for _, c := range columns {
		e.Row.Mutations = append(e.Row.Mutations, &bigtablepb.Mutation{Mutation: &bigtablepb.Mutation_SetCell_{SetCell: &bigtablepb.Mutation_SetCell{
			FamilyName: "cf", ColumnQualifier: []byte(c), TimestampMicros: 1000, Value: []byte("a value"),
		}}})
	}
	e.Unless = &bigtablepb.RowFilter{Filter: &bigtablepb.RowFilter_Interleave_{Interleave: filters}}
	return e
}

// What keeps an entry from being applied is told, also where an answer or the read of it is
// lost.
func TestAnEntryIsToldWhichOfItsColumnsAreThere(t *testing.T) {
	b := newBigtable(t)
	b.create()
	w := b.writer()
	outcome := func(e Entry) []string {
		t.Helper()
		err := w.Apply(within(t, time.Minute), []Entry{e})[0]
		var p *Present
		if err != nil && !errors.As(err, &p) {
			t.Fatal(err)
		}
		if p == nil {
			return nil
		}
		var there []string
		for _, c := range p.Columns {
			if string(c.Value) != "a value" {
				t.Errorf("column %s has the value %q", c.Qualifier, c.Value)
			}
			there = append(there, c.Qualifier)
		}
		slices.Sort(there)
		return there
	}
	if got := outcome(pack("k", "a", "b")); got != nil {
		t.Errorf("the first: %v", got)
	}
	if got := outcome(pack("k", "b", "c", "a")); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("%v", got)
	}
	if got := outcome(pack("k", "c", "d")); got != nil {
		t.Errorf("what was not applied is there: %v", got)
	}
	b.e.Inject(emulator.Fault{Method: "CheckAndMutateRow", Code: codes.Unavailable, After: true, Count: 1})
	if got := outcome(pack("l", "a", "b")); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("applied with its answer lost: %v", got)
	}
	b.e.Inject(emulator.Fault{Method: "ReadRows", Code: codes.Unavailable, Count: 2})
	if got := outcome(pack("l", "a", "z")); !slices.Equal(got, []string{"a"}) {
		t.Errorf("a read that failed: %v", got)
	}
	single := pack("l", "a")
	single.Tell = false
	if got := outcome(single); got != nil {
		t.Errorf("an entry that does not ask is told %v", got)
	}
}

// Entries that commute share a request, and the others of their row do not.
func TestUnorderedEntriesOfARowShareARequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for unordered, want := range map[bool]int{true: 2, false: 50} {
			s := &service{}
			w := start(t, s, func(c *Config) { c.Limits.Batch.Concurrency = 1 })
			entries := make([]Entry, 50)
			for i := range entries {
				entries[i] = add("k", "0123456789abcde"+string(rune('A'+i)))
				entries[i].Unordered = unordered
			}
			wantApplied(t, w.Apply(within(t, time.Minute), entries))
			if n := s.count("MutateRows"); n > want || !unordered && n != want {
				t.Errorf("unordered %v: %d requests, want %d", unordered, n, want)
			}
		}
	})
}

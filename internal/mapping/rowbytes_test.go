package mapping

import (
	"strings"
	"testing"

	"cloud.google.com/go/bigtable"
)

// What a row counts towards fetch.maxBytes is its key, and of each cell family, qualifier,
// value, timestamp and labels.
//
// covers: SC-10
func TestARowCountsAllThatItIsMadeOf(t *testing.T) {
	e := emitOf(t, "string", "emit: {x: rowKey}").New()
	bytes := func(r bigtable.Row) int64 {
		t.Helper()
		if _, err := e.Row(r); err != nil {
			t.Fatal(err)
		}
		return e.Bytes()
	}
	base := bytes(rowOf("k", "cf:q", "v"))
	if base != int64(len("k")+len("cf:q")+len("v")+8) {
		t.Errorf("a row of one cell counts %d bytes", base)
	}
	labelled := rowOf("k", "cf:q", "v")
	labelled["cf"][0].Labels = []string{"label"}
	for name, c := range map[string]struct {
		row  bigtable.Row
		more int
	}{
		"a longer key":       {rowOf("k"+strings.Repeat("x", 10), "cf:q", "v"), 10},
		"a longer value":     {rowOf("k", "cf:q", "v"+strings.Repeat("x", 10)), 10},
		"a longer qualifier": {rowOf("k", "cf:q"+strings.Repeat("x", 10), "v"), 10},
		"a longer family":    {rowOf("k", "odd-name:q", "v"), len("odd-name") - len("cf")},
		"a label":            {labelled, len("label")},
		"another cell":       {rowOf("k", "cf:q", "v", "cf:q", "v"), len("cf:q") + len("v") + 8},
	} {
		if got := bytes(c.row); got != base+int64(c.more) {
			t.Errorf("%s: %d bytes more, want %d", name, got-base, c.more)
		}
	}
}

// A decimal that does not fit after rounding fails its row, naming the column; what only
// has to be rounded is rounded.
//
// covers: SQL-09
func TestADecimalThatDoesNotFitNamesItsColumn(t *testing.T) {
	e := emitOf(t, "string", "emit: {x: row.cf.price}")
	if got := onlyRecord(t, e, rowOf("k", "cf:price", "\x00\x00\x00\x03\x30\x39")); got != `{"x":"12.35"}` { // 12.345
		t.Errorf("rounded it is %s", got)
	}
	got := onlyRecord(t, e, rowOf("secret-key", "cf:price", "\x00\x00\x00\x00\x7f\xff\xff\xff\xff\xff"))
	if !strings.HasPrefix(got, "error: ") || !strings.Contains(got, "price") || !strings.Contains(got, "decimal(10,2)") || strings.Contains(got, "secret-key") {
		t.Errorf("%s", got)
	}
}

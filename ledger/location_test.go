package ledger_test

import (
	"testing"

	"github.com/bigtable-functions/bigtable-functions/ledger"
)

func TestLocationsAreParsed(t *testing.T) {
	for text, want := range map[string]ledger.Location{
		"file:.btf/orders.db":                 {Path: ".btf/orders.db"},
		"file:/C:/x":                          {Path: "/C:/x"},
		"firestore:my-project/(default)":      {Project: "my-project", Database: "(default)"},
		"firestore:example.com:my-project/db": {Project: "example.com:my-project", Database: "db"},
	} {
		got, err := ledger.ParseLocation(text)
		if err != nil || got != want || got.String() != text {
			t.Errorf("%s: %+v (%s), %v, want %+v", text, got, got, err, want)
		}
	}
	for _, text := range []string{"", "file", "file:", "firestore:", "firestore:p", "firestore:p/", "firestore:/d", "firestore:p/d/e", "redis:x", "p/d"} {
		if got, err := ledger.ParseLocation(text); err == nil {
			t.Errorf("%q was read as %+v", text, got)
		}
	}
}

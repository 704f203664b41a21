package mapping

import (
	"fmt"
	"strings"
	"testing"

	"github.com/bigtable-functions/bigtable-functions/internal/pipeline"
)

// refusedFilters are filters that Bigtable refuses with part of what is said of each, and
// filters that it takes, with nothing.
var refusedFilters = []struct{ filter, want string }{
	{`chain {}`, "chain: 0 filters"},
	{`chain { filters { pass_all_filter: true } }`, "chain: 1 filters"},
	{`interleave { filters { pass_all_filter: true } }`, "interleave: 1 filters"},
	{`chain { filters { pass_all_filter: true } filters {} }`, "chain: filters[1]: a filter that says nothing"},
	{`cells_per_row_limit_filter: 0`, "cells_per_row_limit_filter: 0"},
	{`cells_per_row_limit_filter: -1`, "cells_per_row_limit_filter: -1"},
	{`cells_per_column_limit_filter: 0`, "cells_per_column_limit_filter: 0"},
	{`cells_per_row_offset_filter: -1`, "cells_per_row_offset_filter: -1"},
	{`cells_per_row_offset_filter: 0`, ""},
	{`row_sample_filter: 1`, "row_sample_filter: 1"},
	{`row_sample_filter: 0`, "row_sample_filter: 0"},
	{`row_sample_filter: nan`, "row_sample_filter: NaN"},
	{`row_sample_filter: 0.5`, ""},
	{`value_regex_filter: "a("`, "value_regex_filter:"},
	{`value_regex_filter: "a)|(b"`, "value_regex_filter:"},
	{`value_regex_filter: "\xff\\C\\\xff"`, ""},
	{`column_qualifier_regex_filter: "[z-a]"`, "column_qualifier_regex_filter:"},
	{`column_qualifier_regex_filter: ""`, ""},
	{`row_key_regex_filter: ""`, "row_key_regex_filter: an empty pattern"},
	{`row_key_regex_filter: "(?=a)"`, "row_key_regex_filter:"},
	{`family_name_regex_filter: "cf:a"`, "a colon"},
	{`family_name_regex_filter: "cf"`, ""},
	{`pass_all_filter: false`, "pass_all_filter: false"},
	{`strip_value_transformer: false`, "strip_value_transformer: false"},
	{`block_all_filter: false`, "block_all_filter: false"},
	{`apply_label_transformer: "A"`, "apply_label_transformer:"},
	{`apply_label_transformer: "a-1"`, ""},
	{`condition { true_filter { pass_all_filter: true } }`, "condition: no predicate_filter"},
	{`condition { predicate_filter { sink: true } }`, "within a condition"},
	{`condition { predicate_filter { pass_all_filter: true } false_filter { value_regex_filter: "(" } }`, "condition: false_filter: value_regex_filter:"},
	{`condition { predicate_filter { pass_all_filter: true } }`, ""},
	{`chain { filters { apply_label_transformer: "a" } filters { interleave { filters { apply_label_transformer: "b" } filters { pass_all_filter: true } } } }`, "apply a label"},
}

const filterFile = `version: 1
name: orders
bigtable: {project: p, instance: i}
tables: {orders: {families: {cf: {}}}}
scans:
  all: {table: orders, cells: {filter: '%s'}, to: {log: {}}}
`

func TestFiltersThatBigtableRefusesAreFaults(t *testing.T) {
	for _, c := range refusedFilters {
		p, err := pipeline.Parse([]byte(fmt.Sprintf(filterFile, c.filter)), pipeline.Options{})
		if err != nil {
			t.Fatal(err)
		}
		_, err = ReadFilter(p.Scans[0])
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", c.filter, err, c.want)
		}
	}
}

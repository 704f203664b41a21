package mapping

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"strings"
	"unicode/utf8"

	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
)

// maxFilterDepth bounds the nesting that is looked at, far above what a reader follows.
const maxFilterDepth = 100

// checkFilter refuses a filter that Bigtable would refuse on every read. The error
// names the field as protobuf text does.
func checkFilter(f *bigtablepb.RowFilter) error { return filterCheck{}.check(f) }

// filterCheck is a place within a filter.
type filterCheck struct {
	depth     int
	condition bool
}

func (c filterCheck) check(f *bigtablepb.RowFilter) error {
	if c.depth++; c.depth > maxFilterDepth {
		return fmt.Errorf("filters nested deeper than %d", maxFilterDepth)
	}
	switch k := f.GetFilter().(type) {
	case nil:
		return errors.New("a filter that says nothing: write pass_all_filter: true for all cells")
	case *bigtablepb.RowFilter_Chain_:
		if labels(k.Chain.GetFilters()) > 1 {
			return errors.New("chain: only one of its filters may apply a label")
		}
		return c.several("chain", k.Chain.GetFilters())
	case *bigtablepb.RowFilter_Interleave_:
		return c.several("interleave", k.Interleave.GetFilters())
	case *bigtablepb.RowFilter_Condition_:
		return c.branches(k.Condition)
	case *bigtablepb.RowFilter_Sink:
		if c.condition {
			return errors.New("sink: true within a condition")
		}
		return isTrue("sink", k.Sink)
	case *bigtablepb.RowFilter_PassAllFilter:
		return isTrue("pass_all_filter", k.PassAllFilter)
	case *bigtablepb.RowFilter_BlockAllFilter:
		return isTrue("block_all_filter", k.BlockAllFilter)
	case *bigtablepb.RowFilter_StripValueTransformer:
		return isTrue("strip_value_transformer", k.StripValueTransformer)
	}
	if err := checkNumber(f); err != nil {
		return err
	}
	return checkText(f)
}

func (c filterCheck) several(name string, filters []*bigtablepb.RowFilter) error {
	if len(filters) < 2 {
		return fmt.Errorf("%s: %d filters, and it takes two or more", name, len(filters))
	}
	for i, f := range filters {
		if err := c.check(f); err != nil {
			return fmt.Errorf("%s: filters[%d]: %w", name, i, err)
		}
	}
	return nil
}

func (c filterCheck) branches(k *bigtablepb.RowFilter_Condition) error {
	c.condition = true
	if k.GetPredicateFilter() == nil {
		return errors.New("condition: no predicate_filter, which decides it")
	}
	for _, part := range []struct {
		name   string
		filter *bigtablepb.RowFilter
	}{{"predicate_filter", k.PredicateFilter}, {"true_filter", k.TrueFilter}, {"false_filter", k.FalseFilter}} {
		if part.filter == nil {
			continue
		}
		if err := c.check(part.filter); err != nil {
			return fmt.Errorf("condition: %s: %w", part.name, err)
		}
	}
	return nil
}

// labels counts the filters that apply a label, themselves or below them.
func labels(filters []*bigtablepb.RowFilter) int {
	n := 0
	for _, f := range filters {
		below := 0
		switch k := f.GetFilter().(type) {
		case *bigtablepb.RowFilter_ApplyLabelTransformer:
			below = 1
		case *bigtablepb.RowFilter_Chain_:
			below = labels(k.Chain.GetFilters())
		case *bigtablepb.RowFilter_Interleave_:
			below = labels(k.Interleave.GetFilters())
		case *bigtablepb.RowFilter_Condition_:
			below = labels([]*bigtablepb.RowFilter{k.Condition.GetTrueFilter(), k.Condition.GetFalseFilter()})
		}
		n += min(below, 1)
	}
	return n
}

func isTrue(name string, v bool) error {
	if v {
		return nil
	}
	return fmt.Errorf("%s: false, and it takes only true: leave it out", name)
}

func checkNumber(f *bigtablepb.RowFilter) error {
	switch k := f.Filter.(type) {
	case *bigtablepb.RowFilter_CellsPerRowLimitFilter:
		return above("cells_per_row_limit_filter", k.CellsPerRowLimitFilter, 1)
	case *bigtablepb.RowFilter_CellsPerColumnLimitFilter:
		return above("cells_per_column_limit_filter", k.CellsPerColumnLimitFilter, 1)
	case *bigtablepb.RowFilter_CellsPerRowOffsetFilter:
		return above("cells_per_row_offset_filter", k.CellsPerRowOffsetFilter, 0)
	case *bigtablepb.RowFilter_RowSampleFilter:
		if p := k.RowSampleFilter; math.IsNaN(p) || p <= 0 || p >= 1 {
			return fmt.Errorf("row_sample_filter: %v, and it takes a number between 0 and 1, neither included", p)
		}
	}
	return nil
}

func above(name string, n, lowest int32) error {
	if n >= lowest {
		return nil
	}
	return fmt.Errorf("%s: %d, and it takes %d or more", name, n, lowest)
}

// label matches the labels that apply_label_transformer takes (the comment on it in data.proto).
var label = regexp.MustCompile(`^[a-z0-9-]{1,15}$`)

func checkText(f *bigtablepb.RowFilter) error {
	switch k := f.Filter.(type) {
	case *bigtablepb.RowFilter_RowKeyRegexFilter:
		if len(k.RowKeyRegexFilter) == 0 {
			return errors.New("row_key_regex_filter: an empty pattern, and no row key is empty")
		}
		return checkPattern("row_key_regex_filter", k.RowKeyRegexFilter)
	case *bigtablepb.RowFilter_FamilyNameRegexFilter:
		if strings.Contains(k.FamilyNameRegexFilter, ":") {
			return errors.New("family_name_regex_filter: a colon, which no family's name has")
		}
		return checkPattern("family_name_regex_filter", []byte(k.FamilyNameRegexFilter))
	case *bigtablepb.RowFilter_ColumnQualifierRegexFilter:
		return checkPattern("column_qualifier_regex_filter", k.ColumnQualifierRegexFilter)
	case *bigtablepb.RowFilter_ValueRegexFilter:
		return checkPattern("value_regex_filter", k.ValueRegexFilter)
	case *bigtablepb.RowFilter_ApplyLabelTransformer:
		if !label.MatchString(k.ApplyLabelTransformer) {
			return fmt.Errorf("apply_label_transformer: %q, and a label has 1 to 15 lower-case letters, digits and dashes", k.ApplyLabelTransformer)
		}
	}
	return nil
}

// checkPattern holds a pattern against RE2's syntax. Bigtable's patterns are bytes: each
// from 0x80 on stands for itself, also behind a backslash, and \C is any byte.
func checkPattern(name string, pattern []byte) error {
	var b strings.Builder
	for i := 0; i < len(pattern); i++ {
		if pattern[i] != '\\' || i+1 == len(pattern) {
			b.WriteRune(rune(pattern[i]))
			continue
		}
		i++
		switch next := pattern[i]; {
		case next == 'C':
			b.WriteString(`(?s:.)`)
		case next >= utf8.RuneSelf:
			b.WriteRune(rune(next))
		default:
			b.Write([]byte{'\\', next})
		}
	}
	if _, err := regexp.Compile(b.String()); err != nil {
		return fmt.Errorf("%s: %q is no RE2 pattern: %s", name, pattern, strings.TrimPrefix(err.Error(), "error parsing regexp: "))
	}
	return nil
}

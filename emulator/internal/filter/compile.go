package filter

import (
	"bytes"
	"fmt"
	"math"
	"regexp"
	"strings"

	"cloud.google.com/go/bigtable/apiv2/bigtablepb"

	"github.com/bigtable-functions/bigtable-functions/emulator/internal/store"
)

// ErrMissingFamily says that a filter names a family the table lacks. The
// service refuses such a read with NOT_FOUND (measured 2026-08-10, EMU-11).
var ErrMissingFamily error = refusal(store.MissingFamily)

// refusal is the text of a status.
type refusal string

func (r refusal) Error() string { return string(r) }

func refuse(format string, args ...any) error { return refusal(fmt.Sprintf(format, args...)) }

// Compile checks a filter against a schema and makes it runnable. Errors
// other than ErrMissingFamily are the texts of an INVALID_ARGUMENT.
func Compile(p *bigtablepb.RowFilter, s *store.Schema, random func() float64) (*Filter, error) {
	if p.GetFilter() == nil {
		return nil, nil
	}
	c := compiler{schema: s}
	root, err := c.compile(p)
	if err != nil {
		return nil, err
	}
	if c.missing {
		return nil, ErrMissingFamily
	}
	return &Filter{root: root, random: random}, nil
}

type compiler struct {
	schema      *store.Schema
	inCondition bool
	missing     bool
}

func (c *compiler) compile(p *bigtablepb.RowFilter) (node, error) {
	switch k := p.GetFilter().(type) {
	case nil:
		return pass{}, nil
	case *bigtablepb.RowFilter_Chain_:
		return c.chain(k.Chain.GetFilters())
	case *bigtablepb.RowFilter_Interleave_:
		if len(k.Interleave.GetFilters()) < 2 {
			return nil, refusal("Interleave must contain at least two RowFilters")
		}
		nodes, err := c.all(k.Interleave.Filters)
		return interleave(nodes), err
	case *bigtablepb.RowFilter_Condition_:
		return c.condition(k.Condition)
	case *bigtablepb.RowFilter_Sink:
		if !k.Sink {
			return nil, refusal("sink must be true if set")
		}
		if c.inCondition {
			return nil, refusal("sink cannot be used within a condition")
		}
		return sink{}, nil
	case *bigtablepb.RowFilter_PassAllFilter:
		if !k.PassAllFilter {
			return nil, refusal("pass_all_filter must be true if set")
		}
		return pass{}, nil
	case *bigtablepb.RowFilter_BlockAllFilter:
		if !k.BlockAllFilter {
			return nil, refusal("block_all_filter must be true if set")
		}
		return block{}, nil
	}
	if n, err := c.compileRow(p); n != nil || err != nil {
		return n, err
	}
	return c.compileCells(p)
}

func (c *compiler) all(ps []*bigtablepb.RowFilter) ([]node, error) {
	nodes := make([]node, len(ps))
	for i, p := range ps {
		n, err := c.compile(p)
		if err != nil {
			return nil, err
		}
		nodes[i] = n
	}
	return nodes, nil
}

func (c *compiler) chain(ps []*bigtablepb.RowFilter) (node, error) {
	if len(ps) < 2 {
		return nil, refusal("Chain must contain at least two RowFilters")
	}
	labels := 0
	for _, p := range ps {
		if hasLabel(p) {
			labels++
		}
	}
	if labels > 1 {
		return nil, refusal("a Chain may have no more than one sub-filter which contains an apply_label_transformer")
	}
	nodes, err := c.all(ps)
	return chain(nodes), err
}

func hasLabel(p *bigtablepb.RowFilter) bool {
	switch k := p.GetFilter().(type) {
	case *bigtablepb.RowFilter_ApplyLabelTransformer:
		return true
	case *bigtablepb.RowFilter_Chain_:
		return anyLabel(k.Chain.GetFilters()...)
	case *bigtablepb.RowFilter_Interleave_:
		return anyLabel(k.Interleave.GetFilters()...)
	case *bigtablepb.RowFilter_Condition_:
		return anyLabel(k.Condition.GetTrueFilter(), k.Condition.GetFalseFilter())
	}
	return false
}

func anyLabel(ps ...*bigtablepb.RowFilter) bool {
	for _, p := range ps {
		if hasLabel(p) {
			return true
		}
	}
	return false
}

func (c *compiler) condition(p *bigtablepb.RowFilter_Condition) (node, error) {
	outer := c.inCondition
	c.inCondition = true
	defer func() { c.inCondition = outer }()
	if p.GetPredicateFilter() == nil {
		return nil, refusal("Error in field 'predicate_filter' : a condition must have a predicate")
	}
	predicate, err := c.compile(p.PredicateFilter)
	if err != nil {
		return nil, err
	}
	yes, err := c.branch(p.TrueFilter)
	if err != nil {
		return nil, err
	}
	no, err := c.branch(p.FalseFilter)
	if err != nil {
		return nil, err
	}
	return condition{predicate, yes, no}, nil
}

// branch is a condition's outcome: without a filter it yields nothing.
func (c *compiler) branch(p *bigtablepb.RowFilter) (node, error) {
	if p == nil {
		return block{}, nil
	}
	return c.compile(p)
}

// compileRow compiles what looks at the row as a whole or at cell positions,
// nil if p is none of that.
func (c *compiler) compileRow(p *bigtablepb.RowFilter) (node, error) {
	switch k := p.Filter.(type) {
	case *bigtablepb.RowFilter_RowKeyRegexFilter:
		if len(k.RowKeyRegexFilter) == 0 {
			return nil, refusal("Error in field 'row_key_regex_filter' : argument must not be empty")
		}
		m, err := compileRegex("row_key_regex_filter", k.RowKeyRegexFilter)
		if err != nil {
			return nil, err
		}
		return row{func(x *run) bool { return m.matchString(x.key) }}, nil
	case *bigtablepb.RowFilter_RowSampleFilter:
		p := k.RowSampleFilter
		if math.IsNaN(p) || p <= 0 || p >= 1 {
			return nil, refusal("row_sample_filter argument must be between 0.0 and 1.0")
		}
		return row{func(x *run) bool { return x.random() < p }}, nil
	case *bigtablepb.RowFilter_CellsPerRowOffsetFilter:
		if k.CellsPerRowOffsetFilter < 0 {
			return nil, refusal("Error in field 'cells_per_row_offset_filter' : argument must be >= 0")
		}
		return rowOffset(k.CellsPerRowOffsetFilter), nil
	case *bigtablepb.RowFilter_CellsPerRowLimitFilter:
		if k.CellsPerRowLimitFilter <= 0 {
			return nil, refusal("Error in field 'cells_per_row_limit_filter' : argument must be > 0")
		}
		return rowLimit(k.CellsPerRowLimitFilter), nil
	case *bigtablepb.RowFilter_CellsPerColumnLimitFilter:
		if k.CellsPerColumnLimitFilter <= 0 {
			return nil, refusal("Error in field 'cells_per_column_limit_filter' : argument must be > 0")
		}
		return columnLimit(k.CellsPerColumnLimitFilter), nil
	}
	return nil, nil
}

// compileCells compiles what looks at one cell at a time.
func (c *compiler) compileCells(p *bigtablepb.RowFilter) (node, error) {
	switch k := p.Filter.(type) {
	case *bigtablepb.RowFilter_FamilyNameRegexFilter:
		return c.family(k.FamilyNameRegexFilter)
	case *bigtablepb.RowFilter_ColumnQualifierRegexFilter:
		m, err := compileRegex("column_qualifier_regex_filter", k.ColumnQualifierRegexFilter)
		if err != nil {
			return nil, err
		}
		return cells{func(o *Out) bool { return m.matchString(o.Qualifier) }}, nil
	case *bigtablepb.RowFilter_ColumnRangeFilter:
		return c.columnRange(k.ColumnRangeFilter), nil
	case *bigtablepb.RowFilter_TimestampRangeFilter:
		start, end := k.TimestampRangeFilter.GetStartTimestampMicros(), k.TimestampRangeFilter.GetEndTimestampMicros()
		return cells{func(o *Out) bool {
			return o.Timestamp >= start && (end == 0 || o.Timestamp < end)
		}}, nil
	case *bigtablepb.RowFilter_ValueRegexFilter:
		m, err := compileRegex("value_regex_filter", k.ValueRegexFilter)
		if err != nil {
			return nil, err
		}
		return cells{func(o *Out) bool { return m.match(o.value()) }}, nil
	case *bigtablepb.RowFilter_ValueRangeFilter:
		return valueRange(k.ValueRangeFilter), nil
	case *bigtablepb.RowFilter_StripValueTransformer:
		if !k.StripValueTransformer {
			return nil, refusal("strip_value_transformer must be true if set")
		}
		return transform{func(o *Out) { o.Strip = true }}, nil
	case *bigtablepb.RowFilter_ApplyLabelTransformer:
		return label(k.ApplyLabelTransformer)
	case *bigtablepb.RowFilter_ValueBitmaskFilter:
		mask := k.ValueBitmaskFilter.GetMask()
		return cells{func(o *Out) bool { return hasBits(o.value(), mask) }}, nil
	}
	return nil, refuse("filter of unknown kind %T", p.Filter)
}

// value is what later filters in a chain see of the cell.
func (o *Out) value() []byte {
	if o.Strip {
		return nil
	}
	return o.Value
}

func hasBits(value, mask []byte) bool {
	if len(value) != len(mask) {
		return false
	}
	for i, m := range mask {
		if value[i]&m != m {
			return false
		}
	}
	return true
}

// family compiles a family regex. One that is just a name must be the name
// of a family of the table.
func (c *compiler) family(pattern string) (node, error) {
	if strings.Contains(pattern, ":") {
		return nil, refusal("Error in field 'family_name_regex_filter' : must not contain ':'")
	}
	m, err := compileRegex("family_name_regex_filter", []byte(pattern))
	if err != nil {
		return nil, err
	}
	if m.exact {
		c.need(m.literal)
	}
	keep := make(map[string]bool, len(c.schema.Families))
	for name := range c.schema.Families {
		keep[name] = m.matchString(name)
	}
	return cells{func(o *Out) bool { return keep[o.Family] }}, nil
}

func (c *compiler) need(family string) {
	if c.schema.Families[family] == nil {
		c.missing = true
	}
}

func (c *compiler) columnRange(p *bigtablepb.ColumnRange) node {
	c.need(p.GetFamilyName())
	family := p.GetFamilyName()
	after, before := always, always
	switch k := p.GetStartQualifier().(type) {
	case *bigtablepb.ColumnRange_StartQualifierClosed:
		start := string(k.StartQualifierClosed)
		after = func(q string) bool { return q >= start }
	case *bigtablepb.ColumnRange_StartQualifierOpen:
		start := string(k.StartQualifierOpen)
		after = func(q string) bool { return q > start }
	}
	switch k := p.GetEndQualifier().(type) {
	case *bigtablepb.ColumnRange_EndQualifierClosed:
		end := string(k.EndQualifierClosed)
		before = func(q string) bool { return q <= end }
	case *bigtablepb.ColumnRange_EndQualifierOpen:
		end := string(k.EndQualifierOpen)
		before = func(q string) bool { return q < end }
	}
	return span{family, after, before}
}

func always(string) bool { return true }

func valueRange(p *bigtablepb.ValueRange) node {
	after := func([]byte) bool { return true }
	before := after
	switch k := p.GetStartValue().(type) {
	case *bigtablepb.ValueRange_StartValueClosed:
		after = func(v []byte) bool { return bytes.Compare(v, k.StartValueClosed) >= 0 }
	case *bigtablepb.ValueRange_StartValueOpen:
		after = func(v []byte) bool { return bytes.Compare(v, k.StartValueOpen) > 0 }
	}
	switch k := p.GetEndValue().(type) {
	case *bigtablepb.ValueRange_EndValueClosed:
		before = func(v []byte) bool { return bytes.Compare(v, k.EndValueClosed) <= 0 }
	case *bigtablepb.ValueRange_EndValueOpen:
		before = func(v []byte) bool { return bytes.Compare(v, k.EndValueOpen) < 0 }
	}
	return cells{func(o *Out) bool { return after(o.value()) && before(o.value()) }}
}

var labelPattern = regexp.MustCompile(`^[a-z0-9\-]{1,15}$`)

func label(name string) (node, error) {
	if !labelPattern.MatchString(name) {
		return nil, refusal(`apply_label_transformer must be at most 15 characters and match RE2([a-z0-9\-]+)`)
	}
	return transform{func(o *Out) { o.Label = name }}, nil
}

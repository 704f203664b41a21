package filter

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	"pgregory.net/rapid"

	"github.com/bigtable-functions/bigtable-functions/emulator/internal/store"
)

var schema = &store.Schema{Unit: 1000, Families: map[string]*store.Family{
	"A": {Name: "A"}, "B": {Name: "B"}, "far": {Name: "far"}, "foo": {Name: "foo"},
}}

func rowOf(cells ...store.Cell) *store.Row { return store.NewRow("key", cells) }

func c(family, qualifier string, ts int64, value string) store.Cell {
	return store.Cell{Family: family, Qualifier: qualifier, Timestamp: ts, Value: []byte(value)}
}

func show(out []Out) string {
	var parts []string
	for _, o := range out {
		s := fmt.Sprintf("%s:%s@%d=%s", o.Family, o.Qualifier, o.Timestamp, o.value())
		if o.Label != "" {
			s += "#" + o.Label
		}
		parts = append(parts, s)
	}
	return strings.Join(parts, " ")
}

func chainOf(fs ...*bigtablepb.RowFilter) *bigtablepb.RowFilter {
	return &bigtablepb.RowFilter{Filter: &bigtablepb.RowFilter_Chain_{Chain: &bigtablepb.RowFilter_Chain{Filters: fs}}}
}

func interleaveOf(fs ...*bigtablepb.RowFilter) *bigtablepb.RowFilter {
	return &bigtablepb.RowFilter{Filter: &bigtablepb.RowFilter_Interleave_{Interleave: &bigtablepb.RowFilter_Interleave{Filters: fs}}}
}

func conditionOf(p, yes, no *bigtablepb.RowFilter) *bigtablepb.RowFilter {
	return &bigtablepb.RowFilter{Filter: &bigtablepb.RowFilter_Condition_{Condition: &bigtablepb.RowFilter_Condition{PredicateFilter: p, TrueFilter: yes, FalseFilter: no}}}
}

func familyRegex(s string) *bigtablepb.RowFilter {
	return &bigtablepb.RowFilter{Filter: &bigtablepb.RowFilter_FamilyNameRegexFilter{FamilyNameRegexFilter: s}}
}

func qualifierRegex(s string) *bigtablepb.RowFilter {
	return &bigtablepb.RowFilter{Filter: &bigtablepb.RowFilter_ColumnQualifierRegexFilter{ColumnQualifierRegexFilter: []byte(s)}}
}

func valueRegex(s string) *bigtablepb.RowFilter {
	return &bigtablepb.RowFilter{Filter: &bigtablepb.RowFilter_ValueRegexFilter{ValueRegexFilter: []byte(s)}}
}

func keyRegex(s string) *bigtablepb.RowFilter {
	return &bigtablepb.RowFilter{Filter: &bigtablepb.RowFilter_RowKeyRegexFilter{RowKeyRegexFilter: []byte(s)}}
}

func labelOf(s string) *bigtablepb.RowFilter {
	return &bigtablepb.RowFilter{Filter: &bigtablepb.RowFilter_ApplyLabelTransformer{ApplyLabelTransformer: s}}
}

func all() *bigtablepb.RowFilter {
	return &bigtablepb.RowFilter{Filter: &bigtablepb.RowFilter_PassAllFilter{PassAllFilter: true}}
}

func none() *bigtablepb.RowFilter {
	return &bigtablepb.RowFilter{Filter: &bigtablepb.RowFilter_BlockAllFilter{BlockAllFilter: true}}
}

func sinkOf() *bigtablepb.RowFilter {
	return &bigtablepb.RowFilter{Filter: &bigtablepb.RowFilter_Sink{Sink: true}}
}

func strip() *bigtablepb.RowFilter {
	return &bigtablepb.RowFilter{Filter: &bigtablepb.RowFilter_StripValueTransformer{StripValueTransformer: true}}
}

func rowLimitOf(n int32) *bigtablepb.RowFilter {
	return &bigtablepb.RowFilter{Filter: &bigtablepb.RowFilter_CellsPerRowLimitFilter{CellsPerRowLimitFilter: n}}
}

func rowOffsetOf(n int32) *bigtablepb.RowFilter {
	return &bigtablepb.RowFilter{Filter: &bigtablepb.RowFilter_CellsPerRowOffsetFilter{CellsPerRowOffsetFilter: n}}
}

func columnLimitOf(n int32) *bigtablepb.RowFilter {
	return &bigtablepb.RowFilter{Filter: &bigtablepb.RowFilter_CellsPerColumnLimitFilter{CellsPerColumnLimitFilter: n}}
}

func times(start, end int64) *bigtablepb.RowFilter {
	return &bigtablepb.RowFilter{Filter: &bigtablepb.RowFilter_TimestampRangeFilter{TimestampRangeFilter: &bigtablepb.TimestampRange{StartTimestampMicros: start, EndTimestampMicros: end}}}
}

func sample(p float64) *bigtablepb.RowFilter {
	return &bigtablepb.RowFilter{Filter: &bigtablepb.RowFilter_RowSampleFilter{RowSampleFilter: p}}
}

func mask(m string) *bigtablepb.RowFilter {
	return &bigtablepb.RowFilter{Filter: &bigtablepb.RowFilter_ValueBitmaskFilter{ValueBitmaskFilter: &bigtablepb.ValueBitmask{Mask: []byte(m)}}}
}

func columns(r *bigtablepb.ColumnRange) *bigtablepb.RowFilter {
	return &bigtablepb.RowFilter{Filter: &bigtablepb.RowFilter_ColumnRangeFilter{ColumnRangeFilter: r}}
}

func values(r *bigtablepb.ValueRange) *bigtablepb.RowFilter {
	return &bigtablepb.RowFilter{Filter: &bigtablepb.RowFilter_ValueRangeFilter{ValueRangeFilter: r}}
}

var sampled = rowOf(
	c("A", "A", 1, "w"), c("A", "B", 2, "x"), c("A", "B", 1, "old"), c("B", "", 9, ""), c("B", "B", 4, "z"),
)

// The cases are the examples and rules of data.proto.
func TestFiltersYieldWhatTheAPIDefinitionSays(t *testing.T) {
	for name, test := range map[string]struct {
		filter *bigtablepb.RowFilter
		want   string
	}{
		"nothing set":      {&bigtablepb.RowFilter{}, "A:A@1=w A:B@2=x A:B@1=old B:@9= B:B@4=z"},
		"pass":             {all(), "A:A@1=w A:B@2=x A:B@1=old B:@9= B:B@4=z"},
		"block":            {none(), ""},
		"family":           {familyRegex("A"), "A:A@1=w A:B@2=x A:B@1=old"},
		"families":         {familyRegex("A|far"), "A:A@1=w A:B@2=x A:B@1=old"},
		"family full":      {familyRegex("f"), "missing"},
		"qualifier":        {qualifierRegex("B"), "A:B@2=x A:B@1=old B:B@4=z"},
		"empty qualifier":  {qualifierRegex(""), "B:@9="},
		"value":            {valueRegex("[wx]"), "A:A@1=w A:B@2=x"},
		"value full":       {valueRegex("ol"), ""},
		"key":              {keyRegex("k.y"), "A:A@1=w A:B@2=x A:B@1=old B:@9= B:B@4=z"},
		"key full":         {keyRegex("ke"), ""},
		"times":            {times(2, 9), "A:B@2=x B:B@4=z"},
		"times open":       {times(4, 0), "B:@9= B:B@4=z"},
		"row limit":        {rowLimitOf(2), "A:A@1=w A:B@2=x"},
		"row offset":       {rowOffsetOf(3), "B:@9= B:B@4=z"},
		"offset past all":  {rowOffsetOf(9), ""},
		"column limit":     {columnLimitOf(1), "A:A@1=w A:B@2=x B:@9= B:B@4=z"},
		"strip":            {chainOf(qualifierRegex("A"), strip()), "A:A@1="},
		"strip then value": {chainOf(strip(), valueRegex("w")), ""},
		"label":            {chainOf(qualifierRegex("A"), labelOf("l-1")), "A:A@1=w#l-1"},
		"mask":             {mask("x"), "A:B@2=x B:B@4=z"}, // 'z' has all bits of 'x'
		"column range": {columns(&bigtablepb.ColumnRange{FamilyName: "A",
			StartQualifier: &bigtablepb.ColumnRange_StartQualifierOpen{StartQualifierOpen: []byte("A")}}), "A:B@2=x A:B@1=old"},
		"column range end": {columns(&bigtablepb.ColumnRange{FamilyName: "A",
			EndQualifier: &bigtablepb.ColumnRange_EndQualifierOpen{EndQualifierOpen: []byte("B")}}), "A:A@1=w"},
		"column range closed": {columns(&bigtablepb.ColumnRange{FamilyName: "B",
			StartQualifier: &bigtablepb.ColumnRange_StartQualifierClosed{StartQualifierClosed: []byte("B")},
			EndQualifier:   &bigtablepb.ColumnRange_EndQualifierClosed{EndQualifierClosed: []byte("B")}}), "B:B@4=z"},
		"value range": {values(&bigtablepb.ValueRange{
			StartValue: &bigtablepb.ValueRange_StartValueOpen{StartValueOpen: []byte("w")},
			EndValue:   &bigtablepb.ValueRange_EndValueClosed{EndValueClosed: []byte("z")}}), "A:B@2=x B:B@4=z"},
		"value range closed": {values(&bigtablepb.ValueRange{
			StartValue: &bigtablepb.ValueRange_StartValueClosed{StartValueClosed: []byte("w")},
			EndValue:   &bigtablepb.ValueRange_EndValueOpen{EndValueOpen: []byte("z")}}), "A:A@1=w A:B@2=x"},
		"interleave keeps duplicates": {interleaveOf(qualifierRegex("A"), all(), none()), "A:A@1=w A:A@1=w A:B@2=x A:B@1=old B:@9= B:B@4=z"},
		"duplicates count":            {chainOf(interleaveOf(all(), all()), rowLimitOf(3)), "A:A@1=w A:A@1=w A:B@2=x"},
		"duplicates count by column":  {chainOf(interleaveOf(all(), all()), columnLimitOf(1), familyRegex("A")), "A:A@1=w A:B@2=x"},
		"condition true":              {conditionOf(qualifierRegex("A"), familyRegex("B"), none()), "B:@9= B:B@4=z"},
		"condition false":             {conditionOf(valueRegex("no"), familyRegex("B"), familyRegex("A")), "A:A@1=w A:B@2=x A:B@1=old"},
		"condition without true":      {conditionOf(all(), nil, all()), ""},
		"condition without false":     {conditionOf(none(), all(), nil), ""},
		// The example of RowFilter.sink, with an old version of A:B besides.
		"sink": {chainOf(familyRegex("A"), interleaveOf(all(), chainOf(labelOf("foo"), sinkOf())), qualifierRegex("B")),
			"A:A@1=w#foo A:B@2=x A:B@2=x#foo A:B@1=old A:B@1=old#foo"},
		"missing family":           {familyRegex("nope"), "missing"},
		"quoted missing family":    {familyRegex(`no\-pe`), "missing"},
		"regex that matches none":  {familyRegex("nope.*"), ""},
		"missing in a column":      {columns(&bigtablepb.ColumnRange{FamilyName: "nope"}), "missing"},
		"missing in a branch":      {conditionOf(all(), all(), familyRegex("nope")), "missing"},
		"any byte":                 {valueRegex(`\C*`), "A:A@1=w A:B@2=x A:B@1=old B:@9= B:B@4=z"},
		"quoted literal":           {valueRegex(`\x`), "invalid"},
		"quoted punctuation":       {keyRegex(`k\-`), ""},
		"chain stops at nothing":   {chainOf(none(), sample(0.5)), ""},
		"sample kept":              {chainOf(sample(0.9), qualifierRegex("A")), "A:A@1=w"},
		"sample dropped":           {chainOf(sample(0.1), qualifierRegex("A")), ""},
		"chain of one":             {chainOf(all()), "invalid"},
		"interleave of one":        {interleaveOf(all()), "invalid"},
		"pass false":               {&bigtablepb.RowFilter{Filter: &bigtablepb.RowFilter_PassAllFilter{}}, "invalid"},
		"block false":              {&bigtablepb.RowFilter{Filter: &bigtablepb.RowFilter_BlockAllFilter{}}, "invalid"},
		"strip false":              {&bigtablepb.RowFilter{Filter: &bigtablepb.RowFilter_StripValueTransformer{}}, "invalid"},
		"sink false":               {&bigtablepb.RowFilter{Filter: &bigtablepb.RowFilter_Sink{}}, "invalid"},
		"sink in a condition":      {conditionOf(all(), sinkOf(), all()), "invalid"},
		"sink in a predicate":      {conditionOf(chainOf(all(), sinkOf()), all(), all()), "invalid"},
		"condition of nothing":     {conditionOf(nil, all(), all()), "invalid"},
		"no key":                   {keyRegex(""), "invalid"},
		"bad regex":                {valueRegex("("), "invalid"},
		"bad family regex":         {familyRegex("["), "invalid"},
		"bad key regex":            {keyRegex("a{2,1}"), "invalid"},
		"bad qualifier regex":      {qualifierRegex("*"), "invalid"},
		"colon in a family":        {familyRegex("A:"), "invalid"},
		"sample 0":                 {sample(0), "invalid"},
		"sample 1":                 {sample(1), "invalid"},
		"limit 0":                  {rowLimitOf(0), "invalid"},
		"offset -1":                {rowOffsetOf(-1), "invalid"},
		"column limit -1":          {columnLimitOf(-1), "invalid"},
		"label with capitals":      {labelOf("L"), "invalid"},
		"label too long":           {labelOf("a234567890123456"), "invalid"},
		"two labels in a chain":    {chainOf(labelOf("a"), labelOf("b")), "invalid"},
		"two labels, nested":       {chainOf(labelOf("a"), interleaveOf(all(), labelOf("b"))), "invalid"},
		"labels in an interleave":  {chainOf(interleaveOf(labelOf("a"), labelOf("b")), qualifierRegex("A")), "A:A@1=w#a A:A@1=w#b"},
		"error within interleave":  {interleaveOf(all(), chainOf(all())), "invalid"},
		"error within a condition": {conditionOf(all(), chainOf(all()), nil), "invalid"},
	} {
		f, err := Compile(test.filter, schema, func() float64 { return 0.5 })
		got := ""
		switch {
		case errors.Is(err, ErrMissingFamily):
			got = "missing"
		case err != nil:
			got = "invalid"
		default:
			got = show(f.Run(sampled, nil))
		}
		if got != test.want {
			t.Errorf("%s:\ngot  %s\nwant %s", name, got, test.want)
		}
	}
}

func TestRegularExpressionsMatchBytes(t *testing.T) {
	for _, test := range []struct {
		pattern, value string
		want           bool
	}{
		{"\xff.", "\xff\x80", true},
		{".", "\xe9", true},
		{".", "é", false}, // two bytes
		{"é", "é", true},
		{"[\x80-\xff]*", "é", true},
		{"[^\x80-\xff]*", "é", false},
		{"é+", "é\xa9", true}, // the operator binds to the last byte
		{".", "\n", false},
		{`\C`, "\n", true},
		{`a\Cb`, "a\xffb", true},
		{`\Qa.b\E.*`, "a.bxyz", true},
		{`\Qa.b\E`, "axb", false},
		{`\xff`, "\xff", true},
		{`\` + "\xff", "\xff", true},
		{`(?i)ABC`, "abc", true},
		{`a|b`, "b", true},
		{`\.`, ".", true},
		{`\.`, "x", false},
		{`x\`, "x", false},
		{"\x00", "\x00", true},
	} {
		m, err := compileRegex("f", []byte(test.pattern))
		got := err == nil && m.match([]byte(test.value))
		if got != test.want {
			t.Errorf("%q on %q: %v (%v)", test.pattern, test.value, got, err)
		}
		if err == nil && m.matchString(test.value) != got {
			t.Errorf("%q on %q: match and matchString differ", test.pattern, test.value)
		}
	}
}

// A literal pattern takes a short cut: it must agree with the general way.
func TestLiteralPatternsMatchAsTheirRegexDoes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		value := rapid.SliceOfN(rapid.Byte(), 0, 6).Draw(t, "value")
		var quoted []byte
		for _, b := range value {
			if b < 0x80 && !isWord(b) {
				quoted = append(quoted, '\\')
			}
			quoted = append(quoted, b)
		}
		m, err := compileRegex("f", quoted)
		if err != nil || !m.exact || !m.match(value) {
			t.Fatalf("%q: %v", quoted, err)
		}
		general, err := compileRegex("f", append([]byte("(?:"), append(quoted, ')')...))
		if err != nil {
			t.Fatal(err)
		}
		other := rapid.SliceOfN(rapid.Byte(), 0, 6).Draw(t, "other")
		for _, v := range [][]byte{value, other} {
			if m.match(v) != general.match(v) {
				t.Fatalf("%q on %q: %v", quoted, v, m.match(v))
			}
		}
	})
}

func FuzzRegexNeverPanics(f *testing.F) {
	f.Add([]byte(`\C\Q`), []byte("\xff"))
	f.Fuzz(func(t *testing.T, pattern, value []byte) {
		if m, err := compileRegex("f", pattern); err == nil {
			m.match(value)
		}
	})
}

func TestAFilterDoesNotChangeTheRow(t *testing.T) {
	before := show((*Filter)(nil).Run(sampled, nil))
	f, err := Compile(chainOf(interleaveOf(strip(), labelOf("x")), rowOffsetOf(1), columnLimitOf(1)), schema, nil)
	if err != nil {
		t.Fatal(err)
	}
	buf := make([]Out, 0, 100)
	for range 3 {
		buf = f.Run(sampled, buf[:0])
	}
	if after := show((*Filter)(nil).Run(sampled, nil)); after != before {
		t.Error(after)
	}
	if f.Matches(nil) || !f.Matches(sampled) {
		t.Error("Matches")
	}
}

// A pattern is refused where RE2 refuses it, whatever it would mean inside the
// parentheses of a full match.
func TestAPatternThatClosesWhatItDidNotOpenIsRefused(t *testing.T) {
	for _, pattern := range []string{"a)|(b", ")(", "a)(?:b", "a)"} {
		if _, err := compileRegex("value_regex_filter", []byte(pattern)); err == nil {
			t.Errorf("%q was taken", pattern)
		}
	}
}
